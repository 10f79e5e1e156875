package rented

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// A log that cannot be read is the affair of its instance, whatever the market says of it.
func TestOneLogRefused(t *testing.T) {
	s := newStand(t, 3)
	sick := s.begin(1)
	sick.logErr = fault.Wrap(fault.Unavailable, fmt.Errorf("log: %w: status 403: not_authorized", vastai.ErrAuth))
	ended(s.begin(2), 0)
	ended(s.begin(3), 4)
	jobs := s.turn()
	if jobs[s.job(1)].Shows() != task.Running || jobs[s.job(2)].Shows() != task.Completed || jobs[s.job(3)].Shows() != task.Failed || jobs[s.job(3)].ExitCode != 4 {
		t.Errorf("%+v", jobs)
	}
	s.turn()
	if len(s.market.instances) != 1 || s.market.instances[0] != sick {
		t.Errorf("left are %+v", s.market.instances)
	}
}

// Logs that take longer than a turn has for them are read all the same, and one that never
// comes does not hold its task: the label tells the end.
func TestSlowLogs(t *testing.T) {
	s := newStand(t, 20)
	s.LogTime = time.Second
	wait := s.API.Sleep
	var patient atomic.Bool
	s.API.Sleep = func(ctx context.Context, d time.Duration) error {
		if d > 10*time.Second && !patient.Load() {
			return nil // the time of a turn is over at once
		}
		return wait(ctx, d)
	}
	var all []*rented
	for n := range 9 {
		all = append(all, s.begin(n))
	}
	s.turn()
	for n, i := range all {
		ended(i, n)
		i.logTime = 20 * time.Millisecond
	}
	all[0].logTime = time.Hour
	all[0].label += ":end=0"
	over := map[task.ID]runner.Job{}
	for range 400 { // each has LogTime for what is there, however slow the machine is
		if len(over) == len(all) {
			break
		}
		for id, j := range s.turn() {
			if j.Shows() == task.Completed || j.Shows() == task.Failed || j.Shows() == task.Error {
				over[id] = j
			}
		}
	}
	patient.Store(true)
	s.turn() // its requests come after those to destroy, which no earlier turn has waited for
	for n := range all {
		if j := over[s.job(n)]; j.ExitCode != n || j.Shows() == task.Error || j.Shows() == "" {
			t.Errorf("task %d: %+v", n, j)
		}
		if has := strings.Contains(s.output(n), "the end of the log could not be read"); has != (n == 0) {
			t.Errorf("output of %d: %s", n, s.output(n))
		}
	}
}

// Twelve ends at once: their logs are read side by side, their instances destroyed by few
// requests, and the turn is not held up.
func TestManyEnds(t *testing.T) {
	s := newStand(t, 12)
	for n := range 12 {
		ended(s.begin(n), 0)
	}
	s.market.count()
	s.clock.pass(time.Minute)
	began := s.clock.Now()
	jobs, err := s.Jobs(t.Context(), func() ([]runner.Ref, error) { return s.refs, nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range jobs {
		if j.Shows() != task.Completed {
			t.Errorf("%+v", j)
		}
	}
	took, c := s.clock.Now().Sub(began), s.market.count()
	if took > 15*time.Second || c["destroy"] != 1 || c["all"] > 15 {
		t.Errorf("%v for %v", took, c)
	}
	t.Logf("12 ends: %v of the market's clock, %v", took, c)
	if e := s.events("destroy"); len(e) != 12 {
		t.Errorf("%d destroys in the journal", len(e))
	}
	s.turn()
	s.turn()
	if left, err := s.orders(); err != nil || len(left) != 0 || len(s.market.instances) != 0 {
		t.Errorf("%v %v %v", left, s.market.instances, err)
	}
}

// The logs of tasks that have ended are read side by side, though their instances run on.
func TestManyEndsByLabel(t *testing.T) {
	s := newStand(t, 20)
	s.LogInterval = 24 * time.Hour
	var all []*rented
	for n := range 20 {
		all = append(all, s.begin(n))
	}
	for range 3 { // all logs have been read of late
		s.turn()
	}
	for _, i := range all {
		i.says("0")
		i.label += ":end=0"
		i.logTime = 300 * time.Millisecond
	}
	s.market.logsAtOnce = 0
	jobs := s.turn()
	if n := s.market.logsAtOnce; n < 2 || n > logReaders {
		t.Errorf("%d logs were read at a time", n)
	}
	for _, j := range jobs {
		if j.Shows() != task.Completed {
			t.Errorf("%+v", j)
		}
	}
}

// Output that comes faster than a log shows lines is read whole, from the first look on: more lines are
// requested until they reach back to what is known.
func TestFastOutput(t *testing.T) {
	s := newStand(t, 1)
	i := s.begin(1)
	var all strings.Builder
	written := 0
	write := func(n int) {
		from := all.Len()
		for range n {
			written++
			fmt.Fprintf(&all, "line %d\n", written%7) // which are alike
		}
		i.prints(all.String()[from:])
	}
	for _, n := range []int{3600, 300, 999, 1000, 30_000, 1, 300_000} { // the last at 10,000 a second, log_interval 30 s
		write(n)
		s.turn()
		if out := s.output(1); out != all.String() {
			t.Fatalf("after %d lines more: %d bytes of %d; %q", n, len(out), all.Len(), out[:min(len(out), 200)])
		}
	}
	write(2_500)
	ended(i, 0)
	if j := s.turn()[s.job(1)]; j.Shows() != task.Completed || s.output(1) != all.String() {
		t.Errorf("%+v, %d bytes of %d", j, len(s.output(1)), all.Len())
	}
}

// What the market does not have any more is told where it is missing, also at the beginning.
func TestOutputCut(t *testing.T) {
	s := newStand(t, 1)
	i := s.begin(1)
	i.prints("a\n")
	s.turn()
	i.log, i.printed = "", 10
	more := strings.Repeat("b\n", 1500)
	i.prints(more)
	s.turn()
	s.turn()
	i.prints("c\n")
	ended(i, 0)
	s.turn()
	if out := s.output(1); out != "a\n[some lines are missing here]\n"+more+"c\n" {
		t.Errorf("%d bytes, %q", len(out), out[:min(len(out), 100)])
	}
}

// Whatever a log says, what is published begins where the output was, and goes on from there.
func FuzzParse(f *testing.F) {
	f.Add([]byte("@0 one\n@4+two\nPONOS-EXIT n 3 7\n"), int64(2))
	f.Add([]byte("noise\n@9 x\n@3 y\nPONOS-EXIT n unfit it has\n"), int64(0))
	f.Fuzz(func(t *testing.T, text []byte, at int64) {
		at &= 0xffff
		s := parse(text, "n", true)
		more, to, joined := s.from(at)
		if to < at || joined && int64(len(more)) != to-at || s.word != "" && !strings.Contains(string(text), s.word) {
			t.Errorf("%q, %d, %v: %+v", more, to, joined, s)
		}
	})
}
