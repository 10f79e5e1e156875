package rented

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
)

// away is a stand whose instances disappear while the agent does not look.
func away(t *testing.T, tasks int) (*stand, []*rented) {
	t.Helper()
	s := newStand(t, tasks+2)
	s.Retries, s.BillInterval, s.Limits.Runtime = 1, time.Hour, 0
	s.Program = Program{URL: "https://example.org/vast-entry", Sums: "sum", Grace: 30 * time.Minute, Destroy: true}
	var all []*rented
	for n := range tasks {
		all = append(all, s.begin(n))
	}
	s.turn()
	s.turn()
	return s, all
}

func (s *stand) vanish() {
	s.market.mu.Lock()
	s.market.instances = nil
	s.market.mu.Unlock()
	s.market.count()
}

func (s *stand) charge(list ...vastai.Charge) {
	s.market.mu.Lock()
	s.market.charged = list
	s.market.mu.Unlock()
}

// What counts is the grace that the container was given, whatever the configuration says now.
func TestGraceOfTheOrder(t *testing.T) {
	for _, c := range []struct {
		name   string
		now    Program
		list   bool // the order was made by another release, which has not noted it
		orders int
	}{
		{"longer now", Program{URL: "https://example.org/vast-entry", Sums: "sum", Grace: 10 * time.Hour, Destroy: true}, false, 0},
		{"stops now", Program{URL: "https://example.org/vast-entry", Sums: "sum", Grace: 30 * time.Minute}, false, 0},
		{"stops now, known by the list", Program{URL: "https://example.org/vast-entry", Sums: "sum", Grace: 30 * time.Minute}, true, 0},
		{"as it was", Program{URL: "https://example.org/vast-entry", Sums: "sum", Grace: 30 * time.Minute, Destroy: true}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := away(t, 1)
			if c.list {
				name := string(s.job(0)) + ".1"
				o, err := s.read(ordersDir, name)
				if err != nil {
					t.Fatal(err)
				}
				o.Own().Grace = 0
				if err := s.save(o); err != nil {
					t.Fatal(err)
				}
			}
			s.Program = c.now
			s.turn()
			s.clock.pass(time.Hour)
			s.vanish()
			for range 10 {
				s.turn()
			}
			if n := s.market.count()["order"]; n != c.orders {
				t.Errorf("%d orders", n)
			}
		})
	}
	t.Run("stopped then", func(t *testing.T) { // such a container does not destroy anything
		s := newStand(t, 2)
		s.Retries, s.Program = 1, Program{URL: "https://example.org/vast-entry", Sums: "sum", Grace: 30 * time.Minute}
		s.begin(1)
		s.turn()
		s.Program.Destroy = true
		s.clock.pass(time.Hour)
		s.vanish()
		for range 10 {
			s.turn()
		}
		if n := s.market.count()["order"]; n != 1 {
			t.Errorf("%d orders", n)
		}
	})
}

// A list may be older than the look at it, and lags: an instance that was missed almost a grace
// after it was seen may have destroyed itself.
func TestAlmostAGrace(t *testing.T) {
	s, _ := away(t, 1)
	s.clock.pass(27*time.Minute + 30*time.Second)
	s.vanish()
	for range 10 {
		s.turn()
	}
	if n := s.market.count()["order"]; n != 0 {
		t.Errorf("%d orders", n)
	}
}

// A task that waits for the bill costs nothing, and takes no other task's place.
func TestWaitForTheBill(t *testing.T) {
	for _, c := range []string{"not billed", "billed in part", "stopped"} {
		t.Run(c, func(t *testing.T) {
			s, all := away(t, 1)
			s.Limits.Instances = 1
			if c == "billed in part" {
				s.charge(vastai.Charge{Instance: all[0].id, Label: all[0].label, Amount: 0.1, Until: s.clock.Now()})
			}
			s.clock.pass(time.Hour)
			s.vanish()
			for range 5 {
				s.turn()
			}
			if _, err := s.Start(t.Context(), s.submission(5)); err != nil {
				t.Error(err)
			}
			s.clock.pass(35 * time.Hour)
			want := task.Error
			if c == "stopped" {
				if err := s.Stop(t.Context(), s.refs[0]); err != nil {
					t.Error(err)
				}
				want = task.Stopped
			} else {
				s.clock.pass(2 * time.Hour)
			}
			if j := s.turn()[s.job(0)]; j.Shows() != want || j.Cost <= 0 || j.Cost > 0.7 {
				t.Errorf("%+v", j)
			}
		})
	}
}

// A row of the bill that ends before the instance can have destroyed itself, or that is from
// before it was missed, or ends in the future, does not say that there is no exit code.
func TestBillIsNotReady(t *testing.T) {
	s, all := away(t, 1)
	seen := s.clock.Now()
	s.clock.pass(3 * time.Hour)
	s.vanish()
	i := all[0]
	for _, until := range []time.Time{seen.Add(10 * time.Minute), s.clock.Now().Add(20 * time.Hour)} {
		s.charge(vastai.Charge{Instance: i.id, Label: i.label, Amount: 0.01, Until: until})
		for range 90 {
			s.turn()
		}
		if j := s.turn()[s.job(0)]; j.Sight.Over() {
			t.Fatalf("%+v", j)
		}
	}
	s.charge(vastai.Charge{Instance: i.id, Label: i.label + ":end=0", Amount: 0.01, Until: seen.Add(2 * time.Hour)})
	for range 90 {
		s.turn()
	}
	if j := s.turn()[s.job(0)]; j.Shows() != task.Completed {
		t.Errorf("%+v", j)
	}
}

// Tasks of several days wait for one bill, which has many pages; where it cannot be read, it is
// asked for once in a turn.
func TestBillOfManyTasks(t *testing.T) {
	s, all := away(t, 2)
	s.clock.pass(25 * time.Hour)
	s.turn()
	for n := 2; n < 4; n++ {
		all = append(all, s.begin(n))
	}
	s.turn()
	s.clock.pass(2 * time.Hour)
	s.vanish()
	s.market.noBill = errors.New("out of order")
	for range 10 {
		s.turn()
	}
	if n := s.market.count()["charges"]; n > 21 {
		t.Errorf("%d requests for the bill in 10 turns", n)
	}
	s.market.noBill = nil
	var rows []vastai.Charge
	for n := range 40 {
		rows = append(rows, vastai.Charge{Instance: int64(n + 1), Amount: 0.01, Until: s.clock.Now()})
	}
	for n, i := range all {
		rows = append(rows, vastai.Charge{Instance: i.id, Label: fmt.Sprintf("%s:end=%d", i.label, n), Amount: 0.01, Until: s.clock.Now()})
	}
	s.market.mu.Lock()
	s.market.charged, s.market.chargesPage = rows, 5
	s.market.mu.Unlock()
	over := map[task.ID]int{}
	for range 30 {
		for id, j := range s.turn() {
			if j.Sight.Over() {
				over[id] = j.ExitCode
			}
		}
	}
	for n := range all {
		if code, ok := over[s.job(n)]; !ok || code != n {
			t.Errorf("task %d: %d %v", n, code, ok)
		}
	}
}

// A task that has ended is not started again because its machine is not what was asked for.
func TestWrongMachineAfterTheEnd(t *testing.T) {
	s := newStand(t, 2)
	i := s.begin(1)
	i.price = 5
	i.label += ":end=0"
	s.turn()
	j := s.turn()[s.job(1)]
	if n := s.market.count()["order"]; n != 1 || len(s.events("fault")) != 0 {
		t.Errorf("%d orders, %+v", n, j)
	}
}
