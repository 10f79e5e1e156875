package agent

import (
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
	defer p.leave()
	if err := a.recoverJobs(ctx); err != nil {
		return task.Outcome{}, fmt.Errorf("task %s: %w", id, err)
	}
	d, held, err := a.lockForStop(ctx, id)
	if err != nil {
		return task.Outcome{}, fmt.Errorf("task %s: %w", id, err)
	}
	defer held.Close()
	o, err := a.stop(ctx, d, p)
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

func (a *Agent) stop(ctx context.Context, d Dir, p place) (task.Outcome, error) {
	record, err := a.open(d)
	if err != nil {
		return task.Outcome{}, err
	}
	ref, err := a.jobOf(ctx, d, record)
	if err != nil {
		return task.Outcome{}, err
	}
	if record.Job == "" {
		// The task may have ended since the queue requested the stop, and Slurm may list its job
		// for some time.
		t, err := a.Queue.Task(ctx, d.id)
		if err == nil && (ref.Job == "" || record.Intent.IsZero()) {
			t.State, err = a.stateOf(ctx, t)
		}
		if err == nil && t.State.Final() && (ref.Job == "" || record.Intent.IsZero()) {
			o := a.outcome("skipped", record, "the task is "+string(t.State))
			_, known, err := a.Store.Finished(d.id)
			if err != nil {
				return task.Outcome{}, err
			}
			if known || record.Intent.IsZero() {
				return o, remove.All(d.Path)
			}
			return o, a.finish(d.id)
		}
		if err != nil && !forgotten(err) && ref.Job == "" {
			return task.Outcome{}, err
		}
	}
	process := noArtifacts
	report := task.Report{State: task.Stopped, Reason: "stopped at the request of the queue"}
	if ref.Job != "" {
		p.leave() // others are cancelled with it
		if err := a.Runner.Stop(ctx, ref); err != nil {
			return task.Outcome{}, err
		}
		if ctx, err = a.Enter(ctx); err != nil {
			return task.Outcome{}, err
		}
		if again, ok := ctx.Value(placeKey{}).(place); ok {
			defer again.leave()
		}
		process = record.Process
		record.Job = ref.Job
		if priced := a.Runner.Can().Price; priced != nil {
			report.Rent = priced.Rent(ref)
		}
	}
	err = a.publishEnd(ctx, d, process, report)
	if forgotten(err) {
		if record.Job == "" && record.Intent.IsZero() {
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

// jobOf returns the job of a task: the recorded one, or else the one that the runner finds, as the
// record may be lost or not yet written.
func (a *Agent) jobOf(ctx context.Context, d Dir, record Record) (runner.Ref, error) {
	ref := runner.Ref{Task: d.id, Job: record.Job, Dir: d.Path, Submitted: record.Submitted, Attempt: record.Attempt, Before: record.Before}
	if record.Job != "" {
		return ref, nil
	}
	jobs, err := a.Runner.Jobs(ctx, func() ([]runner.Ref, error) { return nil, nil })
	if err != nil {
		return ref, err
	}
	for _, job := range jobs {
		if job.Task == d.id && !job.State.Final() {
			ref.Job, ref.Submitted = job.ID, job.Submitted
		}
	}
	return ref, nil
}
