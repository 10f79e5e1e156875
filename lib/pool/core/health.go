package core

import (
	"fmt"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// A node on which every task fails is always free, so it would get all tasks. When a task fails,
// either the task or its node may be to blame. The same task on other nodes, and other tasks on the
// same node, show which.
//
// The failures of a node since a task last succeeded there are kept, and charged to their tasks when
// the next one succeeds. When there are too many of them, the node is on trial: it gets one task at a
// time, with growing pauses, and its failures are tried elsewhere. If they fail there as well, the
// tasks are to blame: they are charged, and the node may have twice as many failures before the next
// trial. If they succeed, and the node fails clearly more often than the others, it is quarantined:
// it gets no more tasks, and all its failures are tried elsewhere. A node that fails often, but not
// always, is found by its failure rate, and its failures are tried elsewhere, too.

// trust is what is known of how tasks fare at a node.
type trust struct {
	good, bad float64 // tasks that ended well, and not; older ones count less
	row       int     // failures since one ended well
	limit     int     // how many put it on trial
	held      []*pending
	trial     bool
	pause     time.Duration
	next      time.Time // on trial: when it gets another task
	against   int       // failures that were successes elsewhere
}

// followUp is what follows for a task whose failure at a node was not charged yet: it is charged now, or the task is tried elsewhere.
type followUp struct {
	*pending
	at     *Node
	charge bool
}

// unproven is how many failures in a row put a node on trial.
const unproven = 3

// Limits of the pauses on trial, and of what is remembered.
const (
	leastPause = time.Second
	mostPause  = time.Minute
	memorySpan = 200
)

// probeTime is how long a probe may take.
const probeTime = time.Minute

func (n *Node) rate() float64 { return n.bad / max(1, n.good+n.bad) }

// rateElsewhere returns a cautious estimate of how often tasks fail at the other nodes, and the
// number of tasks on which it is based.
func (ns *nodes) rateElsewhere(n *Node) (rate, tasks float64) {
	bad := 0.0
	for _, o := range ns.all {
		if o != n && !o.quarantine {
			bad += o.bad
			tasks += o.good + o.bad
		}
	}
	return (bad + 1) / (tasks + 2), tasks
}

// suspect reports whether a node fails more often than the others.
func (ns *nodes) suspect(n *Node) bool {
	rate, tasks := ns.rateElsewhere(n)
	return n.bad >= 5 && tasks >= 5 && n.rate() > 3*rate
}

// elsewhere reports whether another node that is trusted could run a task.
func (ns *nodes) elsewhere(n *Node, s *pool.Spec) bool {
	return slices.ContainsFunc(ns.workers, func(w *Worker) bool {
		return w.Node != n && w.State == Ready && !w.Node.trial && w.n.FitsNode(s.Need)
	})
}

// judge uses the end of a task at a node as evidence.
func (ns *nodes) judge(t *pool.Task, at *Worker, ok bool) (then []followUp) {
	before := ns.trials[t.Seq]
	delete(ns.trials, t.Seq)
	if at == nil {
		return nil
	}
	n := at.Node
	if n.good+n.bad >= memorySpan {
		n.good, n.bad = n.good/2, n.bad/2
	}
	if ok {
		n.done++
		n.good++
		n.row = 0
		n.reconnects, n.deaths = 0, 0
		n.pause = 0
		ns.endTrial(n)
		then = append(then, n.chargeHeld()...)
	} else {
		n.bad++
		n.row++
	}
	if before == nil || before == n {
		return then
	}
	if ok {
		before.against++
		then = append(then, ns.convict(before)...)
	} else { // the task is to blame
		before.row = 0
		before.limit = min(2*before.limit, 1000)
		before.bad = max(0, before.bad-1)
		ns.endTrial(before)
		then = append(then, before.chargeHeld()...)
	}
	return then
}

// suspected keeps a failure from being charged to its task, if its node may be to blame.
func (ns *nodes) suspected(t *pool.Task, at *Worker, r *Result, out Output) (kept bool, then []followUp) {
	tried := ns.trials[t.Seq] != nil
	then = ns.judge(t, at, false)
	if at == nil || tried || ns.ending.Phase() != Running || ns.Halt != (Halt{}) {
		return false, then
	}
	n := at.Node
	if !ns.elsewhere(n, t.Spec) {
		return false, then
	}
	switch {
	case n.quarantine, n.trial, r.What == wire.NoStart, ns.suspect(n):
		if n.trial {
			n.pause = min(max(leastPause, 2*n.pause), mostPause)
			n.next = ns.now.Add(n.pause)
		}
	case n.row < n.limit:
		if ns.Serve { // a client waits for the answer
			return false, then
		}
		n.held = append(n.held, &pending{t, r, out})
		return true, then
	}
	then = append(then, ns.tryElsewhere(n, &pending{t, r, out}))
	if n.row >= n.limit && !n.trial && !n.quarantine {
		n.trial, n.pause, n.next = true, leastPause, ns.now.Add(leastPause)
		ns.nodeEvent(n, "trial", fmt.Sprintf("%s in a row", plural(int64(n.row), "failure")))
		if n.Worker != nil && n.Worker.State == Ready {
			ns.pool.Close(n.Worker.n)
		}
		then = append(then, ns.releaseHeld(n)...)
	}
	return true, then
}

// tryElsewhere has a task run again whose failure is not charged yet.
func (ns *nodes) tryElsewhere(n *Node, p *pending) followUp {
	ns.trials[p.task.Seq] = n
	return followUp{p, n, false}
}

func (ns *nodes) releaseHeld(n *Node) (then []followUp) {
	for _, p := range n.held {
		then = append(then, ns.tryElsewhere(n, p))
	}
	n.held = nil
	return then
}

// convict quarantines a node whose failures were successes elsewhere.
func (ns *nodes) convict(n *Node) []followUp {
	rate, _ := ns.rateElsewhere(n)
	if n.quarantine || n.rate() <= 2*rate || n.good > 0 && n.against < 2 {
		return nil
	}
	if n.row == 0 && !ns.suspect(n) {
		return nil
	}
	if w := n.Worker; w == nil || !ns.elsewhere(n, &pool.Spec{}) {
		return nil
	}
	return ns.quarantine(n, fmt.Sprintf("%.0f of the last %.0f tasks failed there, and %d of these succeeded elsewhere",
		n.bad, n.good+n.bad, n.against))
}

func (ns *nodes) quarantine(n *Node, why string) []followUp {
	n.quarantine, n.trial, n.why, n.fault = true, false, why, why
	ns.say("node %s: quarantined: %s", n.Spec.Name, why)
	ns.nodeEvent(n, "quarantine", why)
	if w := n.Worker; w != nil && w.connected() {
		ns.close(w)
	}
	return ns.releaseHeld(n)
}

// given notes that a node on trial was given a task.
func (n *Node) given(now time.Time) {
	if n.trial {
		n.next = now.Add(n.pause)
	}
}

// endTrial lets a node have tasks like any other.
func (ns *nodes) endTrial(n *Node) {
	if !n.trial {
		return
	}
	n.trial = false
	if w := n.Worker; w != nil && w.State == Ready {
		ns.pool.Open(w.n)
	}
}

// checkTrials lets nodes on trial have another task when it is time.
func (ns *nodes) checkTrials() {
	for _, w := range ns.workers {
		if n := w.Node; n.trial && w.State == Ready && w.unused() && !ns.now.Before(n.next) {
			ns.pool.Open(w.n)
		}
	}
}

// onTrial reports whether a node on trial may get another task yet.
func (ns *nodes) onTrial() bool {
	return slices.ContainsFunc(ns.workers, func(w *Worker) bool { return w.Node.trial && w.State == Ready })
}

// chargeHeld charges the failures of a node to their tasks.
func (n *Node) chargeHeld() (then []followUp) {
	for _, p := range n.held {
		then = append(then, followUp{p, n, true})
	}
	n.held = nil
	return then
}

// chargeAll does that for all nodes, when no more evidence can come.
func (ns *nodes) chargeAll() (then []followUp) {
	for _, n := range ns.all {
		then = append(then, n.chargeHeld()...)
	}
	return then
}

// check is how far a worker has come before it gets tasks.
type check uint8

// The checks, in their order.
const (
	unchecked check = iota
	settingUp
	probing
	checked
)

func (k check) String() string {
	return [...]string{"no check", "its setup", "its probe", "no check"}[k]
}

// nextCheck runs what is to be run at a node before its first task.
func (c *Core) nextCheck(w *Worker) {
	r := &wire.Run{Key: wire.Key{Attempt: int32(w.Node.lost) + 1}, Capture: true}
	w.check++
	if w.check == settingUp {
		if r.Text, r.Prepare = wire.Text(c.NodeSetup), true; r.Text != "" {
			c.send(w, &wire.Message{Run: r})
			return
		}
		w.check++
	}
	if w.check == probing {
		if r.Text, r.Prepare, r.Timeout = wire.Text(c.Probe), false, probeTime.Seconds(); r.Text != "" {
			c.send(w, &wire.Message{Run: r})
			return
		}
		w.check++
	}
	c.tasks.admit(w)
}

// probed handles the end of a check.
func (c *Core) probed(w *Worker, d *wire.Done) {
	if w.check != settingUp && w.check != probing {
		return
	}
	r := c.newResult(w.Name(), d)
	if r.What == wire.OK {
		c.nextCheck(w)
		return
	}
	why := w.check.String() + " " + r.Describe()
	text := d.Err
	if len(text) == 0 {
		text = d.Out
	}
	if last := lastLine(text); last != "" {
		why += ": " + last
	}
	c.tasks.follow(c.nodes.quarantine(w.Node, why))
}

// lastLine returns the last line of some output, which may be long.
func lastLine(b []byte) string {
	s := string(b[max(0, len(b)-4096):])
	for i := len(s); i > 0; {
		if s[i-1] == '\n' {
			i--
			s = s[:i]
			continue
		}
		for k := i - 1; k >= 0; k-- {
			if s[k] == '\n' {
				return oneLine(s[k+1:])
			}
		}
		return oneLine(s)
	}
	return ""
}
