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

	"github.com/ponos-tools/ponos/lib/task"
)

// due is what an agent is to run now: group, try and figures.
func due(t *testing.T, q *Queue) (all []Over, text string) {
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

func ran(t *testing.T, q *Queue, o Over, failed error) string {
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
		e := Entry{ID: id, Slug: "x", Group: group, Created: start}
		if group == "lr" {
			e.OnEnd = OnEnd{"tell", "/"}
		}
		if err := q.Add(e); err != nil {
			t.Fatal(err)
		}
	}
	want := func(text string) []Over {
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
	if got := ran(t, q, all[0], errors.New("no mail")); got != "on_end of group lr: no mail: next try in 2m0s" {
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
	b, err := q.Retry([]Entry{{Slug: "x", Group: "lr", RetryOf: "bbbbbbbb", Created: now, OnEnd: OnEnd{"tell", "/"}}})
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
	if err := q.Add(Entry{ID: "aaaaaaaa", Group: "g", Created: start, OnEnd: OnEnd{"false", "/"}}); err != nil {
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
	if last != "on_end of group g: exit status 1: given up after 10 tries" || tries != maxTries {
		t.Errorf("%d tries, %q", tries, last)
	}
}
