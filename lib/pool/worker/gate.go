package worker

import "time"

// gate keeps tasks from starting while the node is busy or short of memory.
type gate struct {
	load int   // runnable processes; 0: no limit
	free int64 // bytes that must be available
	// busy measures the node: runnable processes and available memory in bytes.
	busy func() (runnable int, available int64)

	measured  time.Time
	runnable  int
	available int64
	started   int // tasks since it was measured
}

// newGate makes the gate of a worker; nil if tasks start whatever the node does.
func newGate(w *worker) *gate {
	g := &gate{load: w.setup.Load, free: w.setup.MemFree, busy: w.Busy}
	if p := w.setup.LoadPercent; p > 0 {
		g.load = max(1, p*len(w.Hello.CPUs)/100)
	}
	if g.busy == nil || g.load == 0 && g.free == 0 {
		return nil
	}
	return g
}

// pass reports whether a task may start now. Tasks that have started since the measurement count as
// runnable; the memory that they will use is unknown, so that with a limit for memory one task starts
// at a time.
func (g *gate) pass(now time.Time) bool {
	if g == nil {
		return true
	}
	if now.Sub(g.measured) >= tick {
		g.runnable, g.available = g.busy()
		g.measured, g.started = now, 0
	}
	if g.load > 0 && g.runnable+g.started >= g.load || g.free > 0 && (g.available < g.free || g.started > 0) {
		return false
	}
	g.started++
	return true
}
