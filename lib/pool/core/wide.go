package core

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/executor/outside"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Tasks of several nodes. The command runs at the first of them, and starts processes at the others
// by itself, as MPI does. Either all nodes give their part, or none. When one is lost, so is the
// attempt: its command is ended. When the command has ended, the workers of the other nodes end its
// remaining processes there. Before they have confirmed that, the parts are not given to other tasks,
// and the task neither ends nor runs again. A node that is away then is cleared before it gets other
// tasks, unless both it and the scheduler are lost: its processes end with the command that has
// started them.

// wide reports whether the attempt is one of several nodes.
func (a *attempt) wide() bool { return a.slot != nil && len(a.slot.Others) > 0 }

// others are the workers of the other nodes.
func (a *attempt) others() []*Worker {
	var out []*Worker
	for _, s := range a.slot.Others {
		out = append(out, s.Node.Data.(*Worker))
	}
	return out
}

// unused reports whether a worker has no part in any task.
func (w *Worker) unused() bool { return len(w.attempts)+len(w.shared)+w.open == 0 }

// join records the attempt at the other nodes.
func (ts *tasks) join(a *attempt) {
	ts.wides[a.task.Seq] = a
	for _, w := range a.others() {
		w.shared[a.task.Seq] = a
		w.Node.given(ts.now)
		if w.Node.trial {
			ts.pool.Close(w.n)
		}
	}
}

// part removes it there.
func (ts *tasks) part(a *attempt) {
	if !a.wide() {
		return
	}
	delete(ts.wides, a.task.Seq)
	for _, w := range a.others() {
		delete(w.shared, a.task.Seq)
	}
}

// crowded reports whether an attempt has a part of a node from its previous worker: its processes
// there may still run.
func (ts *tasks) crowded(w *Worker) bool {
	for _, a := range ts.wides {
		if slices.ContainsFunc(a.others(), func(o *Worker) bool { return o != w && o.Node == w.Node }) {
			return true
		}
	}
	return false
}

// sweeping is an attempt whose command has ended, and whose remaining processes are being ended by
// other workers.
type sweeping struct {
	attempt *attempt
	left    []*Worker
	then    func()
}

// after calls then when nothing is left of an attempt that was lost with its worker.
func (ts *tasks) after(a *attempt, then func()) {
	if a.wide() {
		ts.sweep(a, then)
		return
	}
	then()
}

// sweep has the other nodes of an attempt end its remaining processes. Then it releases what the
// attempt holds, and calls then.
func (ts *tasks) sweep(a *attempt, then func()) {
	s := &sweeping{attempt: a, then: then}
	for _, o := range a.others() {
		o.Node.unswept[a.key()] = true
		if w := o.Node.Worker; w != nil && w.connected() { // it, or its successor
			s.left = append(s.left, w)
			ts.sendSweep(w, a.key())
		}
	}
	ts.sweeps = append(ts.sweeps, s)
	ts.swept(nil, wire.Key{})
}

func (ts *tasks) sendSweep(w *Worker, k wire.Key) { ts.send(w, &wire.Message{Sweep: &k}) }

// sweepLate has a worker end what its predecessor could not.
func (ts *tasks) sweepLate(w *Worker) {
	for _, k := range slices.SortedFunc(maps.Keys(w.Node.unswept), func(a, b wire.Key) int { return cmp.Compare(a.Seq, b.Seq) }) {
		ts.sendSweep(w, k)
	}
}

// swept records that nothing of an attempt is left at a worker, or at any that is gone.
func (ts *tasks) swept(w *Worker, k wire.Key) {
	if w != nil {
		delete(w.Node.unswept, k)
		ts.admit(w)
	}
	for _, s := range slices.Clone(ts.sweeps) {
		s.left = slices.DeleteFunc(s.left, func(o *Worker) bool { return !o.connected() || o == w && s.attempt.key() == k })
		if len(s.left) > 0 || !slices.Contains(ts.sweeps, s) {
			continue
		}
		ts.sweeps = slices.DeleteFunc(ts.sweeps, func(o *sweeping) bool { return o == s })
		ts.part(s.attempt)
		ts.pool.Release(s.attempt.slot)
		for _, o := range slices.Clone(ts.nodes.workers) {
			ts.admit(o)
		}
		s.then()
	}
}

// clears reports whether a worker has yet to confirm the end of an attempt's processes.
func (ts *tasks) clears(w *Worker) bool {
	return slices.ContainsFunc(ts.sweeps, func(s *sweeping) bool { return slices.Contains(s.left, w) })
}

// sharedLost ends the attempts that have a part at a worker that is gone.
func (ts *tasks) sharedLost(w *Worker, why string) {
	for _, a := range sorted(w.shared) {
		ts.loseNode(a, w, why)
	}
	clear(w.shared)
	ts.swept(nil, wire.Key{})
}

// loseNode ends an attempt because one of its nodes is lost, or is about to be.
func (ts *tasks) loseNode(a *attempt, w *Worker, why string) {
	if a.lost == "" {
		a.lost = "node " + w.Name() + ": " + oneLine(why)
	}
	if ts.attempts[a.task.Seq] == a {
		ts.kill(a, wire.Lost, false)
	}
}

// endWide handles the end of the command of such an attempt.
func (ts *tasks) endWide(a *attempt, w *Worker, r *Result, out Output, open time.Duration) {
	others := a.others()
	ts.sweep(a, func() {
		if r.What == wire.Failed && ts.ending.phase < Stopping {
			open = outside.Notice // it fails before it is known that one of its nodes is lost
		}
		if open > 0 {
			ts.leaveOpen(&undecided{pending: pending{a.task, r, out}, worker: w, wide: a, others: others}, open)
			return
		}
		ts.settleWide(a, others, r, out)
	})
}

// settleWide settles the end of an attempt, which is lost if one of its nodes is.
func (ts *tasks) settleWide(a *attempt, others []*Worker, r *Result, out Output) {
	for _, o := range others {
		if a.lost == "" && (!o.connected() || o.ending) {
			a.lost = "node " + o.Name() + ": it was lost"
		}
	}
	if r.What == wire.Lost || a.lost != "" && r.What == wire.Failed {
		r.What, r.Error = wire.Lost, wire.Text(a.lost)
	}
	ts.settle(a.task, nil, r, out)
}

// ends is called when a worker ends by itself, and with it what it runs, as after SIGTERM: attempts
// that have a part of its node are lost.
func (ts *tasks) ends(w *Worker) {
	ts.nodes.leaves(w)
	for _, a := range sorted(w.shared) {
		ts.loseNode(a, w, "it is being ended")
	}
}

// nodesOf describes the nodes of an attempt for the first of them.
func nodesOf(s *pool.Slot) []wire.Node {
	if len(s.Others) == 0 {
		return nil
	}
	nodes := []wire.Node{{Node: s.Node.Name, CPUs: s.CPUs, GPUs: s.GPUs}}
	for _, o := range s.Others {
		nodes = append(nodes, wire.Node{Node: o.Node.Name, CPUs: o.CPUs, GPUs: o.GPUs})
	}
	return nodes
}

// nodeNames are the names of an attempt's nodes, with commas.
func (a *attempt) nodeNames() string {
	name := a.worker.Name()
	if a.wide() {
		for _, o := range a.slot.Others {
			name += "," + o.Node.Name
		}
	}
	return name
}
