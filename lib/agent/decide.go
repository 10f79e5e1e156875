package agent

import (
	"time"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// step is what to do for one task, given the state of its job.
type step struct {
	report      task.Report  // State "" if there is nothing to report
	missing     task.Absence // new value of Tracked.Missing
	unaccounted task.Absence // new value of Tracked.Unaccounted
	end         bool         // the task has ended: publish its log, artifacts and state, and move its directory
	again       bool         // the job has provably not begun: the task is submitted again
}

// decide returns what to do for a known task, given its job as the runner reports it. Stopping
// says that this agent was asked to stop the task.
func decide(k Tracked, job runner.Job, stopping bool, now time.Time) step {
	switch job.Sight {
	case runner.Past, runner.Unclear:
		return step{}
	case runner.Traceless:
		return step{missing: k.Missing.Again(now)}
	case runner.Unaccounted:
		return step{missing: k.Missing.Again(now), unaccounted: k.Unaccounted.Again(now)}
	}
	if !job.State.Final() {
		if job.State == k.Reported || job.State == task.Pending && k.Reported == "" {
			return step{}
		}
		r := task.Report{State: job.State}
		if job.State == task.Pending {
			r.Reason = job.Reason
		}
		return step{report: r}
	}
	if job.Sight == runner.Unbegun {
		return step{again: true}
	}
	r := task.Report{State: job.State, Reason: job.Reason, ExitCode: job.ExitCode, Rent: job.Rent}
	if job.Sight == runner.Cancelled && stopping {
		r = task.Report{State: task.Stopped, Reason: "stopped at the request of the queue", Rent: job.Rent}
	}
	return step{report: r, end: true}
}

// pause grows with each failed try: 10 s, 20 s, and so on, at most 10 minutes.
func pause(tries int) time.Duration {
	return min(10*time.Second<<min(max(0, tries-1), 10), longestPause)
}

const longestPause = 10 * time.Minute

// pauses reports whether the task is not to be submitted yet. A time that is further away than the
// longest pause is that of a clock that was set back since.
func (r Record) pauses(now time.Time) bool {
	wait := r.Retry.Sub(now)
	if r.Preparing != nil {
		return wait > 0 && wait <= longestPause
	}
	return wait > 0 && wait <= pause(max(r.Tries, len(r.Attempts)))
}

// maxSubmissions limits how many jobs of a task may end or vanish before they began its command.
// After that, the cause is assumed to be lasting.
const maxSubmissions = 6

// work is what is known of a task for which the queue requests an action.
type work struct {
	hasJob   bool
	busy     bool // a process holds the task's lock
	stopping bool // a process was asked to stop it
	pauses   bool // its next attempt is not to begin yet
}

// wanted returns the queue's actions that are to be passed on: a start unless the task has a job,
// a process works on it or its next attempt is not to begin yet, a stop unless a process is already stopping it.
func wanted(actions []task.Action, workOf func(task.Action) work) []task.Action {
	var out []task.Action
	for _, a := range actions {
		w := workOf(a)
		if a.Kind == task.Start && (w.hasJob || w.busy || w.pauses) || a.Kind == task.Stop && w.busy && w.stopping {
			continue
		}
		out = append(out, a)
	}
	return out
}
