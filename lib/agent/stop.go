package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/remove"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Stop stops a task and reports it as stopped. A job that is already gone counts as success.
func (a *Agent) Stop(ctx context.Context, id task.ID) (task.Outcome, error) {
	p, err := a.placeOf(ctx)
	if err != nil {
		return task.Outcome{}, err
	}
	defer func() { p.leave() }()
	if err := a.recoverJobs(ctx); err != nil {
		return task.Outcome{}, fmt.Errorf("task %s: %w", id, err)
	}
	d, held, err := a.lockForStop(ctx, id)
	if err != nil {
		return task.Outcome{}, fmt.Errorf("task %s: %w", id, err)
	}
	defer held.Close()
	o, err := a.stop(ctx, d, &p)
	if err != nil {
		return o, fmt.Errorf("task %s: %w", id, err)
	}
	return o, nil
}

// lockForStop waits for the lock of a task. The process that releases it may have removed the
// directory of the lock.
func (a *Agent) lockForStop(ctx context.Context, id task.ID) (d Dir, held *lock.Lock, err error) {
	for range 5 {
		if d, err = a.Store.Create(id); err != nil {
			return d, nil, err
		}
		// First of all: the process that prepares the task then gives way.
		if err = d.RequestStop(); err == nil {
			held, err = d.Lock(ctx)
		}
		if err == nil && !d.StopRequested() {
			err = errors.Join(fs.ErrNotExist, held.Close())
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return d, held, err
}

func (a *Agent) stop(ctx context.Context, d Dir, p *place) (task.Outcome, error) {
	record, err := a.open(d)
	if err != nil {
		return task.Outcome{}, err
	}
	x := requestOf(task.Stop, record)
	var ref runner.Ref
	if x.known != done {
		find := func() (err error) { ref, err = a.jobOf(ctx, d, record); return err }
		if x.known == tracked {
			err = find()
		} else {
			err = a.outside(ctx, p, find)
		}
		if err != nil {
			return task.Outcome{}, err
		}
		x.set(shown, ref.Job != "")
	}
	var t task.Task
	if x.follow() == ask {
		// The task may have ended since the queue requested the stop, and Slurm may list its job
		// for some time.
		if t, err = a.Queue.Task(ctx, d.id); err == nil {
			t.State, err = a.stateOf(ctx, t)
		}
		x.hear(t, err)
	}
	switch x.follow() {
	case keep:
		return task.Outcome{}, err
	case finish:
		state := cmp.Or(record.Final, string(t.State))
		_, known, err := a.Store.Finished(d.id)
		if err != nil {
			return task.Outcome{}, err
		}
		o := a.outcome("skipped", record, "the task is "+state)
		if x.known == fresh || known && x.known == meant {
			return o, remove.All(d.Path)
		}
		return o, a.finish(d.id)
	}
	process := noArtifacts
	report := task.Report{State: task.Stopped, Reason: "stopped at the request of the queue"}
	if ref.Job != "" {
		if err := a.outside(ctx, p, func() error { return a.Runner.Stop(ctx, ref) }); err != nil {
			return task.Outcome{}, err
		}
		process = record.Process
		record.Job = ref.Job
		if priced := a.Runner.Can().Price; priced != nil {
			report.Rent = priced.Rent(ref)
		}
	}
	err = a.publishEnd(ctx, d, process, report)
	if forgotten(err) {
		if x.known == fresh && ref.Job == "" {
			return a.outcome("unknown", record, fault.Text(err)), remove.All(d.Path)
		}
		// The next turns of ponos-poll find out whether the queue really does not have the task.
	}
	if err != nil {
		return task.Outcome{}, err
	}
	o := a.outcome("stopped", record, "")
	o.Cost = report.Cost
	return o, nil
}

// outside does what many tasks do together, without a place, and takes one again.
func (a *Agent) outside(ctx context.Context, p *place, do func() error) error {
	p.leave()
	if err := do(); err != nil {
		return err
	}
	entered, err := a.Enter(ctx)
	if err == nil {
		*p, _ = entered.Value(placeKey{}).(place)
	}
	return err
}

// jobOf returns the job of a task: the recorded one, or else one that has not ended among those that the runner shows, as the
// record may be lost or not yet written. Those that ask at the same time look together.
func (a *Agent) jobOf(ctx context.Context, d Dir, record Record) (runner.Ref, error) {
	ref := record.Ref
	if record.Job != "" {
		return ref, nil
	}
	a.shownOnce.Do(func() { a.shown.Look = a.showJobs })
	jobs, err := a.shown.Fresh(ctx)
	if err != nil {
		return ref, err
	}
	if job, ok := jobs[d.id]; ok {
		ref.Job, ref.Submitted = job.ID, job.Submitted
	}
	return ref, nil
}

// showJobs returns the jobs that have not ended, by their tasks, without what is remembered of any.
func (a *Agent) showJobs(ctx context.Context) (map[task.ID]runner.Job, error) {
	jobs, err := a.Runner.Jobs(ctx, func() ([]runner.Ref, error) { return nil, nil })
	alive := make(map[task.ID]runner.Job, len(jobs))
	for _, job := range jobs {
		if !job.Sight.Over() {
			alive[job.Task] = job
		}
	}
	return alive, err
}
