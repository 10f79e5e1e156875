package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/agent/code/transfer"
	"github.com/ponos-tools/ponos/lib/agent/program"
	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/remove"
	"github.com/ponos-tools/ponos/lib/base/watch"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Agent is one agent between a queue and a runner.
type Agent struct {
	Queue        queue.Queue
	Runner       runner.Runner
	Store        *Store
	Environments *environment.Store
	Log          *slog.Logger

	Transfers  *transfer.Store
	TaskFormat string // of the agent's lines in a task's log
	Python     string
	PIPFlags   string
	ConfigFlag string // before the configuration file of a worker without network
	LocalCode  bool   // repositories on this machine's file systems are allowed
	Now        func() time.Time
	// AskInterval is how often the queue is asked for the state of a task whose job costs money;
	// 0: never.
	AskInterval time.Duration
	// WhyRefused explains why jobs with these needs may be refused, as far as that is known; nil
	// or "": no reason is known.
	WhyRefused func(ctx context.Context, n runner.Needs) string
	// Hopeless explains why a job with these needs can never start; nil or "": no reason is known.
	Hopeless func(ctx context.Context, n runner.Needs) string
	// LongestTime is the time limit that no job may exceed; 0: there is none.
	LongestTime time.Duration
	// Request returns what a task needs, for queues that leave that to the configuration.
	Request func(t task.Task) task.Request
	// Retry holds the retry rules of tasks that have none of their own.
	Retry string
	// Ended is called with each task that has ended and has cost something.
	Ended func(task.Outcome)
	// Places limits, by its capacity, how many tasks are prepared and submitted at the same time;
	// nil: no limit. Tasks that wait to be submitted with others occupy no place.
	Places chan struct{}
	// KeepSize limits, in bytes, what is kept of the working directory of a task; 0: nothing is.
	KeepSize int64
	// MaxLog limits, in bytes, what is written of the output of a command; 0: it is not limited.
	MaxLog int64
	// GiveUp is how long a task may wait for its code; 0: it ends at the first failure.
	GiveUp time.Duration
	// Programs are those that jobs run; nil: the runner has its own.
	Programs *program.Store
	// Patience is how long a turn waits for uploads; 0: 5 seconds.
	Patience time.Duration

	uploads    uploads
	batches    batches
	recovering sync.Mutex
	room       Room
	counted    time.Time // when the runner was last asked for limits
	refusals   struct {  // the last one by a limit
		sync.Mutex
		of     string
		at     time.Time
		limits []runner.Limit
	}
	notices   notices
	shown     watch.Watch[map[task.ID]runner.Job]
	shownOnce sync.Once
}

func (a *Agent) now() time.Time {
	if a.Now != nil {
		return a.Now()
	}
	return clock.Now()
}

// forgotten reports whether an error of the queue means that the task no longer belongs to this
// agent.
func forgotten(err error) bool {
	return errors.Is(err, queue.ErrGone) || errors.Is(err, queue.ErrNotMine)
}

// Tidy removes old files that are no longer used: unused environments and downloads, and
// directories of ended tasks.
func (a *Agent) Tidy(ctx context.Context, retention, keep time.Duration) error {
	now := a.now()
	unused, leftover := now.Add(-keep), now.Add(-leftoverAge)
	return errors.Join(
		a.removeOver(ctx, leftover), a.Store.Prune(now.Add(-retention)), a.Store.removeLeftovers(leftover),
		a.Environments.Prune(unused), a.Transfers.Prune(unused, leftover), a.prunePrograms(ctx, leftover))
}

// prunePrograms removes the programs of other versions that no job has used since a time and that nothing names: no task
// that may have a job, and no job that the runner knows of.
func (a *Agent) prunePrograms(ctx context.Context, before time.Time) error {
	if a.Programs == nil {
		return nil
	}
	return a.Programs.Prune(before, func() (named []string, known bool, err error) { return a.namedPrograms(ctx) })
}

