//go:build !race

package core

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
)

// TestSimulator drives larger worlds at random, a million steps in all: machines that
// come and go, connections that are cut, workers that are killed, and schedulers that
// are started again. After each storm all tasks can end well.
func TestSimulator(t *testing.T) {
	steps := 1_000_000
	if testing.Short() {
		steps = 50_000
	}
	begun, total, restarts := time.Now(), 0, 0
	for seed := uint64(1); total < steps; seed++ {
		r := rand.New(rand.NewPCG(seed, 13))
		cpus := make([]int, 1+r.IntN(4))
		widest := 0
		for i := range cpus {
			cpus[i] = 1 + r.IntN(4)
			widest = max(widest, cpus[i])
		}
		needs := make([]pool.Need, 5+r.IntN(40))
		for i := range needs {
			needs[i] = pool.Need{CPUs: 1 + r.IntN(widest)*r.IntN(2)}
			if seed%3 == 0 && len(cpus) > 1 {
				needs[i].Nodes = int32(r.IntN(2) * 2)
				slices.Sort(cpus)
				needs[i].CPUs = min(needs[i].CPUs, cpus[len(cpus)-2])
			}
			if seed%2 == 0 {
				needs[i].Share = int32(r.IntN(2) * r.IntN(pool.WholeGPU))
				for _, name := range []string{"licence", "scratch"} {
					needs[i].Named = needs[i].Named.With(name, pool.Amount(r.IntN(2)*r.IntN(1001)))
				}
			}
		}
		p := Policy{LostRetries: r.IntN(2) * 1000, Reconnects: 3 + r.IntN(1000)}
		w := newWorld(Config{
			Policy: p, Shared: pool.Named{}.With("licence", 2000), Resources: []Resources{{Named: pool.Named{}.With("scratch", 1000)}},
		}, needs, cpus...)
		w.chunk = r.IntN(3) * 4
		faults := r.Float64() * 0.1 // of all steps
		for range 1500 {
			all := w.actions(r.Float64() < faults, r.Float64() < faults/20)
			if len(all) == 0 {
				w.advance(leaseTime)
				continue
			}
			a := all[r.IntN(len(all))]
			if strings.HasPrefix(a.format, "wait") && r.IntN(4) > 0 {
				continue
			}
			a.do()
			total++
			if r.IntN(50) == 0 {
				b := w.nodes[r.IntN(len(w.nodes))]
				b.down = !b.down && r.IntN(3) == 0
			}
			if w.broken != "" {
				t.Fatalf("seed %d: %s", seed, w.broken)
			}
			if w.core.Finished() && w.read == len(w.needs) {
				w.kill()
				w.boot()
				w.restarts++
			}
		}
		restarts += w.restarts
		for _, b := range w.nodes {
			b.down = false
		}
		if !w.finish() {
			var open []int64
			for i := range needs {
				if seq := int64(i + 1); w.ended[seq] == 0 {
					open = append(open, seq)
				}
			}
			slices.Sort(open)
			t.Fatalf("seed %d: not all tasks end well (%s): %d of %d are open: %v; summary %+v", seed, w.broken, len(open), len(needs), open, w.core.Summary())
		}
	}
	t.Logf("%d steps, %d restarts, in %v", total, restarts, time.Since(begun).Round(time.Millisecond))
}
