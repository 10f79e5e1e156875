package scheduler

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLostNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2, 2)
		go func() {
			time.Sleep(15 * time.Second)
			l.nodes[0].lose()
		}()
		r := l.run(tasks(8, "sleep 10"))
		l.want(r, 8, 0, 0, 0)
		if r.Lost != 2 {
			t.Errorf("%d attempts lost; want 2\n%s", r.Lost, &l.said)
		}
		l.says("node n1: lost with 2 tasks")
	})
}

func TestTaskThatIsLostTooOftenIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1)
		l.cfg.Reconnects = 10
		stop := make(chan bool)
		go func() {
			for {
				select {
				case <-time.After(100 * time.Second):
					l.nodes[0].lose()
				case <-stop:
					return
				}
			}
		}()
		r := l.run(tasks(1, "sleep 1000"))
		close(stop)
		l.want(r, 0, 0, 1, 75)
		if r.Lost != 3 {
			t.Errorf("%d attempts lost and run again; want 3", r.Lost)
		}
		l.says("task 1: lost 4 times with its node: the connection ended")
	})
}

func TestUnreachableNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1, 1)
		l.nodes[0].down = true
		l.want(l.run(tasks(90, "sleep 1")), 90, 0, 0, 0)
		l.says("node n1: not used: no route to host")
		l = newLab(t, 1)
		l.nodes[0].down = true
		l.want(l.run(tasks(3, "sleep 1")), 0, 0, 3, 3)
		l = newLab(t, 1, 1)
		l.nodes[0].down = true
		l.cfg.MinNodes = 2
		l.want(l.run(tasks(300, "sleep 1")), 0, 0, 300, 3)
	})
}

func TestBlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2, 2)
		go func() {
			time.Sleep(10500 * time.Millisecond)
			l.nodes[0].mu.Lock()
			l.nodes[0].broken = true
			l.nodes[0].mu.Unlock()
		}()
		l.want(l.run(tasks(100, "sleep 1")), 100, 0, 0, 0)
		l.says("node n1: quarantined: ")
	})
}

// A node that fails from the beginning gets a few tasks and no more, whether its tasks
// fail at once or slowly, and none of them is charged.
func TestNodeThatAlwaysFails(t *testing.T) {
	for _, after := range []time.Duration{0, 2 * time.Second, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, 2, 2)
			l.nodes[1].fails = func() (time.Duration, bool) { return after, true }
			l.want(l.run(tasks(200, "sleep 3")), 200, 0, 0, 0)
			l.says("node n2: quarantined: ")
			if n := len(l.nodes[1].ran); n > 20 {
				t.Errorf("failing after %v, it was given %d tasks", after, n)
			}
		})
	}
}

func TestNodeThatFailsNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2, 2)
		n := 0
		l.nodes[1].fails = func() (time.Duration, bool) { n++; return time.Second, n%2 == 0 }
		r := l.run(tasks(400, "sleep 1"))
		if r.Failed > 10 || r.Done+r.Failed != 400 {
			t.Errorf("%d failed, %d succeeded; want few failures", r.Failed, r.Done)
		}
		l.says("node n2: quarantined: ")
	})
}

// Tasks that fail anywhere do not cost a good node its trust, nor are they run much
// more often than once.
func TestGoodNodesKeepTheirTrust(t *testing.T) {
	good, bad := "sleep 3\n", "sleep 0.5 1\n"
	for _, in := range []string{
		strings.Repeat(bad, 10) + strings.Repeat(good, 50),
		strings.Repeat(good, 20) + strings.Repeat(bad, 20) + strings.Repeat(good, 20),
		strings.Repeat(bad+good, 30),
		strings.Repeat(bad, 60),
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t, 2, 2)
			r := l.run(in)
			failures := int64(strings.Count(in, bad))
			l.want(r, 60-failures, failures, 0, min(1, int(failures)))
			if strings.Contains(l.said.String(), "quarantined") {
				t.Errorf("a good node is quarantined:\n%s", &l.said)
			}
			if r.Attempts > 80 {
				t.Errorf("%d attempts at 60 tasks", r.Attempts)
			}
		})
	}
}

// One that fails in another way at each try is the task's fault, too.
func TestFlakyTasksDoNotQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 2, 2)
		for i, n := range l.nodes {
			r := rand.New(rand.NewPCG(uint64(i), 5))
			n.fails = func() (time.Duration, bool) { return time.Second, r.IntN(2) == 0 }
		}
		r := l.run(tasks(300, "sleep 1"))
		if r.Done+r.Failed != 300 || strings.Contains(l.said.String(), "quarantined") {
			t.Errorf("%+v\n%s", r.Summary, &l.said)
		}
	})
}

func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, 1, 1)
		l.cfg.Probe = "sleep 1"
		l.nodes[0].fails = func() (time.Duration, bool) { return 0, true }
		l.want(l.run(tasks(3, "sleep 10")), 3, 0, 0, 0)
		l.says("node n1: quarantined: its probe failed with exit status 1")
		if n := len(l.nodes[0].ran); n != 1 {
			t.Errorf("it ran %d commands; want the probe alone", n)
		}
		l = newLab(t, 1)
		l.cfg.Probe = "sleep 1 3"
		l.want(l.run(tasks(3, "sleep 10")), 0, 0, 3, 3)
	})
}
