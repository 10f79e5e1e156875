package core

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/names"
)

// A run that is fed for ever keeps what ended tasks were called, and how they ended,
// in little memory.
func TestDependenciesTakeLittleMemory(t *testing.T) {
	d := newDependencies(&names.Map{Dir: t.TempDir()})
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / (1 << 20)
	}
	const n = 150000
	bad := func(seq int64) bool { return seq%50000 == 7 }
	before := heap()
	for seq := int64(1); seq <= n; seq++ {
		task := &pool.Task{Seq: seq, Extra: &pool.Extra{ID: fmt.Sprint("step-", seq)}}
		if !d.add(task) || d.add(task) {
			t.Fatalf("task %d", seq)
		}
		d.finish(task, !bad(seq))
	}
	if used := heap() - before; used > 8 {
		t.Errorf("%d names take %.1f MiB", n, used)
	}
	for seq := int64(1); seq <= n; seq += 3 {
		want := depsMet
		if bad(seq) {
			want = depsFailed
		}
		if got := d.of(fmt.Sprint("step-", seq)); got != want {
			t.Fatalf("task %d by its id: %d", seq, got)
		}
		if got := d.of(fmt.Sprint(seq)); got != want {
			t.Fatalf("task %d by its number: %d", seq, got)
		}
	}
	if d.of(fmt.Sprint(n+1)) != depsWait || d.of("0") != depsWait || d.of("nobody") != depsWait {
		t.Error("what has not ended counts as ended")
	}
}

// Tasks of earlier runs that are not read again are known by their numbers, in as little memory.
func TestSucceededBefore(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		d, each := newDependencies(nil), newDependencies(nil)
		each.note(3*pageSize, false)
		d.note(3*pageSize, false)
		for range 3 {
			from := 1 + random.Int64N(4*pageSize)
			to := from + random.Int64N(3*pageSize)
			if random.IntN(2) == 0 {
				from, to = from/pageSize*pageSize+random.Int64N(2), to/pageSize*pageSize-random.Int64N(2)
			}
			from = max(1, from)
			d.succeeded(from, to)
			for seq := from; seq <= to; seq++ {
				each.note(seq, true)
			}
		}
		for seq := range int64(8 * pageSize) {
			if got, want := d.of(fmt.Sprint(seq)), each.of(fmt.Sprint(seq)); got != want {
				t.Fatalf("seed %d: task %d: %d, want %d", seed, seq, got, want)
			}
		}
	}
	d := newDependencies(nil)
	d.succeeded(1, 100*pageSize)
	for p := 1; p < 100; p++ {
		if d.pages[p] != allGood {
			t.Errorf("page %d takes memory", p)
		}
	}
}
