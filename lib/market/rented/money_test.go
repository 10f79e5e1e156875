package rented

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

func TestPurse(t *testing.T) {
	now := time.Date(2026, 3, 1, 6, 0, 0, 0, time.UTC)
	ago := func(h float64) time.Time { return now.Add(-time.Duration(h * float64(time.Hour))) }
	of := func(p life.Phase, t life.Try) order {
		if t.Price == 0 {
			t.Price = 0.5
		}
		return order{State: life.State{Phase: p, Since: t.Born, Tries: []life.Try{t}}}
	}
	from := func(h float64) life.Try { return life.Try{ID: 7, Born: ago(h)} }
	billed, lost, left := from(2), from(9), from(2)
	billed.Bill = &life.Bill{Amount: 0.75, Until: ago(1)}
	lost.Fate, lost.Gone = life.WasLost, ago(2)
	left.Fate = life.Faulty
	model := from(2)
	model.Traffic = 0.25
	ended := func(since, to float64) order {
		o := of(life.Over, from(since))
		o.End = &end{At: ago(to)}
		return o
	}
	for name, c := range map[string]struct {
		o    order
		want purse
	}{
		"runs":               {of(life.Runs, model), purse{1.25, 4, 0.5}},
		"since yesterday":    {of(life.Runs, from(8)), purse{3, 1, 0.5}},
		"longer than known":  {of(life.Runs, from(20)), purse{3, 0, 0.5}},
		"billed":             {of(life.Runs, billed), purse{1.25, 3.75 + 0.25, 0.5}},
		"was lost before":    {of(life.Waits, lost), purse{2, 0, 0}},
		"maybe ordered":      {of(life.Asked, life.Try{Born: ago(0.1)}), purse{0, 5, 0.5}},
		"ended today":        {ended(2, 1), purse{0.5, 0, 0}},
		"ended yesterday":    {ended(9, 7), purse{}},
		"given up":           {of(life.Waits, left), purse{1, 0, 0.5}},
		"waits for the bill": {of(life.Unbilled, from(2)), purse{}},
	} {
		var p purse
		p.add(&c.o, vastai.Estimate{Hours: 10}, now)
		if p != c.want {
			t.Errorf("%s: %+v, want %+v", name, p, c.want)
		}
	}
}

func TestCarries(t *testing.T) {
	p := purse{Today: 4, Ahead: 3, Rate: 0.6}
	for _, c := range []struct {
		limits Limits
		credit float64
		want   string
	}{
		{Limits{}, 5, ""},
		{Limits{CostPerDay: 9}, 5, ""},
		{Limits{CostPerDay: 8}, 5, "max_cost_per_day: $4.00 were spent today, what runs is expected to cost $3.00 more, and this task $1.50"},
		{Limits{MinCredit: 0.5}, 5, ""},
		{Limits{MinCredit: 1}, 5, "no credit: the credit of $5.00 lasts 5 h 33 min at $0.90 an hour, but what runs is expected to cost $3.00 more, this task $1.50, and min_credit is $1.00"},
		{Limits{MinCredit: 6}, 5, "no credit: the account has $5.00, and min_credit is $6.00"},
		{Limits{}, 0, "no credit: the account has $0.00, and min_credit is $0.00"},
	} {
		if got := p.carries(c.limits, c.credit, 0.3, 1.5); got != c.want {
			t.Errorf("%+v: %q, want %q", c.limits, got, c.want)
		}
	}
}

// later wants a task to wait for a reason.
func (s *stand) later(n int, why string) {
	s.Helper()
	if _, err := s.Start(s.Context(), s.submission(n)); !errors.Is(err, runner.ErrLater) || !strings.Contains(err.Error(), why) {
		s.Errorf("%v, want %q", err, why)
	}
}

