package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/lock"
	"github.com/ponos-tools/ponos/lib/queue"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/task"
)

// parallel is how many tasks a turn publishes at the same time.
const parallel = 16

// Poll is one turn: it looks at every job, publishes states and logs, and returns
// the queue's actions that are to be passed on. The error tells of everything that
// failed; the actions are good all the same, but after a failed look at the jobs
// there are none.
func (a *Agent) Poll(ctx context.Context) ([]task.Action, error) {
	turn, err := a.Store.TryTurn()
	if errors.Is(err, lock.ErrHeld) {
		return nil, fault.Hint(fault.Errorf(fault.Busy, "another turn is under way in %q", a.Store.Dir), "wait for the other ponos-poll, or stop it")
	}
	if err != nil {
		return nil, err
	}
	defer turn.Close()

	// The heartbeat must not wait for Slurm, nor Slurm for the queue. Whoever of
	// the two first needs to know the tasks with jobs has them loaded.
	remember := sync.OnceValues(a.remember)
	var actions []task.Action
	var queueErr error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		actions, queueErr = a.actions(ctx, remember)
	}()
	jobs, err := a.Runner.Jobs(ctx, a.refs(remember))
	<-answered
	if err != nil {
		return nil, errors.Join(err, queueErr)
	}
	m, err := remember()
	if err != nil {
		return nil, errors.Join(err, queueErr)
	}
	after := a.settle(ctx, m, jobs)
	failures := after.failures
	if queueErr != nil {
		failures = append([]error{queueErr}, failures...)
	}
	adopted := make(map[task.ID]bool, len(after.adopted))
	for _, k := range after.adopted {
		adopted[k.ID] = true
	}
	actions = wanted(actions, func(id task.ID) work {
		d := a.Store.Task(id)
		busy, err := d.Busy()
		if err != nil {
			failures = append(failures, err)
		}
		// The queue has answered before it was told of the ends that this turn finds:
		// what had a job when the turn began is not to be started by that answer.
		return work{hasJob: m.has(id) || adopted[id] || a.hasJob(d), busy: busy, stopping: d.StopRequested()}
	})
	return actions, errors.Join(failures...)
}

// actions are what the queue wants done.
func (a *Agent) actions(ctx context.Context, remember func() (*memory, error)) ([]task.Action, error) {
	q, ok := a.Queue.(queue.Sparing)
	if !ok {
		return a.Queue.Actions(ctx)
	}
	m, err := remember()
	if err != nil {
		return a.Queue.Actions(ctx) // the turn fails by it; the heartbeat does not
	}
	return q.ActionsBut(ctx, m.has)
}

// hasJob reports whether a job was recorded since the turn began, or may have been.
func (a *Agent) hasJob(d Dir) bool {
	r, err := d.Read()
	return r.Job != "" || err != nil && !errors.Is(err, fs.ErrNotExist)
}

// memory is what the agent knows before it looks: the tasks with jobs.
type memory struct {
	known []Known
	index map[task.ID]int
	refs  []runner.Ref
	cache cache
}

func (m *memory) has(id task.ID) bool {
	_, ok := m.index[id]
	return ok
}

// remember loads the tasks with jobs.
func (a *Agent) remember() (*memory, error) {
	known, index, cache, err := a.Store.loadKnown()
	if err != nil {
		return nil, err
	}
	m := &memory{known: known, index: index, refs: make([]runner.Ref, len(known)), cache: cache}
	for i := range known {
		k := &known[i]
		m.refs[i] = runner.Ref{Task: k.ID, Job: k.Job, Dir: a.Store.Task(k.ID).Path, Submitted: k.Submitted, Missing: k.Missing}
	}
	return m, nil
}

// refs is what the runner must know. While it asks, there is time for a look at the
// tasks' output.
func (a *Agent) refs(remember func() (*memory, error)) func() ([]runner.Ref, error) {
	return func() ([]runner.Ref, error) {
		m, err := remember()
		if err != nil {
			return nil, err
		}
		return m.refs, a.Store.lookAtOutputs(m.known)
	}
}

