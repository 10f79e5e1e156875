package worker

import (
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool/wire"
)

func TestGate(t *testing.T) {
	available := int64(10)
	at := time.Unix(1000, 0)
	later := func() time.Time { at = at.Add(tick); return at }
	open := func(setup wire.Setup) *gate {
		return newGate(&worker{setup: setup, Options: Options{Available: func() int64 { return available }}})
	}
	if g := open(wire.Setup{}); g != nil || !g.pass(at) {
		t.Error("without a limit, tasks wait")
	}
	g := open(wire.Setup{MemFree: 10})
	if !g.pass(later()) || g.pass(at) || !g.pass(later()) {
		t.Error("enough memory: want one start at a time")
	}
	if available = 9; g.pass(later()) {
		t.Error("too little memory: want none")
	}
}
