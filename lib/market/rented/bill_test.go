package rented

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Once the market has billed, its bill counts: beside the estimate in the journal, and
// against the limit of a task.
func TestBill(t *testing.T) {
	s := newStand(t, 3)
	s.BillInterval, s.Limits.CostPerTask = time.Hour, 2
	told := map[task.ID]float64{}
	s.Billed = func(id task.ID, attempt int, cost float64) error { told[id] = cost + float64(attempt-1); return nil }
	done, dear := s.begin(1), s.begin(2)
	ended(done, 0)
	for range 4 {
		s.turn()
	}
	if e := s.events("billed"); len(e) != 0 {
		t.Errorf("%+v", e)
	}
	now := s.clock.Now()
	s.market.mu.Lock()
	s.market.charged = []vastai.Charge{{Instance: done.id, Amount: 0.0125, Until: now}, {Instance: done.id, Amount: 0.01, Until: now}, {Instance: dear.id, Amount: 3, Until: now}, {}, {}}
	s.market.mu.Unlock()
	s.clock.pass(2 * time.Hour)
	s.turn()
	e := s.events("billed")
	if len(e) != 1 || e[0].Task != s.job(1) || e[0].Billed == nil || *e[0].Billed != 0.0225 || e[0].Cost <= 0 {
		t.Errorf("%+v", e)
	}
	if len(told) != 1 || told[s.job(1)] != 0.0225 {
		t.Errorf("told are %v", told)
	}
	if j := s.turn()[s.job(2)]; j.Shows() != task.Error || !strings.Contains(j.Reason, "and reaches max_cost_per_task") || j.Cost < 3 {
		t.Errorf("%+v", j)
	}
	// This bill was there before the end.
	if e := s.events("billed"); len(e) != 2 || e[1].Task != s.job(2) || *e[1].Billed != 3 {
		t.Errorf("%+v", e)
	}
	bills, err := s.Bills(t.Context(), s.clock.Now().Add(-24*time.Hour))
	if err != nil || len(bills) != 2 {
		t.Fatalf("%+v, %v", bills, err)
	}
	for _, b := range bills {
		want := 0.0225
		if b.Task == s.job(2) {
			want = 3
		}
		if b.Billed == nil || *b.Billed != want || b.Estimated <= 0 || b.Estimated >= 3 || len(b.Instances) != 1 {
			t.Errorf("%+v", b)
		}
	}
	c := s.market.count()
	if c["charges"] > 3 {
		t.Errorf("%v", c)
	}
	if said := s.said.String(); strings.Count(said, "some rows of the bill cannot be read") != 1 || !strings.Contains(said, "rows=2") {
		t.Error(said)
	}
}

// An instance that was ordered by a request whose answer was lost, and that no list has
// shown, is known by the label on the bill: of a task that goes on, that is over, and that
// was stopped before it had another one.
func TestBillOfAnUnseenInstance(t *testing.T) {
	s := newStand(t, 9)
	s.BillInterval = time.Hour
	lost := map[int]*rented{}
	for n := range 3 {
		sub := s.submission(n)
		s.market.create = func(int64) error { return vastai.ErrUnknown }
		if _, err := s.Start(t.Context(), sub); !errors.Is(err, runner.ErrLater) {
			t.Fatal(err)
		}
		s.market.create = nil
		lost[n] = &rented{id: int64(500 + n), label: s.label(sub.Task, 1, 1), created: s.clock.Now()}
		if n == 2 {
			continue
		}
		s.clock.pass(2 * time.Minute)
		for range 12 {
			s.clock.pass(time.Minute)
			if _, err := s.Start(t.Context(), sub); err == nil {
				break
			}
		}
		s.refs = append(s.refs, runner.Ref{Task: sub.Task, Job: s.label(sub.Task, 1, 1), Dir: sub.Dir})
	}
	if len(s.market.instances) != 2 {
		t.Fatalf("%+v\n%s", s.market.instances, s.said)
	}
	ended(s.market.instances[1], 0)
	gone := filepath.Join(filepath.Dir(s.Dir), "done")
	stopped := s.submission(2)
	if err := errors.Join(os.MkdirAll(gone, 0o700), os.Rename(stopped.Dir, filepath.Join(gone, string(stopped.Task)))); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		s.turn()
	}
	before, err := s.Bills(t.Context(), s.clock.Now().Add(-24*time.Hour))
	if err != nil || len(before) != 2 {
		t.Fatalf("%+v, %v", before, err)
	}
	s.market.mu.Lock()
	for n, i := range lost {
		s.market.charged = append(s.market.charged, vastai.Charge{Instance: i.id, Label: i.label, Amount: 0.25 + float64(n), From: i.created, Until: s.clock.Now()})
	}
	s.market.charged = append(s.market.charged,
		vastai.Charge{Instance: 77, Label: "ponos:other:" + string(s.job(0)) + ":1", Amount: 50, Until: s.clock.Now()},
		vastai.Charge{Instance: 78, Label: "mine", Amount: 50, Until: s.clock.Now()})
	s.market.mu.Unlock()
	s.clock.pass(2 * time.Hour)
	s.turn()
	if o, err := s.read(ordersDir, string(s.job(0))+".1"); err != nil || o.cost(s.clock.Now()) != 0.25+o.Own().Estimate(s.clock.Now()) {
		t.Errorf("the one that goes on costs %+v, %v", o, err)
	}
	bills, err := s.Bills(t.Context(), s.clock.Now().Add(-24*time.Hour))
	if err != nil || len(bills) != 3 {
		t.Fatalf("%+v, %v", bills, err)
	}
	for _, b := range bills {
		if n, _ := strconv.Atoi(string(b.Task[len(b.Task)-1:])); !slices.Contains(b.Instances, lost[n].id) {
			t.Errorf("%+v, want instance %d", b, lost[n].id)
		}
	}
	for n, least := range map[int]float64{1: 1.25, 2: 2.25} {
		o, err := s.read(doneDir, string(s.job(n))+".1")
		if err != nil || o.End == nil || o.cost(s.clock.Now()) < least || o.cost(s.clock.Now()) > least+0.5 {
			t.Errorf("%+v, %v", o, err)
		}
	}
	if e := s.events("billed"); len(e) != 1 || e[0].Task != s.job(2) || e[0].Cost != 2.25 || *e[0].Billed != 2.25 {
		t.Errorf("%+v", e)
	}
}

