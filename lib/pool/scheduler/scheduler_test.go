package scheduler

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTasksRunInParallel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 4, 2)
		began := time.Now()
		l.want(l.run(tasks(60, "sleep 10")), 60, 0, 0, 0)
		if d := time.Since(began); d > 102*time.Second || d < 100*time.Second {
			t.Errorf("took %v; want 100s: 6 at a time", d)
		}
	})
}

func TestShortTasksFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 3, 1)
		l.want(l.run(tasks(4000, "sleep 0.01")), 4000, 0, 0, 0)
		for seq, n := range l.ends() {
			if n != 1 {
				t.Errorf("task %d ended %d times", seq, n)
			}
		}
	})
}

func TestFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1, 1)
		l.cfg.Retries = 2
		l.want(l.run("sleep 1 3\nsleep 1\n"), 1, 1, 0, 1)
		if n := len(l.nodes[0].ran) + len(l.nodes[1].ran); n != 4 {
			t.Errorf("%d attempts; want 3 and 1", n)
		}
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1)
		began := time.Now()
		l.want(l.run(`{"cmd":"sleep 1000","timeout":5}`+"\n"), 0, 1, 0, 1)
		if d := time.Since(began); d > 6*time.Second {
			t.Errorf("ended after %v", d)
		}
	})
}

func TestDependencies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 4)
		r := l.run(`{"id":"c","after":["a","b"],"cmd":"sleep 1"}
{"id":"a","cmd":"sleep 5"}
{"id":"b","after":2,"cmd":"sleep 5"}
{"id":"x","cmd":"sleep 1 1"}
{"after":"x","cmd":"sleep 1"}
{"after":"nobody","cmd":"sleep 1"}
{"id":"a","cmd":"sleep 1"}
`)
		l.want(r, 3, 4, 0, 1)
		if got := strings.Join(l.nodes[0].ran, ", "); got != "5, 1 1, 5, 1" {
			t.Errorf("ran %s", got)
		}
		l.says(`task 6: it depends on "nobody", which is not a task of this run`)
		l.says(`id "a" is that of another task`)
	})
}

func TestWhatFitsNoNodeIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2, 4)
		l.want(l.run(`{"cmd":"sleep 1","cpus":5}
{"cmd":"sleep 1","cpus":4}
{"cmd":"sleep 1","mem":"2G"}
`), 1, 2, 0, 1)
		l.says("task 1: no node of the pool has what the task needs: 5 CPUs")
		l.says("task 3: no node of the pool has what the task needs: 1 CPU, 2G")
	})
}

func TestEvenTail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Short tasks first, so that the nodes get tasks ahead; then long ones, which no
		// node may hoard.
		l := newLab(t, 2, 2)
		began := time.Now()
		l.want(l.run(tasks(40, "sleep 0.1")+tasks(4, "sleep 100")), 44, 0, 0, 0)
		if d := time.Since(began); d > 103*time.Second {
			t.Errorf("took %v; want 101s: all four at once", d)
		}
	})
}
