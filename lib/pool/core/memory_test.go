package core

import (
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// What a pool keeps in memory does not grow with the tasks that have ended: it may be fed
// for months.
func TestEndedTasksTakeNoMemory(t *testing.T) {
	c := &cluster{now: time.Unix(1e9, 0), queue: map[*Worker]map[pool.Need][]wire.Key{}, rand: rand.New(rand.NewPCG(1, 2))}
	c.core = New(Config{
		Nodes: []NodeSpec{{Name: "n", Most: 128, Group: -1}}, Session: "s", Lease: time.Hour,
		Policy: Policy{ReadAhead: 1000, NodeTimeout: time.Hour, Serve: true},
	}, c.now)
	c.handle(Tick{})
	for _, w := range c.asked {
		c.handle(Connected{w, &wire.Hello{CPUs: pool.Numbered(128), Mem: 1 << 38, Kernel: "k"}})
	}
	spec := &pool.Spec{Need: pool.Need{CPUs: 1}}
	seq := 0
	run := func(tasks int) uint64 {
		for until := seq + tasks; seq < until; c.step() {
			for seq < until && !c.core.Full() {
				seq++
				c.handle(Tasks{Inputs: []Input{{Task: &pool.Task{Seq: int64(seq), Text: "simulate --case " + strconv.Itoa(seq), Spec: spec}}}})
			}
		}
		for steps := 0; c.ended < seq && steps < 10_000; steps++ {
			c.step()
		}
		if c.ended != seq {
			t.Fatalf("%d of %d tasks have ended", c.ended, seq)
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := run(20_000)
	if after := run(100_000); after > before+100_000 { // a byte for each
		t.Errorf("%d tasks that have ended take %d bytes", 100_000, after-before)
	}
	runtime.KeepAlive(c)
}
