//go:build !race

package core

import (
	"hash/fnv"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
)

// step is how a state was reached: by an action after another state.
type step struct {
	before *step
	choice int
	depth  int
}

func (s *step) replay(start func() *world, may func(*world) (bool, bool)) *world {
	choices := make([]int, s.depth)
	for x := s; x.before != nil; x = x.before {
		choices[x.depth-1] = x.choice
	}
	w := start()
	for _, i := range choices {
		lose, restart := may(w)
		w.actions(lose, restart)[i].do()
	}
	return w
}

func (s *step) path(start func() *world, may func(*world) (bool, bool)) (out []string) {
	choices := make([]int, s.depth)
	for x := s; x.before != nil; x = x.before {
		choices[x.depth-1] = x.choice
	}
	w := start()
	for _, i := range choices {
		lose, restart := may(w)
		a := w.actions(lose, restart)[i]
		out = append(out, a.name())
		a.do()
	}
	return out
}

// TestModel goes through all interleavings of two workers, three tasks, losses of
// connections and workers, their return, results that come late, and a restart of
// the scheduler, to a depth. In none does a task run twice at a time, end twice, or
// get CPUs that another has; and from each state all tasks can end well.
func TestModel(t *testing.T) {
	one := pool.Need{CPUs: 1}
	three := []pool.Need{one, one, one}
	licensed := pool.Need{CPUs: 1, Named: pool.Named{}.With("licence", 600)}
	wide := pool.Need{CPUs: 1, Nodes: 2}
	shared := pool.Need{CPUs: 1, Share: 400, Named: pool.Named{}.With("scratch", 500)}
	for _, tt := range []struct {
		name             string
		needs            []pool.Need
		cpus             []int
		losses, restarts int
		depth, states    int
		chunk            int
	}{
		{"a loss", three, []int{1, 1}, 1, 0, 14, 4000, 0},
		{"two losses", three, []int{1, 1}, 2, 0, 12, 4000, 0},
		{"two losses of a wide node", three, []int{2, 1}, 2, 0, 11, 4000, 0},
		{"a restart", three, []int{1, 1}, 0, 1, 13, 4000, 0},
		{"a loss and a restart", three, []int{2, 1}, 1, 1, 11, 4000, 0},
		{"a loss and a restart with a licence", []pool.Need{licensed, one, licensed}, []int{1, 2}, 1, 1, 12, 4000, 2},
		{"a loss and a restart with two nodes", []pool.Need{one, wide, one}, []int{1, 1}, 1, 1, 12, 4000, 0},
		{"two losses with two nodes", []pool.Need{wide, one, wide}, []int{1, 2, 1}, 2, 0, 11, 4000, 0},
		{"a loss and a restart with a part of a GPU", []pool.Need{shared, shared, shared}, []int{3}, 1, 1, 11, 3000, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			begun := time.Now()
			if testing.Short() {
				tt.states /= 10
			}
			start := func() *world {
				w := newWorld(Config{
					Policy: Policy{LostRetries: 3, Reconnects: 3}, Shared: pool.Named{}.With("licence", 1000),
					Resources: []Resources{{Named: pool.Named{}.With("scratch", 1000)}},
				}, tt.needs, tt.cpus...)
				w.chunk = tt.chunk
				return w
			}
			may := func(w *world) (bool, bool) { return w.losses < tt.losses, w.restarts < tt.restarts }
			seen := map[uint64]bool{}
			queue := []*step{{}}
			leaves, depth := 0, 0
			for len(queue) > 0 && len(seen) < tt.states {
				s := queue[0]
				queue = queue[1:]
				w := s.replay(start, may)
				if w.core.Finished() || s.depth == tt.depth {
					leaves++
					if !w.finish() {
						t.Fatalf("not all tasks end well (%s):\n%q", w.broken, s.path(start, may))
					}
					continue
				}
				lose, restart := may(w)
				for i := range w.actions(lose, restart) {
					next := &step{s, i, s.depth + 1}
					w := next.replay(start, may)
					if w.broken != "" {
						t.Fatalf("%s:\n%q", w.broken, next.path(start, may))
					}
					h := fnv.New64a()
					h.Write([]byte(w.fingerprint()))
					if sum := h.Sum64(); !seen[sum] {
						seen[sum] = true
						depth = next.depth
						queue = append(queue, next)
					}
				}
			}
			for _, s := range queue {
				if w := s.replay(start, may); !w.finish() {
					t.Fatalf("not all tasks end well (%s):\n%q", w.broken, s.path(start, may))
				}
			}
			t.Logf("%d states, %d ends, depth %d, in %v", len(seen), leaves, depth, time.Since(begun).Round(time.Millisecond))
		})
	}
}
