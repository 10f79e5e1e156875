package cancel

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// made is a spool with four tasks of group g, of which two have not ended: "waits" and "runs".
func made(t *testing.T) *spool.Spool {
	t.Helper()
	s, err := spool.Make(filepath.Join(t.TempDir(), "spool"), noon)
	if err != nil {
		t.Fatal(err)
	}
	q, err := s.For("agent")
	if err != nil {
		t.Fatal(err)
	}
	for id, state := range map[task.ID]task.State{"waits": task.Pending, "runs": task.Running, "done": task.Completed, "broke": task.Failed} {
		if err := s.Add(queue.Entry{ID: id, Slug: "name-" + string(id), Group: "g", Command: []string{"true"}, Created: noon}); err != nil {
			t.Fatal(err)
		}
		if state == task.Pending {
			continue
		}
		if err := q.Report(t.Context(), id, task.Report{State: state}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// What is cancelled, and what is said of the others.
func TestCancel(t *testing.T) {
	for _, tt := range []struct {
		args, stdin string
		code        int
		ids         string // in any order
		says        string
		left        string // tasks of which all is as before
	}{
		{args: "waits", ids: "waits", left: "runs done broke"},
		{args: "name-runs", ids: "runs", left: "waits done broke"},
		{args: "waits runs", ids: "waits runs", left: "done broke"},
		// One that has ended is no error, and is told where it was named.
		{args: "done runs", ids: "runs", says: "ponos-cancel: task done has already ended: completed\n", left: "waits done broke"},
		{args: "--group g", ids: "waits runs", left: "done broke"},
		{args: "--state failed", says: "ponos-cancel: nothing to cancel: 1 task: 1 failed\n", left: "waits runs done broke"},
		// What is not known keeps nobody else from being cancelled.
		{args: "nobody waits", code: 1, ids: "waits", says: "ponos-cancel: no task has the id or the name \"nobody\"\n", left: "runs done broke"},
		{args: "--group gg", code: 1, says: "ponos-cancel: no task is in group \"gg\"\nponos-cancel: hint: did you mean \"g\"?\n", left: "waits runs done broke"},
		{stdin: "runs\nwaits\n", ids: "waits runs", left: "done broke"},
		{stdin: "", left: "waits runs done broke"},
	} {
		s := made(t)
		before := states(t, s)
		var stdout, stderr bytes.Buffer
		args := append([]string{"ponos-cancel", "--spool", s.Dir}, strings.Fields(tt.args)...)
		code := run(t.Context(), args, strings.NewReader(tt.stdin), &stdout, &stderr)
		after := states(t, s)
		for id, state := range before {
			named := func(list string) bool { return strings.Contains(" "+list+" ", " "+string(id)+" ") }
			if printed := strings.Contains("\n"+stdout.String(), "\n"+string(id)+"\n"); printed != named(tt.ids) || (after[id] == state) != named(tt.left) {
				t.Errorf("%q, %q: task %s is printed: %v; it was %s and is %s", tt.args, tt.stdin, id, printed, state, after[id])
			}
		}
		if code != tt.code || stderr.String() != tt.says {
			t.Errorf("%q, %q: status %d, %q; want %d, %q", tt.args, tt.stdin, code, &stderr, tt.code, tt.says)
		}
	}
}

// states are those of all tasks, and whether the agent is asked for a stop.
func states(t *testing.T, s *spool.Spool) map[task.ID]string {
	t.Helper()
	all, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	states := map[task.ID]string{}
	for _, e := range all {
		states[e.ID] = string(e.State)
		if _, err := os.Stat(filepath.Join(s.Dir, "stop", string(e.ID))); err == nil {
			states[e.ID] += ", to stop"
		}
	}
	return states
}
