package spool

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// files lists the files of a spool, without the one that identifies it.
func files(t *testing.T, s *Spool) string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(s.Dir, func(path string, d os.DirEntry, err error) error {
		if name := strings.TrimPrefix(path, s.Dir+"/"); err == nil && !d.IsDir() && name != identityFile {
			all = append(all, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// put makes a file of an age.
func put(t *testing.T, s *Spool, name string, age time.Duration) {
	t.Helper()
	path := filepath.Join(s.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-age)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
	if dir := filepath.Dir(path); filepath.Base(filepath.Dir(dir)) == artifactsDir {
		if err := os.Chtimes(dir, at, at); err != nil {
			t.Fatal(err)
		}
	}
}

const day = 24 * time.Hour

func TestTidyRemovesWhatKilledToolsLeave(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	add(t, q, "a")
	for name, age := range map[string]time.Duration{
		"tmp/.a.json123": 2 * day, "tmp/source-77": 2 * day, "tmp/.b.json9": time.Hour, "tmp/c.json.bad": 2 * day,
		"stop/a": 2 * day, "stop/gone": 2 * day, "absent/gone": 2 * day, "absent/late": time.Hour,
		"sources/unused.tar.gz": 2 * day, "sources/fresh.tar.gz": time.Hour, "logs/gone.log": 2 * day,
	} {
		put(t, q.Spool, name, age)
	}
	if err := q.Tidy(0); err != nil {
		t.Fatal(err)
	}
	const want = "absent/late logs/gone.log new/a.json sources/fresh.tar.gz stop/a tmp/.b.json9 tmp/c.json.bad"
	if got := files(t, q.Spool); got != want {
		t.Errorf("left: %s\nwant: %s", got, want)
	}
}

// Tasks expire with all that belongs to them, but for those that others wait for.
func TestTidyExpires(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	now := clock.Now()
	ended := func(id task.ID, age time.Duration, archive string) {
		add(t, q, id)
		if err := q.Claim(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		q.Now = func() time.Time { return now.Add(-age) }
		report(t, q, id, task.Completed)
		q.Now = nil
		e, err := q.Find(id)
		if err != nil {
			t.Fatal(err)
		}
		e.Source.Archive = archive
		if err := q.write(q.path(doneDir, string(id)+".json"), e); err != nil {
			t.Fatal(err)
		}
		put(t, q.Spool, "logs/"+string(id)+".log", age)
		put(t, q.Spool, "artifacts/"+string(id)+"/result", age)
		put(t, q.Spool, "sources/"+archive, age)
	}
	ended("old", 100*day, "old.tar.gz")
	ended("shared", 100*day, "shared.tar.gz")
	ended("parent", 100*day, "parent.tar.gz")
	ended("young", 10*day, "shared.tar.gz")
	add(t, q, "child", "parent", "young")
	put(t, q.Spool, "logs/unknown.log", 100*day)
	put(t, q.Spool, "artifacts/unknown/result", 100*day)
	put(t, q.Spool, "tmp/bad.json.bad", 100*day)
	before := files(t, q.Spool)
	if err := q.Tidy(0); err != nil {
		t.Fatal(err)
	}
	if got := files(t, q.Spool); got != before {
		t.Errorf("without a time, this is left of\n%s:\n%s", before, got)
	}
	if err := q.Tidy(90 * day); err != nil {
		t.Fatal(err)
	}
	const want = "artifacts/parent/result artifacts/young/result done/parent.json done/young.json logs/parent.log logs/young.log new/child.json sources/parent.tar.gz sources/shared.tar.gz"
	if got := files(t, q.Spool); got != want {
		t.Errorf("left: %s\nwant: %s", got, want)
	}
	if got := wishes(t, q); got != "+child" {
		t.Errorf("wishes %q", got)
	}
}

// What is not there is not tidied.
func TestTidyNeedsTheSpool(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	if err := os.Rename(q.path(identityFile, ""), q.path("elsewhere", "")); err != nil {
		t.Fatal(err)
	}
	if err := q.Tidy(day); !fault.Is(err, fault.Unavailable) {
		t.Errorf("got %v", err)
	}
}

// Tasks that wait for each other end, and those that wait for them after them.
func TestTasksThatWaitForEachOther(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	add(t, q, "a", "b")
	add(t, q, "b", "c", "ready")
	add(t, q, "c", "a")
	add(t, q, "child", "c")
	add(t, q, "ready")
	add(t, q, "self", "self2")
	add(t, q, "self2", "ready")
	var got string
	for range 4 {
		got = wishes(t, q)
	}
	if got != "+ready" {
		t.Errorf("wishes %q", got)
	}
	for id, want := range map[task.ID]string{
		"a": "the task waits for itself: a after b after c after a",
		"b": "parent task c ended as error", "c": "parent task a ended as error", "child": "parent task c ended as error",
	} {
		if e, err := q.Find(id); err != nil || e.State != task.Error || e.Reason != want {
			t.Errorf("task %s: %q, %q, %v", id, e.State, e.Reason, err)
		}
	}
	if e, err := q.Find("self"); err != nil || e.State.Final() {
		t.Errorf("%+v, %v", e, err)
	}
}

// A task that is over and lies among the new ones is not offered.
func TestFinalAmongTheNew(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	e := queue.Entry{ID: "a", State: task.Failed, Reason: "of old", ExitCode: 3}
	if err := q.write(q.path(newDir, "a.json"), e); err != nil {
		t.Fatal(err)
	}
	if got := wishes(t, q); got != "" {
		t.Errorf("wishes %q", got)
	}
	if e, err := q.Find("a"); err != nil || e.State != task.Failed || e.Reason != "of old" || e.ExitCode != 3 || files(t, q.Spool) != "done/a.json" {
		t.Errorf("%+v, %v, %s", e, err, files(t, q.Spool))
	}
}

// A directory that cannot be read says nothing of the tasks in it.
func TestUnreadableIsNotAbsent(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	add(t, q, "a")
	if err := q.Claim(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(q.path(activeDir, ""), q.path("away", "")); err != nil {
		t.Fatal(err)
	}
	other := *q
	other.Agent = "other"
	if _, err := other.Find("a"); !fault.Is(err, fault.Unavailable) || errors.Is(err, queue.ErrGone) {
		t.Errorf("got %v", err)
	}
}

// The end of a task that is not to be run fails halfway: the task is not started then.
func TestAnEndThatFails(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	add(t, q, "parent")
	add(t, q, "child", "parent")
	if err := q.Claim(t.Context(), "parent"); err != nil {
		t.Fatal(err)
	}
	report(t, q, "parent", task.Failed)
	if err := os.Rename(q.path(tmpDir, ""), q.path("away", "")); err != nil {
		t.Fatal(err)
	}
	if actions, err := q.Actions(t.Context(), nil); err == nil || len(actions) > 0 {
		t.Errorf("%+v, %v", actions, err)
	}
	if err := os.Rename(q.path("away", ""), q.path(tmpDir, "")); err != nil {
		t.Fatal(err)
	}
	if got := wishes(t, q); got != "" {
		t.Errorf("wishes %q", got)
	}
	if e, err := q.Find("child"); err != nil || e.State != task.Error {
		t.Errorf("%+v, %v", e, err)
	}
}

// age makes a file two days old.
func age(t *testing.T, path string) {
	t.Helper()
	at := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(path, at, at); err != nil {
		t.Fatal(err)
	}
}
