package scheduler

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A task whose node cannot be reached any more runs elsewhere only when the lease of
// its worker is over, by when that has ended it.
func TestLostTaskWaitsForTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1, 1)
		l.nodes[0].stubborn = true
		go func() {
			time.Sleep(50 * time.Second)
			l.nodes[0].mu.Lock()
			l.nodes[0].down = true
			l.nodes[0].mu.Unlock()
			l.nodes[0].partition()
		}()
		began := time.Now()
		r := l.run("sleep 1000\nsleep 1000\n")
		l.want(r, 2, 0, 0, 0)
		if r.Lost != 1 {
			t.Errorf("%d lost; want 1", r.Lost)
		}
		// 50 s, and a lease of 132 s that was given up to 15 s before.
		if d := time.Since(began); d < 2000*time.Second || d > 2010*time.Second {
			t.Errorf("took %v; want 2000s: the other node had its own task until then", d)
		}
		l.says("node n1: 1 task may still run there: to be started again when that has ended, in ")
	})
}

// It need not wait when the node can be reached again, and its new worker sees that
// the old one has ended; the CPUs are not given to others before that.
func TestNewWorkerKnowsOfTheOld(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, 1)
			l.nodes[0].stubborn = stubborn
			go func() {
				time.Sleep(50 * time.Second)
				l.nodes[0].lose()
			}()
			began := time.Now()
			l.want(l.run("sleep 100\nsleep 1\n"), 2, 0, 0, 0)
			want := 152 * time.Second
			if stubborn {
				want += 9 * time.Second // of 10 between SIGTERM and SIGKILL
			}
			if d := time.Since(began); d < want || d > want+2*time.Second {
				t.Errorf("took %v; want %v", d, want)
			}
		})
	}
}

// A scheduler that follows one that was killed waits for what its workers still run.
func TestNextSchedulerWaitsForTheTasksOfTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2, 2)
		signals := make(chan os.Signal, 3)
		l.cfg.Signals = signals
		l.nodes[0].stubborn = true
		go func() {
			time.Sleep(50 * time.Second)
			l.nodes[0].mu.Lock()
			l.nodes[0].down = true
			l.nodes[0].mu.Unlock()
			l.nodes[0].partition()
			time.Sleep(time.Second)
			for range 3 { // as good as killed: nothing more is learnt of n1
				signals <- syscall.SIGINT
			}
		}()
		lines := strings.Repeat("sleep 100\n", 4)
		l.want(l.run(lines), 0, 0, 4, 130)
		l.cfg.Setup.Session = "t"
		l.cfg.Signals = nil // the last signal may have come too late for the first
		began := time.Now()
		l.want(l.run(lines), 4, 0, 0, 0)
		// What ran on n2 starts at once, the rest when the lease of n1 is over.
		if d := time.Since(began); d < 200*time.Second || d > 260*time.Second {
			t.Errorf("took %v; want 200s or a little more", d)
		}
		for seq, n := range l.ends() {
			if n != 1 {
				t.Errorf("task %d ended %d times", seq, n)
			}
		}
	})
}
