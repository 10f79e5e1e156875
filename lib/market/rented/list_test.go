package rented

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// A row of somebody else that stays unreadable holds up nothing: neither ends, nor orders, nor
// that a lost host is seen.
func TestOddRowOfAnother(t *testing.T) {
	for _, odd := range []string{"", "no label", "ponos:other:00000000-0000-4000-8000-000000000001:1"} {
		t.Run("label "+odd, func(t *testing.T) {
			s := newStand(t, 9)
			s.Limits.Instances = 1
			old := s.clock.now.AddDate(-10, 0, 0) // also where the clock of tests is moved
			path := filepath.Join(s.Dir, markFile)
			if err := errors.Join(s.prepare(), os.WriteFile(path, []byte("0123abcd\n"), 0o600), os.Chtimes(path, old, old)); err != nil {
				t.Fatal(err)
			}
			if s.market.odd = 1; odd != "" {
				s.market.odd, s.market.oddLabels = 0, []string{odd}
			}
			ended(s.begin(1), 0)
			for range 4 {
				s.turn()
			}
			s.begin(2)
			s.turn()
			s.market.mu.Lock()
			s.market.instances = nil
			s.market.mu.Unlock()
			for range 4 {
				s.turn()
			}
			if j := s.turn()[s.job(2)]; j.Shows() != task.Error || !strings.Contains(j.Reason, "has disappeared") {
				t.Errorf("%q: %+v", odd, j)
			}
			s.begin(3)
		})
	}
}

// A row that may be a task's instance keeps that task waiting, and no other.
func TestOddRowOfATask(t *testing.T) {
	s := newStand(t, 9)
	s.begin(1)
	s.turn()
	s.market.mu.Lock()
	s.market.instances, s.market.oddLabels = nil, []string{s.label(s.job(1), 1, 1) + ":end=0"}
	s.market.mu.Unlock()
	for range 5 {
		if j := s.turn()[s.job(1)]; j.Sight.Over() || j.Sight.Gone() {
			t.Fatalf("%+v", j)
		}
	}
	s.begin(2)
	s.market.mu.Lock()
	s.market.oddLabels = []string{s.label(s.job(3), 1, 1)}
	s.market.mu.Unlock()
	s.clock.pass(time.Minute)
	if _, err := s.Start(t.Context(), s.submission(3)); !errors.Is(err, runner.ErrLater) || !strings.Contains(err.Error(), "one may be the instance of this task") {
		t.Error(err)
	}
	s.begin(4)
}

// While the journal cannot be written, nothing is ordered, and nothing is called over; what
// has happened meanwhile is found when it can.
func TestJournalCannotBeWritten(t *testing.T) {
	s := newStand(t, 5)
	ended(s.begin(1), 3)
	journal := filepath.Join(s.Dir, journalFile)
	if err := errors.Join(os.Rename(journal, journal+".kept"), os.Mkdir(journal, 0o700)); err != nil {
		t.Fatal(err)
	}
	s.market.count()
	for range 3 {
		if _, err := s.Start(t.Context(), s.submission(2)); err == nil {
			t.Error("it was started")
		}
		if j := s.turn()[s.job(1)]; j.Sight.Over() || j.Sight.Sure() {
			t.Errorf("%+v", j)
		}
	}
	if c := s.market.count(); c["order"] != 0 || len(s.market.instances) != 1 {
		t.Errorf("%v, %d instances", c, len(s.market.instances))
	}
	if err := errors.Join(os.Remove(journal), os.Rename(journal+".kept", journal)); err != nil {
		t.Fatal(err)
	}
	if j := s.turn()[s.job(1)]; j.Shows() != task.Failed || j.ExitCode != 3 {
		t.Errorf("%+v", j)
	}
	for range 12 {
		s.clock.pass(time.Minute)
		if _, err := s.Start(t.Context(), s.submission(2)); err == nil {
			break
		}
	}
	s.turn()
	if len(s.market.instances) != 1 || s.market.most != 1 || !strings.Contains(s.market.instances[0].label, string(s.job(2))) {
		t.Errorf("%d at once, left are %+v", s.market.most, s.market.instances)
	}
	if n := len(s.events("ended")); n != 1 {
		t.Errorf("%d ends in the journal", n)
	}
}

