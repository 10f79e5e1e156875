package spool

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// A spool into which others can put a task is not used, be it only one of its directories that they can write to.
func TestOthersWrite(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	memory := place.Memory{Dir: t.TempDir()}
	memory.Remember(q.Dir, q.ID)
	for _, dir := range append(slices.Clone(directories), "") {
		if err := os.Chmod(filepath.Join(q.Dir, dir), 0o777); err != nil {
			t.Fatal(err)
		}
		for what, use := range map[string]func() error{
			"Open": func() error { _, err := Open(q.Dir); return err },
			"Make": func() error { _, err := Make(q.Dir, clock.Now()); return err },
			"once": func() error { _, err := MakeOnce(memory, q.Dir, clock.Now()); return err },
		} {
			if err := use(); !fault.Is(err, fault.Usage) || !strings.HasPrefix(fault.HintOf(err), "chmod go-w ") {
				t.Errorf("%s, %q open: %v", what, dir, err)
			}
		}
		if err := os.Chmod(filepath.Join(q.Dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Open(q.Dir); err != nil {
		t.Error(err)
	}
}

// What another user has put into a spool, while it could be written to, is not run: neither a task nor the command of a group.
func TestPlantedTask(t *testing.T) {
	needs.Root(t, "a file of another user")
	const bob = 65534
	q := open(t, t.TempDir(), "me")
	for _, id := range []task.ID{"mine", "theirs"} {
		if err := q.Add(queue.Entry{ID: id, Group: "g", Command: []string{"true"}, Created: clock.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(q.path(newDir, "theirs.json"), bob, bob); err != nil {
		t.Fatal(err)
	}
	actions, err := q.Actions(t.Context(), nil)
	if err != nil || len(actions) != 1 || actions[0].ID != "mine" {
		t.Errorf("%+v, %v", actions, err)
	}
	if e, err := q.Find("theirs"); err != nil || e.State != task.Error || !strings.Contains(e.Reason, "it belongs to user ") {
		t.Errorf("%+v, %v", e, err)
	}
	if err := q.end(queue.Entry{ID: "mine", Group: "g", Created: clock.Now()}, task.Report{State: task.Completed}); err != nil {
		t.Fatal(err)
	}
	mark := q.path(overDir, "g.json")
	err = errors.Join(os.MkdirAll(q.path(overDir, ""), 0o700), q.writeMark(mark, mark0), os.Chown(mark, bob, bob))
	if err != nil {
		t.Fatal(err)
	}
	if due, err := q.Over(); len(due) > 0 || err == nil {
		t.Errorf("due: %+v, %v", due, err)
	}
	if err := os.Chown(mark, 0, 0); err != nil {
		t.Fatal(err)
	}
	if due, err := q.Over(); len(due) != 1 || err != nil {
		t.Errorf("that of the owner: %+v, %v", due, err)
	}
}

var mark0 = mark{OnEnd: queue.OnEnd{Command: "true"}}
