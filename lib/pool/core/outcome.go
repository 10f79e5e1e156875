package core

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// settle decides what an ended attempt means for its task. at is the worker; nil: an orphan.
func (ts *tasks) settle(t *pool.Task, at *Worker, r *Result, out Output) {
	ts.stats.usage(r, t)
	switch r.What {
	case wire.Lost:
		ts.lose(t, r, out)
	case wire.Stopped:
		if ts.ending.phase < Stopping { // only its node was asked to end
			ts.lose(t, r, out)
			return
		}
		ts.do(Tried{Task: t, Result: r, Output: out, Print: true})
		ts.leftFor(t, "it was stopped")
	case wire.OK:
		ts.follow(ts.nodes.judge(t, at, true))
		ts.endTask(t, r, out)
	case wire.Cancelled:
		ts.endTask(t, r, out)
	default:
		kept, then := ts.nodes.suspected(t, at, r, out)
		if ts.follow(then); !kept {
			ts.charge(t, at, r, out)
		}
	}
}

// follow decides about tasks whose failures were not charged yet.
func (ts *tasks) follow(then []followUp) {
	for _, f := range then {
		if f.charge {
			ts.charge(f.task, f.at.Worker, f.result, f.output)
		} else {
			ts.again(f.task, f.at.Worker, f.result, f.output)
		}
	}
}

// chargeAll charges all of them, when no more evidence can come, and reports whether there were any.
func (ts *tasks) chargeAll() bool {
	then := ts.nodes.chargeAll()
	ts.follow(then)
	return len(then) > 0
}

// charge counts a failure against its task.
func (ts *tasks) charge(t *pool.Task, at *Worker, r *Result, out Output) {
	if r.What != wire.OutputLost {
		if t.Fails++; int(t.Fails) <= ts.Retries && ts.ending.Phase() == Running {
			ts.again(t, at, r, out)
			return
		}
	}
	switch {
	case ts.Hold && ts.ending.Phase() == Running:
		ts.do(Tried{Task: t, Result: r, Output: out})
		if len(ts.onHold) == 0 {
			ts.say("task %d is on hold: it %s; see %q", t.Seq, r.Describe(), "jobpool ctl list")
		}
		ts.onHold[t.Seq] = &pending{t, r, Output{}}
	case r.What == wire.NoStart && r.Exit == exitNotRun && !ts.Serve:
		// The command has not run, and it is not the cause.
		ts.do(Tried{Task: t, Result: r, Output: out, Print: true})
		ts.leftFor(t, r.Describe())
		if r.NoFile { // nor would any that follows: as without a journal, the run is to be resumed
			ts.noFile = string(r.Error)
		}
	default:
		ts.endTask(t, r, out)
	}
}

// exitNotRun is the status of a task that could not be run for lack of something, as opposed to one
// whose program does not exist (127) or cannot be executed (126).
const exitNotRun = 125

// again runs a task once more, at another node if there is one.
func (ts *tasks) again(t *pool.Task, at *Worker, r *Result, out Output) {
	ts.do(Tried{Task: t, Result: r, Output: out})
	if t.Avoid = nil; at != nil && at.connected() {
		t.Avoid = at.n
	}
	ts.push(t)
}

// endTask ends a task, which happens once.
func (ts *tasks) endTask(t *pool.Task, r *Result, out Output) {
	ts.stats.end(t, r, ts.now)
	ts.do(Ended{t, r, out})
	ts.release(t, r.What == wire.OK)
}

// release releases the tasks that waited for a task.
func (ts *tasks) release(t *pool.Task, ok bool) {
	type end struct {
		t  *pool.Task
		ok bool
	}
	// Dependents that fail in turn are handled in a list, to avoid recursion.
	for ends := []end{{t, ok}}; len(ends) > 0; ends = ends[1:] {
		free, failed := ts.deps.finish(ends[0].t, ends[0].ok)
		for _, next := range free {
			ts.push(next)
		}
		for _, next := range failed {
			r := ts.unrun(next, wire.Cancelled, dependencyFailed)
			r.Dependency = true
			ts.stats.end(next, r, ts.now)
			ts.do(Ended{Task: next, Result: r})
			ends = append(ends, end{next, false})
		}
	}
}

