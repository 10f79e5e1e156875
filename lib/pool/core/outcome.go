package core

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// settle decides what an ended attempt means for its task. at is the worker; nil: an orphan.
func (c *Core) settle(t *pool.Task, at *Worker, r *Result, out Output) {
	c.stats.usage(r, t)
	switch r.What {
	case wire.Lost:
		c.lose(t, r, out)
	case wire.Stopped:
		if c.ending.phase < Stopping { // only its node was asked to end
			c.lose(t, r, out)
			return
		}
		c.do(Tried{Task: t, Result: r, Output: out, Print: true})
		c.leftFor(t, "it was stopped")
	case wire.OK:
		c.follow(c.nodes.judge(t, at, true))
		c.endTask(t, r, out)
	case wire.Cancelled:
		c.endTask(t, r, out)
	default:
		kept, then := c.nodes.suspected(t, at, r, out)
		if c.follow(then); !kept {
			c.charge(t, at, r, out)
		}
	}
}

// follow decides about tasks whose failures were not charged yet.
func (c *Core) follow(then []followUp) {
	for _, f := range then {
		if f.charge {
			c.charge(f.task, f.at.Worker, f.result, f.output)
		} else {
			c.again(f.task, f.at.Worker, f.result, f.output)
		}
	}
}

// chargeAll charges all of them, when no more evidence can come, and reports whether there were any.
func (c *Core) chargeAll() bool {
	then := c.nodes.chargeAll()
	c.follow(then)
	return len(then) > 0
}

// charge counts a failure against its task.
func (c *Core) charge(t *pool.Task, at *Worker, r *Result, out Output) {
	if r.What != wire.OutputLost {
		if t.Fails++; int(t.Fails) <= c.Retries && c.ending.Phase() == Running {
			c.again(t, at, r, out)
			return
		}
	}
	switch {
	case c.Hold && c.ending.Phase() == Running:
		c.do(Tried{Task: t, Result: r, Output: out})
		if len(c.onHold) == 0 {
			c.say("task %d is on hold: it %s; see %q", t.Seq, r.Describe(), "jobpool ctl list")
		}
		c.onHold[t.Seq] = &pending{t, r, Output{}}
	case r.What == wire.NoStart && r.Exit == exitNotRun && !c.Serve:
		// The command has not run, and it is not the cause.
		c.do(Tried{Task: t, Result: r, Output: out, Print: true})
		c.leftFor(t, r.Describe())
		if r.NoFile { // nor would any that follows: as without a journal, the run is to be resumed
			c.stopExplicitly(Draining, string(r.Error), 3)
		}
	default:
		c.endTask(t, r, out)
	}
}

// exitNotRun is the status of a task that could not be run for lack of something, as opposed to one
// whose program does not exist (127) or cannot be executed (126).
const exitNotRun = 125

// again runs a task once more, at another node if there is one.
func (c *Core) again(t *pool.Task, at *Worker, r *Result, out Output) {
	c.do(Tried{Task: t, Result: r, Output: out})
	if t.Avoid = nil; at != nil && at.connected() {
		t.Avoid = at.n
	}
	c.push(t)
}

// endTask ends a task, which happens once.
func (c *Core) endTask(t *pool.Task, r *Result, out Output) {
	c.stats.end(t, r, c.now)
	c.do(Ended{t, r, out})
	c.release(t, r.What == wire.OK)
	c.checkHalt()
}

// release releases the tasks that waited for a task.
func (c *Core) release(t *pool.Task, ok bool) {
	type end struct {
		t  *pool.Task
		ok bool
	}
	// Dependents that fail in turn are handled in a list, to avoid recursion.
	for ends := []end{{t, ok}}; len(ends) > 0; ends = ends[1:] {
		free, failed := c.deps.finish(ends[0].t, ends[0].ok)
		for _, next := range free {
			c.push(next)
		}
		for _, next := range failed {
			r := c.unrun(next, wire.Cancelled, dependencyFailed)
			r.Dependency = true
			c.stats.end(next, r, c.now)
			c.do(Ended{Task: next, Result: r})
			ends = append(ends, end{next, false})
		}
	}
}

const dependencyFailed = "what it depends on has not succeeded"