func bill3(o *order) bool { b := o.Own().Bill; return b != nil && b.Amount == 3 }

// A bill of many pages is read over some turns, as requests are bounded.
func TestBillOfManyPages(t *testing.T) {
	s := newStand(t, 1)
	s.BillInterval, s.market.chargesPage = time.Hour, 10
	i := s.begin(1)
	i.prints("at work\n")
	s.turn()
	s.market.mu.Lock()
	for n := range 205 {
		s.market.charged = append(s.market.charged, vastai.Charge{Instance: int64(n + 1), Amount: 1, From: i.created, Until: s.clock.Now()})
	}
	s.market.charged = append(s.market.charged, vastai.Charge{Instance: i.id, Amount: 3, From: i.created, Until: s.clock.Now()})
	for n := range 600 { // as many as bound what is read in a turn
		s.market.instances = append(s.market.instances, &rented{id: int64(9000000 + n), label: "mine", fields: map[string]any{"actual_status": "running"}})
	}
	s.market.mu.Unlock()
	s.clock.pass(2 * time.Hour)
	s.market.count()
	turns := 0
	for ; !bill3(s.read1(t)); turns++ {
		s.turn()
		if c := s.market.count(); c["charges"] > 1 || turns > 30 {
			t.Fatalf("%v in turn %d", c, turns)
		}
	}
	if turns != 21 {
		t.Errorf("%d turns", turns)
	}
	s.turn()
	if c := s.market.count(); c["charges"] != 0 {
		t.Errorf("%v", c)
	}
}

// A bill whose time lies ahead, as that of a contract does, leaves out what is still to be
// billed: the estimate counts where it is more.
func TestBillOfTheWholeContract(t *testing.T) {
	s := newStand(t, 1)
	s.BillInterval, s.Limits.CostPerTask, s.Limits.Runtime = time.Hour, 3, 0
	i := s.begin(1)
	i.prints("at work\n")
	s.turn()
	s.market.mu.Lock()
	s.market.charged = []vastai.Charge{{Instance: i.id, Amount: 0.01, Until: s.clock.Now().Add(9 * 24 * time.Hour)}}
	s.market.mu.Unlock()
	s.clock.pass(2 * time.Hour) // at about 0.1 dollars an hour
	if j := s.turn()[s.job(1)]; j.Sight.Over() {
		t.Errorf("%+v", j)
	}
	s.clock.pass(24 * time.Hour)
	s.turn()
	if j := s.turn()[s.job(1)]; j.Shows() != task.Error || !strings.Contains(j.Reason, "and reaches max_cost_per_task") || j.Cost < 3 {
		t.Errorf("%+v", j)
	}
}

// What was billed for a task counts from its beginning, however long ago that is.
func TestBillOfALongTask(t *testing.T) {
	s := newStand(t, 1)
	s.BillInterval, s.Limits.Runtime = time.Hour, 0
	s.Limits.CostPerTask = 1000
	i := s.begin(1)
	i.prints("at work\n")
	s.turn()
	s.clock.pass(8 * 24 * time.Hour)
	s.turn()
	if from := s.market.chargedFrom; from.IsZero() || from.After(i.created) {
		t.Errorf("charges since %v, of an instance from %v", from, i.created)
	}
	if _, err := s.Bills(t.Context(), s.clock.Now().Add(-time.Hour)); err != nil || s.market.chargedFrom.After(i.created) {
		t.Errorf("charges since %v, %v", s.market.chargedFrom, err)
	}
}
