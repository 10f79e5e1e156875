package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/lock"
	"github.com/ponos-tools/ponos/lib/queue"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/task"
)

// parallel is how many tasks a turn publishes at the same time.
const parallel = 16

// Poll is one turn: it gets the state of every job, publishes states and logs, and returns the
// queue's actions that are to be passed on. The error joins all failures. The actions are valid
// even then; if the jobs could not be listed, there are none.
func (a *Agent) Poll(ctx context.Context) ([]task.Action, error) {
	turn, err := a.Store.TryTurn()
	if errors.Is(err, lock.ErrHeld) {
		return nil, fault.Hint(fault.Errorf(fault.Busy, "another turn is under way in %q", a.Store.Dir), "wait for the other ponos-poll, or stop it")
	}
	if err != nil {
		return nil, err
	}
	defer turn.Close()
	if err := a.Store.Check(); err != nil {
		return nil, err
	}

	// The heartbeat must not wait for Slurm, nor Slurm for the queue. The first of the two that
	// needs the tasks with jobs loads them.
	remember := sync.OnceValues(a.remember)
	var actions []task.Action
	var queueErr error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		actions, queueErr = a.Queue.Actions(ctx, func(id task.ID) bool {
			m, err := remember()
			return err == nil && m.has(id) // the turn fails by the error; the heartbeat does not
		})
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
	jobs, recoverErr := a.recover(ctx, m, jobs)
	// After a failed listing, a task that the queue does not have proves nothing.
	after := a.settle(ctx, m, jobs, queueErr == nil)
	failures := after.failures
	if err := a.Queue.Explain(waiting(jobs)); err != nil {
		a.Log.Warn("why tasks wait is not shown", "error", err)
	}
	if recoverErr != nil {
		failures = append(failures, recoverErr)
	} else if !after.missed {
		recoverErr = a.Store.setRecovered()
	}
	if recoverErr != nil || after.missed && !a.Store.recovered() {
		actions = slices.DeleteFunc(actions, func(w task.Action) bool { return w.Kind == task.Start })
	}
	if queueErr != nil {
		failures = append([]error{queueErr}, failures...)
	}
	adopted := make(map[task.ID]bool, len(after.adopted))
	for _, k := range after.adopted {
		adopted[k.ID] = true
	}
	if recoverErr == nil {
		actions = withAgain(actions, m.cache.waiting)
	}
	var unlocked []failure
	actions = wanted(actions, func(id task.ID) work {
		d := a.Store.Task(id)
		busy, err := d.Busy()
		if err != nil {
			unlocked = append(unlocked, failure{id, err})
		}
		// The queue has answered before the ends that this turn finds were reported to it: that
		// answer must not start again what had a job when the turn began.
		r, err := d.Read()
		recorded := r.Job != "" || err != nil && !errors.Is(err, fs.ErrNotExist) // since the turn began, or that may be
		return work{
			hasJob: m.has(id) || adopted[id] || recorded, busy: busy, stopping: d.StopRequested(),
			pauses: r.Tries == 0 && len(r.Attempts) > 0 && r.pauses(a.now()),
		}
	})
	return actions, errors.Join(append(failures, joinFailures(unlocked)...)...)
}

// waiting returns why jobs wait, where that is known.
func waiting(jobs []runner.Job) map[task.ID]string {
	why := map[task.ID]string{}
	for _, job := range jobs {
		if job.State == task.Pending && !job.Unknown && job.Reason != "" {
			why[job.Task] = job.Reason
		}
	}
	return why
}

// withAgain adds the starts of tasks that are to be submitted again. A queue to which a task was
// reported as running may no longer offer it.
func withAgain(actions []task.Action, waiting []Record) []task.Action {
	offered := make(map[task.ID]bool, len(actions))
	for _, w := range actions {
		offered[w.ID] = true
	}
	for _, r := range waiting {
		if !offered[r.ID] {
			actions = append(actions, task.Action{Kind: task.Start, ID: r.ID, Slug: task.Clean(r.Slug), RequiresGPU: r.RequiresGPU, Process: r.Process})
		}
	}
	return actions
}

