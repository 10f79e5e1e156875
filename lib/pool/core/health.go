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
func (c *Core) rateElsewhere(n *Node) (rate, tasks float64) {
	bad := 0.0
	for _, o := range c.nodes {
		if o != n && !o.quarantine {
			bad += o.bad
			tasks += o.good + o.bad
		}
	}
	return (bad + 1) / (tasks + 2), tasks
}

// suspect reports whether a node fails more often than the others.
func (c *Core) suspect(n *Node) bool {
	rate, tasks := c.rateElsewhere(n)
	return n.bad >= 5 && tasks >= 5 && n.rate() > 3*rate
}

// elsewhere reports whether another node that is trusted could run a task.
func (c *Core) elsewhere(n *Node, s *pool.Spec) bool {
	return slices.ContainsFunc(c.workers, func(w *Worker) bool {
		return w.Node != n && w.State == Ready && !w.Node.trial && w.n.FitsNode(s.Need)
	})
}

// judge uses the end of a task at a node as evidence.
func (c *Core) judge(t *pool.Task, at *Worker, ok bool) {
	before := c.trials[t.Seq]
	delete(c.trials, t.Seq)
	if at == nil {
		return
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
		c.endTrial(n)
		c.chargeHeld(n)
	} else {
		n.bad++
		n.row++
	}
	if before == nil || before == n {
		return
	}
	if ok {
		before.against++
		c.convict(before)
	} else { // the task is to blame
		before.row = 0
		before.limit = min(2*before.limit, 1000)
		before.bad = max(0, before.bad-1)
		c.endTrial(before)
		c.chargeHeld(before)
	}
}

// suspected keeps a failure from being charged to its task, if its node may be to blame.
func (c *Core) suspected(t *pool.Task, at *Worker, r *Result, out Output) bool {
	tried := c.trials[t.Seq] != nil
	c.judge(t, at, false)
	if at == nil || tried || c.ending.Phase() != Running || c.Halt != (Halt{}) {
		return false
	}
	n := at.Node
	if !c.elsewhere(n, t.Spec) {
		return false
	}
	switch {
	case n.quarantine, n.trial, r.What == wire.NoStart, c.suspect(n):
		if n.trial {
			n.pause = min(max(leastPause, 2*n.pause), mostPause)
			n.next = c.now.Add(n.pause)
		}
		c.tryElsewhere(n, &pending{t, r, out})
	case n.row < n.limit:
		if c.Serve { // a client waits for the answer
			return false
		}
		n.held = append(n.held, &pending{t, r, out})
		return true
	default:
		c.tryElsewhere(n, &pending{t, r, out})
	}
	if n.row >= n.limit && !n.trial && !n.quarantine {
		n.trial, n.pause, n.next = true, leastPause, c.now.Add(leastPause)
		c.nodeEvent(n, "trial", fmt.Sprintf("%s in a row", plural(int64(n.row), "failure")))
		if n.Worker != nil && n.Worker.State == Ready {
			c.pool.Close(n.Worker.n)
		}
		c.releaseHeld(n)
	}
	return true
}

// tryElsewhere runs a task again whose failure is not charged yet.
func (c *Core) tryElsewhere(n *Node, p *pending) {
	c.trials[p.task.Seq] = n
	c.again(p.task, n.Worker, p.result, p.output)
}

func (c *Core) releaseHeld(n *Node) {
	held := n.held
	n.held = nil
	for _, p := range held {
		c.tryElsewhere(n, p)
	}
}

// convict quarantines a node whose failures were successes elsewhere.
func (c *Core) convict(n *Node) {
	rate, _ := c.rateElsewhere(n)
	if n.quarantine || n.rate() <= 2*rate || n.good > 0 && n.against < 2 {
		return
	}
	if n.row == 0 && !c.suspect(n) {
		return
	}
	if w := n.Worker; w == nil || !c.elsewhere(n, &pool.Spec{}) {
		return
	}
	c.quarantine(n, fmt.Sprintf("%.0f of the last %.0f tasks failed there, and %d of these succeeded elsewhere",
		n.bad, n.good+n.bad, n.against))
}

func (c *Core) quarantine(n *Node, why string) {
	n.quarantine, n.trial, n.why, n.fault = true, false, why, why
	c.say("node %s: quarantined: %s", n.Spec.Name, why)
	c.nodeEvent(n, "quarantine", why)
	if w := n.Worker; w != nil && w.connected() {
		c.close(w)
	}
	c.releaseHeld(n)
}

// given notes that a node on trial was given a task.
func (n *Node) given(now time.Time) {
	if n.trial {
		n.next = now.Add(n.pause)
	}
}

// endTrial lets a node have tasks like any other.
func (c *Core) endTrial(n *Node) {
	if !n.trial {
		return
	}
	n.trial = false
	if w := n.Worker; w != nil && w.State == Ready {
		c.pool.Open(w.n)
	}
}

// checkTrials lets nodes on trial have another task when it is time.
func (c *Core) checkTrials() {
	for _, w := range c.workers {
		if n := w.Node; n.trial && w.State == Ready && w.unused() && !c.now.Before(n.next) {
			c.pool.Open(w.n)
		}
	}
}

// onTrial reports whether a node on trial may get another task yet.
func (c *Core) onTrial() bool {
	return slices.ContainsFunc(c.workers, func(w *Worker) bool { return w.Node.trial && w.State == Ready })
}

// chargeHeld charges the failures of a node to their tasks.
func (c *Core) chargeHeld(n *Node) bool {
	held := n.held
	n.held = nil
	for _, p := range held {
		c.charge(p.task, n.Worker, p.result, p.output)
	}
	return len(held) > 0
}

// chargeAll does that for all nodes, when no more evidence can come.
func (c *Core) chargeAll() bool {
	any := false
	for _, n := range c.nodes {
		any = c.chargeHeld(n) || any
	}
	return any
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
	c.admit(w)
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
	c.quarantine(w.Node, why)
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
