package core

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// notConnected tries again, until the time limit.
func (c *Core) notConnected(e NotConnected) {
	w, n := e.Worker, e.Worker.Node
	if w.State != Connecting {
		return
	}
	pause := []time.Duration{1, 2, 4, 8, 15}[min(w.tries-1, 4)] * time.Second
	if !e.Permanent && !c.now.Add(pause).After(w.deadline) && c.ending.phase < Draining {
		w.State = Planned
		w.until = c.now.Add(pause)
		return
	}
	n.Worker = nil
	n.dropped, n.why = true, oneLine(e.Why)
	if c.ending.phase < Draining {
		c.say("node %s: not used: %s", n.Spec.Name, n.why)
		c.nodeEvent(n, "unreachable", e.Why)
	}
	w.State = Gone
}

// connected handles the greeting of a worker.
func (c *Core) connected(w *Worker, hello *wire.Hello) {
	n := w.Node
	if w.State != Connecting || c.ending.phase >= Draining || n.released {
		c.do(Close{w})
		if w.State == Connecting {
			n.Worker = nil
			w.State = Gone
		}
		return
	}
	if hello.Version != c.Version {
		c.say("node %s: its worker is version %q, this is %q", n.Spec.Name, hello.Version, c.Version)
	}
	cpus, pin, warning := c.nodes.cpus(n.Spec, hello)
	if warning != "" {
		c.say("node %s: %s", n.Spec.Name, warning)
	}
	w.hello, w.heard, w.granted, n.up = hello, c.now, c.now, c.now
	w.Identity = wire.Identity{Session: c.Session, Node: n.Spec.Name, Kernel: hello.Kernel, Processes: hello.Processes, Finish: c.Finish}
	w.n = pool.NewNode(n.Spec.Name, cpus, hello.GPUs, n.Spec.mem(hello), c.nodes.resources(n.Spec.Name, n.Spec.Host))
	w.n.Data, w.n.Host, w.n.Group = w, n.Spec.Host, n.Spec.Job
	n.size, n.known = w.n.Total(), true
	c.tasks.refuseMisfits()
	c.nodes.workers = append(c.nodes.workers, w)
	c.pool.AddNode(w.n)
	c.pool.Close(w.n)
	w.State = Waiting
	for _, o := range c.orphans.all {
		c.tasks.occupy(o)
	}
	setup := Setup{Worker: w, Pin: pin, Until: c.leaseOver(c.now)}
	for _, o := range c.orphans.all {
		if o.Identity.Kernel != "" && o.Identity.Kernel == hello.Kernel && !o.Identity.Finish {
			setup.Orphans = append(setup.Orphans, o.Identity)
			w.await = append(w.await, o)
		}
	}
	c.do(setup)
	c.tasks.sweepLate(w)
	c.do(NodeEvent{Node: n.Spec.Name, What: "up", Worker: &w.Identity, Why: fmt.Sprintf("%s, process %d of %s, version %q",
		w.n.Total(), hello.PID, hello.Host, hello.Version)})
	c.nextCheck(w)
}

// admit lets a worker have tasks once those of its predecessor have ended.
func (ts *tasks) admit(w *Worker) {
	namesake := func(o *Worker) bool { return o.Name() == w.Name() }
	if w.State != Waiting || w.check != checked || slices.ContainsFunc(w.await, namesake) ||
		ts.crowded(w) || len(w.Node.unswept) > 0 {
		return
	}
	w.State = Ready
	ts.pool.Open(w.n)
}

// grant answers a worker that asks for a lease.
func (c *Core) grant(w *Worker, asked int64) {
	w.granted = c.now
	c.do(Lease{w, asked, c.leaseOver(c.now)})
}

// checkWorkers handles workers that are due, silent or orphaned.
func (c *Core) checkWorkers() {
	for _, n := range c.nodes.all {
		w := n.Worker
		if w == nil || w.State != Planned || c.now.Before(w.until) {
			continue
		}
		if c.ending.phase >= Draining {
			n.Worker = nil
			w.State = Gone
			continue
		}
		w.tries++
		w.State = Connecting
		c.do(Connect{w, max(w.deadline.Sub(c.now), w.answer)})
	}
	c.loseSilent()
	for _, w := range c.orphans.over() {
		c.workerGone(w)
	}
	c.orphans.tell()
}

// loseSilent gives up workers that were silent for too long. Those of a job that Slurm has suspended
// are silent until it is resumed.
func (c *Core) loseSilent() {
	for _, w := range slices.Clone(c.nodes.workers) {
		silent := c.now.Sub(w.heard)
		if c.Batch && silent > c.NodeTimeout/2 && c.now.Sub(c.nodes.asked) > min(c.NodeTimeout/8, 15*time.Second) {
			c.nodes.asked = c.now
			c.do(AskJob{})
		}
		if silent > c.NodeTimeout && !c.nodes.suspended {
			c.do(Close{w})
			c.connectionLost(w, fmt.Sprintf("no message for %v", silent.Round(time.Second)), Unknown)
		}
	}
}

// jobState handles a suspension of the job, or its end.
func (c *Core) jobState(suspended bool) {
	switch {
	case suspended && !c.nodes.suspended:
		c.say("the job is suspended: waiting until it is resumed")
	case c.nodes.suspended && !suspended:
		c.say("the job was resumed")
		c.resumed(0)
	}
	c.nodes.suspended = suspended
}

// resumed is called when the scheduler was stopped for a while; what it waits for may have been
// stopped, too.
func (c *Core) resumed(d time.Duration) {
	for _, w := range c.nodes.workers {
		w.heard = c.now
	}
	for _, l := range c.tasks.undecided {
		l.until = l.until.Add(d)
	}
}