// namedPrograms returns the programs that jobs run or may come to run. It is not known of a job whose task has no record, as
// that of a lost state directory, and of a task whose record does not say it.
func (a *Agent) namedPrograms(ctx context.Context) (named []string, known bool, err error) {
	m, err := a.remember()
	if err != nil {
		return nil, false, err
	}
	// First, as the record of a task comes before its job.
	jobs, err := a.Runner.Jobs(ctx, func() ([]runner.Ref, error) { return m.refs, nil })
	if err != nil {
		return nil, false, err
	}
	ids, err := a.Store.IDs()
	if err != nil {
		return nil, false, err
	}
	recorded := map[task.ID]bool{}
	for _, id := range ids {
		switch r, err := a.Store.Task(id).Read(); {
		case errors.Is(err, fs.ErrNotExist), err == nil && r.Intent.IsZero():
		case err != nil || r.Program == "":
			return nil, false, nil
		default:
			named = append(named, r.Program)
			recorded[id] = true
		}
	}
	known = !slices.ContainsFunc(jobs, func(j runner.Job) bool {
		return !j.Sight.Over() && !recorded[j.Task] && j.Claim != runner.Strange
	})
	return named, known, nil
}

// removeOver finishes tasks without a job whose start was recorded before a time, if the queue
// says that they have ended or does not give them to this agent. The queue does not offer such
// tasks again.
func (a *Agent) removeOver(ctx context.Context, before time.Time) error {
	ids, err := a.Store.IDs()
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		d := a.Store.Task(id)
		waits := func() bool {
			r, err := d.Read()
			return err == nil && r.Job == "" && r.Intent.Before(before)
		}
		if !waits() {
			continue
		}
		held, err := d.TryLock()
		if err != nil {
			continue // another process works on it
		}
		if waits() {
			t, err := a.Queue.Task(ctx, id)
			if err == nil {
				t.State, err = a.stateOf(ctx, t)
			}
			if forgotten(err) || err == nil && t.State.Final() {
				errs = append(errs, a.finish(id))
			}
		}
		errs = append(errs, held.Close())
	}
	return errors.Join(errs...)
}

// publishEnd publishes the log, artifacts and final state of a task that has no job, or whose job
// has ended, and then moves its directory to done/. Each step may be repeated.
func (a *Agent) publishEnd(ctx context.Context, d Dir, process string, r task.Report) error {
	err := a.publishOnce(ctx, d, process, r)
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	files := a.Transfers.Kept(process, d.id)
	if _, statErr := os.Lstat(files); r.State == task.Completed || process == noArtifacts || statErr != nil || remove.All(files) != nil {
		return err
	}
	r.Reason = joinReasons(r.Reason, fullDisk)
	return a.publishOnce(ctx, d, process, r)
}