// memory is what the agent knows when a turn begins: the tasks with jobs.
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
		m.refs[i] = runner.Ref{Task: k.ID, Job: k.Job, Label: k.Slug, Dir: a.Store.Task(k.ID).Path, Submitted: k.Submitted, Missing: k.Missing, Unaccounted: k.Unaccounted, Attempt: k.Attempt, Lost: k.Lost, Retried: k.Rules != ""}
	}
	return m, nil
}

// refs returns the jobs that the runner must report. While its query runs, the outputs of the
// tasks are measured.
func (a *Agent) refs(remember func() (*memory, error)) func() ([]runner.Ref, error) {
	return func() ([]runner.Ref, error) {
		m, err := remember()
		if err != nil {
			return nil, err
		}
		return m.refs, a.Store.measureOutputs(m.known)
	}
}

// settled is the result of settle.
type settled struct {
	known    []*Known // those that were known before and still are
	adopted  []*Known
	failures []error
	missed   bool // a job that was found could not be adopted
}

// settle acts on the listed jobs, and records the result. Listed says that the queue has listed
// its actions in this turn: only then does a task that the queue does not have count as absent.
func (a *Agent) settle(ctx context.Context, m *memory, jobs []runner.Job, listed bool) settled {
	known := m.known
	none := &runner.Job{}
	jobOf := make([]*runner.Job, len(known))
	for i := range jobOf {
		jobOf[i] = none
	}
	var untracked []*runner.Job
	for at := range jobs {
		job := &jobs[at]
		// Runners mostly answer in the order of the refs.
		if at < len(known) && known[at].ID == job.Task && known[at].Job == job.ID {
			jobOf[at] = job
			continue
		}
		if i, ok := m.index[job.Task]; ok && (known[i].Job == job.ID || known[i].Job == job.Instead) {
			jobOf[i] = job
		} else if !ok {
			untracked = append(untracked, job)
		}
	}
	var mu sync.Mutex
	var missed atomic.Bool
	failed := append(a.uploadFailures(), m.cache.unread...)
	patience, stop := a.patience()
	defer stop()
	after := make([]*Known, len(known), len(known)+len(untracked))
	adopted := make([]*Known, len(untracked))
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
				failed = append(failed, failure{id, err})
				mu.Unlock()
			}
		})
	}
	for i := range known {
		if k := &known[i]; !k.Reassigned && (jobOf[i].ID == "" || quiet(k, jobOf[i])) && !a.asks(k, jobOf[i]) {
			after[i] = k
			continue
		}
		k, job := known[i], *jobOf[i]
		if k.Reassigned {
			each(k.ID, &after[i], func() (*Known, error) { return a.watchReassigned(ctx, k, job, listed) })
			continue
		}
		each(k.ID, &after[i], func() (*Known, error) { return a.settleOne(ctx, k, job, listed, patience) })
	}
	for i, job := range untracked {
		each(job.Task, &adopted[i], func() (*Known, error) {
			k, err := a.adopt(ctx, *job, listed, patience)
			if err != nil {
				missed.Store(true)
			}
			return k, err
		})
	}
	wg.Wait()
	result := settled{missed: missed.Load(), known: make([]*Known, 0, len(known)), failures: joinFailures(failed)}
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

// quiet reports whether there is nothing to do for a task, which is the usual case.
func quiet(k *Known, job *runner.Job) bool {
	if job.Unknown || job.State.Final() || !k.Missing.IsZero() || !k.Absent.IsZero() || job.Restarts != k.Restarts || job.ID != k.Job || len(job.Spare) > 0 {
		return false
	}
	return job.State == k.Reported && (job.State != task.Running || k.output == k.Output) ||
		job.State == task.Pending && k.Reported == ""
}