// cancelDependent ends a task that was read after one of its dependencies has failed.
func (c *Core) cancelDependent(t *pool.Task) {
	r := c.unrun(t, wire.Cancelled, dependencyFailed)
	r.Dependency = true
	c.endTask(t, r, Output{})
}

// cancelTask ends a task that is not to run.
func (c *Core) cancelTask(t *pool.Task, why string) {
	c.endTask(t, c.unrun(t, wire.Cancelled, why), Output{})
}

// refuse ends a task that can never run.
func (c *Core) refuse(t *pool.Task, why string) {
	c.refuseSaying(t, why, fmt.Sprintf("task %d: %s", t.Seq, why))
}

func (c *Core) refuseSaying(t *pool.Task, why, said string) {
	if c.refusals++; c.refusals <= 10 {
		c.do(Say{said})
	} else if c.refusals == 11 {
		c.say("more tasks are refused: see the journal")
	}
	c.endTask(t, c.unrun(t, wire.Refused, why), Output{})
}

// refuseTwin ends a task whose id is in use, without ending the other task.
func (c *Core) refuseTwin(t *pool.Task) {
	id, x := t.ID(), *t.Extra
	x.ID = ""
	t.Extra = &x
	c.refuse(t, fmt.Sprintf("id %q is that of another task", id))
}

func (c *Core) unrun(t *pool.Task, what wire.Outcome, why string) *Result {
	return &Result{Key: wire.Key{Seq: t.Seq, Attempt: t.Attempt}, What: what, Exit: 125, Start: c.seconds(), Error: wire.Text(why)}
}

// refuseUnmet ends tasks that wait for tasks that do not exist, or for each other.
func (c *Core) refuseUnmet() {
	tasks := c.deps.all()
	slices.SortFunc(tasks, func(a, b *pool.Task) int { return cmp.Compare(a.Seq, b.Seq) })
	why := make([]string, len(tasks))
	for i, t := range tasks {
		name, known := c.deps.unmet(t)
		if why[i] = fmt.Sprintf("it depends on %q, which is not a task of this run", name); known {
			why[i] = fmt.Sprintf("it depends on %q, which is in a circle of dependencies or depends on one", name)
		}
	}
	for i, t := range tasks {
		if c.deps.remove(t.Seq) != nil { // not cancelled with an earlier one
			c.refuse(t, why[i])
		}
	}
}

// checkHalt stops the run when enough tasks have failed, succeeded or ended.
func (c *Core) checkHalt() {
	s, halt := &c.stats, c.Halt
	done, failed := c.Done+s.done, c.Failed+s.failed+s.cancelled
	ended := failed + done
	all := ended
	if c.eof {
		all = max(ended, s.seen)
	}
	part := func(n int64, percent int) bool {
		return percent > 0 && ended >= 3 && n*100 >= int64(percent)*all
	}
	var why string
	code := 1
	switch {
	case c.ending.Phase() != Running:
		return
	case halt.Fail > 0 && failed >= int64(halt.Fail):
		why = have(failed, "failed")
	case part(failed, halt.Percent):
		why = fmt.Sprintf("%d %% of the tasks have failed", halt.Percent)
	case halt.Success > 0 && done >= int64(halt.Success):
		why, code = have(done, "succeeded"), 0
	case part(done, halt.SuccessPercent):
		why, code = fmt.Sprintf("%d %% of the tasks have succeeded", halt.SuccessPercent), 0
	case halt.Done > 0 && ended >= int64(halt.Done):
		why, code = have(ended, "ended"), min(1, int(failed))
	case part(ended, halt.DonePercent):
		why, code = fmt.Sprintf("%d %% of the tasks have ended", halt.DonePercent), min(1, int(failed))
	default:
		return
	}
	if halt.Now {
		c.stopExplicitly(Stopping, why, code)
		return
	}
	c.closeRun(Closing{Why: why, Exit: code, Explicit: true})
}

func have(n int64, what string) string {
	if n == 1 {
		return "1 task has " + what
	}
	return fmt.Sprintf("%d tasks have %s", n, what)
}

// leftFor leaves a task for the next run.
func (c *Core) leftFor(t *pool.Task, why string) {
	c.stats.leave(why, t.Seq)
}
