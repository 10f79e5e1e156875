package core

import (
	"maps"
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

// orphans are the workers whose connections have ended, with the tasks that may still run there, and the results that they have left.
type orphans struct {
	*base
	all     []*Worker
	prior   map[uint16]*Worker      // those of earlier runs, by their keys
	results map[int64]spooledResult // of tasks that were not read yet
}

// spool is the state of the file in which an orphan leaves results.
type spool struct {
	expected bool // the file exists, or will be created
	alive    time.Time
	running  map[int64]int32 // what it lets end
}

// spooledResult is a result with the node that has left it.
type spooledResult struct {
	SpooledDone
	node string
}

// stale is how long a worker may leave its file untouched before it is taken for dead. A worker that
// cannot touch it ends its tasks before that.
const stale = 2 * time.Minute

// newOrphans returns the workers of earlier runs.
func newOrphans(b *base) orphans {
	o := orphans{base: b, prior: map[uint16]*Worker{}, results: map[int64]spooledResult{}}
	for _, p := range b.Past {
		w := &Worker{Identity: p.Identity, State: Orphaned, since: b.now, until: p.Until, attempts: map[int64]*attempt{}}
		w.spool = spool{expected: p.Spool, alive: b.now}
		o.all = append(o.all, w)
		if p.Key != 0 {
			o.prior[p.Key] = w
		}
	}
	return o
}

// add adds a worker whose connection has ended. Finish: it may let its tasks end.
func (o *orphans) add(w *Worker, finish bool) {
	w.since, w.until = o.now, o.leaseOver(w.granted)
	if finish && o.Finish && len(w.attempts) > 0 {
		w.spool = spool{expected: true, alive: o.now}
	}
	o.all = append(o.all, w)
}

// remove removes a worker of which nothing is left.
func (o *orphans) remove(w *Worker) {
	is := func(x *Worker) bool { return x == w }
	o.all = slices.DeleteFunc(o.all, is)
	maps.DeleteFunc(o.prior, func(_ uint16, x *Worker) bool { return is(x) })
	w.State = Gone
}

// attempts is how many may still run.
func (o *orphans) attempts() (n int) {
	for _, w := range o.all {
		n += len(w.attempts)
	}
	return n
}

// has reports whether a task may still run.
func (o *orphans) has(seq int64) bool {
	return slices.ContainsFunc(o.all, func(w *Worker) bool { return w.attempts[seq] != nil })
}

// give takes a task that is cancelled out of the list, although it may still run.
func (o *orphans) give(seq int64) *pool.Task {
	for _, w := range o.all {
		if a := w.attempts[seq]; a != nil {
			delete(w.attempts, seq)
			w.cancelled = append(w.cancelled, a)
			return a.task
		}
	}
	return nil
}

// mayRun reports whether tasks may still run at a node whose connection was lost.
func (o *orphans) mayRun(n *Node) bool {
	return slices.ContainsFunc(o.all, func(w *Worker) bool { return w.Node == n && len(w.attempts) > 0 })
}

// talks reports whether the end of an orphan with tasks may become known in a moment.
func (o *orphans) talks() bool {
	return slices.ContainsFunc(o.all, func(w *Worker) bool { return len(w.attempts) > 0 && o.now.Sub(w.since) < lastWords })
}

// over returns the orphans whose leases have expired, or whose files are no longer touched: nothing of them is left.
func (o *orphans) over() (over []*Worker) {
	for _, w := range o.all {
		if o.now.After(w.until) && (!w.spool.expected || o.now.Sub(w.spool.alive) > stale) {
			over = append(over, w)
		}
	}
	return over
}

// tell tells the user what is waited for.
func (o *orphans) tell() {
	for _, w := range o.all {
		if !w.spool.expected && !w.told && len(w.attempts) > 0 && o.now.Sub(w.since) > 3*time.Second {
			w.told = true
			o.say("node %s: %s may still run there: to be started again when that has ended, in %v at the latest", w.Name(),
				plural(int64(len(w.attempts)), "task"), w.until.Sub(o.now).Round(time.Second))
		}
	}
}

// listed records which tasks a worker lets end, and returns the attempts that have ended there without a result.
func (o *orphans) listed(w *Worker, running []wire.Key) (ended []*attempt) {
	w.State = Detached
	w.spool.running = map[int64]int32{}
	for _, k := range running {
		w.spool.running[k.Seq] = k.Attempt
	}
	for _, a := range sorted(w.attempts) {
		if w.spool.running[a.task.Seq] != a.task.Attempt {
			ended = append(ended, a)
		}
	}
	return ended
}

// take takes a result that a worker has left, with its attempt. Without one, its task was not read yet: it is kept.
func (o *orphans) take(w *Worker, d SpooledDone) *attempt {
	seq := d.Done.Seq
	if w.State != Detached || w.spool.running[seq] != d.Done.Attempt {
		return nil
	}
	delete(w.spool.running, seq)
	a := w.attempts[seq]
	if delete(w.attempts, seq); a == nil {
		o.results[seq] = spooledResult{d, w.Name()}
	}
	return a
}

// ended reports whether what a worker has left says, or shows, that it has ended.
func (o *orphans) ended(w *Worker, e Spooled) bool {
	return e.Ended || e.Missing && o.now.Sub(w.spool.alive) > 3*time.Second && o.now.After(w.until)
}

// result returns, once, the result that was left of a task that is read now.
func (o *orphans) result(t *pool.Task) (spooledResult, bool) {
	d, ok := o.results[t.Seq]
	if ok = ok && d.Done.Attempt == t.Attempt; ok {
		delete(o.results, t.Seq)
	}
	return d, ok
}

// claim returns the orphan at which a task that is read now may run; nil: none.
func (o *orphans) claim(t *pool.Task, key uint16) *Worker {
	w := o.prior[key]
	for _, x := range o.all {
		if k, ok := x.spool.running[t.Seq]; ok && k == t.Attempt {
			w = x
		}
	}
	if w == nil || w.State == Detached && w.spool.running[t.Seq] != t.Attempt {
		return nil
	}
	w.attempts[t.Seq] = &attempt{task: t, worker: w, before: true, claim: o.pool.Claim(t)}
	return w
}

// unclaimed reports whether workers of earlier runs may have tasks running that were not read yet.
func (o *orphans) unclaimed() bool {
	for _, w := range o.prior {
		unread := func(seq int64) bool { return w.attempts[seq] == nil }
		if w.State != Detached || slices.ContainsFunc(slices.Collect(maps.Keys(w.spool.running)), unread) {
			return true
		}
	}
	return false
}

// Spooling returns the orphans that may leave more in their files.
func (c *Core) Spooling() []*Worker {
	return slices.DeleteFunc(slices.Clone(c.orphans.all), func(w *Worker) bool { return !w.spool.expected })
}

// Unclaimed reports whether an orphan has left a result of a task that was not read.
func (c *Core) Unclaimed() bool { return len(c.orphans.results) > 0 }

// leaveOrphans leaves what may still run to the next run. Its end is not recorded, so that the next
// scheduler waits, too.
func (c *Core) leaveOrphans() {
	for _, w := range c.orphans.all {
		for _, a := range sorted(w.attempts) {
			c.tasks.part(a)
			c.vacate(a)
			c.tasks.leftFor(a.task, "it may still run at "+w.Name())
			c.ending.continues = true
		}
		clear(w.attempts)
	}
}

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
		c.rerun(w, c.orphans.listed(w, e.Running))
	}
	for _, d := range e.Done {
		if a := c.orphans.take(w, d); a != nil {
			c.tasks.after(a, func() {
				c.vacate(a)
				c.tasks.spooledEnd(a.task, spooledResult{d, w.Name()})
			})
		}
	}
	if c.orphans.ended(w, e) {
		c.workerGone(w)
	}
}

