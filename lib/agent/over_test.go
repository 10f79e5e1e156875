package agent

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/agent/code/transfer"
	"github.com/ponos-tools/ponos/lib/agent/program"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// overQueue knows that a task is completed, and tells so to those who ask for its state.
// Nothing may be published for it any more.
type overQueue struct {
	plainQueue
	t *testing.T
}

func (overQueue) Actions(context.Context, func(task.ID) bool) ([]task.Action, error) { return nil, nil }

func (overQueue) Task(_ context.Context, id task.ID) (task.Task, error) {
	return task.Task{ID: id}, nil
}

func (overQueue) State(context.Context, task.ID) (task.State, error) { return task.Completed, nil }

func (q overQueue) PutLog(context.Context, task.ID, io.ReadSeeker) error {
	q.t.Error("the log is published again")
	return nil
}

func (q overQueue) Report(_ context.Context, _ task.ID, r task.Report) error {
	q.t.Errorf("%q is reported", r.State)
	return nil
}

// shownRunner shows a job of the task still.
type shownRunner struct {
	plainRunner
	t      *testing.T
	shown  runner.Job
	onJobs func()
}

func endedAs(s task.State) runner.Job {
	return runner.Job{Sight: runner.Ended, End: runner.End{State: s}}
}

func (shownRunner) Name() string { return "shown" }

func (r shownRunner) Jobs(_ context.Context, known func() ([]runner.Ref, error)) ([]runner.Job, error) {
	_, err := known()
	if r.onJobs != nil {
		r.onJobs()
	}
	r.shown.Task, r.shown.ID = "over", "7"
	return []runner.Job{r.shown}, err
}

func (r shownRunner) Stop(context.Context, runner.Ref) error {
	r.t.Error("the job is cancelled")
	return nil
}

// finished is a state directory in which a task is over.
func finished(t *testing.T) *Store {
	t.Helper()
	store := testStore(t)
	d, err := store.Create("over")
	if err == nil {
		err = d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: "over", Attempt: 1, Job: "7"}}, Final: "completed", Ended: clock.Now()})
	}
	if err == nil {
		_, err = store.Finish("over")
	}
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// With the state directory lost, the queue is asked for the state of a task whose job is
// found: the log of one that is over is not replaced by a shorter one.
func TestAJobWhoseTaskIsOver(t *testing.T) {
	for _, shown := range []runner.Job{{Sight: runner.Runs}, endedAs(task.Completed), endedAs(task.Error)} {
		store := testStore(t)
		a := &Agent{Queue: overQueue{t: t}, Runner: shownRunner{t: t, shown: shown}, Store: store, Log: slog.New(slog.DiscardHandler), TaskFormat: "%(message)s"}
		if _, err := a.Poll(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(store.Task("over").Path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the task has a directory: %v", shown.Shows(), err)
		}
	}
}

// The state directory goes away in the middle of a turn, and comes back: nothing follows
// from the absence of what was in it, and nothing is made in its place.
func TestTheStateDirectoryGoesAwayInATurn(t *testing.T) {
	store := finished(t)
	away := store.Dir + ".away"
	r := shownRunner{t: t, shown: endedAs(task.Completed), onJobs: func() {
		if err := os.Rename(store.Dir, away); err != nil {
			t.Error(err)
		}
	}}
	a := &Agent{Queue: overQueue{t: t}, Runner: r, Store: store, Log: slog.New(slog.DiscardHandler), TaskFormat: "%(message)s"}
	if _, err := a.Poll(t.Context()); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(store.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was made in its place: %v", err)
	}
	if err := os.Rename(away, store.Dir); err != nil {
		t.Fatal(err)
	}
	r.onJobs = nil
	a.Runner = r
	if _, err := a.Poll(t.Context()); err != nil {
		t.Error(err)
	}
}

// Another tool ends a task, and moves its directory away, while a turn looks at its job: the turn has nothing to do for it.
func TestATaskIsEndedElsewhereInATurn(t *testing.T) {
	for _, tt := range []struct {
		reported task.State
		shown    runner.Job
		rules    string
	}{
		{task.Completed, endedAs(task.Completed), ""},
		{task.Error, endedAs(task.Error), ""},
		{task.Error, endedAs(task.Error), "any:2"},
		{task.Error, runner.Job{Sight: runner.Unbegun, End: runner.End{State: task.Error}}, ""},
		{task.Pending, runner.Job{Sight: runner.Unaccounted}, ""},
		{task.Running, runner.Job{Sight: runner.Unaccounted}, ""},
	} {
		store := testStore(t)
		d, err := store.Create("over")
		if err == nil {
			err = d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: "over", Attempt: 1, Job: "7", Rules: tt.rules}, Reported: tt.reported}})
		}
		if err != nil {
			t.Fatal(err)
		}
		r := shownRunner{t: t, shown: tt.shown, onJobs: func() {
			r, err := d.Read()
			if err == nil {
				r.Final, r.Ended = "completed", clock.Now()
				err = d.Write(r)
			}
			if err == nil {
				_, err = store.Finish("over")
			}
			if err != nil {
				t.Error(err)
			}
		}}
		a := &Agent{Queue: overQueue{t: t}, Runner: r, Store: store, Log: slog.New(slog.DiscardHandler), TaskFormat: "%(message)s"}
		if _, err := a.Poll(t.Context()); err != nil {
			t.Errorf("%+v: %v", tt, err)
		}
		if _, err := os.Stat(d.Path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: the task has a directory: %v", tt, err)
		}
		if tracked, _, _, err := store.loadTracked(); err != nil || len(tracked) > 0 {
			t.Errorf("%+v: the next turn knows %+v, %v", tt, tracked, err)
		}
	}
}

