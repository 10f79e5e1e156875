package core

import (
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// ending is how far the end of the run has come, or the end of this scheduler's part of it.
//
//	Running ──► Draining ──► Stopping ──► Killing      advance: never back
//
// The first verdict counts, unless an explicit one follows. What closes an elastic pool holds for the schedulers that follow: nothing new
// starts, and the phase stays until all has ended, also at orphans. A hand-over ends the scheduler, and not what runs in other jobs.
type ending struct {
	*base
	phase      Phase
	verdict    Closing
	closed     *Closing // nil: it is not
	hand       handOver
	terminated bool // SIGTERM has ended it, as when its job is cancelled
	continues  bool // something runs on until the next scheduler
	interrupts int
	killAt     time.Time // when what still runs is ended for good
	endedAt    time.Time // when tasks were first ended by the end of the run, or of the scheduler's job
	ofJob      time.Time // when the scheduler's job ends; zero: unknown
	margin     time.Duration
	unwritten  time.Time // since when the journal cannot be written; zero: it can
	choked     bool      // too much is to be printed
	unprinted  bool      // nothing more can be printed
}

// handOver says why another scheduler takes over.
type handOver uint8

const (
	keeps   handOver = iota // none does
	jobOver                 // the own job ends
	jobCut                  // it ends before its time
)

// Phase returns how far the end of the run has progressed.
func (e *ending) Phase() Phase {
	if e.closed != nil {
		return max(e.phase, Draining)
	}
	return e.phase
}

// advance moves to a phase, and reports whether that is new.
func (e *ending) advance(to Phase, v Closing) bool {
	switch {
	case v.Explicit && !e.verdict.Explicit, e.verdict.Why == "" && e.closed == nil:
		e.verdict = v
	case e.verdict.Why == "":
		e.verdict = *e.closed
	}
	if to <= e.phase {
		return false
	}
	e.phase = to
	switch to {
	case Stopping:
		e.tasksEnd()
		e.killAt = e.now.Add(e.TermGrace)
	case Killing:
		e.tasksEnd()
		e.killAt = e.now.Add(killGrace)
	}
	return true
}

// killGrace is how long what gets SIGKILL may take to end.
const killGrace = 5 * time.Second

// tasksEnd notes that the first signal is sent to tasks to end the run here.
func (e *ending) tasksEnd() {
	if e.endedAt.IsZero() {
		e.endedAt = e.now
	}
}

// why is why nothing more is started; "" before that.
func (e *ending) why() string {
	if e.verdict.Why == "" && e.closed != nil {
		return e.closed.Why
	}
	return e.verdict.Why
}

// paused reports whether nothing starts for now, as what happens cannot be recorded.
func (e *ending) paused() bool { return !e.unwritten.IsZero() }

// starts reports whether new tasks may start.
func (e *ending) starts() bool { return e.Phase() == Running && !e.paused() && !e.choked }

// awaited reports whether more nodes may come.
func (e *ending) awaited() bool { return e.Elastic && e.phase == Running }

// setJob records when the allocation ends.
func (e *ending) setJob(at time.Time) {
	e.ofJob, e.margin = at, e.EndMargin
	if e.margin == 0 {
		e.margin = marginOf(at.Sub(e.now))
	}
}

// marginOf is how long before the end of a job what runs in it is ended.
func marginOf(left time.Duration) time.Duration { return min(30*time.Second, left/10) }

// jobEnds reports whether that time has come.
func (e *ending) jobEnds() bool { return !e.ofJob.IsZero() && !e.now.Before(e.ofJob.Add(-e.margin)) }

// hands reports whether another scheduler takes over what a worker runs: its job goes on.
func (e *ending) hands(w *Worker) bool { return e.hand != keeps && w.Node != nil && !w.Node.Spec.Own }

// keptRunning reports whether an attempt continues after the scheduler has handed over.
func (e *ending) keptRunning(a *attempt) bool {
	return e.hands(a.worker) && !a.wide() // the next one would not know the other nodes
}

// isFinished ends the run when there is nothing more to do.
func (c *Core) isFinished() bool {
	if c.ending.paused() && c.now.Sub(c.ending.unwritten) > patience {
		c.stopExplicitly(Draining, "the journal cannot be written", 3)
	}
	for _, a := range c.tasks.attempts {
		if !c.ending.keptRunning(a) {
			return false
		}
	}
	if len(c.tasks.undecided)+len(c.tasks.sweeps) > 0 {
		return false
	}
	c.handed()
	if c.ending.phase == Running && c.ending.choked {
		return false
	}
	closed := c.ending.closed != nil && (c.tasks.eof || len(c.orphans.results) == 0)
	if closed && c.ending.phase == Running && c.orphans.attempts() == 0 && !c.orphans.unclaimed() {
		c.stop(Draining, "", 0)
	}
	if c.ending.phase >= Draining {
		c.tasks.chargeAll()
		return true
	}
	if c.tasks.stays || len(c.tasks.onHold) > 0 || !c.tasks.eof || c.orphans.attempts() > 0 {
		return c.noNode()
	}
	if c.pool.Waiting() == 0 {
		if c.tasks.chargeAll() {
			c.tasks.schedule() // what depends on them can start
			return false
		}
		if c.tasks.deps.waiting() == 0 {
			return true
		}
		c.tasks.refuseUnmet()
		return c.pool.Waiting() == 0 && c.tasks.deps.waiting() == 0
	}
	return c.stuck()
}

// lastWords is how much later than the end of its connection the end of a worker may become known.
const lastWords = 2 * time.Second

// noNode ends the run when there is no node, or too few to begin with, and none will come.
func (c *Core) noNode() bool {
	few := c.nodes.few() && c.tasks.stats.attempts == 0
	if c.ending.awaited() || c.orphans.talks() || !few && slices.ContainsFunc(c.nodes.workers, (*Worker).mayStart) || c.nodes.opening() {
		return false
	}
	if !few && len(c.nodes.workers) > 0 && c.pool.Waiting() == 0 {
		return false
	}
	why := "all nodes are gone"
	switch {
	case few && len(c.nodes.workers) > 0:
		why = fmt.Sprintf("%s can be used, and %d are required", plural(int64(len(c.nodes.workers)), "node"), c.MinNodes)
	case c.tasks.stats.attempts == 0:
		why = "no node can be used"
	}
	c.stop(Draining, why, 3)
	c.tasks.chargeAll()
	return true
}

// mayStart reports whether a worker, or another one in its place, may start a task.
func (w *Worker) mayStart() bool { return w.State == Ready || w.ending }

// stuck ends the run when nothing that waits can ever start.
func (c *Core) stuck() bool {
	if c.noNode() {
		return true
	}
	if c.ending.awaited() || c.nodes.opening() || c.ending.paused() || c.tasks.woken || c.nodes.onTrial() {
		return false
	}
	if slices.ContainsFunc(c.nodes.workers, func(w *Worker) bool { return w.ending }) {
		return false // another one may take its place
	}
	why := "the remaining tasks cannot end before the job does"
	if !c.tasks.allLate() {
		why = "no remaining node can run the remaining tasks"
	}
	c.stop(Draining, why, ExitLeft)
	c.tasks.chargeAll()
	return true
}

// stop advances the end of the run; it never goes back.
func (c *Core) stop(to Phase, why string, exit int) { c.advance(to, Closing{Why: why, Exit: exit}) }

// stopExplicitly stops with a status that does not depend on what is left.
func (c *Core) stopExplicitly(to Phase, why string, exit int) {
	c.advance(to, Closing{Why: why, Exit: exit, Explicit: true})
}

func (c *Core) advance(to Phase, v Closing) {
	if !c.ending.advance(to, v) {
		return
	}
	c.leaveOrphans()
	c.nodes.recallAll()
	if to >= Stopping {
		c.tasks.killAll(to == Killing)
	}
}

// closeRun lets what runs end, and starts nothing more.
func (c *Core) closeRun(d Closing) {
	switch {
	case c.ending.Phase() != Running:
	case c.Elastic:
		c.ending.closed = &d
		c.nodes.recallAll()
		c.do(CloseRun{d})
	default:
		c.advance(Draining, d)
	}
}

// signal follows the table in the manual.
func (c *Core) signal(s syscall.Signal) {
	switch s {
	case syscall.SIGINT:
		const code = 128 + int(syscall.SIGINT)
		c.ending.interrupts++
		switch c.ending.interrupts {
		case 1:
			c.stopExplicitly(Draining, "interrupted", code)
			if n := c.tasks.runs(); n > 0 {
				c.say("interrupted: waiting for %s; interrupt again to end them", plural(n, "task"))
			}
		case 2:
			c.say("interrupted: ending %s; interrupt again to kill them", plural(c.tasks.runs(), "task"))
			c.stopExplicitly(Stopping, "interrupted", code)
		default:
			c.stopExplicitly(Killing, "interrupted", code)
		}
	case syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		names := map[syscall.Signal]string{syscall.SIGTERM: "SIGTERM", syscall.SIGHUP: "SIGHUP", syscall.SIGQUIT: "SIGQUIT"}
		if c.nodes.inOwnJob() {
			c.ending.terminated = true
			c.handOver("ended by "+names[s], 128+int(s), jobCut)
			return
		}
		c.ending.verdict.Explicit = false // it comes after all that was before
		c.stopExplicitly(Stopping, "ended by "+names[s], 128+int(s))
	case syscall.SIGUSR1:
		if c.nodes.inOwnJob() {
			c.handOver("the scheduler's job is being ended", ExitLeft, jobCut)
			return
		}
		c.drain("drained by SIGUSR1")
	}
}

// rest hands over where that ends nothing, and keeps no task waiting: tasks may have come since the status by which the job was found
// to be idle, or are not read yet.
func (c *Core) rest() {
	own := func(w *Worker) bool { return w.Node == nil || w.Node.Spec.Own }
	ends := func(a *attempt) bool { return a.wide() || own(a.worker) }
	if !c.tasks.eof || slices.ContainsFunc(sorted(c.tasks.attempts), ends) {
		return
	}
	if c.pool.Waiting() > 0 && !slices.ContainsFunc(c.nodes.workers, own) {
		return // its node was not reached yet
	}
	for _, w := range c.nodes.workers {
		if own(w) && !w.Node.quarantine && c.tasks.waitFor(w) {
			return
		}
	}
	c.handOver("the scheduler's job has nothing to do", ExitLeft, jobCut)
}

func (c *Core) drain(why string) {
	if c.ending.Phase() == Running && len(c.tasks.attempts)+c.pool.Waiting()+c.tasks.deps.waiting() > 0 {
		waits := ""
		if n := c.tasks.runs(); n > 0 {
			waits = ", waiting for " + plural(n, "task")
		}
		c.say("%s: nothing new is started%s", why, waits)
	}
	c.closeRun(Closing{Why: why, Exit: ExitLeft})
}

// checkEnd ends what runs early enough for its end to be reported, and kills what does not end.
func (c *Core) checkEnd() {
	e := &c.ending
	if e.jobEnds() && e.phase < Stopping {
		c.say("the job is about to end: ending %s", plural(c.tasks.runs(), "task"))
		c.stop(Stopping, "the time of the job was up", ExitLeft)
	}
	if !c.now.After(e.killAt) {
		return
	}
	switch {
	case e.hand != keeps:
		e.killAt = c.now.Add(killGrace)
		c.endOwn(true)
	case e.phase == Stopping:
		c.stop(Killing, "", 0)
	case e.phase == Killing: // workers that do not answer now are given up
		for _, w := range slices.Clone(c.nodes.workers) {
			if len(w.attempts) > 0 || c.tasks.clears(w) {
				c.do(Close{w})
				c.connectionLost(w, "it did not answer", Unknown)
			}
		}
		e.killAt = c.now.Add(time.Minute)
	}
}

// handOver ends the run for this scheduler, but not for the workers of other jobs. These are left
// first, as Slurm may be ending their connections, except for those that have a part in a task of
// several nodes, which ends.
func (c *Core) handOver(why string, exit int, hand handOver) {
	e := &c.ending
	if e.hand != keeps {
		return
	}
	e.hand = hand
	e.tasksEnd()
	c.stop(Draining, why, exit)
	for _, w := range c.nodes.workers {
		if e.hands(w) && len(w.shared) == 0 && !c.tasks.clears(w) && !slices.ContainsFunc(sorted(w.attempts), (*attempt).wide) {
			c.send(w, &wire.Message{Leave: true})
		}
	}
	e.killAt = c.now.Add(c.TermGrace)
	c.endOwn(false)
}

// endOwn ends what the next scheduler would not take over.
func (c *Core) endOwn(immediately bool) {
	for _, a := range sorted(c.tasks.attempts) {
		if !c.ending.keptRunning(a) {
			c.kill(a, wire.Stopped, immediately)
		}
	}
}

// Keeps reports whether a worker is to continue when the scheduler ends.
func (c *Core) Keeps(w *Worker) bool { return c.ending.hands(w) }

// handed leaves what continues to the next scheduler.
func (c *Core) handed() {
	for _, a := range sorted(c.tasks.attempts) {
		if c.ending.keptRunning(a) {
			delete(c.tasks.attempts, a.task.Seq)
			c.tasks.leftFor(a.task, "it continues at "+a.worker.Name())
			c.ending.continues = true
		}
	}
}