// settleOne acts on the job of one task. It returns nil if the task has ended.
func (a *Agent) settleOne(ctx context.Context, k Known, job runner.Job, listed bool, patience <-chan struct{}) (*Known, error) {
	d := a.Store.Task(k.ID)
	// If the task was stopped and started again since, the cache is of an earlier attempt. The
	// record decides.
	if r, err := d.Read(); err == nil && r.Job != "" && r.Job != k.Job {
		k = r.known()
		return &k, nil
	}
	// Nothing is published for a task that the queue did not have, unless the queue has it again.
	if !k.Absent.IsZero() {
		switch _, err := a.Queue.Task(ctx, k.ID); {
		case forgotten(err):
			return a.absent(d, k, listed)
		case err != nil:
			return &k, err
		}
		k.Absent = task.Absence{}
	}
	// The job that runs the task is the one that has made itself its owner.
	switch {
	case job.Instead != "" && job.Renamed:
		if after, err := a.changeJob(d, k, job.ID, k.Submitted); err != nil {
			return after, err
		}
		k.Job, k.Missing, k.Unaccounted = job.ID, task.Absence{}, task.Absence{}
	case job.Instead != "":
		a.Log.Info("another job runs the task than was recorded", "task", k.ID, "recorded", k.Job, "job", job.ID)
		return a.changeJob(d, k, job.ID, job.Submitted)
	}
	if job.State.Final() {
		owner, err := runner.ReadOwner(d.Path, k.Attempt)
		if err != nil {
			return &k, err
		}
		if owner != "" && owner != k.Job {
			return a.changeJob(d, k, owner, time.Time{})
		}
	}
	if trimmer := a.Runner.Can().Trim; trimmer != nil && len(job.Spare) > 0 {
		a.Log.Info("jobs that wait although another one runs the task are cancelled", "task", k.ID, "job", k.Job, "cancelled", job.Spare)
		if err := trimmer.Trim(ctx, k.ID, job.Spare); err != nil {
			return &k, err
		}
	}
	s := decide(k, job, job.Cancelled && d.StopRequested(), a.now())
	k.Missing, k.Unaccounted = s.missing, s.unaccounted
	if job.Unknown {
		return &k, nil
	}
	k.Restarts = job.Restarts
	if s.again {
		return a.submitAgain(ctx, d, k, job.Reason, patience)
	}
	if trimmer := a.Runner.Can().Trim; trimmer != nil && job.Stale {
		a.Log.Info("a job whose command has ended is cancelled", "task", k.ID, "job", k.Job)
		if err := trimmer.Trim(ctx, k.ID, []string{k.Job}); err != nil {
			return &k, err
		}
	}
	if s.end {
		if after, again, err := a.tryAgain(ctx, d, k, job, &s.report, listed); again || err != nil {
			return after, err
		}
		return a.upload(ctx, d, k, s.report, listed, patience)
	}
	if a.asks(&k, &job) {
		if after, settled, err := a.ask(ctx, d, k, listed, patience); settled {
			return after, err
		}
	}
	if s.report.State != "" {
		err := a.Queue.Report(ctx, k.ID, s.report)
		if forgotten(err) {
			return a.absent(d, k, listed)
		}
		if err != nil {
			return &k, err
		}
		a.Log.Info("task is "+string(s.report.State), "task", k.ID, "job", k.Job)
		k.Reported, k.Since, k.Absent = s.report.State, a.now(), task.Absence{}
	}
	size, output := logSize(d)
	if size != k.LogSize {
		err := a.putLog(ctx, d)
		if forgotten(err) {
			return a.absent(d, k, listed)
		}
		if err != nil {
			return &k, err
		}
	}
	k.LogSize, k.Output = size, output
	return &k, nil
}

// changeJob records another job as the one that runs a task. Submitted is zero if that time is
// unknown.
func (a *Agent) changeJob(d Dir, k Known, job string, submitted time.Time) (*Known, error) {
	k.Job, k.Submitted, k.Missing, k.Unaccounted = job, submitted, task.Absence{}.Again(a.now()), task.Absence{}
	return &k, a.updateRecord(d, func(r *Record) { r.Job, r.Submitted = job, submitted })
}

