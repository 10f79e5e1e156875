package spool

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

var start = time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)

func open(t *testing.T, dir, agent string) *Queue {
	t.Helper()
	s, err := Make(dir, start)
	if err != nil {
		t.Fatal(err)
	}
	q, err := s.For(agent)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func add(t *testing.T, q *Queue, id task.ID, after ...task.ID) {
	t.Helper()
	if err := q.Add(queue.Entry{ID: id, Slug: "slug-" + string(id), After: after, Command: []string{"true"}}); err != nil {
		t.Fatal(err)
	}
}

// wishes lists what the queue wants: +id to start, -id to stop.
func wishes(t *testing.T, q *Queue) string {
	t.Helper()
	actions, err := q.Actions(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var w []string
	for _, a := range actions {
		w = append(w, map[task.Kind]string{task.Start: "+", task.Stop: "-"}[a.Kind]+string(a.ID))
	}
	return strings.Join(w, " ")
}

func report(t *testing.T, q *Queue, id task.ID, state task.State) {
	t.Helper()
	if err := q.Report(t.Context(), id, task.Report{State: state, Reason: "because", ExitCode: 3}); err != nil {
		t.Fatal(err)
	}
}

// A file that the file system of the spool cannot have is no reason to try again, and the longest
// names are not too long.
func TestArtifactsOfOddNames(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	add(t, q, "a")
	put := func(name string) error {
		return q.PutArtifact(t.Context(), "a", task.Artifact{Path: name}, strings.NewReader("x"))
	}
	for _, name := range []string{strings.Repeat("x", 255), "d\xe9/f\xe9\n", "file", "dir/file"} {
		if err := put(name); err != nil {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	for _, name := range []string{strings.Repeat("x", 256), strings.Repeat(strings.Repeat("x", 200)+"/", 30) + "x", "file/x", "dir"} {
		if err := put(name); !errors.Is(err, queue.ErrBroken) || len(err.Error()) > 100 {
			t.Errorf("%.20q: %v", name, err)
		}
	}
	if left, err := os.ReadDir(q.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestTheLifeOfATask(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	add(t, q, "a")
	add(t, q, "b", "a")
	if got := wishes(t, q); got != "+a" {
		t.Errorf("wishes %q; b must wait for a", got)
	}
	if err := q.Claim(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := wishes(t, q); got != "+a" {
		t.Errorf("wishes %q; the action is repeated until the task runs", got)
	}
	report(t, q, "a", task.Running)
	if actions, err := q.Actions(t.Context(), func(id task.ID) bool { return id == "a" }); err != nil || len(actions) != 0 {
		t.Errorf("%+v, %v", actions, err)
	}
	if got := wishes(t, q); got != "+a" {
		t.Errorf("wishes %q; an agent that has no job of a task that runs is to look for it", got)
	}
	if err := q.PutLog(t.Context(), "a", strings.NewReader("hello\n")); err != nil {
		t.Fatal(err)
	}
	if err := q.PutArtifact(t.Context(), "a", task.Artifact{Path: "sub/x.txt"}, strings.NewReader("xyz")); err != nil {
		t.Fatal(err)
	}
	report(t, q, "a", task.Completed)
	report(t, q, "a", task.Completed) // again does no harm
	e, err := q.Find("a")
	if err != nil || e.State != task.Completed || e.Reason != "because" || e.ExitCode != 3 || e.Started.IsZero() || e.Ended.IsZero() || e.Agent != "me" {
		t.Errorf("%+v, %v", e, err)
	}
	if b, _ := os.ReadFile(q.Log("a")); string(b) != "hello\n" {
		t.Errorf("log %q", b)
	}
	if got := wishes(t, q); got != "+b" {
		t.Errorf("wishes %q", got)
	}
	b, err := q.Task(t.Context(), "b")
	if err != nil || !slices.Equal(b.Parents, []task.Parent{{ID: "a", Slug: "slug-a"}}) {
		t.Errorf("%+v, %v", b, err)
	}
	artifacts, err := q.Artifacts(t.Context(), "a")
	if err != nil || !slices.Equal(artifacts, []task.Artifact{{Path: "sub/x.txt", Size: 3}}) {
		t.Errorf("%+v, %v", artifacts, err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := q.GetArtifact(t.Context(), "a", artifacts[0], f); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(f.Name()); string(got) != "xyz" {
		t.Errorf("artifact %q", got)
	}
}

func TestAFailedParentEndsItsChildren(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	add(t, q, "a")
	add(t, q, "b", "a")
	add(t, q, "c", "nobody")
	report(t, q, "a", task.Failed)
	// That a parent is not there is believed after several looks over some minutes.
	now := start
	q.Now = func() time.Time { return now }
	for range 5 {
		if e, err := q.Find("c"); err != nil || e.State != task.Pending {
			t.Errorf("after %v: %+v, %v", now.Sub(start), e, err)
		}
		if got := wishes(t, q); got != "" {
			t.Errorf("wishes %q", got)
		}
		now = now.Add(time.Minute)
	}
	for id, reason := range map[task.ID]string{"b": "parent task a ended as failed", "c": "parent task nobody is gone"} {
		if e, err := q.Find(id); err != nil || e.State != task.Error || e.Reason != reason {
			t.Errorf("%s: %+v, %v", id, e, err)
		}
	}
}

func TestStop(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	add(t, q, "a")
	add(t, q, "b")
	if err := q.Claim(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []task.ID{"a", "b"} {
		if err := q.RequestStop(id); err != nil {
			t.Fatal(err)
		}
	}
	if got := wishes(t, q); got != "-a" {
		t.Errorf("wishes %q", got)
	}
	if e, _ := q.Find("b"); e.State != task.Stopped {
		t.Errorf("b is %s; nobody had taken it", e.State)
	}
	report(t, q, "a", task.Stopped)
	if got := wishes(t, q); got != "" {
		t.Errorf("wishes %q", got)
	}
	if err := q.RequestStop("a"); err != nil {
		t.Errorf("stopping what is over: %v", err)
	}
	if err := q.RequestStop("nobody"); !errors.Is(err, queue.ErrGone) {
		t.Errorf("got %v", err)
	}
}

// Of many agents that want a task, one gets it.
func TestOneAgentGetsIt(t *testing.T) {
	dir := t.TempDir()
	add(t, open(t, dir, "x"), "a")
	var won atomic.Int32
	var wg sync.WaitGroup
	for _, name := range strings.Split("abcdefghijklmnop", "") {
		q := open(t, dir, name)
		wg.Go(func() {
			switch err := q.Claim(t.Context(), "a"); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, queue.ErrNotMine):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d agents have the task", won.Load())
	}
	if _, err := open(t, dir, "other").Task(t.Context(), "a"); !errors.Is(err, queue.ErrNotMine) {
		t.Errorf("got %v", err)
	}
	if got := wishes(t, open(t, dir, "other")); got != "" {
		t.Errorf("wishes %q of somebody else's task", got)
	}
}

func TestKilledBetweenTheStepsOfTheEnd(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	add(t, q, "a")
	if err := q.Claim(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(q.activePath("a"))
	if err != nil {
		t.Fatal(err)
	}
	report(t, q, "a", task.Completed)
	if err := os.WriteFile(q.activePath("a"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if e, _ := q.Find("a"); e.State != task.Completed {
		t.Errorf("the task is %s again", e.State)
	}
	if got := wishes(t, q); got != "" {
		t.Errorf("wishes %q", got)
	}
}

func TestBadFiles(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	add(t, q, "good")
	for name, text := range map[string]string{
		"bad1.json": "{", "bad2.json": `{"id":"../../x","state":"pending"}`, "bad3.json": `{"id":"bad3","state":"odd"}`,
		"bad4.json": `{"id":"other","state":"pending"}`, "bad5.json": `{"id":"bad5","state":"pending","files":[{"name":"../x"}]}`,
		"..json": "x", "notes.txt": "x", "bad6.json": strings.Repeat(" ", maxEntry+1),
	} {
		if err := os.WriteFile(q.path(newDir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := wishes(t, q); got != "+good" {
		t.Errorf("wishes %q", got)
	}
	for _, id := range []task.ID{"bad1", "bad2", "bad3", "bad4", "bad5", "bad6"} {
		if e, err := q.Find(id); err != nil || e.State != task.Error || e.Reason == "" {
			t.Errorf("%s: %+v, %v", id, e, err)
		}
	}
	for _, name := range []string{"../x", "/etc/passwd", "a/../../x", ""} {
		if err := q.PutArtifact(t.Context(), "good", task.Artifact{Path: name}, strings.NewReader("x")); err == nil {
			t.Errorf("artifact %q is accepted", name)
		}
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add([]byte(`{"id":"a","state":"pending","group":"lr","key":"k 1","parameters":{"lr":"0.1","":"x"}}`))
	f.Add([]byte(`{"id":"a","state":"pending","group":"../lr","parameters":{"a":1}}`))
	f.Add([]byte(`{"id":"a","state":"pending","after":["b"],"files":[{"name":"x","url":"file:///x"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := ParseEntry(b)
		if err != nil {
			return
		}
		if _, err := task.ParseID(string(e.ID)); err != nil {
			t.Errorf("%q: %v", b, err)
		}
		for _, file := range e.Files {
			if strings.ContainsRune(file.Name, '/') {
				t.Errorf("%q: file %q", b, file.Name)
			}
		}
	})
}

// What cannot be read at this time is not the task's fault, and what is wrong with
// one file keeps no other task waiting.
func TestOneFileDoesNotHinderTheOthers(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	for _, id := range []task.ID{"bad-parent", "taken", "good"} {
		add(t, q, id)
	}
	add(t, q, "child", "bad-parent")
	if err := q.Claim(t.Context(), "taken"); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		q.path(doneDir, "bad-parent.json"): "cut o",
		q.activePath("taken"):              "cut o",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(q.path(newDir, "bad-parent.json")); err != nil {
		t.Fatal(err)
	}
	// A file system that does not answer, as far as a test can have one.
	if err := os.Symlink("unreadable.json", q.path(newDir, "unreadable.json")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(q.path(newDir, "pipe.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	actions, err := q.Actions(t.Context(), nil)
	if len(actions) != 1 || actions[0].ID != "good" {
		t.Errorf("actions %+v; want good alone", actions)
	}
	if err == nil {
		t.Fatal("nothing is said of the files")
	}
	for _, name := range []string{"bad-parent.json", "taken@me.json", "unreadable.json"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("nothing is said of %s: %v", name, err)
		}
	}
	if _, err := os.Lstat(q.path(newDir, "unreadable.json")); err != nil {
		t.Errorf("a task that could not be read is taken away: %v", err)
	}
	if e, err := q.Find("pipe"); err != nil || e.State != task.Error {
		t.Errorf("a pipe for a task: %+v, %v", e, err)
	}
}

// A file that is mostly holes is copied as such: its size may be more than a disk
// has room for.
func TestHolesStayHoles(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	add(t, q, "a")
	name := filepath.Join(t.TempDir(), "data.mdb")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const size = 1 << 30
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{0, 300 << 20, size - 3} {
		if _, err := f.WriteAt([]byte("abc"), at); err != nil {
			t.Fatal(err)
		}
	}
	a := task.Artifact{Path: "data.mdb"}
	if err := q.PutArtifact(t.Context(), "a", a, f); err != nil {
		t.Fatal(err)
	}
	back, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	if err := q.GetArtifact(t.Context(), "a", a, back); err != nil {
		t.Fatal(err)
	}
	info, err := back.Stat()
	if err != nil || info.Size() != size {
		t.Fatalf("%+v, %v", info, err)
	}
	if used := info.Sys().(*syscall.Stat_t).Blocks * 512; used > 1<<20 {
		t.Errorf("the copy takes %d bytes of disk", used)
	}
	for _, at := range []int64{0, 300 << 20, size - 3} {
		b := make([]byte, 3)
		if _, err := back.ReadAt(b, at); err != nil || string(b) != "abc" {
			t.Errorf("at %d: %q, %v", at, b, err)
		}
	}
	// One that becomes smaller, or empty, keeps nothing of what it was.
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := q.PutArtifact(t.Context(), "a", a, f); err != nil {
		t.Fatal(err)
	}
	if list, err := q.Artifacts(t.Context(), "a"); err != nil || len(list) != 1 || list[0].Size != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

// A parent that is not seen for a while, as on NFS, and then is, was never gone.
func TestAParentThatIsSeenLate(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	now := start
	q.Now = func() time.Time { return now }
	add(t, q, "child", "parent")
	for range 4 {
		if got := wishes(t, q); got != "" {
			t.Errorf("wishes %q", got)
		}
		now = now.Add(time.Minute)
	}
	add(t, q, "parent")
	if got := wishes(t, q); got != "+parent" {
		t.Errorf("wishes %q", got)
	}
	if err := os.Remove(q.path(newDir, "parent.json")); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	if got := wishes(t, q); got != "" {
		t.Errorf("wishes %q", got)
	}
	if e, err := q.Find("child"); err != nil || e.State != task.Pending {
		t.Errorf("%+v, %v; want it to wait: the parent was there meanwhile", e, err)
	}
}

// Neither an empty directory nor another spool in its place is the spool: nothing is
// found out from it, and nothing is made there.
func TestASpoolThatIsNotThere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	if _, err := Open(dir); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "not mounted") {
		t.Fatalf("opening none: %v", err)
	}
	q := open(t, dir, "me")
	add(t, q, "a")
	add(t, q, "b")
	if err := q.Claim(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	check := func(what, words string) {
		t.Helper()
		_, find := q.Find("a")
		_, actions := q.Actions(t.Context(), nil)
		for name, err := range map[string]error{
			"find": find, "actions": actions, "claim": q.Claim(t.Context(), "b"), "stop": q.RequestStop("a"),
			"report": q.Report(t.Context(), "a", task.Report{State: task.Completed}),
		} {
			if !fault.Is(err, fault.Unavailable) || errors.Is(err, queue.ErrGone) || errors.Is(err, queue.ErrNotMine) || !strings.Contains(err.Error(), words) {
				t.Errorf("%s, %s: %v; want %q", what, name, err, words)
			}
		}
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	check("gone", "not mounted")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	check("empty", "not mounted")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("made in the empty directory: %v, %v", entries, err)
	}
	open(t, dir, "me")
	check("another one", "it was spool "+q.ID+", and is spool ")
	if err := errors.Join(os.RemoveAll(dir), os.Rename(dir+".away", dir)); err != nil {
		t.Fatal(err)
	}
	if got := wishes(t, q); got != "+a +b" {
		t.Errorf("wishes %q", got)
	}
}

func TestHeartbeat(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	now := start
	q.Now = func() time.Time { return now }
	if beats, err := q.Agents(); len(beats) > 0 || err != nil {
		t.Errorf("%+v, %v", beats, err)
	}
	q.Beat = queue.Beat{Agent: "me", Host: "login1", PID: 7, Every: 10}
	wishes(t, q)
	b, err := q.Spool.Agent("me")
	if want := (queue.Beat{Agent: "me", Host: "login1", PID: 7, Every: 10, Seen: start}); b != want || b.Late(now) || err != nil {
		t.Errorf("%+v, %v", b, err)
	}
	if now = now.Add(5 * time.Minute); !b.Late(now) {
		t.Errorf("%+v is not late at %v", b, now)
	}
}

// What another agent has taken, this one cannot publish anything for, nor after its end.
func TestAnotherAgentsTask(t *testing.T) {
	dir := t.TempDir()
	q, other := open(t, dir, "me"), open(t, dir, "other")
	add(t, q, "a")
	if err := q.Claim(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := q.PutLog(t.Context(), "a", strings.NewReader("whole\n")); err != nil {
		t.Fatal(err)
	}
	refuses := func() {
		t.Helper()
		for what, err := range map[string]error{
			"log":      other.PutLog(t.Context(), "a", strings.NewReader("of another\n")),
			"artifact": other.PutArtifact(t.Context(), "a", task.Artifact{Path: "x"}, strings.NewReader("of another\n")),
			"running":  other.Report(t.Context(), "a", task.Report{State: task.Running}),
			"end":      other.Report(t.Context(), "a", task.Report{State: task.Failed}),
		} {
			if !errors.Is(err, queue.ErrNotMine) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if b, err := os.ReadFile(q.Log("a")); err != nil || string(b) != "whole\n" {
			t.Errorf("log: %q, %v", b, err)
		}
	}
	refuses()
	report(t, q, "a", task.Completed)
	refuses()
	if err := q.PutLog(t.Context(), "a", strings.NewReader("whole\nand more\n")); err != nil {
		t.Error(err)
	}
}

// The disk was full, or the tool killed, when a task was stopped that no agent had taken:
// any agent's turn ends it, and so does another request.
func TestHalfStopped(t *testing.T) {
	for name, finish := range map[string]func(*Queue) error{
		"a turn":          func(q *Queue) error { _, err := q.Actions(t.Context(), nil); return err },
		"another request": func(q *Queue) error { return q.RequestStop("a") },
	} {
		q := open(t, t.TempDir(), "me")
		add(t, q, "a")
		if err := errors.Join(os.WriteFile(q.path(stopDir, "a"), nil, 0o600), os.Rename(q.path(newDir, "a.json"), q.path(activeDir, "a@stopped.json"))); err != nil {
			t.Fatal(err)
		}
		all, err := q.List()
		e, findErr := q.Find("a")
		if err != nil || findErr != nil || len(all) != 1 || all[0].State != task.Stopping || all[0].Agent != "" || e.State != task.Stopping || e.Agent != "" {
			t.Errorf("%s: before: %+v, %+v, %v, %v", name, all, e, err, findErr)
		}
		if err := finish(q); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if e, err := q.Find("a"); err != nil || e.State != task.Stopped || e.Agent != "" || e.Reason != "stopped before it started" {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
		if left, err := filepath.Glob(q.path("*", "a*")); err != nil || len(left) != 1 {
			t.Errorf("%s: left: %v, %v", name, left, err)
		}
	}
}

// The files beside the tasks, that agents and tools leave for each other.
func FuzzFiles(f *testing.F) {
	q, err := Make(f.TempDir(), start)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"agent":"me","host":"login1","pid":7,"mode":"slurm","seen":"2026-11-20T18:00:00Z","every_seconds":10}`))
	f.Add([]byte(`{"agent":"../me","every_seconds":1e300,"seen":"9999-12-31T23:59:59Z"}`))
	f.Add([]byte(`{"id":"dfd16958-0e21-4675-8d50-6b3d1c9315b0","made":"2026-11-20T18:00:00Z"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		other := filepath.Join(q.Dir, tmpDir)
		for _, path := range []string{q.path(agentsDir, "me.json"), filepath.Join(other, identityFile)} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		beats, err := q.Agents()
		if err != nil || len(beats) > 1 || len(beats) == 1 && beats[0].Agent != "me" {
			t.Errorf("%q: %+v, %v", b, beats, err)
		}
		for _, beat := range beats {
			beat.Late(start)
		}
		if s, err := Open(other); (err == nil) != (s != nil && s.ID != "") {
			t.Errorf("%q: %+v, %v", b, s, err)
		}
	})
}

// An agent that ends signs off at once, but not for the one that has taken its place.
func TestSignOff(t *testing.T) {
	q := open(t, t.TempDir(), "me")
	q.Now = func() time.Time { return start }
	q.Beat = queue.Beat{Agent: "me", Host: "login1", PID: 7, Every: 10}
	if err := q.SignOff(); err != nil { // before its first turn
		t.Error(err)
	}
	wishes(t, q)
	late := func() bool {
		b, err := q.Spool.Agent("me")
		if err != nil {
			t.Error(err)
		}
		return b.Late(start)
	}
	if err := q.SignOff(); err != nil || !late() {
		t.Errorf("it is not late, %v", err)
	}
	next := open(t, q.Dir, "me")
	next.Now, next.Beat = q.Now, queue.Beat{Agent: "me", Host: "login1", PID: 8, Every: 10}
	wishes(t, next)
	if err := q.SignOff(); err != nil || late() {
		t.Errorf("it is late, %v", err)
	}
}