// A mark that a full disk has left empty is given anew.
func TestEmptyMark(t *testing.T) {
	s := newStand(t, 1)
	if err := errors.Join(s.prepare(), os.WriteFile(filepath.Join(s.Dir, markFile), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	first, err := s.mark()
	second, again := s.mark()
	if errors.Join(err, again) != nil || len(first) != 8 || first != second {
		t.Errorf("%q %q %v %v", first, second, err, again)
	}
	if files, _ := filepath.Glob(filepath.Join(s.Dir, markFile+"*")); len(files) != 1 {
		t.Error(files)
	}
}

// What machines are avoided is a courtesy: a file that cannot be read stops no order.
func TestMarketFileBroken(t *testing.T) {
	s := newStand(t, 1)
	if err := errors.Join(s.prepare(), os.WriteFile(filepath.Join(s.Dir, "market.json"), []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	s.begin(1)
	if !strings.Contains(s.said.String(), "market.json cannot be read, and is replaced") {
		t.Error(s.said)
	}
}

// What the market was asked to destroy is called destroyed when lists do not show it.
func TestReapListsAgain(t *testing.T) {
	s := newStand(t, 3)
	good, deaf := s.begin(1), s.begin(2)
	s.market.stuck[deaf.id] = true
	s.clock.pass(time.Hour)
	list, err := s.Account(t.Context(), 0)
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	failed := s.Reap(t.Context(), list)
	if err := failed[deaf.id]; len(failed) != 1 || failed[good.id] != nil || !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "still lists it after 30s") {
		t.Errorf("%v", failed)
	}
	s.market.stuck = nil
	if list, err = s.Account(t.Context(), 0); err != nil || len(list) != 1 || len(s.Reap(t.Context(), list)) != 0 || len(s.market.instances) != 0 {
		t.Errorf("%v %v, left are %+v", list, err, s.market.instances)
	}
}

// Nothing follows from what a list does not show, if it has rows that cannot be read.
func TestPartialList(t *testing.T) {
	s := newStand(t, 1)
	i := s.begin(1)
	s.turn()
	s.market.mu.Lock()
	s.market.instances, s.market.odd = nil, 1
	s.market.mu.Unlock()
	for range 10 {
		if j := s.turn()[s.job(1)]; j.Sight.Over() || j.Sight.Gone() {
			t.Fatalf("%+v", j)
		}
	}
	if n := strings.Count(s.said.String(), "some rows of the list of instances cannot be read"); n != 1 {
		t.Errorf("told %d times", n)
	}
	if _, err := s.Start(t.Context(), s.submission(2)); !errors.Is(err, runner.ErrLater) {
		t.Errorf("an order beside a row that may be that of the task: %v", err)
	}
	s.market.mu.Lock()
	s.market.instances, s.market.odd = []*rented{i}, 0
	s.market.mu.Unlock()
	if j := s.turn()[s.job(1)]; j.Shows() != task.Running {
		t.Errorf("%+v", j)
	}
}

// The same list, looked at twice, is one look.
func TestListReadTwice(t *testing.T) {
	s := newStand(t, 1)
	s.begin(1)
	s.turn()
	s.market.mu.Lock()
	s.market.instances = nil
	s.market.mu.Unlock()
	s.turn()
	for range 5 {
		jobs, err := s.Jobs(t.Context(), func() ([]runner.Ref, error) { return s.refs, nil })
		if err != nil || jobs[0].Sight.Over() {
			t.Fatalf("%+v, %v", jobs, err)
		}
	}
	s.turn()
	if j := s.turn()[s.job(1)]; j.Shows() != task.Error {
		t.Errorf("%+v", j)
	}
}

// An instance that came and went while the agent was away may have run the task: it is not
// started again without the user's leave.
func TestGoneUnseen(t *testing.T) {
	for retries := range 2 {
		t.Run(fmt.Sprint(retries), func(t *testing.T) {
			s := newStand(t, 5)
			s.Retries = retries
			s.begin(1)
			s.clock.pass(time.Hour)
			s.market.mu.Lock()
			s.market.instances = nil
			s.market.mu.Unlock()
			job := runner.Job{}
			for range 6 {
				job = s.turn()[s.job(1)]
			}
			if again := len(s.market.instances) == 1; again != (retries > 0) || again == (job.Shows() == task.Error) {
				t.Errorf("retries %d: %+v", retries, job)
			}
			if retries == 0 && !strings.Contains(job.Reason, "whether the task has run is not known") {
				t.Error(job.Reason)
			}
		})
	}
}

// A host that goes offline before its task was seen running may run it all the same.
func TestOfflineUnseen(t *testing.T) {
	s := newStand(t, 5)
	s.begin(1).fields["actual_status"] = "offline"
	job := runner.Job{}
	for range 8 {
		job = s.turn()[s.job(1)]
	}
	if job.Shows() != task.Error || !strings.Contains(job.Reason, "it is offline since before the task was seen running") || s.market.next != 7000001 {
		t.Errorf("%+v, %d instances", job, s.market.next-7000000)
	}
}

// Orders that others look up in one list are not given up by it.
func TestOneListCountsOnce(t *testing.T) {
	s := newStand(t, 2)
	sub := s.submission(1)
	s.market.create = func(int64) error { return vastai.ErrUnknown }
	if _, err := s.Start(t.Context(), sub); !errors.Is(err, runner.ErrLater) {
		t.Fatal(err)
	}
	s.market.create = nil
	s.clock.pass(20 * time.Minute)
	for range 3 { // one list serves them
		if job, err := s.Start(t.Context(), sub); !errors.Is(err, runner.ErrLater) {
			t.Errorf("%+v, %v", job, err)
		}
	}
	s.clock.pass(time.Minute)
	if _, err := s.Start(t.Context(), sub); err != nil || len(s.market.instances) != 1 {
		t.Errorf("%v, %+v", err, s.market.instances)
	}
}

// An instance that has disappeared while the agent was away may have destroyed itself after the
// end of its task. The bill tells how that was; without it the task is not started again.
func TestDestroyedItself(t *testing.T) {
	for _, c := range []struct {
		name   string
		seen   bool          // running, by the agent
		away   time.Duration // of the agent, before the instance has disappeared
		billed string        // the end of the label in the bill, 2 h later
		never  bool          // it is never billed
		noBill error         // of requests for it
		want   string
	}{
		{"the bill tells the end", true, time.Hour, ":end=7", false, nil, "exit code 7"},
		{"not seen before", false, time.Hour, ":end=7", false, nil, "exit code 7"},
		{"the bill does not tell", true, time.Hour, "", false, nil, "whether its task had ended, and how, is not known"},
		{"not billed", true, time.Hour, "", true, nil, "whether its task had ended, and how, is not known"},
		{"the key may not read it", true, time.Hour, "", true, vastai.ErrAuth, "whether its task had ended, and how, is not known"},
		{"the agent was there", true, 0, "", true, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStand(t, 2)
			s.Retries, s.BillInterval, s.Limits.Runtime = 1, time.Hour, 0
			s.Program = Program{URL: "https://example.org/vast-entry", Sums: "sum", Grace: 30 * time.Minute, Destroy: true}
			i := s.begin(1)
			for range 60 {
				if c.seen {
					s.turn()
				}
			}
			s.clock.pass(c.away)
			label := i.label
			s.market.mu.Lock()
			s.market.instances, s.market.noBill = nil, c.noBill
			s.market.mu.Unlock()
			s.market.count()
			for range 120 {
				s.turn()
			}
			if c.want == "" {
				if n := s.market.count()["order"]; n != 1 {
					t.Errorf("%d orders", n)
				}
				return
			}
			const awaited = "maybe after the end of its task: waiting for the bill, which shows the exit code"
			if j := s.turn()[s.job(1)]; j.Sight.Over() != (c.noBill != nil) || c.noBill == nil && (strings.Count(s.output(1), awaited) != 1 || strings.Count(s.said.String(), awaited) != 1) {
				t.Errorf("%+v\n%s\n%s", j, s.output(1), s.said)
			}
			s.market.mu.Lock()
			if !c.never {
				s.market.charged = []vastai.Charge{{Instance: i.id, Label: label + c.billed, Amount: 0.01, Until: s.clock.Now()}}
			}
			s.market.mu.Unlock()
			for range 60 {
				s.turn()
			}
			if c.never {
				s.clock.pass(36 * time.Hour)
			}
			if j := s.turn()[s.job(1)]; !j.Sight.Over() || !strings.Contains(j.Reason, c.want) {
				t.Errorf("%+v", j)
			}
			if told := strings.Contains(s.output(1), "[the end of the log could not be read: "); told != (c.billed != "") {
				t.Errorf("what is missing of the output is not told: %q", s.output(1))
			}
			if n := s.market.count(); n["order"] != 0 || n["charges"] > 12 { // in three hours
				t.Errorf("%v", n)
			}
		})
	}
}
