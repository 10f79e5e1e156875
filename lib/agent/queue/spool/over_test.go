package spool

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// due is what an agent is to run now: group, try and figures.
func due(t *testing.T, q *Queue) (all []queue.Over, text string) {
	t.Helper()
	all, err := q.Over()
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, o := range all {
		words = append(words, fmt.Sprint(o.Group, " try ", o.Try, " ", o.Command))
		for _, s := range slices.Sorted(maps.Keys(o.Tasks)) {
			words = append(words, fmt.Sprint(s, " ", o.Tasks[s]))
		}
	}
	return all, strings.Join(words, ", ")
}

func ran(t *testing.T, q *Queue, o queue.Over, failed error) string {
	t.Helper()
	if err := q.Ran(o, failed); err != nil {
		return err.Error()
	}
	return ""
}

// The command of a group is due when the last of its tasks has ended, however it ended; again after a failure, a kill, or a retry.
func TestOver(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	now := start
	q.Now = func() time.Time { return now }
	put := func(id task.ID, group string) {
		t.Helper()
		e := queue.Entry{ID: id, Slug: "x", Group: group, Created: start}
		if group == "lr" {
			e.OnEnd = queue.OnEnd{Command: "tell", Directory: "/"}
		}
		if err := q.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	want := func(text string) []queue.Over {
		t.Helper()
		all, got := due(t, q)
		if got != text {
			t.Errorf("due: %q; want %q", got, text)
		}
		return all
	}
	put("aaaaaaaa", "lr")
	put("bbbbbbbb", "lr")
	put("cccccccc", "lr")
	put("dddddddd", "other")
	want("")
	report(t, q, "aaaaaaaa", task.Completed)
	report(t, q, "dddddddd", task.Completed)
	want("") // two are left
	report(t, q, "bbbbbbbb", task.Failed)
	want("")
	want("")                                          // by the one that was left
	if err := q.RequestStop("cccccccc"); err != nil { // by ponos-cancel, before any agent
		t.Fatal(err)
	}
	want("lr try 1 tell, completed 1, failed 1, stopped 1")

	// Killed before it was recorded: this agent runs it again, another one does not.
	other := open(t, q.Dir, "other")
	if _, got := due(t, other); got != "" {
		t.Errorf("the other agent runs %q", got)
	}
	all := want("lr try 2 tell, completed 1, failed 1, stopped 1")
	if got := strings.Join(all[0].Environment(), " "); got !=
		"PONOS_GROUP=lr PONOS_TRY=2 PONOS_TASKS=3 PONOS_COMPLETED=1 PONOS_FAILED=1 PONOS_ERROR=0 PONOS_STOPPED=1" {
		t.Error(got)
	}
	if got := ran(t, q, all[0], errors.New("no mail")); got != "on_end of group lr: no mail: try 2 of 10 failed: next try in 2m0s" {
		t.Error(got)
	}
	want("")
	for q, want := range map[*Queue]bool{q: true, other: false} {
		if left, err := q.Left(); left != want || err != nil {
			t.Errorf("for %s is left: %v, %v; want %v", q.Agent, left, err, want)
		}
	}
	now = now.Add(2 * time.Minute)
	all = want("lr try 3 tell, completed 1, failed 1, stopped 1")

	// A retry that ends while it runs leaves a new mark. What it retries does not count.
	b, err := q.Retry([]queue.Entry{{Slug: "x", Group: "lr", RetryOf: "bbbbbbbb", Created: now, OnEnd: queue.OnEnd{Command: "tell", Directory: "/"}}})
	if err != nil || b.New != 1 {
		t.Fatal(b, err)
	}
	report(t, q, b.IDs[0], task.Completed)
	if got := ran(t, q, all[0], nil); got != "" {
		t.Error(got)
	}
	all = want("lr try 1 tell, completed 2, stopped 1")
	if got := ran(t, q, all[0], nil); got != "" {
		t.Error(got)
	}
	want("")
	if left, err := q.Left(); left || err != nil {
		t.Errorf("left: %v, %v", left, err)
	}
	if left, err := os.ReadDir(filepath.Join(q.Dir, overDir)); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// A command that always fails is given up.
func TestOverGivenUp(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	now := start
	q.Now = func() time.Time { return now }
	if err := q.Add(queue.Entry{ID: "aaaaaaaa", Group: "g", Created: start, OnEnd: queue.OnEnd{Command: "false", Directory: "/"}}); err != nil {
		t.Fatal(err)
	}
	report(t, q, "aaaaaaaa", task.Completed)
	last := ""
	tries := 0
	for ; tries < 2*maxTries; tries++ {
		all, _ := due(t, q)
		if len(all) == 0 {
			break
		}
		last = ran(t, q, all[0], errors.New("exit status 1"))
		now = now.Add(time.Hour)
	}
	if last != "on_end of group g: exit status 1: given up" || tries != maxTries {
		t.Errorf("%d tries, %q", tries, last)
	}
}

// A failure is known by the group until the command has run. An agent that ends when nothing is left does not wait for all tries, and one
// whose program is not there is given up at once.
func TestOverFailures(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	now := start
	q.Now = func() time.Time { return now }
	submit := func(id task.ID) {
		t.Helper()
		if err := q.Add(queue.Entry{ID: id, Group: "g", Created: start, OnEnd: queue.OnEnd{Command: "tell", Directory: "/"}}); err != nil {
			t.Fatal(err)
		}
		report(t, q, id, task.Completed)
	}
	failures := func(want string) {
		t.Helper()
		if got, err := q.Failures(); err != nil || got["g"] != want {
			t.Errorf("failure of g: %q, %v; want %q", got["g"], err, want)
		}
	}
	left := func(want bool) {
		t.Helper()
		if got, err := q.Left(); got != want || err != nil {
			t.Errorf("left: %v, %v; want %v", got, err, want)
		}
	}
	try := func(failed error) string {
		t.Helper()
		all, _ := due(t, q)
		if len(all) != 1 {
			t.Fatalf("%d are due", len(all))
		}
		return ran(t, q, all[0], failed)
	}
	submit("aaaaaaaa")
	failures("")
	for n := 1; n <= patience; n++ {
		left(true)
		try(errors.New("no network"))
		failures(fmt.Sprintf("no network: try %d of 10 failed", n))
		now = now.Add(time.Hour)
	}
	left(false)
	failures("no network: try 3 of 10 failed") // the next agent tries it again
	if said := try(&command.ExitError{Name: "sh", Code: 127, Stderr: "sh: 1: mail: not found"}); said !=
		"on_end of group g: sh: exit status 127: sh: 1: mail: not found: given up" {
		t.Error(said)
	}
	failures("sh: exit status 127: sh: 1: mail: not found: given up")
	left(false)
	if _, text := due(t, q); text != "" {
		t.Error(text)
	}
	submit("bbbbbbbb") // whose end is told, and takes the place of the failure
	left(true)
	failures("sh: exit status 127: sh: 1: mail: not found: given up")
	if said := try(nil); said != "" {
		t.Error(said)
	}
	failures("")
	if files, err := os.ReadDir(filepath.Join(q.Dir, overDir)); err != nil || len(files) > 0 {
		t.Errorf("%v, %v", files, err)
	}
}