// A stop comes after the end, while the scheduler still shows the job: the task stays as
// it ended.
func TestAStopAfterTheEnd(t *testing.T) {
	a := &Agent{Queue: overQueue{t: t}, Runner: shownRunner{t: t, shown: runner.Job{Sight: runner.Runs}}, Store: finished(t), Log: slog.New(slog.DiscardHandler), TaskFormat: "%(message)s"}
	if o, err := a.Stop(t.Context(), "over"); err != nil || o.Event != "skipped" {
		t.Errorf("%+v, %v", o, err)
	}
}

// A record without a job of a task that the queue offers no more goes after a while.
func TestRecordsOfTasksThatAreOver(t *testing.T) {
	store := testStore(t)
	for id, intent := range map[task.ID]time.Duration{"old": -2 * leftoverAge, "fresh": -time.Hour} {
		d, err := store.Create(id)
		if err == nil {
			err = d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: id, Attempt: 1}}, Intent: clock.Now().Add(intent)})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// What was killed right after it had made a directory, or had locked it, leaves no record.
	ago := time.Now().Add(-2 * leftoverAge)
	for _, id := range []task.ID{"made", "locked", "making"} {
		d, err := store.Create(id)
		if err == nil && id == "locked" {
			err = errors.Join(os.WriteFile(d.file(lockFile), nil, 0o600), os.Chtimes(d.file(lockFile), ago, ago))
		}
		if err == nil && id == "made" {
			err = os.Chtimes(d.Path, ago, ago)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	a := &Agent{Queue: overQueue{t: t}, Store: store, Environments: &environment.Store{Dir: t.TempDir()}, Transfers: &transfer.Store{Dir: t.TempDir()}}
	if err := a.Tidy(t.Context(), 30*24*time.Hour, 24*time.Hour); err != nil {
		t.Error(err)
	}
	ids, err := store.IDs()
	slices.Sort(ids)
	if err != nil || !slices.Equal(ids, []task.ID{"fresh", "making"}) {
		t.Errorf("%q are left, %v", ids, err)
	}
}

// A task whose job did not begin is submitted again, whether the queue offers its start or
// not; once.
func TestATaskToBeSubmittedAgain(t *testing.T) {
	store := testStore(t)
	d, err := store.Create("again")
	if err == nil {
		err = d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: "again", Attempt: 1}}, Intent: clock.Now(), Retry: clock.Now(), Tries: 1})
	}
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{Queue: overQueue{t: t}, Runner: shownRunner{t: t, shown: endedAs(task.Completed)}, Store: store, Log: slog.New(slog.DiscardHandler), TaskFormat: "%(message)s"}
	if actions, err := a.Poll(t.Context()); err != nil || len(actions) != 1 || actions[0].ID != "again" || actions[0].Kind != task.Start {
		t.Errorf("%+v, %v", actions, err)
	}
	if all := withAgain([]task.Action{{Kind: task.Stop, ID: "again"}}, []Record{newRecord("again")}); len(all) != 1 {
		t.Errorf("%+v", all)
	}
}

