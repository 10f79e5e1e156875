package scheduler

import (
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
			t.Errorf("%d attempts lost; want 2", r.Lost)
		}
		l.says("node n1: lost with 2 tasks")
	})
}

func TestTaskThatKillsNodesIsGivenUp(t *testing.T) {
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
		l.want(r, 0, 1, 0, 1)
		if r.Lost != 4 {
			t.Errorf("%d attempts lost; want 4", r.Lost)
		}
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
		l.says("node n1: gets nothing more: 5 tasks in a row could not be started")
	})
}
