package core

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// The loss protocol: no task is forgotten, and none runs twice at a time.
//
//	            greets                 ready to have tasks
//	Connecting ───────▶ Waiting ─────────────────────────▶ Ready ──▶ Closed
//	   ▲  │ in vain       │            connection ends       │         │
//	   │  ▼               ▼                                  ▼         ▼
//	Planned ◀──────── Orphaned ◀──────────────────────────────────────┘
//	 (the next one)       │ │ lets its tasks end
//	                      │ └────────▶ Detached
//	                      ▼               ▼
//	                    Gone ◀────────────┘
//
// A worker may have tasks running only while it has a lease. It asks for leases; the scheduler first
// records in the run directory when they expire, and then answers. A worker that gets no new lease
// ends its tasks before the last one expires; if it is stopped and cannot, its supervisor kills it
// and its tasks.
//
// When a connection ends, or a worker is silent for too long, the worker becomes an orphan and keeps
// its attempts: it is unknown whether they still run. They run again elsewhere when the orphan is
// gone, which is certain
//
//   - when its connection program reports that the supervisor has ended everything;
//   - when the next worker of the same machine finds neither worker nor supervisor
//     alive, and has killed what is left of their tasks (it gets nothing to run, and
//     its node's CPUs are not given out, before that);
//   - when the last lease has expired on any clock.
//
// An orphan that is to let its tasks end becomes Detached when its file in the run directory says
// which these are. Their results come from the file. It is gone when the file says so, or when the
// file was not touched for longer than such a worker may have tasks running.
//
// The journal has, for the next scheduler, the workers that were not gone, and the lease file when
// their leases expire: they are its orphans from the beginning, with the tasks that were sent to
// them.
//
// When an orphan is gone, an attempt that had not begun, as far as is known, costs its task nothing.
// One that had begun counts as a loss; a task with more losses than --lost-retries is left. But if
// the worker itself has died, one of its tasks may have killed it: none of several is charged, and
// each runs again with at most half as many others beside it, at another node if there is one, until
// one is alone when its worker dies. That one is charged, and runs alone from then on.

// takeOver makes the workers of earlier runs orphans.
func (c *Core) takeOver() {
	for _, p := range c.Past {
		w := &Worker{Identity: p.Identity, State: Orphaned, since: c.now, until: p.Until, attempts: map[int64]*attempt{}}
		w.spool = spool{expected: p.Spool, alive: c.now}
		c.orphans = append(c.orphans, w)
		if p.Key != 0 {
			c.prior[p.Key] = w
		}
	}
}

// set moves a worker to a state.
func (c *Core) set(w *Worker, s State) {
	before, after := w.State <= Waiting, s <= Waiting
	w.State = s
	switch {
	case before && !after:
		if c.opening--; c.opening == 0 {
			c.allTried()
		}
	case after && !before:
		c.opening++
	}
}

// plan schedules a connection to a node, with a time limit for its answer.
func (c *Core) plan(n *Node, at time.Time, limit time.Duration) {
	n.Worker = &Worker{
		Node: n, State: Planned, until: at, deadline: at.Add(limit),
		attempts: map[int64]*attempt{}, shared: map[int64]*attempt{}, backlog: map[pool.Need][]*attempt{},
	}
	c.opening++
}

// notConnected tries again, until the time limit.
func (c *Core) notConnected(e NotConnected) {
	w, n := e.Worker, e.Worker.Node
	if w.State != Connecting {
		return
	}
	pause := []time.Duration{1, 2, 4, 8, 15}[min(w.tries-1, 4)] * time.Second
	if !e.Permanent && !c.now.Add(pause).After(w.deadline) && c.ending.phase < Draining {
		c.set(w, Planned)
		w.until = c.now.Add(pause)
		return
	}
	n.Worker = nil
	n.dropped, n.why = true, oneLine(e.Why)
	if c.ending.phase < Draining {
		c.say("node %s: not used: %s", n.Spec.Name, n.why)
		c.nodeEvent(n, "unreachable", e.Why)
	}
	c.set(w, Gone)
}

// allTried is called when no more nodes will come.
func (c *Core) allTried() {
	switch {
	case c.ending.phase >= Draining, c.Elastic:
	case len(c.workers) == 0:
		c.stop(Draining, c.noNodeWhy(), 3)
	case len(c.workers) < c.MinNodes && c.stats.attempts == 0:
		c.stop(Draining, fmt.Sprintf("%s can be used, and %d are required", plural(int64(len(c.workers)), "node"), c.MinNodes), 3)
	}
}

