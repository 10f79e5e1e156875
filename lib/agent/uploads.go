package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
)

// uploads tracks ended tasks whose logs, artifacts and states are still being published. That may
// take hours, so a turn stops waiting for them after a while. Meanwhile the lock of the task keeps
// all other processes away, and also the next turns.
type uploads struct {
	mu     sync.Mutex
	slots  chan struct{}
	open   map[task.ID]chan struct{} // closed when done
	failed []failure                 // failures of tasks for which no turn has waited
}

// runUpload publishes the end of a task with do, and waits for it, but not longer than the
// patience of the turn. It reports whether the task has ended.
func (a *Agent) runUpload(
	ctx context.Context, id task.ID, patience <-chan struct{}, do func() (over bool, err error),
) (over bool, err error) {
	u := &a.uploads
	u.mu.Lock()
	if u.open == nil {
		u.open, u.slots = map[task.ID]chan struct{}{}, make(chan struct{}, parallel)
	}
	if u.open[id] != nil {
		u.mu.Unlock()
		return false, nil
	}
	done, late := make(chan struct{}), false
	u.open[id] = done
	u.mu.Unlock()
	go func() {
		select {
		case u.slots <- struct{}{}:
			over, err = do()
			<-u.slots
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		u.mu.Lock()
		defer u.mu.Unlock()
		if late && err != nil {
			u.failed = append(u.failed, failure{id, err})
		}
		delete(u.open, id)
		close(done)
	}()
	select {
	case <-done:
	case <-patience:
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	select {
	case <-done:
		return over, err
	default:
		late = true
		return false, nil
	}
}

// patience returns a channel that is closed when a turn should stop waiting.
func (a *Agent) patience() (gone <-chan struct{}, stop func()) {
	limit := a.Patience
	if limit == 0 {
		limit = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	return ctx.Done(), cancel
}

// uploadFailures returns the failures since the last turn.
func (a *Agent) uploadFailures() []failure {
	a.uploads.mu.Lock()
	defer a.uploads.mu.Unlock()
	failed := a.uploads.failed
	a.uploads.failed = nil
	return failed
}

// failure is what went wrong with a task.
type failure struct {
	id  task.ID
	err error
}

// joinFailures returns failures as errors. Failures of several tasks that differ only in the
// task's id become one error, and so do equal failures of one task.
func joinFailures(failed []failure) (errs []error) {
	slices.SortFunc(failed, func(a, b failure) int { return strings.Compare(string(a.id), string(b.id)) })
	first, others := map[string]int{}, make([]int, len(failed))
	last := map[string]task.ID{}
	for i, f := range failed {
		text := strings.ReplaceAll(fault.Text(f.err), string(f.id), "")
		at, known := first[text]
		if known {
			others[i] = -1
			if last[text] != f.id {
				others[at]++
			}
		} else {
			first[text] = i
		}
		last[text] = f.id
	}
	for i, f := range failed {
		switch n := others[i]; {
		case n == 0:
			errs = append(errs, fmt.Errorf("task %s: %w", f.id, f.err))
		case n == 1:
			errs = append(errs, fmt.Errorf("task %s and 1 other: %w", f.id, f.err))
		case n > 1:
			errs = append(errs, fmt.Errorf("task %s and %d others: %w", f.id, n, f.err))
		}
	}
	return errs
}

// WaitUploads waits for uploads that turns left running, and returns their errors. Another process
// may take turns meanwhile.
func (a *Agent) WaitUploads(ctx context.Context) error {
	for {
		var done chan struct{}
		a.uploads.mu.Lock()
		for _, done = range a.uploads.open {
			break
		}
		a.uploads.mu.Unlock()
		if done == nil {
			return errors.Join(joinFailures(a.uploadFailures())...)
		}
		select {
		case <-done:
		case <-ctx.Done():
			return errors.Join(append(joinFailures(a.uploadFailures()), context.Cause(ctx))...)
		}
	}
}