// submitAgain releases a task whose job has provably not begun: ponos-start submits it again,
// after a pause that grows. It returns nil then.
func (a *Agent) submitAgain(ctx context.Context, d Dir, k Known, reason string, patience <-chan struct{}) (*Known, error) {
	held, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return &k, nil
	}
	if err != nil {
		return &k, err
	}
	defer held.Close()
	r, err := d.Read()
	if err != nil {
		return &k, err
	}
	if r.Job != k.Job {
		k = r.known()
		return &k, nil
	}
	if r.Tries++; r.Tries >= maxSubmissions {
		held.Close()
		return a.upload(ctx, d, k, task.Report{State: task.Error, Reason: fmt.Sprintf("%d jobs of the task did not begin its command; the last one: %s", r.Tries, reason)}, true, patience)
	}
	// The queue offers the start of a pending task again.
	if k.Reported == task.Running {
		if err := a.Queue.Report(ctx, k.ID, task.Report{State: task.Pending, Reason: reason}); err != nil && !forgotten(err) {
			return &k, err
		}
	}
	// A job that has ended may have claimed the task before it failed to begin it.
	if owner, err := runner.ReadOwner(d.Path, k.Attempt); err != nil {
		return &k, err
	} else if owner == k.Job {
		if err := os.Remove(d.file(runner.Owner(k.Attempt))); err != nil {
			return &k, err
		}
	}
	// The scheduler may list the job for some time.
	if !slices.Contains(r.Before, k.Job) {
		r.Before = append(r.Before, k.Job)
	}
	r.Job, r.Submitted, r.Retry, r.Problem = "", time.Time{}, a.now().Add(pause(r.Tries)), reason
	log, err := a.openLog(d, headFile)
	if err != nil {
		return &k, err
	}
	log.Say("WARNING", "job %s: %s; the task is submitted again", k.Job, reason)
	if err := log.Close(); err != nil {
		return &k, err
	}
	if err := d.Write(r); err != nil {
		return &k, err
	}
	a.Log.Warn("the task is submitted again", "task", k.ID, "job", k.Job, "reason", reason)
	return nil, nil
}

// upload starts to publish the end of a task whose job has ended. It returns nil if that finished
// while the turn waited.
func (a *Agent) upload(ctx context.Context, d Dir, k Known, r task.Report, listed bool, patience <-chan struct{}) (*Known, error) {
	var gone atomic.Bool // the queue does not have the task
	over, err := a.runUpload(ctx, k.ID, patience, func() (bool, error) { return a.publishUnlessHeld(ctx, d, k, r, listed, &gone) })
	if over {
		return nil, err
	}
	if gone.Load() && listed {
		k.Absent = k.Absent.Again(a.now())
	}
	return &k, err
}