// connected handles the greeting of a worker.
func (c *Core) connected(w *Worker, hello *wire.Hello) {
	n := w.Node
	if w.State != Connecting || c.ending.phase >= Draining || n.released {
		c.do(Close{w})
		if w.State == Connecting {
			n.Worker = nil
			c.set(w, Gone)
		}
		return
	}
	if hello.Version != c.Version {
		c.say("node %s: its worker is version %q, this is %q", n.Spec.Name, hello.Version, c.Version)
	}
	cpus, pin, warning := c.cpus(n.Spec, hello)
	if warning != "" {
		c.say("node %s: %s", n.Spec.Name, warning)
	}
	w.hello, w.heard, w.granted, n.up = hello, c.now, c.now, c.now
	w.Identity = wire.Identity{Session: c.Session, Node: n.Spec.Name, Kernel: hello.Kernel, Processes: hello.Processes, Finish: c.Finish}
	w.n = pool.NewNode(n.Spec.Name, cpus, hello.GPUs, n.Spec.mem(hello), c.resources(n.Spec.Name, n.Spec.Host))
	w.n.Data, w.n.Host, w.n.Group = w, n.Spec.Host, n.Spec.Job
	n.size, n.known = w.n.Total(), true
	c.refuseMisfits()
	c.workers = append(c.workers, w)
	c.pool.AddNode(w.n)
	c.pool.Close(w.n)
	c.set(w, Waiting)
	for _, o := range c.orphans {
		c.occupy(o)
	}
	setup := Setup{Worker: w, Pin: pin, Until: c.leaseOver(c.now)}
	for _, o := range c.orphans {
		if o.Identity.Kernel != "" && o.Identity.Kernel == hello.Kernel && !o.Identity.Finish {
			setup.Orphans = append(setup.Orphans, o.Identity)
			w.await = append(w.await, o)
		}
	}
	c.do(setup)
	c.sweepLate(w)
	c.do(NodeEvent{Node: n.Spec.Name, What: "up", Worker: &w.Identity, Why: fmt.Sprintf("%s, process %d of %s, version %q",
		w.n.Total(), hello.PID, hello.Host, hello.Version)})
	c.nextCheck(w)
}

// admit lets a worker have tasks once those of its predecessor have ended.
func (c *Core) admit(w *Worker) {
	namesake := func(o *Worker) bool { return o.Name() == w.Name() }
	if w.State != Waiting || w.check != checked || slices.ContainsFunc(w.await, namesake) ||
		c.crowded(w) || len(w.Node.unswept) > 0 {
		return
	}
	c.set(w, Ready)
	c.pool.Open(w.n)
}

// grant answers a worker that asks for a lease.
func (c *Core) grant(w *Worker, asked int64) {
	w.granted = c.now
	c.do(Lease{w, asked, c.leaseOver(c.now)})
}

// checkWorkers handles workers that are due, silent or orphaned.
func (c *Core) checkWorkers() {
	for _, n := range c.nodes {
		w := n.Worker
		if w == nil || w.State != Planned || c.now.Before(w.until) {
			continue
		}
		if c.ending.phase >= Draining {
			n.Worker = nil
			c.set(w, Gone)
			continue
		}
		w.tries++
		c.set(w, Connecting)
		c.do(Connect{w, max(w.deadline.Sub(c.now), w.answer)})
	}
	c.loseSilent()
	for _, w := range slices.Clone(c.orphans) {
		switch {
		case w.spool.expected:
			c.checkSpool(w)
		case c.now.After(w.until):
			c.workerGone(w)
		case !w.told && len(w.attempts) > 0 && c.now.Sub(w.since) > 3*time.Second:
			w.told = true
			c.say("node %s: %s may still run there: to be started again when that has ended, in %v at the latest", w.Name(),
				plural(int64(len(w.attempts)), "task"), w.until.Sub(c.now).Round(time.Second))
		}
	}
}