const dependencyFailed = "what it depends on has not succeeded"

// cancelDependent ends a task that was read after one of its dependencies has failed.
func (ts *tasks) cancelDependent(t *pool.Task) {
	r := ts.unrun(t, wire.Cancelled, dependencyFailed)
	r.Dependency = true
	ts.endTask(t, r, Output{})
}

// cancelTask ends a task that is not to run.
func (ts *tasks) cancelTask(t *pool.Task, why string) {
	ts.endTask(t, ts.unrun(t, wire.Cancelled, why), Output{})
}

// refuse ends a task that can never run.
func (ts *tasks) refuse(t *pool.Task, why string) {
	ts.refuseSaying(t, why, fmt.Sprintf("task %d: %s", t.Seq, why))
}

func (ts *tasks) refuseSaying(t *pool.Task, why, said string) {
	if ts.refusals++; ts.refusals <= 10 {
		ts.do(Say{said})
	} else if ts.refusals == 11 {
		ts.say("more tasks are refused: see the journal")
	}
	ts.endTask(t, ts.unrun(t, wire.Refused, why), Output{})
}

// refuseTwin ends a task whose id is in use, without ending the other task.
func (ts *tasks) refuseTwin(t *pool.Task) {
	id, x := t.ID(), *t.Extra
	x.ID = ""
	t.Extra = &x
	ts.refuse(t, fmt.Sprintf("id %q is that of another task", id))
}

func (b *base) unrun(t *pool.Task, what wire.Outcome, why string) *Result {
	return &Result{Key: wire.Key{Seq: t.Seq, Attempt: t.Attempt}, What: what, Exit: 125, Start: b.seconds(), Error: wire.Text(why)}
}

// refuseUnmet ends tasks that wait for tasks that do not exist, or for each other.
func (ts *tasks) refuseUnmet() {
	tasks := ts.deps.all()
	slices.SortFunc(tasks, func(a, b *pool.Task) int { return cmp.Compare(a.Seq, b.Seq) })
	why := make([]string, len(tasks))
	for i, t := range tasks {
		name, known := ts.deps.unmet(t)
		if why[i] = fmt.Sprintf("it depends on %q, which is not a task of this run", name); known {
			why[i] = fmt.Sprintf("it depends on %q, which is in a circle of dependencies or depends on one", name)
		}
	}
	for i, t := range tasks {
		if ts.deps.remove(t.Seq) != nil { // not cancelled with an earlier one
			ts.refuse(t, why[i])
		}
	}
}

// checkHalt stops the run when enough tasks have failed, succeeded or ended, or none can have its files.
func (c *Core) checkHalt() {
	if why := c.tasks.noFile; why != "" {
		c.tasks.noFile = ""
		c.stopExplicitly(Draining, why, 3)
	}
	s, halt := &c.tasks.stats, c.Halt
	done, failed := c.Done+s.done, c.Failed+s.failed+s.cancelled
	ended := failed + done
	all := ended
	if c.tasks.eof {
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
func (ts *tasks) leftFor(t *pool.Task, why string) {
	ts.stats.leave(why, t.Seq)
}

// lose charges a task for an attempt that was lost.
func (ts *tasks) lose(t *pool.Task, r *Result, out Output) {
	t.Losses++
	ts.do(Tried{Task: t, Result: r, Output: out})
	if int(t.Losses) <= ts.LostRetries && ts.ending.phase < Stopping {
		ts.stats.lost++
		ts.push(t)
		return
	}
	ts.leftFor(t, fmt.Sprintf("lost %s with its node: %s", times(int(t.Losses)), r.Error))
}
