package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/agent/code/transfer"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// slowQueue takes its time for artifacts.
type slowQueue struct {
	plainQueue
	goOn     chan error
	puts     atomic.Int32
	beats    atomic.Int32
	reported chan task.Report
}

func (q *slowQueue) Actions(context.Context, func(task.ID) bool) ([]task.Action, error) {
	q.beats.Add(1)
	return []task.Action{{Kind: task.Start, ID: "ended"}, {Kind: task.Start, ID: "new"}}, nil
}

func (q *slowQueue) PutLog(context.Context, task.ID, io.ReadSeeker) error { return nil }

func (q *slowQueue) PutArtifact(ctx context.Context, _ task.ID, _ task.Artifact, _ io.ReadSeeker) error {
	q.puts.Add(1)
	select {
	case err := <-q.goOn:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (q *slowQueue) Report(_ context.Context, _ task.ID, r task.Report) error {
	q.reported <- r
	return nil
}

// overRunner says that all jobs are over.
type overRunner struct{ plainRunner }

func (overRunner) Name() string { return "over" }

func (overRunner) Jobs(_ context.Context, known func() ([]runner.Ref, error)) (jobs []runner.Job, err error) {
	refs, err := known()
	for _, r := range refs {
		jobs = append(jobs, runner.Job{Task: r.Task, ID: r.Job, Sight: runner.Ended, End: runner.End{State: task.Completed}})
	}
	return jobs, err
}

// What a task leaves may take hours to publish. The agent's turns go on meanwhile.
func TestATurnDoesNotWaitForWhatIsPublished(t *testing.T) {
	dir := t.TempDir()
	q := &slowQueue{goOn: make(chan error), reported: make(chan task.Report, 1)}
	store := testStore(t)
	a := &Agent{
		Queue: q, Runner: overRunner{}, Store: store, Environments: &environment.Store{Dir: dir}, Log: slog.New(slog.DiscardHandler),
		Transfers: &transfer.Store{Queue: q, Processes: dir}, TaskFormat: "%(message)s", Patience: 20 * time.Millisecond,
	}
	d, err := store.Create("ended")
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: "ended", Attempt: 1, Job: "7"}}}); err != nil {
		t.Fatal(err)
	}
	large := a.Transfers.Artifacts("", "ended")
	if err := os.MkdirAll(large, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(large, "large"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	turn := func() {
		t.Helper()
		actions, err := a.Poll(t.Context())
		if err != nil || len(actions) != 1 || actions[0].ID != "new" {
			t.Errorf("%+v, %v; want new to be started, and ended not again", actions, err)
		}
	}
	turn()
	turn()
	for q.puts.Load() == 0 { // a turn may be over before what it publishes has begun
		time.Sleep(time.Millisecond)
	}
	if q.beats.Load() != 2 || q.puts.Load() != 1 {
		t.Errorf("%d turns, %d publications; want 2 and 1", q.beats.Load(), q.puts.Load())
	}
	// What fails is told by who waits, and done again at the next turn.
	q.goOn <- errors.New("store is full")
	if err := a.WaitUploads(t.Context()); err == nil || !strings.Contains(err.Error(), "task ended: ") || !strings.Contains(err.Error(), "store is full") {
		t.Errorf("%v", err)
	}
	turn()
	q.goOn <- nil
	if err := a.WaitUploads(t.Context()); err != nil {
		t.Error(err)
	}
	if r := <-q.reported; r.State != task.Completed {
		t.Errorf("%+v", r)
	}
	if _, ok, err := store.Finished("ended"); !ok || err != nil {
		t.Error("the task is not over")
	}
}

// brokenQueue fails in the same way whatever task it is asked about.
type brokenQueue struct{ plainQueue }

func (brokenQueue) Actions(context.Context, func(task.ID) bool) ([]task.Action, error) {
	return nil, nil
}

func (brokenQueue) PutLog(_ context.Context, id task.ID, _ io.ReadSeeker) error {
	if id == "own" {
		return errors.New("its log is too long")
	}
	return fmt.Errorf("spool: open active/%s@me.json: permission denied", id)
}

// What is wrong with all tasks in the same way is reported once.
func TestAFailureOfAllTasksIsReportedOnce(t *testing.T) {
	store := testStore(t)
	a := &Agent{Queue: brokenQueue{}, Runner: overRunner{}, Store: store, Environments: &environment.Store{Dir: t.TempDir()}, Log: slog.New(slog.DiscardHandler), Transfers: &transfer.Store{Queue: brokenQueue{}, Processes: t.TempDir()}, TaskFormat: "%(message)s"}
	for _, id := range []task.ID{"task-1", "task-2", "task-3", "own"} {
		d, err := store.Create(id)
		if err == nil {
			err = d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: id, Attempt: 1, Job: "7"}}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.Poll(t.Context())
	want := "task own: its log is too long\ntask task-1 and 2 others: spool: open active/task-1@me.json: permission denied"
	if err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

// A line for which the disk has no room is an error: the end of a log is written again at
// the next turn.
func TestALogOnAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	log := &taskLog{agent: &Agent{TaskFormat: "%(message)s"}, file: full}
	log.Say("INFO", "task completed")
	if err := log.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v", err)
	}
}

