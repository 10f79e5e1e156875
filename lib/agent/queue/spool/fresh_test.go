package spool

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// What others do to the spool between two turns is news, once; what the agent does is none.
func TestFresh(t *testing.T) {
	s, err := Make(filepath.Join(t.TempDir(), "spool"), clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	q, err := s.For("agent")
	if err != nil {
		t.Fatal(err)
	}
	// The times of directories are those of ticks: what changes within one tick looks alike.
	if err := os.Chtimes(s.path(doneDir, ""), time.Time{}, clock.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	turn := func() {
		t.Helper()
		if _, err := q.Actions(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	add := func(id task.ID, after ...task.ID) {
		t.Helper()
		if err := s.Add(queue.Entry{ID: id, Slug: string(id), Command: []string{"true"}, Created: clock.Now(), After: after}); err != nil {
			t.Fatal(err)
		}
	}
	left := func() bool {
		t.Helper()
		left, err := q.Left()
		if err != nil {
			t.Fatal(err)
		}
		return left
	}
	for _, step := range []struct {
		what        string
		do          func() error
		fresh, left bool
	}{
		{"nothing", func() error { return nil }, false, false},
		{"a task", func() error { add("a"); return nil }, true, true},
		{"its claim", func() error { return q.Claim(t.Context(), "a") }, false, true},
		{"a later one", func() error { add("b", "a"); return nil }, true, true},
		{"a stop", func() error { return s.RequestStop("a") }, true, true},
		{"an end that a task waits for", func() error { return q.Report(t.Context(), "a", task.Report{State: task.Completed}) }, true, true},
		{"a claim of the last", func() error { return q.Claim(t.Context(), "b") }, false, true},
		{"an end that none waits for", func() error { return q.Report(t.Context(), "b", task.Report{State: task.Failed}) }, false, false},
	} {
		turn()
		if q.Fresh() {
			t.Errorf("before %s: there is news", step.what)
		}
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := q.Fresh(); got != step.fresh || left() != step.left {
			t.Errorf("%s: news %v, left %v", step.what, got, left())
		}
	}
}
