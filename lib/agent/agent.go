package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/environment"
	"github.com/ponos-tools/ponos/lib/queue"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/task"
)

// Agent is one agent between a queue and a runner.
type Agent struct {
	Queue        queue.Queue
	Runner       runner.Runner
	Store        *Store
	Environments *environment.Store
	Log          *slog.Logger

	ArtifactsDir string
	FilesDir     string // models and data sets, shared by tasks
	TaskFormat   string // of the agent's lines in a task's log
	Python       string
	PIPFlags     string
	ConfigFlag   string // before the configuration file of a worker without network
	LocalCode    bool   // repositories on this machine's file systems are allowed
	Now          func() time.Time
	// AskInterval is how often the queue is asked for the state of a task whose job costs
	// money: 0 is never.
	AskInterval time.Duration
	// WhyRefused says what speaks against jobs with these needs, as far as that is known; nil
	// or "": nothing does.
	WhyRefused func(ctx context.Context, n runner.Needs) string
	// Hopeless is why a job with these needs can never start; nil or "": that is not known.
	Hopeless func(ctx context.Context, n runner.Needs) string
	// Request is what a task needs, where its queue leaves that to the configuration.
	Request func(t task.Task) task.Request
	// Retry are the rules by which tasks are tried again that have none of their own.
	Retry string
	// Ended is told of each task that is over and has cost something.
	Ended func(task.Outcome)
	// Places bounds how many tasks are prepared and submitted at the same time, by its
	// capacity; nil: nothing does. Tasks that wait to be submitted with others take none.
	Places chan struct{}
	// Patience is how long a turn waits for uploads; 0: 5 seconds.
	Patience time.Duration

	uploads    uploads
	batches    batches
	recovering sync.Mutex
}

func (a *Agent) now() time.Time {
	if a.Now != nil {
		return a.Now()
	}
	return clock.Now()
}

// forgotten reports whether an error of the queue says that the agent has no
// business with a task any more.
func forgotten(err error) bool {
	return errors.Is(err, queue.ErrGone) || errors.Is(err, queue.ErrNotMine)
}

// artifacts is where a task leaves its artifacts: by process, as tasks of one
// process read each other's.
func (a *Agent) artifacts(process string, id task.ID) string {
	group := "none"
	if p, err := task.ParseID(process); err == nil {
		group = string(p)
	}
	return filepath.Join(a.ArtifactsDir, group, string(id))
}

// Tidy removes what has not been needed for a while.
func (a *Agent) Tidy(ctx context.Context, retention, keep time.Duration) error {
	now := a.now()
	unused := now.Add(-keep)
	return errors.Join(a.removeOver(ctx, now.Add(-leftoverAge)), a.Store.Prune(now.Add(-retention)), a.Store.removeLeftovers(now.Add(-leftoverAge)), a.Environments.Prune(unused), environment.PruneUnused(a.FilesDir, unused, filesLock))
}

// removeOver puts away the tasks without a job that were begun before a time, and that the
// queue takes for over, or does not give to this agent: it offers them no more.
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
			continue // somebody works on it
		}
		if waits() {
			t, err := a.Queue.Task(ctx, id)
			if err == nil {
				t.State, err = a.stateOf(ctx, t)
			}
			if forgotten(err) || err == nil && t.State.Final() {
				errs = append(errs, a.Store.Finish(id))
			}
		}
		errs = append(errs, held.Close())
	}
	return errors.Join(errs...)
}

// publishEnd publishes the end of a task that has no job, or whose job is over: log,
// artifacts, state, and its directory out of the way. Each step may be repeated.
func (a *Agent) publishEnd(ctx context.Context, d Dir, process string, r task.Report) error {
	// Artifacts first: their failures belong into the log, and a state that is
	// final lets children start.
	if process != noArtifacts {
		tell := func(format string, args ...any) { a.tellOnce(d, fmt.Sprintf(format, args...)) }
		if err := a.publishArtifacts(ctx, d, process, tell); err != nil {
			return err
		}
	}
	record, readErr := d.Read()
	if readErr == nil {
		r.Job = record.Job
		r.Began, r.Ended = times(d, record)
		if run, err := runner.ReadRun(d.Path, r.Job); err == nil {
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
		record.Final, record.Ended = string(r.State), a.now()
		err = d.Write(record)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	a.Log.Info("task ended", "task", d.id, "state", r.State, "reason", r.Reason)
	return a.Store.Finish(d.id)
}

// times are when a task's job took the task, and when its command had ended, by the files that
// the job script made then; zero, where it made none.
func times(d Dir, r Record) (began, ended time.Time) {
	if info, err := os.Lstat(d.file(runner.Owner(r.Attempt))); err == nil {
		began = clock.Modified(info)
	}
	if run, err := runner.ReadRun(d.Path, r.Job); err == nil && run.Over() && !began.IsZero() {
		if info, err := os.Stat(d.file(runner.Journal(r.Job, run.Restart))); err == nil && !clock.Modified(info).Before(began) {
			ended = clock.Modified(info)
		}
	}
	return began, ended
}

// sayEnd makes the end of a task the end of its log. An earlier try may have said the
// same, or, if it failed and something else came of the task, another end.
func (a *Agent) sayEnd(d Dir, r task.Report) error {
	level := "INFO"
	if r.State != task.Completed && r.State != task.Stopped {
		level = "ERROR"
	}
	lines := []string{"task " + string(r.State)}
	if r.Reason != "" {
		lines[0] += ": " + strings.Join(strings.Fields(r.Reason), " ")
	}
	if r.Cost > 0 {
		lines = append(lines, fmt.Sprintf("cost: about $%.4f", r.Cost))
	}
	said, err := os.ReadFile(d.file(tailFile))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	last := strings.Split(strings.TrimSuffix(string(said), "\n"), "\n")
	last = last[max(0, len(last)-len(lines)):]
	same := len(last) == len(lines)
	for i := range last {
		same = same && strings.Contains(last[i], lines[i])
	}
	if same {
		return nil
	}
	log, err := a.openLog(d, tailFile)
	if err != nil {
		return err
	}
	for _, line := range lines {
		log.Say(level, "%s", line)
		level = "INFO"
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

// tellOnce adds a line to the end of a task's log, unless an earlier attempt has
// done so.
func (a *Agent) tellOnce(d Dir, message string) {
	if said, err := os.ReadFile(d.file(tailFile)); err == nil && strings.Contains(string(said), message) {
		return
	}
	log, err := a.openLog(d, tailFile)
	if err != nil {
		return
	}
	defer log.Close()
	log.Say("ERROR", "%s", message)
}