// connectionLost makes a worker an orphan.
func (c *Core) connectionLost(w *Worker, why string, end End) {
	if !w.connected() {
		c.ended(w, end)
		return
	}
	n := w.Node
	c.nodes.leave(w)
	n.lost++
	c.do(OutputGone{w})
	switch {
	case c.ending.phase >= Stopping || n.released:
	case w.bye:
		c.say("node %s: its worker has ended: another one is started", w.Name())
	default:
		c.say("node %s: lost with %s: %s", w.Name(), plural(int64(len(w.attempts)), "task"), oneLine(why))
	}
	c.nodeEvent(n, "lost", why)
	for seq := range w.attempts {
		delete(c.tasks.attempts, seq)
	}
	n.why = why
	c.orphans.add(w, c.ending.phase < Stopping)
	c.reconnect(n, w, end == Died)
	w.State = Orphaned
	c.tasks.sharedLost(w, why)
	if c.ending.phase >= Draining {
		c.leaveOrphans()
	}
	if !w.spool.expected { // its spooled results come first
		c.ended(w, end)
	}
}

// ended handles what is known of the end of an orphan's process.
func (c *Core) ended(w *Worker, end End) {
	if end != Unknown && (w.State == Orphaned || w.State == Detached) {
		w.died = end == Died && !w.ending
		c.workerGone(w)
	}
}

// mostDeaths is how many workers in a row may die on the only node.
const mostDeaths = 50

// reconnect plans another worker; a node whose connection fails again and again is given up. A node
// whose worker has died can be reached: it is given up when that happens more often than one task can
// cause, and another node is there.
func (c *Core) reconnect(n *Node, w *Worker, died bool) {
	if c.ending.phase >= Draining || n.released || n.dropped {
		return
	}
	if c.now.Sub(n.up) > 5*time.Minute {
		n.reconnects, n.deaths = 0, 0
	}
	died = died && !w.ending && slices.ContainsFunc(sorted(w.attempts), (*attempt).begun)
	leave := n.reconnects >= c.Reconnects
	if died {
		n.deaths++
		leave = n.deaths > mostDeaths
		if n.deaths > c.Reconnects+c.LostRetries+bits.Len(uint(n.size.CPUs)) {
			leave = leave || c.nodes.elsewhere(n, &pool.Spec{})
		}
	}
	if w.fatal || leave {
		n.dropped = true
		if died {
			n.fault = fmt.Sprintf("its workers died %s", times(n.deaths))
		}
		c.nodeEvent(n, "dropped", n.why)
		return
	}
	pause := time.Second
	if !died {
		n.reconnects++
		pause = []time.Duration{time.Second, 10 * time.Second, time.Minute}[min(n.reconnects-1, 2)]
	}
	c.nodes.plan(n, c.now.Add(pause), time.Second)
	n.Worker.answer = c.ConnectTimeout // it is not tried again, but may be as slow to answer as the first one
}

// workerGone is called when nothing is left of a worker.
func (c *Core) workerGone(w *Worker) {
	if w.State != Orphaned && w.State != Detached {
		return
	}
	c.orphans.remove(w)
	c.do(NodeEvent{Node: w.Name(), What: "gone", Worker: &w.Identity})
	for _, o := range slices.Clone(c.nodes.workers) {
		o.await = slices.DeleteFunc(o.await, func(x *Worker) bool { return x == w })
		c.tasks.admit(o)
	}
	for _, a := range w.cancelled {
		c.tasks.after(a, func() { c.vacate(a) })
	}
	w.cancelled = nil
	c.rerun(w, sorted(w.attempts))
}

// rerun decides about attempts at an orphan that have surely ended.
func (c *Core) rerun(w *Worker, lost []*attempt) {
	begun := 0
	for _, a := range lost {
		if a.begun() {
			begun++
		}
	}
	for _, a := range lost {
		delete(w.attempts, a.task.Seq)
		c.tasks.after(a, func() { c.rerunOne(w, a, begun) })
	}
}

// rerunOne decides about one attempt; begun is how many had begun there.
func (c *Core) rerunOne(w *Worker, a *attempt, begun int) {
	c.vacate(a)
	t := a.task
	why := "its worker is gone"
	if w.Node != nil && w.Node.why != "" {
		why = oneLine(w.Node.why)
	}
	r := c.newResult(w.Name(), &wire.Done{Key: a.key(), What: wire.Lost, Start: a.started, Error: wire.Text(why)})
	switch {
	case a.before: // nothing more is known of it
		c.tasks.readyAgain(t)
	case !a.begun():
		c.tasks.stats.attempts--
		c.do(Tried{Task: t, Result: r})
		c.tasks.push(t)
	case w.died && begun > 1 && c.LostRetries > 0:
		t.Company, t.Avoid = int16(max(1, begun/2)), w.n
		c.tasks.stats.lost++
		c.do(Tried{Task: t, Result: r})
		c.tasks.push(t)
	default:
		if w.died {
			t.Company, t.Avoid = 1, w.n
		}
		c.tasks.lose(t, r, Output{})
	}
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// begun reports whether an attempt has begun, as far as is known.
func (a *attempt) begun() bool { return a.slot != nil || a.started > 0 }

func sorted(m map[int64]*attempt) []*attempt {
	out := make([]*attempt, 0, len(m))
	for _, a := range m {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *attempt) int { return cmp.Compare(a.task.Seq, b.task.Seq) })
	return out
}
