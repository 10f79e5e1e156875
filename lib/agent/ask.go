package agent

import (
	"context"
	"errors"
	"os"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// asks reports whether it is time to ask the queue for the state of a task whose job costs money:
// a user may have ended the task in the queue.
func (a *Agent) asks(k *Tracked, job *runner.Job) bool {
	if a.AskInterval == 0 || k.Reported != task.Running || job.State != task.Running || !job.Sight.Sure() {
		return false
	}
	info, err := os.Stat(a.Store.Task(k.ID).file(askedFile))
	return err != nil || a.now().Sub(clock.Modified(info)) >= a.AskInterval
}

// ask asks the queue for the state of a task, and ends its job if the task has ended.
func (a *Agent) ask(
	ctx context.Context, d Dir, k Tracked, listed bool, patience <-chan struct{},
) (after *Tracked, settled bool, err error) {
	state, err := a.Queue.State(ctx, k.ID)
	if forgotten(err) {
		after, err = a.absent(d, k, listed)
		return after, true, err
	}
	if err != nil {
		return nil, false, nil // it is not needed for the rest
	}
	if err := d.replace(askedFile, nil, 0o600); err != nil {
		return &k, true, err
	}
	if !state.Final() {
		return nil, false, nil
	}
	held, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return &k, true, nil
	}
	if err != nil {
		return &k, true, err
	}
	ref := runner.Ref{Task: k.ID, Job: k.Job, Dir: d.Path, Submitted: k.Submitted}
	err = a.Runner.Stop(ctx, ref)
	held.Close()
	if err != nil {
		return &k, true, err
	}
	r := task.Report{State: state, Reason: "the queue reports that the task has ended"}
	if priced := a.Runner.Can().Price; priced != nil {
		r.Rent = priced.Rent(ref)
	}
	after, err = a.upload(ctx, d, k, r, listed, patience)
	return after, true, err
}