// settled is what is known after a look at all jobs.
type settled struct {
	known    []*Known // those that were known before and still are
	adopted  []*Known
	failures []error
}

// settle does what follows from a look at all jobs, and writes down what is known
// then.
func (a *Agent) settle(ctx context.Context, m *memory, jobs []runner.Job) settled {
	known := m.known
	none := &runner.Job{}
	jobOf := make([]*runner.Job, len(known))
	for i := range jobOf {
		jobOf[i] = none
	}
	var strangers []*runner.Job
	for at := range jobs {
		job := &jobs[at]
		// A runner mostly answers in the order in which it was told.
		if at < len(known) && known[at].ID == job.Task && known[at].Job == job.ID {
			jobOf[at] = job
			continue
		}
		if i, ok := m.index[job.Task]; ok && known[i].Job == job.ID {
			jobOf[i] = job
		} else if !ok {
			strangers = append(strangers, job)
		}
	}
	var mu sync.Mutex
	failures := a.late()
	patience, stop := a.patience()
	defer stop()
	after := make([]*Known, len(known), len(known)+len(strangers))
	adopted := make([]*Known, len(strangers))
	limit := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	each := func(id task.ID, store **Known, do func() (*Known, error)) {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			k, err := do()
			*store = k
			if err != nil {
				mu.Lock()
				failures = append(failures, fmt.Errorf("task %s: %w", id, err))
				mu.Unlock()
			}
		})
	}
	for i := range known {
		if k := &known[i]; !k.Foreign && (jobOf[i].ID == "" || quiet(k, jobOf[i])) && !a.asks(k, jobOf[i]) {
			after[i] = k
			continue
		}
		k, job := known[i], *jobOf[i]
		if k.Foreign {
			each(k.ID, &after[i], func() (*Known, error) { return a.watchForeign(ctx, k, job) })
			continue
		}
		each(k.ID, &after[i], func() (*Known, error) { return a.settleOne(ctx, k, job, patience) })
	}
	for i, job := range strangers {
		each(job.Task, &adopted[i], func() (*Known, error) { return a.adopt(ctx, *job, patience) })
	}
	wg.Wait()
	result := settled{known: make([]*Known, 0, len(known)), failures: append(failures, m.cache.unread...)}
	var changes []Known
	for i, k := range after {
		switch {
		case k == nil:
			changes = append(changes, Known{ID: known[i].ID})
			continue
		case !known[i].cached || k != &known[i] && *k != known[i]:
			changes = append(changes, *k)
		}
		result.known = append(result.known, k)
	}
	for _, k := range adopted {
		if k != nil {
			changes = append(changes, *k)
			result.adopted = append(result.adopted, k)
		}
	}
	all := append(slices.Clip(result.known), result.adopted...)
	if err := a.Store.saveKnown(m.cache, all, changes); err != nil {
		result.failures = append(result.failures, err)
	}
	return result
}

// quiet reports whether there is nothing to do for a task: the usual case.
func quiet(k *Known, job *runner.Job) bool {
	if job.Unknown || job.State.Final() || !k.Missing.IsZero() || job.Restarts != k.Restarts {
		return false
	}
	return job.State == k.Reported && (job.State != task.Running || k.output == k.Output) ||
		job.State == task.Pending && k.Reported == ""
}

