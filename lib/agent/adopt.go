package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// adopt records a job that this agent does not know: the state directory was lost, or ponos-start
// was killed before it could record the job.
func (a *Agent) adopt(ctx context.Context, job runner.Job, listed bool, patience <-chan struct{}) (*Tracked, error) {
	finished, over, err := a.Store.Finished(job.Task)
	if err != nil {
		return nil, err
	}
	if over && (finished.Job == job.ID || slices.Contains(finished.Before, job.ID)) {
		// Fully processed. Slurm may have lost the end of the job, and still reserve its nodes.
		if trimmer := a.Runner.Can().Trim; trimmer != nil && job.State == task.Running &&
			finished.Final != "" && !finished.Reassigned && a.now().Sub(finished.Ended) > pastEnd {
			a.Log.Info("a job is cancelled, as its task has ended", "task", job.Task, "job", job.ID)
			return nil, trimmer.Trim(ctx, job.Task, []string{job.ID})
		}
		return nil, nil
	}
	d, err := a.Store.Create(job.Task)
	if err != nil {
		return nil, err
	}
	held, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return nil, nil // ponos-start is about to record it
	}
	if err != nil {
		return nil, err
	}
	defer held.Close()
	record, err := a.open(d)
	if err != nil {
		return nil, err
	}
	if record.Job != "" || slices.Contains(record.Before, job.ID) {
		return nil, nil
	}
	t, err := a.Queue.Task(ctx, job.Task)
	if err == nil && record.Intent.IsZero() {
		t.State, err = a.stateOf(ctx, t)
	}
	if err != nil && !forgotten(err) {
		return nil, err
	}
	if err == nil && t.State.Final() && record.Intent.IsZero() {
		return nil, errors.Join(a.trim(ctx, job, t.State), a.abandon(d, record)) // processed, and the state directory lost since
	}
	if err != nil && job.Sight == runner.Past {
		return nil, a.abandon(d, record)
	}
	if err != nil && job.Claim == runner.Strange {
		a.Log.Warn("a job has this agent's name, but was not submitted from this data_dir; it is left alone",
			"task", job.Task, "job", job.ID)
		return nil, a.abandon(d, record)
	}
	a.describe(&record, t)
	record.Runner, record.Job, record.Submitted = a.Runner.Name(), job.ID, job.Submitted
	if record.Intent.IsZero() {
		if a.Store.Submitted(job.Task) > 0 { // a record was written before that
			if err := a.sayRemoved(d, job.ID); err != nil {
				return nil, err
			}
		}
		record.Intent = a.now()
		// A job that has never started has written nothing that could be lost.
		record.Lost = !job.Sight.Sure() || job.State != task.Pending || job.Restarts > 0
	}
	// The user's other agents have jobs too. The queue decides whose task it is.
	costs := a.Runner.Can().Price != nil
	record.Reassigned = !costs && errors.Is(err, queue.ErrNotMine)
	if err := d.Write(record); err != nil {
		return nil, err
	}
	if record.Reassigned {
		k := record.tracked()
		return &k, nil
	}
	a.Log.Info("job adopted", "task", job.Task, "job", job.ID)
	k := record.tracked()
	if forgotten(err) {
		return a.absent(d, k, listed)
	}
	held.Close()
	if job.State.Final() && !costs {
		return &k, nil // its state was decided without its journal, which the next turn reads
	}
	return a.settleOne(ctx, k, job, listed, patience)
}

// pastEnd is how long after the end of its task a job may still be shown as running.
const pastEnd = 15 * time.Minute

// trim cancels a pending job whose task has ended, or a running job whose task was stopped.
func (a *Agent) trim(ctx context.Context, job runner.Job, over task.State) error {
	trimmer := a.Runner.Can().Trim
	running := job.State == task.Running && (over == task.Stopped || over == task.Cancelled)
	if trimmer == nil || job.State != task.Pending && !running || job.Claim == runner.Strange || job.Sight == runner.Past {
		return nil
	}
	a.Log.Info("a job is cancelled, as its task has ended", "task", job.Task, "job", job.ID)
	return trimmer.Trim(ctx, job.Task, []string{job.ID})
}

// pastTime is how long before the creation of the state directory a job may have been submitted
// for recover to find it.
const pastTime = 14 * 24 * time.Hour

// recover adds jobs that the runner no longer lists, if the state directory is new: an older one
// may have been lost. What has ended is reported as ended, and not run again.
func (a *Agent) recover(ctx context.Context, m *memory, jobs []runner.Job) ([]runner.Job, error) {
	h := a.Runner.Can().Past
	if h == nil || a.Store.recovered() {
		return jobs, nil
	}
	born, err := a.Store.born()
	if err != nil {
		return jobs, err
	}
	past, err := h.Past(ctx, born.Add(-pastTime), func(id task.ID) string { return a.Store.Task(id).Path })
	if err != nil {
		return jobs, fmt.Errorf("searching for jobs that are older than the state directory: %w", err)
	}
	shown := make(map[task.ID]bool, len(jobs))
	for _, job := range jobs {
		shown[job.Task] = true
	}
	for _, job := range past {
		if !shown[job.Task] && !m.has(job.Task) {
			jobs = append(jobs, job)
		}
	}
	return jobs, nil
}

// Running is a task that has a job, as the agent sees it after listing the jobs.
type Running struct {
	Tracked
	State  task.State
	Reason string
}

// Adopt lists and adopts jobs as a turn does, without asking the queue for actions, and returns
// the tasks that have jobs.
func (a *Agent) Adopt(ctx context.Context) ([]Running, error) {
	turn, err := a.Store.TryTurn()
	if errors.Is(err, lock.ErrHeld) {
		return nil, fault.Errorf(fault.Busy, "a turn is under way in %q", a.Store.Dir)
	}
	if err != nil {
		return nil, err
	}
	defer turn.Close()
	if err := a.Store.Check(); err != nil {
		return nil, err
	}
	remember := sync.OnceValues(a.remember)
	jobs, err := a.Runner.Jobs(ctx, a.refs(remember))
	if err != nil {
		return nil, err
	}
	m, err := remember()
	if err != nil {
		return nil, err
	}
	jobs, err = a.recover(ctx, m, jobs)
	if err != nil {
		return nil, err
	}
	after := a.settle(ctx, m, jobs, false)
	if !after.missed {
		after.failures = append(after.failures, a.Store.setRecovered())
	}
	seen := map[task.ID]runner.Job{}
	for _, job := range jobs {
		seen[job.Task] = job
	}
	var running []Running
	for _, k := range append(after.tracked, after.adopted...) {
		job := seen[k.ID]
		state, reason := job.State, job.Reason
		if !job.Sight.Sure() || state == "" {
			state = "unknown"
		}
		if k.Reassigned {
			if reason = "another agent has the task"; state.Final() {
				continue
			}
		}
		running = append(running, Running{*k, state, reason})
	}
	return running, errors.Join(after.failures...)
}
