package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

// ends are tasks whose books are being closed. What they leave may be large and take
// hours to publish, so a turn goes on without them after a while. The lock of the
// task keeps everybody else away meanwhile, the next turns included.
type ends struct {
	mu     sync.Mutex
	slots  chan struct{}
	open   map[task.ID]chan struct{} // closed when done
	failed []failure                 // those for which no turn has waited
}

// begin closes the books of a task and waits for it, but not longer than a turn has
// patience. It reports whether the task is over.
func (a *Agent) begin(ctx context.Context, id task.ID, patience <-chan struct{}, do func() (over bool, err error)) (over bool, err error) {
	e := &a.ends
	e.mu.Lock()
	if e.open == nil {
		e.open, e.slots = map[task.ID]chan struct{}{}, make(chan struct{}, parallel)
	}
	if e.open[id] != nil {
		e.mu.Unlock()
		return false, nil
	}
	done, late := make(chan struct{}), false
	e.open[id] = done
	e.mu.Unlock()
	go func() {
		select {
		case e.slots <- struct{}{}:
			over, err = do()
			<-e.slots
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		if late && err != nil {
			e.failed = append(e.failed, failure{id, err})
		}
		delete(e.open, id)
		close(done)
	}()
	select {
	case <-done:
	case <-patience:
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-done:
		return over, err
	default:
		late = true
		return false, nil
	}
}

// patience returns a channel that is closed when a turn should go on.
func (a *Agent) patience() (gone <-chan struct{}, stop func()) {
	limit := a.Patience
	if limit == 0 {
		limit = 5 * time.Second
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	return ctx.Done(), cancel
}

// late returns what has gone wrong since the last turn.
func (a *Agent) late() []failure {
	a.ends.mu.Lock()
	defer a.ends.mu.Unlock()
	failed := a.ends.failed
	a.ends.failed = nil
	return failed
}

// failure is what went wrong with a task.
type failure struct {
	id  task.ID
	err error
}

// together are failures as errors: those that say the same of several tasks, but for the
// task's id, as one.
func together(failed []failure) (errs []error) {
	slices.SortFunc(failed, func(a, b failure) int { return strings.Compare(string(a.id), string(b.id)) })
	first, others := map[string]int{}, make([]int, len(failed))
	for i, f := range failed {
		text := strings.ReplaceAll(f.err.Error(), string(f.id), "")
		if at, ok := first[text]; ok {
			others[at]++
			others[i] = -1
			continue
		}
		first[text] = i
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

// WaitEnds waits for the tasks whose books turns have left open, and returns what
// has gone wrong with them. Another process may take turns meanwhile.
func (a *Agent) WaitEnds(ctx context.Context) error {
	for {
		var done chan struct{}
		a.ends.mu.Lock()
		for _, done = range a.ends.open {
			break
		}
		a.ends.mu.Unlock()
		if done == nil {
			return errors.Join(together(a.late())...)
		}
		select {
		case <-done:
		case <-ctx.Done():
			return errors.Join(append(together(a.late()), context.Cause(ctx))...)
		}
	}
}
