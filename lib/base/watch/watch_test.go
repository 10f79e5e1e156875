package watch

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Each look shows to all that wait what is there after they came.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var looks, thens atomic.Int64
		w := Watch[int64]{
			Look: func(context.Context) (int64, error) { n := looks.Add(1); time.Sleep(time.Second); return n, nil },
			Then: func(context.Context) { thens.Add(1) },
		}
		var wg sync.WaitGroup
		for i := range 1000 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				came := looks.Load()
				seen := 0
				err := w.Until(t.Context(), func(view int64) (Next, error) {
					if view <= came {
						t.Errorf("%d came after look %d, and is shown look %d", i, came, view)
					}
					seen++
					return Next(min(seen, int(Over))), nil
				})
				if err != nil || seen != int(Over) {
					t.Errorf("%d: %v after %d looks", i, err, seen)
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		// The first comes alone, all others meet in the second look, and each looks twice.
		before := looks.Load()
		if before != 3 || thens.Load() != before {
			t.Errorf("%d looks, %d times what follows", before, thens.Load())
		}
		if view, err := w.Recent(t.Context(), time.Hour); view != before || err != nil {
			t.Errorf("recent: %d, %v", view, err)
		}
		if view, err := w.Fresh(t.Context()); view != before+1 || err != nil {
			t.Errorf("fresh: %d, %v", view, err)
		}
	})
}

// The pause between looks grows with the time that one waits, up to 10 s.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		w := Watch[int]{Look: func(context.Context) (int, error) { looks++; return looks, nil }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := w.Until(ctx, func(int) (Next, error) { return Later, nil })
		if !errors.Is(err, context.DeadlineExceeded) || looks < 10 || looks > 14 {
			t.Errorf("%v after %d looks", err, looks)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.came != nil || looks > 14 {
			t.Errorf("it looks for nobody: %d looks", looks)
		}
	})
}

// A look that fails fails those that wait for it, and not those that come after.
func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("away")
		w := Watch[int]{Look: func(context.Context) (int, error) { time.Sleep(time.Second); return 0, away }}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := w.Until(t.Context(), func(int) (Next, error) { return Over, nil }); !errors.Is(err, away) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		w.Look = func(context.Context) (int, error) { return 7, nil }
		if view, err := w.Recent(t.Context(), time.Hour); view != 7 || err != nil {
			t.Errorf("%d, %v", view, err)
		}
		broken := errors.New("broken")
		if err := w.Until(t.Context(), func(int) (Next, error) { return Later, broken }); !errors.Is(err, broken) {
			t.Error(err)
		}
	})
}