// loseSilent gives up workers that were silent for too long. Those of a job that Slurm has suspended
// are silent until it is resumed.
func (c *Core) loseSilent() {
	for _, w := range slices.Clone(c.workers) {
		silent := c.now.Sub(w.heard)
		if c.Batch && silent > c.NodeTimeout/2 && c.now.Sub(c.asked) > min(c.NodeTimeout/8, 15*time.Second) {
			c.asked = c.now
			c.do(AskJob{})
		}
		if silent > c.NodeTimeout && !c.suspended {
			c.do(Close{w})
			c.connectionLost(w, fmt.Sprintf("no message for %v", silent.Round(time.Second)), Unknown)
		}
	}
}

// jobState handles a suspension of the job, or its end.
func (c *Core) jobState(suspended bool) {
	switch {
	case suspended && !c.suspended:
		c.say("the job is suspended: waiting until it is resumed")
	case c.suspended && !suspended:
		c.say("the job was resumed")
		c.resumed(0)
	}
	c.suspended = suspended
}

// resumed is called when the scheduler was stopped for a while; what it waits for may have been
// stopped, too.
func (c *Core) resumed(d time.Duration) {
	for _, w := range c.workers {
		w.heard = c.now
	}
	for _, l := range c.undecided {
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
	c.leave(w)
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
		delete(c.attempts, seq)
	}
	c.orphaned += len(w.attempts)
	w.since, w.until = c.now, c.leaseOver(w.granted)
	n.why = why
	if c.Finish && len(w.attempts) > 0 && c.ending.phase < Stopping {
		w.spool = spool{expected: true, alive: c.now}
	}
	c.orphans = append(c.orphans, w)
	c.reconnect(n, w, end == Died)
	c.set(w, Orphaned)
	c.sharedLost(w, why)
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
			leave = leave || c.elsewhere(n, &pool.Spec{})
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
	c.plan(n, c.now.Add(pause), time.Second)
	n.Worker.answer = c.ConnectTimeout // it is not tried again, but may be as slow to answer as the first one
}

// workerGone is called when nothing is left of a worker.
func (c *Core) workerGone(w *Worker) {
	if w.State != Orphaned && w.State != Detached {
		return
	}
	c.orphans = slices.DeleteFunc(c.orphans, func(o *Worker) bool { return o == w })
	for k, o := range c.prior {
		if o == w {
			delete(c.prior, k)
		}
	}
	w.State = Gone
	c.do(NodeEvent{Node: w.Name(), What: "gone", Worker: &w.Identity})
	for _, o := range slices.Clone(c.workers) {
		o.await = slices.DeleteFunc(o.await, func(x *Worker) bool { return x == w })
		c.admit(o)
	}
	for _, a := range w.cancelled {
		c.after(a, func() { c.vacate(a) })
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
		c.orphaned--
		c.after(a, func() { c.rerunOne(w, a, begun) })
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
		c.readyAgain(t)
	case !a.begun():
		c.stats.attempts--
		c.do(Tried{Task: t, Result: r})
		c.push(t)
	case w.died && begun > 1 && c.LostRetries > 0:
		t.Company, t.Avoid = int16(max(1, begun/2)), w.n
		c.stats.lost++
		c.do(Tried{Task: t, Result: r})
		c.push(t)
	default:
		if w.died {
			t.Company, t.Avoid = 1, w.n
		}
		c.lose(t, r, Output{})
	}
}

