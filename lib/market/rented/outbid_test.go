package rented

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
)

// Whoever is outbid is started again, counted, on another machine, and never on two; what
// was printed before is kept.
func TestOutbid(t *testing.T) {
	s := newStand(t, 9)
	s.Spot, s.Retries = true, 2
	i := s.begin(1)
	if i.bid != 0.1112 {
		t.Errorf("bid %v", i.bid)
	}
	i.prints("first\n")
	s.turn()
	for loss := 1; loss <= 3; loss++ {
		i.fields["actual_status"], i.fields["intended_status"] = "exited", "stopped"
		s.market.stuck[i.id] = true
		for range 6 { // it is still there, so nothing is ordered
			s.turn()
		}
		if len(s.market.instances) != 1 {
			t.Fatalf("loss %d: %d instances", loss, len(s.market.instances))
		}
		if loss == 3 {
			break
		}
		delete(s.market.stuck, i.id)
		for range 6 {
			s.turn()
		}
		if len(s.market.instances) != 1 || s.market.instances[0] == i {
			t.Fatalf("loss %d: %+v", loss, s.market.instances)
		}
		i = s.market.instances[0]
		i.prints(fmt.Sprintf("again %d\n", loss))
		if j := s.turn()[s.job(1)]; j.Shows() != task.Running || j.Restarts != loss {
			t.Errorf("loss %d: %+v", loss, j)
		}
	}
	j := s.turn()[s.job(1)]
	if j.Shows() != task.Error || !strings.Contains(j.Reason, "it was outbid; the task was started again 2 of 2 times that retries_on_loss allows") {
		t.Errorf("%+v", j)
	}
	if s.market.most != 1 || len(s.events("lost")) != 2 {
		t.Errorf("%d at once, %+v", s.market.most, s.events("lost"))
	}
	if out := s.output(1); !strings.Contains(out, "first\n[the instance was stopped: it was outbid; the task is started again (1 of 2)]\nagain 1\n") || strings.Contains(out, "missing") {
		t.Errorf("%s", out)
	}
}

// The log of a machine that was taken away may not be there any more.
func TestOutbidWithoutALog(t *testing.T) {
	s := newStand(t, 3)
	s.Spot, s.Retries = true, 1
	i := s.begin(1)
	i.prints("first\n")
	s.turn()
	i.fields["actual_status"], i.fields["intended_status"], i.logErr = "exited", "stopped", vastai.ErrNotReady
	for range 8 {
		s.turn()
	}
	if j := s.turn()[s.job(1)]; j.Sight.Over() || len(s.events("lost")) != 1 || len(s.market.instances) != 1 || s.market.instances[0] == i || s.market.most != 1 {
		t.Errorf("%+v, %+v", j, s.events("lost"))
	}
	if out := s.output(1); !strings.Contains(out, "first\n[the end of the log could not be read: ") {
		t.Errorf("%s", out)
	}
}

// A task that was through when its machine was taken away is not started again.
func TestOutbidAfterTheEnd(t *testing.T) {
	s := newStand(t, 3)
	s.Bid, s.Retries = 0.2, 5
	ended(s.begin(1), 0)
	for range 4 {
		if j := s.turn()[s.job(1)]; j.Shows() != task.Completed {
			t.Errorf("%+v", j)
		}
	}
	if len(s.events("created")) != 1 {
		t.Error(s.events("created"))
	}
}

// The cheaper kind of machine is taken; a bid below those of others finds none.
func TestRankOverBothKinds(t *testing.T) {
	for _, c := range []struct {
		bid  float64
		spot bool
		base float64
		want float64 // bid
	}{{0.2, false, 0.3, 0.2}, {0.2, false, 0.15, 0}, {0, true, 0.3, 0.1112}, {0.05, false, 0.3, 0}, {0, false, 0.3, 0}} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			s := newStand(t, 0)
			s.Bid, s.Spot = c.bid, c.spot
			s.offer(1, map[string]any{"dph_base": c.base})
			if i := s.begin(1); i.bid != c.want {
				t.Errorf("%+v: bid %v", c, i.bid)
			}
		})
	}
}

// A host that is offline for long has lost the task.
func TestHostLost(t *testing.T) {
	for retries, want := range []task.State{task.Error, task.Pending} {
		t.Run(fmt.Sprint(retries), func(t *testing.T) {
			s := newStand(t, 2)
			s.Retries = retries
			i := s.begin(1)
			s.turn()
			i.fields["actual_status"] = "offline"
			for range 7 {
				s.turn()
			}
			j := s.turn()[s.job(1)]
			if want == task.Pending {
				s.turn()
				j = s.turn()[s.job(1)]
				want = task.Running
			}
			if j.Shows() != want || s.market.most != 1 {
				t.Errorf("retries %d: %+v, %d at once", retries, j, s.market.most)
			}
		})
	}
}