// settleOne does what follows for one task. It returns nil if the task is over.
func (a *Agent) settleOne(ctx context.Context, k Known, job runner.Job, patience <-chan struct{}) (*Known, error) {
	d := a.Store.Task(k.ID)
	// The cache may be of an earlier attempt, if the task was stopped and started
	// again since: before anything follows from it, the record is asked.
	if r, err := d.Read(); err == nil && r.Job != "" && r.Job != k.Job {
		k = Known{ID: k.ID, Slug: r.Slug, Process: r.Process, Job: r.Job, Attempt: r.Attempt, Submitted: r.Submitted, Foreign: r.Foreign}
		return &k, nil
	}
	// The job that runs the task is the one that has made itself its owner.
	if job.State.Final() {
		if owner := runner.ReadOwner(d.Path, k.Attempt); owner != "" && owner != k.Job {
			k.Job, k.Submitted, k.Missing = owner, job.Submitted, a.now()
			return &k, a.updateRecord(d, func(r *Record) { r.Job = owner })
		}
	}
	s := decide(k, job, job.Cancelled && d.StopRequested(), a.now())
	k.Missing = s.missing
	if job.Unknown {
		return &k, nil
	}
	k.Restarts = job.Restarts
	if s.end {
		return a.closeBooks(ctx, d, k, s.report, patience)
	}
	if a.asks(&k, &job) {
		if after, settled, err := a.ask(ctx, d, k, patience); settled {
			return after, err
		}
	}
	if s.report.State != "" {
		err := a.Queue.Report(ctx, k.ID, s.report)
		if forgotten(err) {
			return a.disown(d, k)
		}
		if err != nil {
			return &k, err
		}
		a.Log.Info("task is "+string(s.report.State), "task", k.ID, "job", k.Job)
		k.Reported = s.report.State
	}
	size, output := logSize(d)
	if size != k.LogSize {
		err := a.putLog(ctx, d)
		if forgotten(err) {
			return a.disown(d, k)
		}
		if err != nil {
			return &k, err
		}
	}
	k.LogSize, k.Output = size, output
	return &k, nil
}

// closeBooks begins to close the books on a task whose job has ended. It returns nil
// if that was soon done.
func (a *Agent) closeBooks(ctx context.Context, d Dir, k Known, r task.Report, patience <-chan struct{}) (*Known, error) {
	over, err := a.begin(ctx, k.ID, patience, func() (bool, error) { return a.settleEnd(ctx, d, k, r) })
	if over {
		return nil, err
	}
	return &k, err
}

// settleEnd closes the books on a task whose job has ended, unless ponos-stop is
// at it. It reports whether the task is over.
func (a *Agent) settleEnd(ctx context.Context, d Dir, k Known, r task.Report) (bool, error) {
	held, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return false, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // somebody was faster
	}
	if err != nil {
		return false, err
	}
	defer held.Close()
	err = a.end(ctx, d, k.Process, r)
	if forgotten(err) {
		return true, a.Store.Finish(k.ID)
	}
	if err != nil {
		return false, err
	}
	if a.Ended != nil && r.Cost > 0 {
		o := a.outcome("ended", Record{ID: k.ID, Slug: k.Slug, Job: k.Job}, r.Reason)
		o.State, o.Cost = r.State, r.Cost
		a.Ended(o)
	}
	return true, nil
}

// disown keeps a task in mind whose job runs, but that the queue does not give to
// this agent any more: so that it is not adopted again.
func (a *Agent) disown(d Dir, k Known) (*Known, error) {
	k.Foreign = true
	a.Log.Warn("the queue does not give this task to this agent; its job is left alone", "task", k.ID, "job", k.Job)
	return &k, a.updateRecord(d, func(r *Record) { r.Foreign = true })
}

// watchForeign keeps a foreign job in mind for as long as the runner shows it.
// One that costs money is not left alone: if the queue, asked once more, still does
// not give its task to this agent, it is ended.
func (a *Agent) watchForeign(ctx context.Context, k Known, job runner.Job) (*Known, error) {
	if job.State.Final() || job.Lost {
		return nil, a.Store.Finish(k.ID)
	}
	if _, ok := a.Runner.(runner.Remote); !ok || job.ID == "" || job.Unknown {
		return &k, nil
	}
	_, err := a.Queue.Task(ctx, k.ID)
	if !forgotten(err) {
		return &k, nil
	}
	d := a.Store.Task(k.ID)
	held, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return &k, nil
	}
	if err != nil {
		return &k, err
	}
	defer held.Close()
	a.Log.Warn("the queue does not give this task to this agent; its job is ended", "task", k.ID, "job", k.Job)
	err = a.Runner.Stop(ctx, runner.Ref{Task: k.ID, Job: k.Job, Dir: d.Path, Submitted: k.Submitted})
	if err != nil {
		return &k, err
	}
	return nil, a.Store.Finish(k.ID)
}

