package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// adopt does what follows from a job that this agent does not know: the state directory was lost, or ponos-start
// was killed before it could record the job.
func (a *Agent) adopt(ctx context.Context, job runner.Job, listed bool, patience <-chan struct{}) (*Tracked, error) {
	x := facts{fresh, doubts, seenAs(&job, false), notesOf(&job)}
	if a.Runner.Can().Price != nil {
		x.notes |= paid
	}
	finished, ok, err := a.Store.Finished(job.Task)
	if err != nil {
		return nil, err
	}
	if ok && (finished.Job == job.ID || finished.Before.Has(job.ID)) {
		// Slurm may have lost the end of the job, and still reserve its nodes.
		x.known = done
		if finished.Final != "" && !finished.Reassigned && a.now().Sub(finished.Ended) > pastEnd {
			x.notes |= late
		}
		if decide(x) == scrap {
			return nil, a.scrap(ctx, job)
		}
		return nil, nil
	}
	d, err := a.Store.Create(job.Task)
	if err != nil {
		return nil, err
	}
	lockOf, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return nil, nil // ponos-start is about to record it
	}
	if err != nil {
		return nil, err
	}
	defer func() { lockOf.Close() }()
	r, err := a.open(d)
	if err != nil {
		return nil, err
	}
	switch {
	case r.Job != "" || r.Before.Has(job.ID):
		x.known = claimed
	case !r.Intent.IsZero():
		x.known = meant
	}
	var t task.Task
	if decide(x) == ask {
		if t, err = a.Queue.Task(ctx, job.Task); err == nil && x.known == fresh {
			t.State, err = a.stateOf(ctx, t)
		}
		x.word = wordOf(t, err)
	}
	v := decide(x)
	switch v {
	case scrap:
		return nil, errors.Join(a.scrap(ctx, job), a.abandon(d, r)) // processed, and the state directory lost since
	case forget:
		if x.notes&strange != 0 && x.word&absent != 0 {
			a.Log.Warn("a job was not submitted from this data_dir; it is left alone", "task", job.Task, "job", job.ID)
		}
		return nil, a.abandon(d, r)
	case yield, adopt, hold:
	default:
		return nil, err
	}
	a.describe(&r, t)
	r.Runner = a.Runner.Name()
	r.take(job.ID, job.Submitted)
	if r.Intent.IsZero() {
		if a.Store.Submitted(job.Task) > 0 { // a record was written before that
			if err := a.sayRemoved(d, job.ID); err != nil {
				return nil, err
			}
		}
		r.Intent = a.now()
		// A job that has never started has written nothing that could be lost.
		r.Lost = x.seen != waits || job.Restarts > 0
	}
	r.Reassigned = v == yield // the user's other agents have jobs too
	if err := d.Write(r); err != nil {
		return nil, err
	}
	k := r.Tracked
	if v == yield {
		return &k, nil
	}
	a.Log.Info("job adopted", "task", job.Task, "job", job.ID)
	if v == adopt {
		return &k, nil
	}
	lockOf.Close()
	if x.word&absent != 0 {
		next := turn{d: d, k: k, job: job, x: a.factsOf(&k, &job), listed: listed, patience: patience}
		next.hear(err)
		return a.act(ctx, next)
	}
	return a.settleOne(ctx, k, job, listed, patience)
}

// wordOf returns what an answer of the queue about a task says.
func wordOf(t task.Task, err error) word {
	switch {
	case errors.Is(err, queue.ErrNotMine):
		return theirs
	case forgotten(err):
		return lacks
	case err != nil:
		return mute
	case t.State == task.Stopped || t.State == task.Cancelled:
		return stopped
	case t.State.Final():
		return ended
	}
	return has
}

// pastEnd is how long after the end of its task a job may still be shown as running.
const pastEnd = 15 * time.Minute

// scrap cancels a job whose task has ended.
func (a *Agent) scrap(ctx context.Context, job runner.Job) error {
	a.Log.Info("a job is cancelled, as its task has ended", "task", job.Task, "job", job.ID)
	return a.trim(ctx, job.Task, job.ID)
}

// trim cancels jobs without waiting for their ends, where the runner can do that.
func (a *Agent) trim(ctx context.Context, id task.ID, jobs ...string) error {
	if trimmer := a.Runner.Can().Trim; trimmer != nil {
		return trimmer.Trim(ctx, id, jobs)
	}
	return nil
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

// own returns jobs without those of the user's other agents, of which nothing is made. A new state directory takes none for
// those of others: of a task whose job was submitted from another data_dir the queue may say that it is this agent's. Nor does
// one whose jobs cost money, which the queue is asked about in each turn.
func (a *Agent) own(m *memory, jobs []runner.Job) []runner.Job {
	if !a.Store.recovered() || a.Runner.Can().Price != nil {
		return jobs
	}
	var own []runner.Job
	for _, job := range jobs {
		if job.Claim != runner.Strange || m.has(job.Task) {
			own = append(own, job)
		}
	}
	return own
}

const othersTask = "another agent has the task"

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
	if err := a.Store.takeOver(); err != nil {
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
	after := a.settle(ctx, m, a.own(m, jobs), false)
	if !after.missed {
		after.failures = append(after.failures, a.Store.setRecovered())
	}
	seen := map[task.ID]runner.Job{}
	for _, job := range jobs {
		seen[job.Task] = job
	}
	var running []Running
	for _, k := range append(after.tracked, after.adopted...) {
		job := seen[k.Task]
		state, reason := cmp.Or(job.Shows(), "unknown"), job.Reason
		if k.Reassigned {
			if reason = othersTask; job.Sight.Over() {
				continue
			}
		}
		running = append(running, Running{*k, state, reason})
		delete(seen, k.Task)
	}
	for _, job := range jobs {
		if _, left := seen[job.Task]; left && job.Claim == runner.Strange && !job.Sight.Over() {
			k := Tracked{Ref: runner.Ref{Task: job.Task, Job: job.ID}}
			running = append(running, Running{k, cmp.Or(job.Shows(), "unknown"), othersTask})
		}
	}
	return running, errors.Join(after.failures...)
}
