package rented

import (
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
)

// At a balance of 0 the market stops everything: the account is asked once a turn, no machine is to
// blame, and tasks wait for credit and start again by their rule.
func TestNoCredit(t *testing.T) {
	s := newStand(t, 20)
	s.Retries = 1
	var all []*rented
	for n := range 4 {
		all = append(all, s.begin(n))
	}
	all[3].fields["actual_status"] = "loading"
	s.turn()
	for n, i := range all {
		i.fields["intended_status"] = "stopped"
		if n < 3 {
			i.fields["actual_status"] = "exited"
		}
	}
	s.market.credit = -0.02
	s.market.count()
	for range 8 {
		s.turn()
		if c := s.market.count(); c["account"] > 1 || c["order"] > 0 {
			t.Errorf("%v", c)
		}
	}
	for n := range 4 {
		if j := s.turn()[s.job(n)]; j.Shows() != task.Pending || !strings.Contains(j.Reason, "no credit: ") {
			t.Errorf("%d: %+v", n, j)
		}
	}
	if avoided, err := s.Avoided(); err != nil || len(avoided) > 0 || len(s.events("lost")) != 3 {
		t.Errorf("%v %v %+v", avoided, err, s.events("lost"))
	}
	if n := strings.Count(s.said.String(), "no credit: the market has stopped all instances"); n < 1 || strings.Count(s.said.String(), "nothing is ordered until there is more") != 1 {
		t.Errorf("told %d times\n%s", n, s.said)
	}
	s.market.credit = 20
	for range 8 {
		s.turn()
	}
	for n := range 4 {
		if j := s.turn()[s.job(n)]; j.Shows() != task.Running {
			t.Errorf("%d: %+v", n, j)
		}
	}
}

// Without a rule, such a task is not started again, and its end names the credit.
func TestNoCreditNoRule(t *testing.T) {
	s := newStand(t, 3)
	i := s.begin(1)
	s.turn()
	i.fields["actual_status"], i.fields["intended_status"] = "exited", "stopped"
	s.market.credit = 0
	for range 4 {
		s.turn()
	}
	if j := s.turn()[s.job(1)]; j.Shows() != task.Error || !strings.Contains(j.Reason, "no credit: the market has stopped all instances, as the account has $0.00") {
		t.Errorf("%+v", j)
	}
}

// What the market says of the credit decides: without an answer nothing follows.
func TestNoCreditUnknown(t *testing.T) {
	s := newStand(t, 3)
	s.Retries = 1
	i := s.begin(1)
	s.turn()
	i.fields["actual_status"], i.fields["intended_status"] = "exited", "stopped"
	s.market.account = vastai.ErrUnknown
	for range 6 {
		if j := s.turn()[s.job(1)]; j.Sight.Over() {
			t.Fatalf("%+v", j)
		}
	}
}

func TestBlame(t *testing.T) {
	type run struct {
		machine int64
		task    task.ID
		failed  bool
		blame   bool
	}
	for name, runs := range map[string][]run{
		"alone":                 {{1, "a", true, false}, {1, "b", true, true}},
		"one task":              {{1, "a", true, false}, {1, "a", true, false}},
		"one did well":          {{1, "a", true, false}, {1, "b", false, false}, {1, "c", true, false}, {1, "d", true, true}},
		"everywhere":            {{1, "a", true, false}, {2, "b", true, false}, {1, "c", true, false}, {2, "d", true, false}},
		"two, and a good one":   {{1, "a", true, false}, {2, "b", true, false}, {3, "c", false, false}, {1, "d", true, true}, {2, "e", true, true}},
		"well before, not then": {{3, "c", false, false}, {1, "a", true, false}, {2, "b", true, false}, {1, "d", true, false}},
	} {
		m, now := market{Quick: map[int64]quick{}}, time.Unix(1e9, 0)
		for k, r := range runs {
			now = now.Add(time.Second)
			if got := m.ran(r.machine, r.task, r.failed, now); got != r.blame {
				t.Errorf("%s, run %d: %v", name, k, got)
			}
		}
	}
}

// A machine on which different tasks fail at once is avoided: that is in the log and explained.
func TestBrokenMachine(t *testing.T) {
	s := newStand(t, 0)
	for id := range int64(6) {
		s.offer(id+1, map[string]any{"machine_id": int64(5100), "dph_base": 0.1})
	}
	s.offer(9, nil)
	for n := range 2 {
		ended(s.begin(n), 1)
		for range 4 {
			s.turn()
		}
	}
	if i := s.begin(3); i.offer != 9 {
		t.Errorf("offer %d", i.offer)
	}
	if n := strings.Count(s.said.String(), "a machine is avoided: 2 different tasks have failed on it within seconds"); n != 1 {
		t.Errorf("told %d times\n%s", n, s.said)
	}
	e, err := s.Explain(t.Context(), Wish{})
	if err != nil || len(e.Filters) == 0 {
		t.Fatal(e, err)
	}
	last := e.Filters[len(e.Filters)-1]
	if !strings.HasPrefix(last.Filter, "machine 5100 is avoided until ") || !strings.HasSuffix(last.Filter, ": 2 different tasks have failed on it within seconds") || last.Removes != 4 {
		t.Errorf("%+v", e)
	}
}
