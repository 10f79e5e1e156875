package rented

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/market/life"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Unwanted is an instance that no task needs.
type Unwanted struct {
	Instance vastai.Instance
	Label    Label
	Age      time.Duration // 0: unknown
	Reason   string
	// Untracked says that another agent of this name may have ordered it.
	Untracked bool
}

// Unwanted finds the instances with this agent's label that no task needs, and that are older than a
// time: ponos-start may be about to record younger ones. It needs a complete list, or fails. Asked is
// called for tasks that have orders: it returns why the agent does not want the instance, or "".
func (r *Runner) Unwanted(ctx context.Context, older time.Duration, asked func(task.ID) (string, error)) ([]Unwanted, error) {
	if err := r.prepare(); err != nil {
		return nil, err
	}
	all, err := r.Account(ctx, older)
	if err != nil {
		return nil, err
	}
	var out []Unwanted
	for _, u := range all {
		if u.Label.Agent != r.Agent {
			continue
		}
		if u.Reason, err = r.unwanted(u.Instance, u.Label, asked); err != nil {
			return nil, err
		}
		if u.Reason == unknownReason {
			if u.Untracked, err = r.untracked(u.Instance); err != nil {
				return nil, err
			}
			if u.Untracked {
				u.Reason = "it was not ordered from this data_dir"
			}
		}
		if u.Reason != "" {
			out = append(out, u)
		}
	}
	return out, nil
}

const unknownReason = "the journal does not know it"

// unwanted returns why no task needs an instance, or "".
func (r *Runner) unwanted(i vastai.Instance, l Label, asked func(task.ID) (string, error)) (string, error) {
	name := nameOf(l.Task, l.Attempt)
	o, err := r.read(ordersDir, name)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := r.read(doneDir, name); err == nil {
			return "its task has ended, and the instance is listed again", nil
		}
		return unknownReason, nil
	}
	if err != nil {
		return "", err
	}
	switch {
	case o.End != nil:
		return "its task has ended: " + string(o.End.State), nil
	case o.IsDoomed(i.ID):
		return "another instance runs its task", nil
	case o.Instance() != 0 && o.Instance() != i.ID:
		return "another instance runs its task", nil
	}
	// The order may have been rebuilt from the instance itself.
	return asked(l.Task)
}

// Rent returns what an ended job has cost, and where it ran.
func (r *Runner) Rent(ref runner.Ref) task.Rent {
	l, ok := ParseLabel(ref.Job)
	if !ok {
		return task.Rent{}
	}
	name := nameOf(l.Task, l.Attempt)
	for _, dir := range []string{ordersDir, doneDir} {
		if o, err := r.read(dir, name); err == nil && o.End != nil {
			return r.rent(o)
		}
	}
	return task.Rent{}
}

// Odd returns how many rows of the last list could not be read.
func (r *Runner) Odd() int { return r.odd }

// Account finds all instances of the account that have the label of any agent of this project,
// whatever their state.
func (r *Runner) Account(ctx context.Context, older time.Duration) ([]Unwanted, error) {
	list, err := r.API.List(ctx, r.now().Add(-2*r.API.Unit/5))
	if err != nil {
		return nil, err
	}
	r.odd = list.Odd
	var out []Unwanted
	for _, i := range list.Instances {
		l, ok := ParseLabel(i.Label)
		if !ok {
			continue
		}
		u := Unwanted{Instance: i, Label: l, Reason: "agent " + l.Agent}
		if !i.Started.IsZero() {
			if u.Age = max(0, r.now().Sub(i.Started)); u.Age < older { // clocks differ
				continue
			}
		}
		out = append(out, u)
	}
	slices.SortFunc(out, func(a, b Unwanted) int {
		return cmp.Or(cmp.Compare(a.Label.Agent, b.Label.Agent), cmp.Compare(a.Instance.ID, b.Instance.ID))
	})
	return out, nil
}

// Reap destroys instances, waits until a list does not show them, and returns those that remain, with
// the reason.
func (r *Runner) Reap(ctx context.Context, list []Unwanted) map[int64]error {
	failed := map[int64]error{}
	if len(list) == 0 {
		return failed
	}
	if err := r.prepare(); err != nil {
		r.fail("the journal cannot be written; the instances are destroyed nevertheless", "", err)
	}
	until := r.now().Add(r.StopWait)
	for left := list; ; {
		r.reap(ctx, left, failed)
		since := r.now()
		shown, err := r.API.List(ctx, since)
		var there []Unwanted
		for _, u := range left {
			switch {
			case failed[u.Instance.ID] != nil:
			case err != nil:
				failed[u.Instance.ID] = fmt.Errorf("instance %d: its destruction was requested, and the result is not known: %w",
					u.Instance.ID, err)
			case shown.Odd > r.odd || slices.ContainsFunc(shown.Instances, func(i vastai.Instance) bool { return i.ID == u.Instance.ID }):
				there = append(there, u)
			}
		}
		if len(there) == 0 {
			return failed
		}
		if left = there; since.After(until) || r.API.Sleep(ctx, max(100*time.Millisecond, 2*r.API.Unit/5)) != nil {
			for _, u := range left {
				failed[u.Instance.ID] = fault.Errorf(fault.Unavailable,
					"instance %d: the market was asked to destroy it, and still lists it after %v", u.Instance.ID, r.StopWait)
			}
			return failed
		}
	}
}

// reap requests the destruction of instances, concurrently, and records what was refused.
func (r *Runner) reap(ctx context.Context, list []Unwanted, failed map[int64]error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, u := range list {
		o := newOrder(u.Label.Task, u.Label.Attempt)
		terms := life.Terms{Machine: u.Instance.Machine, GPU: u.Instance.GPU, Price: u.Instance.Price}
		o.Tries = []life.Try{{ID: u.Instance.ID, Terms: terms}}
		all.Go(func() {
			if err := r.journal(o, "destroy", u.Instance.ID); err != nil { // not a reason to go on paying for it
				r.fail("the journal cannot be written; the instance is destroyed nevertheless", o.name(), err)
			}
			if err := r.API.Destroy(ctx, u.Instance.ID); err != nil {
				mu.Lock()
				failed[u.Instance.ID] = err
				mu.Unlock()
			}
		})
	}
	all.Wait()
}
