// Package watch shares looks at something among those that wait for it to change.
package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

// Watch looks once for all that wait. Each look begins after those that it is shown to have come.
//
//	idle ──Until──► looking ──► each that waits judges the view ──► Then ──► pause ──► looking
//	  ▲                                      │ it is over, or the look has failed      │
//	  └───────────────── none waits ◄────────┴─────────────────────────────────────────┘
//
// The pause grows with the time that one has waited. If many wait, it is longer, and lasts until no more come.
type Watch[V any] struct {
	Look func(context.Context) (V, error)
	Then func(context.Context) // what follows from what all have judged; nil: nothing

	mu      sync.Mutex
	waiting []*waiting[V]
	came    chan struct{} // nil: idle
	last    *seen[V]
}

type seen[V any] struct {
	view  V
	began time.Time
}

// waiting is one that waits.
type waiting[V any] struct {
	judge func(V) (Next, error)
	over  chan error
	delay time.Duration
	due   time.Time
}

// Next is what follows from a view for one that waits.
type Next int

const (
	Later Next = iota // nothing has changed: it looks again after a longer pause
	Soon              // it has done something, and looks for the effect
	Over              // it waits no longer
)

// The pauses between looks, for few and for many; for these, none begins while more come, for a time.
const (
	quick, longest = 50 * time.Millisecond, 10 * time.Second
	few            = 8
	slow           = time.Second
	settle, linger = 100 * time.Millisecond, 5 * time.Second
)

// judges is how many judge at the same time, as they may have to ask for more.
const judges = 8

// Until shows views to judge until it is over or has failed, or a look has. Judge may still run when the context has
// ended.
func (w *Watch[V]) Until(ctx context.Context, judge func(V) (Next, error)) error {
	one := &waiting[V]{judge: judge, over: make(chan error, 1), due: clock.Now()}
	w.mu.Lock()
	w.waiting = append(w.waiting, one)
	if w.came == nil {
		w.came = make(chan struct{}, 1)
		go w.run(context.WithoutCancel(ctx), w.came)
	}
	select {
	case w.came <- struct{}{}:
	default:
	}
	w.mu.Unlock()
	select {
	case err := <-one.over:
		return err
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		w.waiting = slices.DeleteFunc(w.waiting, func(other *waiting[V]) bool { return other == one })
		return context.Cause(ctx)
	}
}

// Fresh returns a view that is newer than the question.
func (w *Watch[V]) Fresh(ctx context.Context) (V, error) {
	var view, none V
	if err := w.Until(ctx, func(v V) (Next, error) { view = v; return Over, nil }); err != nil {
		return none, err
	}
	return view, nil
}

// Recent returns the last view if it is young, or else a fresh one.
func (w *Watch[V]) Recent(ctx context.Context, young time.Duration) (V, error) {
	w.mu.Lock()
	last := w.last
	w.mu.Unlock()
	if last != nil && clock.Since(last.began) < young {
		return last.view, nil
	}
	return w.Fresh(ctx)
}

// run looks until none waits.
func (w *Watch[V]) run(ctx context.Context, came <-chan struct{}) {
	for {
		w.pause(came)
		w.mu.Lock()
		shown := slices.Clone(w.waiting)
		if len(shown) == 0 {
			w.came = nil
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
		began := clock.Now()
		view, err := w.Look(ctx)
		if err == nil {
			w.mu.Lock()
			w.last = &seen[V]{view, began}
			w.mu.Unlock()
		}
		w.show(shown, view, err)
		if w.Then != nil {
			w.Then(ctx)
		}
		w.schedule(shown)
	}
}

// pause waits until a look is due, and, if many wait, until no more come.
func (w *Watch[V]) pause(came <-chan struct{}) {
	for {
		next, count := w.next()
		if count == 0 || next <= 0 {
			break
		}
		select {
		case <-came:
		case <-time.After(next):
		}
	}
	for end := clock.Now().Add(linger); clock.Now().Before(end); {
		if _, count := w.next(); count <= few {
			return
		}
		select {
		case <-came:
		case <-time.After(settle):
			return
		}
	}
}

// next returns the time until a look is due, and how many wait.
func (w *Watch[V]) next() (time.Duration, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		return 0, 0
	}
	first := slices.MinFunc(w.waiting, func(a, b *waiting[V]) int { return a.due.Compare(b.due) })
	return first.due.Sub(clock.Now()), len(w.waiting)
}

// show shows a view to some, and releases those that wait no longer.
func (w *Watch[V]) show(some []*waiting[V], view V, err error) {
	var wg sync.WaitGroup
	free := make(chan struct{}, judges)
	ended := make(map[*waiting[V]]error, len(some))
	var mu sync.Mutex
	for _, one := range some {
		if err != nil {
			ended[one] = err
			continue
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			next, err := one.judge(view)
			switch {
			case next == Over || err != nil:
				mu.Lock()
				defer mu.Unlock()
				ended[one] = err
			case next == Soon:
				one.delay = quick
			default:
				one.delay = min(max(quick, 2*one.delay), longest)
			}
		})
	}
	wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting = slices.DeleteFunc(w.waiting, func(one *waiting[V]) bool { _, gone := ended[one]; return gone })
	for one, err := range ended {
		one.over <- err
	}
}

// schedule sets when those that were shown a view look again.
func (w *Watch[V]) schedule(some []*waiting[V]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shortest := time.Duration(0)
	if len(w.waiting) > few {
		shortest = slow
	}
	now := clock.Now()
	for _, one := range some {
		one.due = now.Add(max(one.delay, shortest))
	}
}