// publishOnce is publishEnd without the retry after a full disk.
func (a *Agent) publishOnce(ctx context.Context, d Dir, process string, r task.Report) error {
	known, readErr := d.Read()
	// Files first: their failures belong in the log, and a final state lets child tasks start.
	if process != noArtifacts {
		if err := a.keepFiles(d, &known, process, &r); err != nil {
			return err
		}
		tell := func(format string, args ...any) { a.tellOnce(d, "ERROR", fmt.Sprintf(format, args...)) }
		if err := a.publishArtifacts(ctx, d, process, tell); err != nil {
			return err
		}
	}
	if readErr == nil {
		r.Job = known.Job
		r.Began, r.Ended = times(d, known)
		if run, err := record.ReadRun(d.Path, r.Job); err == nil {
			r.CPU, r.Memory = run.Used.CPU, run.Used.Memory
		}
	}
	if err := a.sayEnd(d, r); err != nil {
		return err
	}
	if err := a.putLog(ctx, d); err != nil {
		return err
	}
	if err := a.Queue.Report(ctx, d.id, r); err != nil {
		return err
	}
	err := readErr
	if err == nil {
		known.Final, known.Ended = string(r.State), a.now()
		err = d.Note(known)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	a.Log.Info("task ended", "task", d.id, "state", r.State, "reason", r.Reason)
	return a.finish(d.id)
}

// publishArtifacts publishes a task's artifacts. A task that has emptied PONOS_DATA/current with its
// contents has removed a link, and has written into a directory of its own since.
func (a *Agent) publishArtifacts(ctx context.Context, d Dir, process string, tell func(format string, args ...any)) error {
	if err := a.Transfers.Publish(ctx, process, d.id, tell); err != nil {
		return err
	}
	published, err := os.Stat(a.Transfers.Artifacts(process, d.id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !transfer.Lasting(err) {
		return err
	}
	for _, name := range []string{"current", string(d.id)} {
		if err := a.publishOwn(ctx, filepath.Join(d.file(viewDir), name), published, d.id, tell); err != nil {
			return err
		}
	}
	return nil
}

// publishOwn publishes what is in the place of a link to the directory that was published.
func (a *Agent) publishOwn(
	ctx context.Context, own string, published fs.FileInfo, id task.ID, tell func(format string, args ...any),
) error {
	info, err := os.Lstat(own)
	if err == nil && info.IsDir() {
		return a.Transfers.PublishFrom(ctx, own, id, tell)
	}
	if err == nil {
		info, err = os.Stat(own)
	}
	switch {
	case err == nil && !os.SameFile(info, published):
		tell("%q is not published: it is neither the link of the agent nor a directory", own)
	case err != nil && !errors.Is(err, fs.ErrNotExist) && !transfer.Lasting(err):
		return err
	}
	return nil
}

// times returns when a task's job began the task and when its command ended, from the modification
// times of files that the job script creates; zero where there is no such file.
func times(d Dir, r Record) (began, ended time.Time) {
	if info, err := os.Lstat(d.file(record.Owner(r.Attempt))); err == nil {
		began = clock.Modified(info)
	}
	if run, err := record.ReadRun(d.Path, r.Job); err == nil && run.Over() && !began.IsZero() {
		if info, err := os.Stat(d.file(record.Journal(r.Job, run.Restart))); err == nil && !clock.Modified(info).Before(began) {
			ended = clock.Modified(info)
		}
	}
	return began, ended
}

// sayEnd appends the end of a task to its log. An earlier attempt at this may have written the
// same line, or, if it failed and the result changed since, a different one.
func (a *Agent) sayEnd(d Dir, r task.Report) error {
	level := "INFO"
	if r.State != task.Completed && r.State != task.Stopped {
		level = "ERROR"
	}
	lines := []line{{level, "task " + string(r.State)}}
	if r.Reason != "" {
		lines[0].text += ": " + strings.Join(strings.Fields(r.Reason), " ")
	}
	if r.Cost > 0 {
		lines = append(lines, line{"INFO", fmt.Sprintf("cost: about $%.4f", r.Cost)})
	}
	tail, err := readTail(d)
	if err != nil || a.said(tail, true, lines...) {
		return err
	}
	log, err := a.openLog(d, tailFile)
	if err != nil {
		return err
	}
	for _, l := range lines {
		log.Say(l.level, "%s", l.text)
	}
	return log.Close()
}

// noArtifacts stands for the process of a task that has never run.
const noArtifacts = "\x00"

func (a *Agent) putLog(ctx context.Context, d Dir) error {
	whole, err := openWhole(d)
	if err != nil {
		return err
	}
	defer whole.Close()
	if whole.total == 0 {
		return nil
	}
	err = a.Queue.PutLog(ctx, d.id, whole)
	if errors.Is(err, queue.ErrBroken) {
		a.Log.Error("log is not published", "task", d.id, "error", err)
		return nil
	}
	return err
}

// tellOnce adds a line to the end of a task's log, unless it is there from an earlier attempt.
func (a *Agent) tellOnce(d Dir, level, message string) {
	message = strings.ReplaceAll(message, "\n", " ")
	if tail, err := readTail(d); err == nil && a.said(tail, false, line{level, message}) {
		return
	}
	log, err := a.openLog(d, tailFile)
	if err != nil {
		return
	}
	defer log.Close()
	log.Say(level, "%s", message)
}
