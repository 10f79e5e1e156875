package core

import (
	"slices"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// isFinished ends the run when there is nothing more to do.
func (c *Core) isFinished() bool {
	if c.paused && c.now.Sub(c.pausedAt) > patience {
		c.stopExplicitly(Draining, "the journal cannot be written", 3)
	}
	for _, a := range c.attempts {
		if !c.keptRunning(a) {
			return false
		}
	}
	if len(c.undecided)+len(c.sweeps) > 0 {
		return false
	}
	c.handed()
	if c.phase == Running && c.choked {
		return false
	}
	if c.closed != nil && c.phase == Running && c.orphaned == 0 && !c.unclaimed() && (c.eof || len(c.results) == 0) {
		c.stop(Draining, "", 0)
	}
	if c.phase >= Draining {
		c.chargeAll()
		return true
	}
	if c.stays || len(c.onHold) > 0 || !c.eof || c.orphaned > 0 {
		return c.noNode()
	}
	if c.pool.Waiting() == 0 {
		if c.chargeAll() {
			c.schedule() // what depends on them can start
			return false
		}
		if c.deps.waiting() == 0 {
			return true
		}
		c.refuseUnmet()
		return c.pool.Waiting() == 0 && c.deps.waiting() == 0
	}
	return c.stuck()
}

// lastWords is how much later than the end of its connection the end of a worker may become known.
const lastWords = 2 * time.Second

// noNode ends the run when there is no node, and none will come.
func (c *Core) noNode() bool {
	if c.awaited() {
		return false
	}
	talking := func(w *Worker) bool { return len(w.attempts) > 0 && c.now.Sub(w.since) < lastWords }
	if c.orphaned > 0 && slices.ContainsFunc(c.orphans, talking) {
		return false
	}
	if c.opening > 0 || slices.ContainsFunc(c.workers, func(w *Worker) bool { return w.State == Ready || w.ending }) {
		return false
	}
	if len(c.workers) > 0 && c.pool.Waiting() == 0 {
		return false
	}
	c.stop(Draining, c.noNodeWhy(), 3)
	c.chargeAll()
	return true
}

func (c *Core) noNodeWhy() string {
	if c.stats.attempts == 0 {
		return "no node can be used"
	}
	return "all nodes are gone"
}

// stuck ends the run when nothing that waits can ever start.
func (c *Core) stuck() bool {
	if c.noNode() {
		return true
	}
	if c.awaited() || c.opening > 0 || c.paused || c.woken || c.onTrial() {
		return false
	}
	if slices.ContainsFunc(c.workers, func(w *Worker) bool { return w.ending }) {
		return false // another one may take its place
	}
	if c.stats.attempts == 0 && len(c.workers) < c.MinNodes {
		return false
	}
	why := "the remaining tasks cannot end before the job does"
	if !c.allLate() {
		why = "no remaining node can run the remaining tasks"
	}
	c.stop(Draining, why, ExitLeft)
	c.chargeAll()
	return true
}

// stop advances the end of the run; it never goes back.
func (c *Core) stop(to Phase, why string, exit int) {
	if d := c.closed; d != nil && c.why == "" {
		why, exit, c.explicit = d.Why, d.Exit, d.Explicit
	}
	if c.why == "" {
		c.why, c.exit = why, exit
	}
	if to <= c.phase {
		return
	}
	c.phase = to
	if to >= Stopping {
		c.endTasks()
	}
	c.leaveOrphans()
	c.recallAll()
	switch to {
	case Stopping:
		c.killAt = c.now.Add(c.TermGrace)
		c.killAll(false)
	case Killing:
		c.killAt = c.now.Add(5 * time.Second)
		c.killAll(true)
	}
}

// endTasks notes when the first signal was sent to tasks to end the run here.
func (c *Core) endTasks() {
	if c.endedAt.IsZero() {
		c.endedAt = c.now
	}
}

// whyEnds is why nothing more is started; "" before that.
func (c *Core) whyEnds() string {
	if c.why == "" && c.closed != nil {
		return c.closed.Why
	}
	return c.why
}

// recallAll has the workers give back what they have not started.
func (c *Core) recallAll() {
	for _, w := range c.workers {
		for _, q := range w.backlog {
			for _, a := range q {
				c.recall(a)
			}
		}
	}
}

// closeRun lets what runs end, and starts nothing more. In an elastic pool, the schedulers that follow
// are to do the same: the phase of this one does not change before all has ended, also at orphans.
func (c *Core) closeRun(d Closing) {
	switch {
	case c.phase != Running || c.closed != nil:
	case c.Elastic:
		c.closed = &d
		c.recallAll()
		c.do(CloseRun{d})
	case d.Explicit:
		c.stopExplicitly(Draining, d.Why, d.Exit)
	default:
		c.stop(Draining, d.Why, d.Exit)
	}
}

// stopExplicitly stops with a status that does not depend on what is left.
func (c *Core) stopExplicitly(to Phase, why string, exit int) {
	if !c.explicit {
		c.why, c.exit, c.explicit = why, exit, true
	}
	c.stop(to, why, exit)
}

func (c *Core) killAll(immediately bool) {
	for _, a := range sorted(c.attempts) {
		c.kill(a, wire.Stopped, immediately)
	}
}

func (c *Core) kill(a *attempt, why wire.Outcome, immediately bool) {
	if a.why == "" {
		a.why = why
	}
	c.send(a.worker, &wire.Message{Kill: &wire.Kill{Key: a.key(), Why: a.why, Now: immediately}})
}

// signal follows the table in the manual.
func (c *Core) signal(s syscall.Signal) {
	switch s {
	case syscall.SIGINT:
		const code = 128 + int(syscall.SIGINT)
		c.interrupt++
		switch c.interrupt {
		case 1:
			c.stopExplicitly(Draining, "interrupted", code)
			if n := c.runs(); n > 0 {
				c.say("interrupted: waiting for %s; interrupt again to end them", plural(n, "task"))
			}
		case 2:
			c.say("interrupted: ending %s; interrupt again to kill them", plural(c.runs(), "task"))
			c.stopExplicitly(Stopping, "interrupted", code)
		default:
			c.stopExplicitly(Killing, "interrupted", code)
		}
	case syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		names := map[syscall.Signal]string{syscall.SIGTERM: "SIGTERM", syscall.SIGHUP: "SIGHUP", syscall.SIGQUIT: "SIGQUIT"}
		if c.inOwnJob() {
			c.killed = true
			c.handOver("ended by "+names[s], 128+int(s), true)
			return
		}
		c.explicit = false // it comes after all that was before
		c.stopExplicitly(Stopping, "ended by "+names[s], 128+int(s))
	case syscall.SIGUSR1:
		if c.inOwnJob() {
			c.handOver("the scheduler's job is being ended", ExitLeft, true)
			return
		}
		c.drain("drained by SIGUSR1")
	}
}

// inOwnJob reports whether the scheduler is in one of several jobs that give the pool its nodes: a
// signal that ends it concerns that job only.
func (c *Core) inOwnJob() bool {
	return slices.ContainsFunc(c.nodes, func(n *Node) bool { return n.Spec.Own })
}

func (c *Core) drain(why string) {
	if c.Phase() == Running && len(c.attempts)+c.pool.Waiting()+c.deps.waiting() > 0 {
		waits := ""
		if n := c.runs(); n > 0 {
			waits = ", waiting for " + plural(n, "task")
		}
		c.say("%s: nothing new is started%s", why, waits)
	}
	c.closeRun(Closing{Why: why, Exit: ExitLeft})
}

// setEnd records when the allocation ends.
func (c *Core) setEnd(at time.Time) {
	c.ending = at
	c.margin = c.EndMargin
	if c.margin == 0 {
		c.margin = min(30*time.Second, at.Sub(c.now)/10)
	}
}

// checkEnd ends what runs early enough for its end to be reported.
func (c *Core) checkEnd() {
	if c.ending.IsZero() || c.now.Before(c.ending.Add(-c.margin)) || c.phase >= Stopping {
		return
	}
	c.say("the job is about to end: ending %s", plural(c.runs(), "task"))
	c.stop(Stopping, "the time of the job was up", ExitLeft)
}