// What the agent adds to a log is there once, and a message that is part of another is another one.
func TestWhatIsSaidOnce(t *testing.T) {
	d, err := testStore(t).Create("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%(message)s", "%(asctime)s %(levelname)s: %(message)s (%(asctime)s)", "<%(message)s> %% \xff"} {
		now := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
		a := &Agent{TaskFormat: format, Now: func() time.Time { now = now.Add(time.Second + time.Millisecond); return now }}
		want := 0
		for _, message := range []string{"12 more are not published", "2 more are not published", "2 more", "\"a\xff\" is not published", "two\nlines"} {
			want++
			for range 2 {
				a.tellOnce(d, "ERROR", message)
			}
		}
		for _, reason := range []string{"exit code 12", "exit code 1", ""} {
			want++
			for range 2 {
				if err := a.sayEnd(d, task.Report{State: task.Failed, Reason: reason}); err != nil {
					t.Fatal(err)
				}
			}
		}
		said, err := os.ReadFile(d.file(tailFile))
		if got := strings.Count(string(said), "\n"); got != want || err != nil {
			t.Errorf("%q: %d lines, want %d: %q, %v", format, got, want, said, err)
		}
		if err := os.Remove(d.file(tailFile)); err != nil {
			t.Fatal(err)
		}
	}
}

// Artifacts behind a dead mount are reported once in each turn, and hold up no other task. When they
// can be read again, they are published, and the task ends.
func TestADeadMount(t *testing.T) {
	q := &slowQueue{goOn: make(chan error), reported: make(chan task.Report, 2)}
	close(q.goOn)
	store := testStore(t)
	a := &Agent{
		Queue: q, Runner: overRunner{}, Store: store, Environments: &environment.Store{Dir: t.TempDir()}, Log: slog.New(slog.DiscardHandler),
		Transfers: &transfer.Store{Queue: q, Processes: t.TempDir()}, TaskFormat: "%(message)s", Patience: time.Minute,
	}
	for _, id := range []task.ID{"dead", "fine"} {
		d, err := store.Create(id)
		if err == nil {
			err = d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: id, Attempt: 1, Job: "7"}}})
		}
		dir := filepath.Join(a.Transfers.Artifacts("", id), "mount")
		if err = errors.Join(err, os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "result"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	mount := filepath.Join(a.Transfers.Artifacts("", "dead"), "mount")
	needs.Root(t, "to mount a file system")
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		needs.Missing(t, "/dev/fuse")
	}
	needs.Mount(t, mount, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse.Fd()))
	fuse.Close() // nothing answers
	for range 2 {
		_, err := a.Poll(t.Context())
		want := "task dead: artifacts of task dead: statat mount: transport endpoint is not connected"
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, ok, err := store.Finished("fine"); !ok || err != nil || q.puts.Load() != 1 {
		t.Errorf("the other task has not ended: %v, %d artifacts", err, q.puts.Load())
	}
	if err := syscall.Unmount(mount, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Poll(t.Context()); err != nil {
		t.Error(err)
	}
	if _, ok, err := store.Finished("dead"); !ok || err != nil || q.puts.Load() != 2 {
		t.Errorf("the task has not ended: %v, %d artifacts", err, q.puts.Load())
	}
}

// Failures that differ only in the task become one, which counts each task once.
func TestJoinFailures(t *testing.T) {
	full, damaged := errors.New("disk full"), errors.New("tasks/a/task.json: damaged")
	for _, tt := range []struct {
		failed []failure
		want   string
	}{
		{[]failure{{"a", full}}, "task a: disk full"},
		{[]failure{{"b", full}, {"a", full}}, "task a and 1 other: disk full"},
		{[]failure{{"a", full}, {"b", full}, {"c", full}}, "task a and 2 others: disk full"},
		{[]failure{{"a", damaged}, {"a", errors.New("tasks/a/task.json: damaged")}}, "task a: tasks/a/task.json: damaged"},
		{[]failure{{"b", full}, {"a", full}, {"b", full}}, "task a and 1 other: disk full"},
		{[]failure{{"a", full}, {"a", damaged}}, "task a: disk full\ntask a: tasks/a/task.json: damaged"},
	} {
		if got := errors.Join(joinFailures(tt.failed)...).Error(); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.failed, got, tt.want)
		}
	}
}