// An instance that was given up, and that the market does not destroy, counts: for max_instances, and by what it costs. A
// task that has cost too much gets no other one.
func TestGivenUpCounts(t *testing.T) {
	s, i := slow(t, 0)
	s.Limits.Instances, s.Limits.CostPerTask = 1, 0.8
	s.later(2, "as many as max_instances")
	s.Limits.Instances, s.Limits.CostPerDay = 0, 0.45
	s.later(2, "max_cost_per_day: $0.1")
	s.clock.pass(90 * time.Minute)
	s.later(2, "max_cost_per_day: $0.6")
	delete(s.market.stuck, i.id)
	for range 3 {
		s.turn()
	}
	j := s.turn()[s.job(1)]
	if len(s.market.instances) != 0 || j.Shows() != task.Error || !strings.Contains(j.Reason, "max_cost_per_task: the task has cost $0.6") || j.Cost < 0.6 {
		t.Errorf("%+v, %+v\n%s", s.market.instances, j, s.said)
	}
}

// Nothing is ordered that the credit does not carry to its expected end.
func TestCreditCarries(t *testing.T) {
	s := newStand(t, 9)
	s.market.credit, s.Estimate.Hours = 1.10, 24
	s.later(1, "no credit: the credit of $1.10 lasts 3 h 39 min at $0.30 an hour")
	s.clock.pass(10 * time.Minute)
	s.market.credit, s.Limits.MinCredit, s.Estimate.Hours = 1.10, 0.1, 1
	for n := range 3 {
		s.begin(n)
	}
	s.later(4, "no credit: the credit of $1.10 lasts 0 h 54 min at $1.21 an hour, but what runs is expected to cost $0.9")
	if c := s.market.count(); c["order"] != 3 {
		t.Errorf("%v", c)
	}
	s.turn()
	if strings.Contains(s.said.String(), "is expected to cost") {
		t.Error(s.said)
	}
	s.market.credit = 0.5
	s.clock.pass(accountAge)
	for range 3 {
		s.turn()
	}
	if n := strings.Count(s.said.String(), "the credit of $0.50 lasts 0 h 33 min at $0.91 an hour, less than the $0."); n != 1 {
		t.Errorf("told %d times\n%s", n, s.said)
	}
}

// A limit for a day holds before each order and for what runs, and ends with the day.
func TestMaxCostPerDay(t *testing.T) {
	s := newStand(t, 9)
	s.Limits.CostPerDay, s.Limits.CostPerTask = 1, 0
	for n := range 3 {
		s.begin(n)
	}
	s.later(4, "max_cost_per_day: $0.00 were spent today, what runs is expected to cost $0.9")
	s.clock.pass(30 * time.Minute)
	ended(s.market.instances[0], 0)
	s.turn()
	if j := s.turn()[s.job(1)]; j.Shows() != task.Running {
		t.Errorf("%+v", j)
	}
	s.clock.pass(90 * time.Minute) // 3 x 0.15 + 2 x 0.45
	for n, state := range []task.State{"", task.Error, task.Error} {
		if j := s.turn()[s.job(n)]; n > 0 && (j.Shows() != state || !strings.Contains(j.Reason, "today, and reaches max_cost_per_day")) {
			t.Errorf("%d: %+v", n, j)
		}
	}
	s.turn()
	s.later(4, "max_cost_per_day: $1.")
	s.clock.pass(8 * time.Hour)
	s.begin(4)
}

// A price that is not that of the offer is told, and refused above a bound while the task does not run.
func TestPriceChanges(t *testing.T) {
	for _, c := range []struct {
		status string
		price  float64
		told   bool
		fault  bool
	}{
		{"loading", 0.31, false, false}, {"loading", 0.35, true, false}, {"loading", 0.5, true, true}, {"running", 1.5, true, false},
	} {
		t.Run("", func(t *testing.T) {
			s := newStand(t, 2)
			i := s.begin(1)
			if c.status == "running" {
				s.turn()
			}
			i.price, i.fields["actual_status"] = c.price, c.status
			for range 3 {
				s.turn()
			}
			said := "the price has changed from $0.3010 to " + dollars(c.price) + " an hour"
			if told := strings.Count(s.said.String(), said); (told == 1) != c.told {
				t.Errorf("%+v: told %d times\n%s", c, told, s.said)
			}
			if e := s.events("fault"); (len(e) == 1) != c.fault || c.fault && !strings.Contains(e[0].Reason, "and its offer $0.3010") {
				t.Errorf("%+v: %+v", c, e)
			}
		})
	}
}