func (a *Agent) updateRecord(d Dir, change func(*Record)) error {
	r, err := d.Read()
	if err != nil {
		return err
	}
	change(&r)
	return d.Write(r)
}

// adopt takes up a job that this agent does not know: the state directory was
// lost, or ponos-start was killed before it could write the job down.
func (a *Agent) adopt(ctx context.Context, job runner.Job, patience <-chan struct{}) (*Known, error) {
	if finished, ok := a.Store.Finished(job.Task); ok && (finished.Job == job.ID || slices.Contains(finished.Before, job.ID)) {
		return nil, nil // fully processed
	}
	d, err := a.Store.Create(job.Task)
	if err != nil {
		return nil, err
	}
	held, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return nil, nil // ponos-start is about to write it down
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
	if err != nil && !forgotten(err) {
		return nil, err
	}
	if err == nil && t.State.Final() && record.Intent.IsZero() {
		return nil, a.abandon(d, record) // processed, and the state directory lost since
	}
	if err != nil && job.Stranger {
		a.Log.Warn("a job has this agent's name, and was not made from this data_dir; it is left alone", "task", job.Task, "job", job.ID)
		return nil, a.abandon(d, record)
	}
	record.Slug, record.Process, record.RequiresGPU = t.Slug, t.Process, t.RequiresGPU
	record.Runner, record.Job, record.Submitted, record.Foreign = a.Runner.Name(), job.ID, job.Submitted, err != nil
	if record.Intent.IsZero() {
		record.Intent = a.now()
	}
	if err := d.Write(record); err != nil {
		return nil, err
	}
	a.Log.Info("job adopted", "task", job.Task, "job", job.ID, "foreign", record.Foreign)
	k := Known{
		ID: job.Task, Slug: record.Slug, Process: record.Process, Job: job.ID, Attempt: record.Attempt, Submitted: job.Submitted,
		Foreign: record.Foreign,
	}
	if k.Foreign {
		return &k, nil
	}
	held.Close()
	return a.settleOne(ctx, k, job, patience)
}

// Running is a task that has a job, as the agent sees it after a look.
type Running struct {
	Known
	State  task.State
	Reason string
}

// Adopt looks at all jobs as a turn does, without asking the queue for actions,
// and returns the tasks that have jobs.
func (a *Agent) Adopt(ctx context.Context) ([]Running, error) {
	turn, err := a.Store.TryTurn()
	if errors.Is(err, lock.ErrHeld) {
		return nil, fault.Errorf(fault.Busy, "a turn is under way in %q", a.Store.Dir)
	}
	if err != nil {
		return nil, err
	}
	defer turn.Close()
	remember := sync.OnceValues(a.remember)
	jobs, err := a.Runner.Jobs(ctx, a.refs(remember))
	if err != nil {
		return nil, err
	}
	m, err := remember()
	if err != nil {
		return nil, err
	}
	after := a.settle(ctx, m, jobs)
	seen := map[task.ID]runner.Job{}
	for _, job := range jobs {
		seen[job.Task] = job
	}
	var running []Running
	for _, k := range append(after.known, after.adopted...) {
		if k.Foreign {
			continue
		}
		job := seen[k.ID]
		state := job.State
		if job.Unknown || state == "" {
			state = "unknown"
		}
		running = append(running, Running{*k, state, job.Reason})
	}
	return running, errors.Join(after.failures...)
}
