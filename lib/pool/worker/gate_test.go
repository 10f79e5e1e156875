package worker

import (
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

func TestGate(t *testing.T) {
	runnable, available := 0, int64(10)
	at := time.Unix(1000, 0)
	later := func() time.Time { at = at.Add(tick); return at }
	open := func(setup wire.Setup) *gate {
		w := &worker{setup: setup, Options: Options{
			Busy: func() (int, int64) { return runnable, available }, Hello: wire.Hello{CPUs: make([]pool.CPU, 4)},
		}}
		return newGate(w)
	}
	if g := open(wire.Setup{}); g != nil || !g.pass(at) {
		t.Error("without a limit, tasks wait")
	}
	g := open(wire.Setup{Load: 3})
	if runnable = 1; !g.pass(later()) || !g.pass(at) || g.pass(at) {
		t.Error("load 3, 1 runnable: want two starts at a time")
	}
	if runnable = 3; g.pass(later()) {
		t.Error("load 3, 3 runnable: want none")
	}
	g = open(wire.Setup{LoadPercent: 50})
	if runnable = 1; !g.pass(later()) || g.pass(at) {
		t.Error("load 50% of 4 CPUs, 1 runnable: want one start")
	}
	g = open(wire.Setup{MemFree: 10})
	if !g.pass(later()) || g.pass(at) || !g.pass(later()) {
		t.Error("enough memory: want one start at a time")
	}
	if available = 9; g.pass(later()) {
		t.Error("too little memory: want none")
	}
}