// lose charges a task for an attempt that was lost.
func (c *Core) lose(t *pool.Task, r *Result, out Output) {
	t.Losses++
	c.do(Tried{Task: t, Result: r, Output: out})
	if int(t.Losses) <= c.LostRetries && c.ending.phase < Stopping {
		c.stats.lost++
		c.push(t)
		return
	}
	c.leftFor(t, fmt.Sprintf("lost %s with its node: %s", times(int(t.Losses)), r.Error))
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// begun reports whether an attempt has begun, as far as is known.
func (a *attempt) begun() bool { return a.slot != nil || a.started > 0 }

// leaveOrphans leaves what may still run to the next run. Its end is not recorded, so that the next
// scheduler waits, too.
func (c *Core) leaveOrphans() {
	for _, w := range c.orphans {
		for _, a := range sorted(w.attempts) {
			c.part(a)
			c.vacate(a)
			c.leftFor(a.task, "it may still run at "+w.Name())
			c.ending.continues = true
		}
		c.orphaned -= len(w.attempts)
		clear(w.attempts)
	}
}

// spool is the state of the file in which an orphan leaves results.
type spool struct {
	expected bool // the file exists, or will be created
	alive    time.Time
	running  map[int64]int32 // what it lets end
}

// spooledResult is a result of a task that was not read yet.
type spooledResult struct {
	SpooledDone
	node string
}

// stale is how long a worker may leave its file untouched before it is taken for dead. A worker that
// cannot touch it ends its tasks before that.
const stale = 2 * time.Minute

// spooled handles what an orphan has left.
func (c *Core) spooled(e Spooled) {
	w := e.Worker
	if w.State != Orphaned && w.State != Detached || !w.spool.expected {
		return
	}
	if e.Touched {
		w.spool.alive = c.now
	}
	if e.Listed && w.State == Orphaned {
		w.State = Detached
		w.spool.running = map[int64]int32{}
		for _, k := range e.Running {
			w.spool.running[k.Seq] = k.Attempt
		}
		var ended []*attempt
		for _, a := range sorted(w.attempts) {
			if w.spool.running[a.task.Seq] != a.task.Attempt {
				ended = append(ended, a)
			}
		}
		c.rerun(w, ended)
	}
	for _, d := range e.Done {
		if w.State != Detached || w.spool.running[d.Done.Seq] != d.Done.Attempt {
			continue
		}
		delete(w.spool.running, d.Done.Seq)
		if a := w.attempts[d.Done.Seq]; a != nil {
			delete(w.attempts, d.Done.Seq)
			c.orphaned--
			c.after(a, func() {
				c.vacate(a)
				c.spooledEnd(a.task, spooledResult{d, w.Name()})
			})
		} else {
			c.results[d.Done.Seq] = spooledResult{d, w.Name()}
		}
	}
	if e.Ended || e.Missing && c.now.Sub(w.spool.alive) > 3*time.Second && c.now.After(w.until) {
		c.workerGone(w)
	}
}

// spooledEnd ends a task by the result that an orphan has left.
func (c *Core) spooledEnd(t *pool.Task, d spooledResult) {
	r := c.newResult(d.node, d.Done)
	if r.What == wire.Stopped {
		r.What = wire.Lost
	}
	c.settle(t, nil, r, Output{Bytes: [2][]byte{d.Done.Out, d.Done.Err}, Files: d.Files})
}

// checkSpool gives up an orphan whose file is no longer touched.
func (c *Core) checkSpool(w *Worker) {
	if c.now.After(w.until) && c.now.Sub(w.spool.alive) > stale {
		c.workerGone(w)
	}
}

// ofOrphan keeps a task that was read from running while an orphan of an earlier run may run it, or
// has left its result.
func (c *Core) ofOrphan(t *pool.Task, past Past) bool {
	if past.State != Started {
		return false
	}
	if d, ok := c.results[t.Seq]; ok && d.Done.Attempt == t.Attempt {
		delete(c.results, t.Seq)
		c.spooledEnd(t, d)
		return true
	}
	w := c.prior[past.Worker]
	for _, o := range c.orphans {
		if k, ok := o.spool.running[t.Seq]; ok && k == t.Attempt {
			w = o
		}
	}
	if w == nil || w.State == Detached && w.spool.running[t.Seq] != t.Attempt {
		return false
	}
	w.attempts[t.Seq] = &attempt{task: t, worker: w, before: true, claim: c.pool.Claim(t)}
	c.occupy(w)
	c.orphaned++
	return true
}

// unclaimed reports whether workers of earlier runs may have tasks running that were not read yet.
func (c *Core) unclaimed() bool {
	for _, w := range c.prior {
		unread := func(seq int64) bool { return w.attempts[seq] == nil }
		if w.State != Detached || slices.ContainsFunc(slices.Collect(maps.Keys(w.spool.running)), unread) {
			return true
		}
	}
	return false
}

// Spooling returns the orphans that may leave more in their files.
func (c *Core) Spooling() []*Worker {
	var out []*Worker
	for _, w := range c.orphans {
		if w.spool.expected {
			out = append(out, w)
		}
	}
	return out
}

// Unclaimed reports whether an orphan has left a result of a task that was not read.
func (c *Core) Unclaimed() bool { return len(c.results) > 0 }

func sorted(m map[int64]*attempt) []*attempt {
	out := make([]*attempt, 0, len(m))
	for _, a := range m {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *attempt) int { return cmp.Compare(a.task.Seq, b.task.Seq) })
	return out
}