// A job is found that ponos-start could not write down, and that has ended: nothing is said of
// its end before the journal was read.
func TestAJobThatIsFoundAtItsEnd(t *testing.T) {
	store := testStore(t)
	d, err := store.Create("over")
	if err == nil {
		err = d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: "over", Attempt: 1}}, Intent: clock.Now()})
	}
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{Queue: overQueue{t: t}, Runner: shownRunner{t: t, shown: endedAs(task.Error)}, Store: store, Log: slog.New(slog.DiscardHandler), TaskFormat: "%(message)s"}
	if _, err := a.Poll(t.Context()); err != nil {
		t.Error(err)
	}
	if r, err := d.Read(); err != nil || r.Job != "7" || r.Lost {
		t.Errorf("%+v, %v", r, err)
	}
}

// Whoever begins a task may be killed before anything is written down; what is left goes
// after a while, and nothing else does.
func TestDirectoriesInWhichNothingWasBegun(t *testing.T) {
	store := testStore(t)
	old := time.Now().Add(-2 * leftoverAge) // as the kernel has it
	for _, id := range []task.ID{"begun", "fresh", "held", "nothing"} {
		d, err := store.Create(id)
		if err != nil {
			t.Fatal(err)
		}
		l, err := d.TryLock()
		if err != nil {
			t.Fatal(err)
		}
		if id == "begun" {
			err = d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: id, Attempt: 1}}})
		}
		if id != "fresh" {
			err = errors.Join(err, os.Chtimes(d.file(lockFile), old, old))
		}
		if id == "held" {
			defer l.Close()
		} else {
			err = errors.Join(err, l.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := store.removeLeftovers(clock.Now().Add(-leftoverAge)); err != nil {
		t.Error(err)
	}
	for id, want := range map[task.ID]bool{"begun": true, "fresh": true, "held": true, "nothing": false} {
		if _, err := os.Stat(store.Task(id).Path); (err == nil) != want {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// pastRunner looks for jobs of the past, which takes it a moment.
type pastRunner struct {
	shownRunner
	calls *atomic.Int32
}

func (r pastRunner) Can() runner.Abilities { return runner.Abilities{Past: r} }

func (r pastRunner) Past(context.Context, time.Time, func(task.ID) string) ([]runner.Job, error) {
	r.calls.Add(1)
	time.Sleep(50 * time.Millisecond)
	return nil, nil
}

// Many tasks are started by name before the first turn: jobs of the past are looked for
// once, and none of the tasks fails by it.
func TestManyStartsBeforeTheFirstTurn(t *testing.T) {
	var calls atomic.Int32
	a := &Agent{Queue: overQueue{t: t}, Runner: pastRunner{shownRunner{t: t, shown: endedAs(task.Completed)}, &calls}, Store: testStore(t), Log: slog.New(slog.DiscardHandler), TaskFormat: "%(message)s"}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := a.recoverJobs(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if calls.Load() != 1 {
		t.Errorf("%d looks", calls.Load())
	}
	// Another process may be at it.
	again := &Agent{Queue: a.Queue, Runner: a.Runner, Store: testStore(t), Log: a.Log, TaskFormat: a.TaskFormat}
	turn, err := again.Store.TryTurn()
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, func() { _ = turn.Close() })
	if err := again.recoverJobs(t.Context()); err != nil {
		t.Error(err)
	}
}

// The program of an earlier version goes when no task is left whose job may run it, and no job is whose task is not known.
func TestProgramsOfEarlierVersions(t *testing.T) {
	store, ago := testStore(t), time.Now().Add(-2*leftoverAge)
	programs := &program.Store{Dir: t.TempDir()}
	const named, unnamed = "00000000000000aa", "00000000000000bb"
	for _, name := range []string{named, unnamed} {
		dir := filepath.Join(programs.Dir, name)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chtimes(dir, ago, ago)); err != nil {
			t.Fatal(err)
		}
	}
	left := func() (names []string) {
		t.Helper()
		all, err := filepath.Glob(filepath.Join(programs.Dir, "0*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range all {
			names = append(names, filepath.Base(path))
		}
		return names
	}
	jobs := &fixedJobs{err: errors.New("squeue: no answer")}
	a := &Agent{Store: store, Programs: programs, Runner: jobs}
	write := func(id task.ID, program string) {
		t.Helper()
		d, err := store.Create(id)
		if err == nil {
			err = d.Write(Record{Tracked: Tracked{Ref: runner.Ref{Task: id, Attempt: 1}}, Intent: clock.Now(), Program: program})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	prune := func() {
		t.Helper()
		if err := a.prunePrograms(t.Context(), clock.Now().Add(-leftoverAge)); (err == nil) != (jobs.err == nil) {
			t.Error(err)
		}
	}
	write("one", named)
	if prune(); !slices.Equal(left(), []string{named, unnamed}) {
		t.Errorf("not knowing the jobs, %q are left", left())
	}
	jobs.err = nil
	jobs.jobs = []runner.Job{{Task: "one", ID: "1", Sight: runner.Waits}, {Task: "strange", ID: "2", Sight: runner.Waits}}
	if prune(); !slices.Equal(left(), []string{named, unnamed}) {
		t.Errorf("with the job of a task without a record, %q are left", left())
	}
	jobs.jobs[1] = runner.Job{Task: "strange", ID: "2", Sight: runner.Ended, End: runner.End{State: task.Completed}}
	write("adopted", "") // nobody knows what its job runs
	if prune(); !slices.Equal(left(), []string{named, unnamed}) {
		t.Errorf("%q are left", left())
	}
	write("adopted", named)
	if prune(); !slices.Equal(left(), []string{named}) {
		t.Errorf("%q are left", left())
	}
}

// fixedJobs is a runner with these jobs.
type fixedJobs struct {
	plainRunner
	jobs []runner.Job
	err  error
}

func (r *fixedJobs) Jobs(context.Context, func() ([]runner.Ref, error)) ([]runner.Job, error) {
	return r.jobs, r.err
}

// A task that waited in a pool, and began in a pilot that was requeued, is submitted again: its place in the pool, which has the name
// of its job from before it began, is not taken for a job that waits.
func TestARenamedJobIsNotAdoptedAgain(t *testing.T) {
	a := &Agent{Queue: paperQueue{}, Runner: codeRunner{}, Store: testStore(t), Log: slog.New(slog.DiscardHandler), TaskFormat: "%(message)s"}
	d, err := a.Store.Create("a")
	r := newRecord("a")
	r.take("pack.1", clock.Now())
	r.Intent = clock.Now()
	if err = errors.Join(err, d.Write(r)); err != nil {
		t.Fatal(err)
	}
	if r, err = d.Read(); err != nil {
		t.Fatal(err)
	}
	begun := runner.Job{Task: "a", ID: "16.1", Instead: "pack.1", Claim: runner.Renamed, Sight: runner.Runs}
	k, err := a.settleOne(t.Context(), r.Tracked, begun, true, nil)
	if err != nil || k.Job != "16.1" {
		t.Fatalf("%+v, %v", k, err)
	}
	lost := runner.Job{Task: "a", ID: "16.1", Sight: runner.Unbegun, Reason: "its pilot job was requeued", End: runner.End{State: task.Error}}
	if k, err := a.settleOne(t.Context(), *k, lost, true, nil); err != nil || k != nil {
		t.Fatalf("%+v, %v", k, err)
	}
	if k, err := a.adopt(t.Context(), runner.Job{Task: "a", ID: "pack.1", Sight: runner.Waits}, true, nil); err != nil || k != nil {
		t.Errorf("adopted: %+v, %v", k, err)
	}
}

// paperQueue has each task.
type paperQueue struct{ queue.Queue }

func (paperQueue) Report(context.Context, task.ID, task.Report) error   { return nil }
func (paperQueue) PutLog(context.Context, task.ID, io.ReadSeeker) error { return nil }
func (paperQueue) State(context.Context, task.ID) (task.State, error)   { return task.Running, nil }
func (paperQueue) Task(_ context.Context, id task.ID) (task.Task, error) {
	return task.Task{ID: id, State: task.Running, Command: []string{"true"}}, nil
}
