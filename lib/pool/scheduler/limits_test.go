package scheduler

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 4)
		l.cfg.Delay = 3 * time.Second
		began := time.Now()
		l.want(l.run(tasks(5, "sleep 1")), 5, 0, 0, 0)
		if d := time.Since(began); d < 13*time.Second || d > 14*time.Second {
			t.Errorf("5 tasks of 1 s, 3 s apart, took %v; want 13 s", d)
		}
	})
}

func TestHaltWhenEnded(t *testing.T) {
	for _, tt := range []struct {
		tasks              string
		halt               Halt
		done, failed, left int64
		exit               int
	}{
		{tasks(9, "sleep 1"), Halt{Done: 3}, 3, 0, 6, 0},
		{tasks(1, "sleep 1 3") + tasks(8, "sleep 1"), Halt{Done: 3}, 2, 1, 6, 1},
		{tasks(10, "sleep 1"), Halt{DonePercent: 50}, 5, 0, 5, 0},
		{tasks(10, "sleep 1"), Halt{SuccessPercent: 40}, 4, 0, 6, 0},
		{tasks(4, "sleep 1 1") + tasks(6, "sleep 1"), Halt{Percent: 40}, 0, 4, 6, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, 1)
			l.cfg.Halt = tt.halt
			l.want(l.run(tt.tasks), tt.done, tt.failed, tt.left, tt.exit)
		})
	}
}

func TestTimeoutInPercentOfTheMedian(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2)
		l.cfg.TimeoutPercent = 300
		began := time.Now()
		l.want(l.run("sleep 1000\n"+tasks(5, "sleep 10")), 5, 1, 0, 1)
		if d := time.Since(began); d > 60*time.Second {
			t.Errorf("took %v; want the task of 1000 s to be ended after some 30 s", d)
		}
		l.says("took too long")
	})
}

func TestJobsOfTheCPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 4)
		for i := range l.cfg.Nodes {
			l.cfg.Nodes[i].Jobs = func(cpus int) int { return cpus / 2 }
		}
		began := time.Now()
		l.want(l.run(strings.Repeat("sleep 10\n", 4)), 4, 0, 0, 0)
		if d := time.Since(began); d < 20*time.Second || d > 21*time.Second {
			t.Errorf("4 tasks of 10 s on half of 4 CPUs took %v; want 20 s", d)
		}
	})
}
