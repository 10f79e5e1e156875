package rented

import (
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/market/vastai"
)

// waits wants what Start, and so the REASON of a task, says to be what Waits or Explain say.
func (s *stand) waits(n int, want string) {
	s.Helper()
	s.later(n, want)
	told, err := s.Waits(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	e, err := s.Explain(s.Context(), Wish{})
	if err != nil {
		s.Fatal(err)
	}
	if e.Left == 0 {
		told = append(told, e.Why())
	}
	if !strings.Contains(strings.Join(told, "\n"), want) {
		s.Errorf("%q, want %q", told, want)
	}
}

// Why a task waits is said with the filter that removes most, and once in an hour the market is asked for that.
func TestWhichFilterRemovesMost(t *testing.T) {
	s := newStand(t, 3)
	s.Filters = vastai.Filters{{Field: "gpu_ram", Op: "gte", Value: 40000.0, Text: "gpu_ram>=40"}}
	s.offer(9, map[string]any{"gpu_ram": 48000.0, "verification": "unverified"})
	s.waits(1, `no suitable offer: of 4 offers, "gpu_ram>=40" removes most: 3`)
	s.market.count()
	for n := range 20 {
		s.later(n, `of 4 offers, "gpu_ram>=40" removes most: 3`)
	}
	if c := s.market.count(); c["search"] > 0 || c["all"] > 1 {
		t.Errorf("%v", c)
	}
	s.Filters = nil
	s.Limits.CostPerTask = 0.1
	s.waits(1, `no suitable offer: of 4 offers, "max_cost_per_task 0.1" removes most: 4`)
	s.Limits.CostPerTask = 0
	s.offer(10, map[string]any{"duration": 60.0})
	s.Filters = vastai.Filters{{Field: "machine_id", Op: "eq", Value: 10.0, Text: "machine_id=10"}}
	s.waits(1, `no suitable offer: of 5 offers, "machine_id=10" removes most: 4`)
	s.market.offers = nil
	s.clock.pass(2 * time.Hour)
	s.waits(1, "no suitable offer: the market has none")
}

// So is a lack of credit, a limit, and an order that is held.
func TestWaitsInTheSameWords(t *testing.T) {
	s := newStand(t, 9)
	s.begin(2)
	s.Limits.Instances = 1
	s.waits(1, "there are 1 instances, as many as max_instances")
	s.Limits.Instances, s.Limits.CreatesPerHour = 9, 1
	s.waits(1, "1 instances were ordered within an hour, as many as max_creates_per_hour")
	s.Limits.CreatesPerHour = 0
	s.market.credit = 0
	s.clock.pass(time.Hour)
	s.waits(1, "no credit: the account has $0.00, and min_credit is $1.00")
	s.market.credit = 50
	s.clock.pass(time.Hour)
	s.market.create = func(int64) error { return vastai.ErrRejected }
	s.later(1, "the order is held for 5m0s: the market has rejected it with 5 offers in a row")
	s.waits(1, "the order is held for 5m0s: the market has rejected it with 5 offers in a row")
}
