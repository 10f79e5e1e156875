package agent

import (
	"context"
	"errors"

	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/task"
)

// asks reports whether it is time to ask the queue for the state of a task whose job costs money:
// a user may have ended the task in the queue.
func (a *Agent) asks(k *Tracked) bool {
	return a.AskInterval > 0 && a.now().Sub(k.Asked).Abs() >= a.AskInterval
}

// askOf asks the queue for a task, and does what follows from its answer.
func (a *Agent) askOf(ctx context.Context, t turn) (*Tracked, error) {
	if t.x.word == doubts {
		_, err := a.Queue.Task(ctx, t.k.Task)
		t.hear(err)
		after, failed := a.act(ctx, t)
		if err != nil && !forgotten(err) && t.x.known == tracked {
			failed = err
		}
		return after, failed
	}
	t.x.notes &^= due
	switch state, err := a.Queue.State(ctx, t.k.Task); {
	case forgotten(err):
		t.hear(err)
	case err != nil: // it is not needed for the rest
	case state.Final():
		t.x.word, t.ended = ended, state
		fallthrough
	default:
		t.k.Asked = a.now()
	}
	return a.act(ctx, t)
}

// endJob ends a job that costs money, and then its task: as the queue says, or without a word to it.
func (a *Agent) endJob(ctx context.Context, t turn, v verdict) (*Tracked, error) {
	d, k := t.d, t.k
	held, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return &k, nil
	}
	if err != nil {
		return &k, err
	}
	defer func() { held.Close() }()
	ref := k.Ref
	if v == dismiss {
		a.Log.Warn("the task is not assigned to this agent; its job is cancelled", "task", k.Task, "job", k.Job)
	}
	if err := a.Runner.Stop(ctx, ref); err != nil {
		return &k, err
	}
	if v == dismiss {
		return nil, a.finish(k.Task)
	}
	held.Close()
	r := task.Report{State: t.ended, Reason: "the queue reports that the task has ended"}
	if priced := a.Runner.Can().Price; priced != nil {
		r.Rent = priced.Rent(ref)
	}
	return a.upload(ctx, d, k, r, t.listed, t.patience)
}
