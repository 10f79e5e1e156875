package spool

import (
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// The times of a job's own notes are kept where they are possible.
func TestTimesOfAJob(t *testing.T) {
	created := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return created.Add(time.Duration(seconds) * time.Second) }
	for _, tt := range []struct {
		name                                  string
		seen, began, ended, started, finished time.Time
	}{
		{"shorter than a turn", time.Time{}, at(3), at(4), at(3), at(4)},
		{"seen later", at(10), at(3), at(25), at(3), at(25)},
		{"an attempt before", at(3), at(20), at(25), at(3), at(25)},
		{"no notes", at(10), time.Time{}, time.Time{}, at(10), at(30)},
		{"no end", time.Time{}, at(3), time.Time{}, at(3), at(30)},
		{"a clock that is behind", time.Time{}, at(-5), at(-4), time.Time{}, at(30)},
		{"a clock that is ahead", at(10), at(40), at(50), at(10), at(30)},
		{"never begun", time.Time{}, time.Time{}, time.Time{}, time.Time{}, at(30)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Make(t.TempDir(), created)
			if err != nil {
				t.Fatal(err)
			}
			s.Now = func() time.Time { return at(30) }
			e := queue.Entry{ID: "a", Created: created, Started: tt.seen, Command: []string{"true"}}
			if err := s.Add(e); err != nil {
				t.Fatal(err)
			}
			if err := s.finish(e, s.path(newDir, "a.json"), task.Report{State: task.Completed, Job: "7", Began: tt.began, Ended: tt.ended}); err != nil {
				t.Fatal(err)
			}
			done, err := s.Find("a")
			if err != nil {
				t.Fatal(err)
			}
			if !done.Started.Equal(tt.started) || !done.Ended.Equal(tt.finished) || done.Job != "7" {
				t.Errorf("job %s from %v to %v, want 7 from %v to %v", done.Job, done.Started, done.Ended, tt.started, tt.finished)
			}
		})
	}
}

// What a task has cost by the bill is in its file once it has ended, if the bill is for its last attempt.
func TestBill(t *testing.T) {
	q := open(t, t.TempDir(), "one")
	const id = task.ID("00000000-0000-4000-8000-00000000000a")
	cost := func() float64 {
		e, err := q.Find(id)
		if err != nil {
			t.Fatal(err)
		}
		return e.Cost
	}
	add(t, q, id)
	if err := q.Claim(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if err := q.Bill(id, 1, 2); err != nil || cost() != 0 {
		t.Errorf("it runs, and has cost %v, %v", cost(), err)
	}
	report(t, q, id, task.Completed)
	for attempt, want := range []float64{0, 3, 3} {
		if err := q.Bill(id, attempt, float64(attempt+2)); err != nil || cost() != want {
			t.Errorf("attempt %d: %v, want %v, %v", attempt, cost(), want, err)
		}
	}
	if err := q.Bill("00000000-0000-4000-8000-00000000000b", 1, 2); err != nil {
		t.Error(err)
	}
}
