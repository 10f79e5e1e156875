package agent

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// parallel is how many tasks a turn publishes at the same time.
const parallel = 16

// Poll is one turn: it gets the state of every job, publishes states and logs, and returns the
// queue's actions that are to be passed on. The error joins all failures. The actions are valid
// even then; if the jobs could not be listed, there are none.
func (a *Agent) Poll(ctx context.Context) ([]task.Action, error) {
	turn, err := a.Store.TryTurn()
	if errors.Is(err, lock.ErrHeld) {
		return nil, fault.Hint(
			fault.Errorf(fault.Busy, "another turn is under way in %q", a.Store.Dir),
			"wait for the other ponos-poll, or stop it")
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
		a.unlisted(actions, remember, err)
		return nil, errors.Join(err, queueErr)
	}
	m, err := remember()
	if err != nil {
		return nil, errors.Join(err, queueErr)
	}
	jobs, recoverErr := a.recover(ctx, m, jobs)
	jobs = a.own(m, jobs)
	// After a failed listing, a task that the queue does not have proves nothing.
	after := a.settle(ctx, m, jobs, queueErr == nil)
	failures := after.failures
	// What has waited for an end that this turn has reported starts in this turn.
	if q, ok := a.Queue.(interface{ Fresh() bool }); ok && queueErr == nil && q.Fresh() {
		actions, queueErr = a.Queue.Actions(ctx, m.has)
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
		adopted[k.Task] = true
	}
	if recoverErr == nil {
		actions = withAgain(actions, m.cache.waiting)
	}
	starts := map[string]bool{}
	var offered []task.ID
	for _, w := range actions {
		starts[kindOf(w.RequiresGPU)] = starts[kindOf(w.RequiresGPU)] || w.Kind == task.Start
		if w.Kind == task.Start && !m.has(w.ID) {
			offered = append(offered, w.ID)
		}
	}
	a.notices.after(after.tracked, offered)
	if err := a.count(ctx, starts, len(m.tracked)-len(after.tracked)); err != nil {
		a.Log.Error("the record of limits cannot be written", "error", err)
	}
	why, now := map[task.ID]string{}, a.now()
	for _, job := range jobs {
		if !job.Sight.Over() {
			w := wait{job: job}
			if i, ok := m.index[job.Task]; ok && a.Runner.Can().Remote == nil {
				k := m.tracked[i]
				w.idle = k.idle && k.Job == job.ID && k.Restarts == job.Restarts
			}
			why[job.Task] = w.why(now)
		}
	}
	var unlocked []failure
	a.room = Unlimited
	held, full, unprovided := a.Store.readBreakers(), a.Store.full(), sync.OnceValue(a.unprovided)
	actions = slices.DeleteFunc(actions, func(action task.Action) bool {
		id, d := action.ID, a.Store.Task(action.ID)
		works, err := d.Busy()
		if err != nil {
			unlocked = append(unlocked, failure{id, err})
		}
		// The queue has answered before the ends that this turn finds were reported to it: that
		// answer must not start again what had a job when the turn began.
		r, err := d.Read()
		x, stops := requestOf(action.Kind, r), d.StopRequested()
		if m.has(id) || adopted[id] || err != nil && !errors.Is(err, fs.ErrNotExist) { // or that may be
			x.known = tracked
		}
		x.set(busy, works && (stops || x.kind == task.Start))
		x.set(pauses, r.pauses(now) && !a.released(r))
		if x.kind == task.Stop || x.known == tracked {
			return x.follow() == keep
		}
		kind := kindOf(action.RequiresGPU)
		b := held[kind]
		if !b.Full && !r.Request.IsZero() {
			b = breaker{}
		}
		if b.Full && x.follow() != keep { // what cannot be submitted need not be looked at
			var ok bool
			held[kind], ok, _ = b.pass(now)
			if x.set(pauses, !ok); ok {
				a.room = SomeRoom
			}
			a.room = max(a.room, NoRoom)
		}
		x.set(pauses, unprovided() != "")
		why[id] = wait{record: r, busy: works, held: b, stuck: cmp.Or(full, unprovided())}.why(now)
		return x.follow() == keep
	})
	a.explain(why)
	return actions, errors.Join(append(failures, joinFailures(unlocked)...)...)
}

// explain has the queue record why tasks wait.
func (a *Agent) explain(why map[task.ID]string) {
	maps.DeleteFunc(why, func(_ task.ID, text string) bool { return text == "" })
	if err := a.Queue.Explain(why); err != nil {
		a.Log.Warn("why tasks wait is not shown", "error", err)
	}
}