// publishUnlessHeld publishes the end of a task whose job has ended, unless ponos-stop holds its
// lock. It reports whether the task has ended.
func (a *Agent) publishUnlessHeld(ctx context.Context, d Dir, k Known, r task.Report, listed bool, gone *atomic.Bool) (bool, error) {
	held, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return false, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return a.finishedElsewhere(k.ID)
	}
	if err != nil {
		return false, err
	}
	defer held.Close()
	err = a.publishEnd(ctx, d, k.Process, r)
	if forgotten(err) {
		if listed && k.Absent.Again(a.now()).Fact() {
			return true, a.Store.Finish(k.ID)
		}
		gone.Store(true)
		return false, nil
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

// finishedElsewhere reports whether another process has moved a task's directory away. If it is
// nowhere, the state directory was replaced or lost.
func (a *Agent) finishedElsewhere(id task.ID) (bool, error) {
	if _, ok, err := a.Store.Finished(id); ok || err != nil {
		return ok, err
	}
	return false, fault.Errorf(fault.Unavailable, "its directory %q is gone", a.Store.Task(id).Path)
}

// absent counts a turn in which the queue did not have a task whose job runs. After enough of
// them, the job is no longer tracked.
func (a *Agent) absent(d Dir, k Known, listed bool) (*Known, error) {
	if !listed {
		return &k, nil
	}
	k.Absent = k.Absent.Again(a.now())
	if !k.Absent.Fact() {
		return &k, nil
	}
	k.Reassigned = true
	a.Log.Warn("the queue does not give this task to this agent; its job is left alone", "task", k.ID, "job", k.Job)
	return &k, a.updateRecord(d, func(r *Record) { r.Reassigned = true })
}

// watchReassigned tracks the job of a reassigned task for as long as the runner lists it. When the
// job has ended, the queue is asked once more: it may have given the task back to this agent. A
// job that costs money is stopped if the queue still does not give its task to this agent.
func (a *Agent) watchReassigned(ctx context.Context, k Known, job runner.Job, listed bool) (*Known, error) {
	over := job.State.Final() || job.Lost && k.Missing.Again(a.now()).Fact()
	if !over && (a.Runner.Can().Price == nil || job.ID == "" || job.Unknown) {
		missing := task.Absence{}
		if job.Lost {
			missing = k.Missing.Again(a.now())
		}
		k.Missing = missing
		return &k, nil
	}
	d := a.Store.Task(k.ID)
	_, err := a.Queue.Task(ctx, k.ID)
	if err == nil {
		k.Reassigned, k.Absent = false, task.Absence{}
		return &k, a.updateRecord(d, func(r *Record) { r.Reassigned = false })
	}
	if !forgotten(err) {
		return &k, nil
	}
	if !listed {
		return &k, nil
	}
	if over {
		return nil, a.Store.Finish(k.ID)
	}
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

// adopt records a job that this agent does not know: the state directory was lost, or ponos-start
// was killed before it could record the job.
func (a *Agent) adopt(ctx context.Context, job runner.Job, listed bool, patience <-chan struct{}) (*Known, error) {
	finished, over, err := a.Store.Finished(job.Task)
	if err != nil {
		return nil, err
	}
	if over && (finished.Job == job.ID || slices.Contains(finished.Before, job.ID)) {
		// Fully processed. Slurm may have lost the end of the job, and still reserve its nodes.
		if trimmer := a.Runner.Can().Trim; trimmer != nil && job.State == task.Running && finished.Final != "" && !finished.Reassigned && a.now().Sub(finished.Ended) > pastEnd {
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
	if err != nil && job.Past {
		return nil, a.abandon(d, record)
	}
	if err != nil && job.Untracked {
		a.Log.Warn("a job has this agent's name, and was not made from this data_dir; it is left alone", "task", job.Task, "job", job.ID)
		return nil, a.abandon(d, record)
	}
	a.describe(&record, t)
	record.Runner, record.Job, record.Submitted = a.Runner.Name(), job.ID, job.Submitted
	if record.Intent.IsZero() {
		record.Intent = a.now()
		// A job that has never started has written nothing that could be lost.
		record.Lost = job.Unknown || job.Past || job.State != task.Pending || job.Restarts > 0
	}
	// The user's other agents have jobs too. The queue decides whose task it is.
	costs := a.Runner.Can().Price != nil
	record.Reassigned = !costs && errors.Is(err, queue.ErrNotMine)
	if err := d.Write(record); err != nil {
		return nil, err
	}
	if record.Reassigned {
		k := record.known()
		return &k, nil
	}
	a.Log.Info("job adopted", "task", job.Task, "job", job.ID)
	k := record.known()
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
	if trimmer == nil || job.State != task.Pending && !running || job.Untracked || job.Past {
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
		return jobs, fmt.Errorf("looking for jobs from before the state directory was made: %w", err)
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
	Known
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
	for _, k := range append(after.known, after.adopted...) {
		if k.Reassigned {
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
