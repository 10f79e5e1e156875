package agent

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// batches collects tasks that are alike and ready to start, so that one call of the scheduler
// starts many. A task waits for others only while some are being prepared, and only for a short
// time.
type batches struct {
	mu        sync.Mutex
	preparing int // tasks that may yet become ready
	waiting   map[string]*batch
}

// batch is a list of tasks that are alike.
type batch struct {
	ready []*ready
	timer *time.Timer
}

// ready is a task that is to be started.
type ready struct {
	submission runner.Submission
	keep       func() error // the record that says that there may be a job; see Dir.Stage
	result     chan runner.Started
}

// linger is how long a task waits for similar tasks. settle is the same where none is
// being prepared: the next tasks may not have been read yet.
const (
	linger = 5 * time.Second
	settle = 100 * time.Millisecond
)

// place is one of Agent.Places, held by a task.
type place struct{ leave func() }

// placeKey is the key of a place in a context.
type placeKey struct{}

// Enter waits for a free place, and returns a context with which Start uses it. A task that waits
// for a place may become ready to start with others.
func (a *Agent) Enter(ctx context.Context) (context.Context, error) {
	b := &a.batches
	b.mu.Lock()
	b.preparing++
	b.mu.Unlock()
	ready := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.preparing--; b.preparing == 0 && len(b.waiting) > 0 {
			time.AfterFunc(settle, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				for key := range b.waiting {
					if b.preparing == 0 {
						a.flush(ctx, key)
					}
				}
			})
		}
	}
	if a.Places == nil {
		return context.WithValue(ctx, placeKey{}, place{sync.OnceFunc(ready)}), nil
	}
	select {
	case a.Places <- struct{}{}:
		return context.WithValue(ctx, placeKey{}, place{sync.OnceFunc(func() { <-a.Places; ready() })}), nil
	case <-ctx.Done():
		ready()
		return ctx, context.Cause(ctx)
	}
}

// placeOf returns the place of a context, or waits for one.
func (a *Agent) placeOf(ctx context.Context) (place, error) {
	p, ok := ctx.Value(placeKey{}).(place)
	if ok {
		return p, nil
	}
	ctx, err := a.Enter(ctx)
	p, _ = ctx.Value(placeKey{}).(place)
	return p, err
}

// startJob records that there may be a job, and then has the runner start the task, together with
// others that are alike where that is possible. The place is free while the task waits for them.
func (a *Agent) startJob(ctx context.Context, d Dir, record Record, s runner.Submission, p place) (runner.Job, error) {
	key, most := "", 1
	batcher := a.Runner.Can().Batch
	if batcher != nil {
		key, most = batcher.Alike(ctx, s)
	}
	if key == "" {
		err := d.Write(record)
		if err == nil {
			err = a.Store.markSubmitted(d.id, record.Attempt)
		}
		if err == nil && batcher != nil {
			err = s.Shared.Alone()
		}
		if err != nil {
			return runner.Job{}, err
		}
		return a.Runner.Start(ctx, s)
	}
	keep, err := d.Stage(record)
	if err != nil {
		return runner.Job{}, err
	}
	r := &ready{s, keep, make(chan runner.Started, 1)}
	a.join(ctx, key, most, r)
	p.leave()
	started := <-r.result // as long as the call lasts, which holds the lock of the task
	return started.Job, started.Err
}

// join has a task started with others of its key: when there are enough of them, when no other
// task is being prepared, or when it has waited long enough.
func (a *Agent) join(ctx context.Context, key string, most int, r *ready) {
	b := &a.batches
	b.mu.Lock()
	defer b.mu.Unlock()
	group := b.waiting[key]
	if group == nil {
		group = &batch{}
		group.timer = time.AfterFunc(linger, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.waiting[key] == group {
				a.flush(ctx, key)
			}
		})
		if b.waiting == nil {
			b.waiting = map[string]*batch{}
		}
		b.waiting[key] = group
	}
	if group.ready = append(group.ready, r); len(group.ready) >= most {
		a.flush(ctx, key)
	}
}

// flush starts the tasks of a key. The lock of batches is held.
func (a *Agent) flush(ctx context.Context, key string) {
	group := a.batches.waiting[key]
	delete(a.batches.waiting, key)
	group.timer.Stop()
	slices.SortFunc(group.ready, func(a, b *ready) int { return strings.Compare(string(a.submission.Task), string(b.submission.Task)) })
	go func() {
		if a.Places != nil { // a call of the scheduler takes one, as the preparation of a task does
			a.Places <- struct{}{}
			defer func() { <-a.Places }()
		}
		// The records of all tasks are flushed to disk together: one flush for each takes longer
		// than the rest of a start.
		settled := environment.SyncFS(a.Store.Dir)
		var kept []*ready
		var all []runner.Submission
		for _, r := range group.ready {
			err := settled
			if err == nil {
				err = r.keep()
			}
			if err == nil {
				err = a.Store.markSubmitted(r.submission.Task, r.submission.Attempt)
			}
			if err != nil {
				r.result <- runner.Started{Err: err}
				continue
			}
			kept, all = append(kept, r), append(all, r.submission)
		}
		if len(all) == 0 {
			return
		}
		for i, started := range a.Runner.Can().Batch.StartAll(ctx, all) {
			kept[i].result <- started
		}
	}()
}