// unlisted says why tasks wait in a turn that has not found out about jobs.
func (a *Agent) unlisted(actions []task.Action, remember func() (*memory, error), why error) {
	all := map[task.ID]string{}
	for _, w := range actions {
		if w.Kind == task.Start {
			all[w.ID] = fault.Text(why)
		}
	}
	if m, err := remember(); err == nil {
		for _, k := range m.tracked {
			if k.Reported != task.Running {
				all[k.Task] = fault.Text(why)
			}
		}
	}
	a.explain(all)
}

// withAgain adds the starts of tasks that are to be submitted again. A queue to which a task was
// reported as running may no longer offer it.
func withAgain(actions []task.Action, waiting []Record) []task.Action {
	offered := make(map[task.ID]bool, len(actions))
	for _, w := range actions {
		offered[w.ID] = true
	}
	for _, r := range waiting {
		if !offered[r.Task] {
			actions = append(actions, task.Action{
				Kind: task.Start, ID: r.Task, Slug: task.Clean(r.Label), RequiresGPU: r.RequiresGPU, Process: r.Process,
			})
		}
	}
	return actions
}

// memory is what the agent knows when a turn begins: the tasks with jobs.
type memory struct {
	tracked []Tracked
	index   map[task.ID]int
	refs    []runner.Ref
	cache   cache
}

func (m *memory) has(id task.ID) bool {
	_, ok := m.index[id]
	return ok
}

// remember loads the tasks with jobs.
func (a *Agent) remember() (*memory, error) {
	tracked, index, cache, err := a.Store.loadTracked()
	if err != nil {
		return nil, err
	}
	m := &memory{tracked: tracked, index: index, refs: make([]runner.Ref, len(tracked)), cache: cache}
	for i := range tracked {
		k := &tracked[i]
		m.refs[i] = k.Ref
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
		return m.refs, a.Store.measureOutputs(m.tracked)
	}
}

// settled is the result of settle.
type settled struct {
	tracked  []*Tracked // those that were tracked before and still are
	adopted  []*Tracked
	failures []error
	missed   bool // a job that was found could not be adopted
}

// settle acts on the listed jobs, and records the result. Listed says that the queue has listed
// its actions in this turn: only then does a task that the queue does not have count as absent.
func (a *Agent) settle(ctx context.Context, m *memory, jobs []runner.Job, listed bool) settled {
	tracked := m.tracked
	none := &runner.Job{}
	jobOf := make([]*runner.Job, len(tracked))
	for i := range jobOf {
		jobOf[i] = none
	}
	var untracked []*runner.Job
	for at := range jobs {
		job := &jobs[at]
		// Runners mostly answer in the order of the refs.
		if at < len(tracked) && tracked[at].Task == job.Task && tracked[at].Job == job.ID {
			jobOf[at] = job
			continue
		}
		if i, ok := m.index[job.Task]; ok && (tracked[i].Job == job.ID || tracked[i].Job == job.Instead) {
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
	after := make([]*Tracked, len(tracked), len(tracked)+len(untracked))
	adopted := make([]*Tracked, len(untracked))
	limit := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	each := func(id task.ID, store **Tracked, do func() (*Tracked, error)) {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			k, err := do()
			over, err := a.overElsewhere(id, err)
			if !over {
				*store = k
			}
			if err != nil {
				mu.Lock()
				failed = append(failed, failure{id, err})
				mu.Unlock()
			}
		})
	}
	for i := range tracked {
		if k := &tracked[i]; a.quiet(k, jobOf[i]) {
			after[i] = k
			continue
		}
		k, job := tracked[i], *jobOf[i]
		each(k.Task, &after[i], func() (*Tracked, error) { return a.settleOne(ctx, k, job, listed, patience) })
	}
	for i, job := range untracked {
		each(job.Task, &adopted[i], func() (*Tracked, error) {
			k, err := a.adopt(ctx, *job, listed, patience)
			if err != nil {
				missed.Store(true)
			}
			return k, err
		})
	}
	wg.Wait()
	result := settled{missed: missed.Load(), tracked: make([]*Tracked, 0, len(tracked)), failures: joinFailures(failed)}
	var changes []Tracked
	for i, k := range after {
		switch {
		case k == nil:
			changes = append(changes, Tracked{Ref: runner.Ref{Task: tracked[i].Task}})
			continue
		case !tracked[i].cached || k != &tracked[i] && *k != tracked[i]:
			changes = append(changes, *k)
		}
		result.tracked = append(result.tracked, k)
	}
	for _, k := range adopted {
		if k != nil {
			changes = append(changes, *k)
			result.adopted = append(result.adopted, k)
		}
	}
	all := append(slices.Clip(result.tracked), result.adopted...)
	if err := a.Store.saveTracked(m.cache, all, changes); err != nil {
		result.failures = append(result.failures, err)
	}
	return result
}