// spooledEnd ends a task by the result that an orphan has left.
func (ts *tasks) spooledEnd(t *pool.Task, d spooledResult) {
	r := ts.newResult(d.node, d.Done)
	if r.What == wire.Stopped {
		r.What = wire.Lost
	}
	ts.settle(t, nil, r, Output{Bytes: [2][]byte{d.Done.Out, d.Done.Err}, Files: d.Files})
}

// ofOrphan keeps a task that was read from running while an orphan of an earlier run may run it, or
// has left its result.
func (ts *tasks) ofOrphan(t *pool.Task, past Past) bool {
	if past.State != Started {
		return false
	}
	if d, ok := ts.orphans.result(t); ok {
		ts.spooledEnd(t, d)
		return true
	}
	w := ts.orphans.claim(t, past.Worker)
	if w != nil {
		ts.occupy(w)
	}
	return w != nil
}

// occupy gives the tasks that an orphan lets end their part of the node where they are.
func (ts *tasks) occupy(o *Worker) {
	i := slices.IndexFunc(ts.nodes.workers, func(w *Worker) bool { return w.Name() == o.Name() })
	if i < 0 {
		return
	}
	for _, a := range sorted(o.attempts) {
		if a.beside == nil {
			a.beside = ts.pool.Occupy(ts.nodes.workers[i].n, a.task)
		}
	}
}
