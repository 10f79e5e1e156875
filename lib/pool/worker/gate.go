package worker

import "time"

// gate keeps tasks from starting while the node is short of memory.
type gate struct {
	free      int64        // bytes that must be available
	available func() int64 // bytes

	measured time.Time
	has      int64
	started  bool // a task, since it was measured
}

// newGate makes the gate of a worker; nil if tasks start whatever the node does.
func newGate(w *worker) *gate {
	if w.Available == nil || w.setup.MemFree == 0 {
		return nil
	}
	return &gate{free: w.setup.MemFree, available: w.Available}
}

// pass reports whether a task may start now. The memory that tasks will use is unknown, so that one starts
// at a time.
func (g *gate) pass(now time.Time) bool {
	if g == nil {
		return true
	}
	if now.Sub(g.measured) >= tick {
		g.has, g.measured, g.started = g.available(), now, false
	}
	if g.has < g.free || g.started {
		return false
	}
	g.started = true
	return true
}
