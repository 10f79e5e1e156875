package submit

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

func TestStatus(t *testing.T) {
	for _, tt := range []struct {
		state task.State
		exit  int
		want  int
	}{
		{task.Completed, 0, 0},
		{task.Failed, 3, 3}, {task.Failed, 255, 255},
		{task.Failed, 0, 1}, {task.Failed, 256, 1}, {task.Failed, -1, 1}, // no status of a process
		{task.Error, 0, 1}, {task.Error, 3, 1}, {task.Stopped, 0, 1}, {task.Stopped, 143, 1}, {task.Cancelled, 0, 1},
	} {
		err := status(queue.Entry{ID: "t1", State: tt.state, ExitCode: tt.exit, Reason: "why\x1b[2J"})
		if code, silent := fault.Code(err); code != tt.want || silent && err != nil {
			t.Errorf("%s %d: status %d, %v; want %d", tt.state, tt.exit, code, err, tt.want)
		}
		if want := fmt.Sprintf("task t1: %s: why [2J", tt.state); err != nil && err.Error() != want {
			t.Errorf("%q; want %q", err, want)
		}
	}
}

// When the wait for several tasks is over, and how.
func TestSome(t *testing.T) {
	var none, one, sure task.Absence
	one = none.Again(clock.Now())
	sure = task.Absence{Since: clock.Now(), Last: clock.Now(), Misses: 99}
	many := strings.Repeat("failed ", 7)
	for _, tt := range []struct {
		states string
		wanted int
		absent task.Absence // before this look
		over   bool
		err    string
		shown  int // tasks that are named
		after  bool
	}{
		{"completed completed", 2, none, true, "", 0, false},
		{"completed running", 2, none, false, "", 0, false},
		{"failed running", 2, none, false, "", 0, false},
		{"completed stopped error", 3, none, true, "2 of 3 tasks did not complete", 2, false},
		{many, 7, none, true, "7 of 7 tasks did not complete", 5, false},
		// A task that one look does not show is not gone.
		{"completed", 2, none, false, "", 0, true},
		{"", 2, none, false, "", 0, true},
		{"completed", 2, one, false, "", 0, true},
		{"completed", 2, sure, true, "1 of 2 tasks are gone from the spool", 0, true},
		{"", 2, sure, true, "2 of 2 tasks are gone from the spool", 0, true},
		{"running", 2, sure, false, "", 0, true},
		{"completed completed", 2, one, true, "", 0, false},
		{"completed running", 2, sure, false, "", 0, false},
	} {
		var stderr strings.Builder
		w := waiting{stderr: &stderr, absent: tt.absent}
		var all []queue.Summary
		for i, s := range strings.Fields(tt.states) {
			all = append(all, queue.Summary{ID: task.ID(fmt.Sprint("t", i)), Slug: "x\x1b[2J", State: task.State(s)})
		}
		over, err := w.some(progress.Open(&stderr, name), all, tt.wanted, clock.Now())
		got := ""
		if err != nil {
			got = err.Error()
		}
		if over != tt.over || got != tt.err || strings.Count(stderr.String(), "task t") != tt.shown || strings.Contains(stderr.String(), "\x1b") {
			t.Errorf("%+v: %t, %q\n%s", tt, over, got, &stderr)
		}
		if w.absent.IsZero() == tt.after {
			t.Errorf("%+v: then absent %+v", tt, w.absent)
		}
	}
}

// A problem is printed when it begins, and again when it comes back.
func TestTell(t *testing.T) {
	var stderr strings.Builder
	w := waiting{stderr: &stderr}
	a, b := errors.New("a"), errors.New("b")
	for _, err := range []error{a, a, errors.New("a"), b, a, nil, nil, a} {
		w.tell(err)
	}
	if want := "ponos-submit: a\nponos-submit: b\nponos-submit: a\nponos-submit: a\n"; stderr.String() != want {
		t.Errorf("%s; want %s", &stderr, want)
	}
}

// That no agent takes turns is news only after a while: one may just have been started.
func TestAttended(t *testing.T) {
	s, err := spool.Make(t.TempDir()+"/spool", clock.Now())
	if err != nil {
		t.Fatal(err)
	}
	for waited, want := range map[time.Duration]string{
		0:              "",
		unattended / 2: "",
		unattended * 2: "ponos-submit: warning: no agent has taken a turn in this spool\nponos-submit: hint: start it: the agent\n",
	} {
		var stderr strings.Builder
		w := waiting{spool: s, stderr: &stderr, start: func() string { return "the agent" }}
		w.attended(clock.Now().Add(-waited), "")
		if stderr.String() != want {
			t.Errorf("after %v: %s", waited, &stderr)
		}
	}
}
