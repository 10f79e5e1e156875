package agent

import (
	"time"

	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/task"
)

// step is what follows for one task from a look at its job.
type step struct {
	report      task.Report  // State "" if there is nothing to report
	missing     task.Absence // new value of Known.Missing
	unaccounted task.Absence // new value of Known.Unaccounted
	end         bool         // the task is over: last log, artifacts, report, and away
	again       bool         // the job has provably not begun: the task is submitted again
}

// decide says what follows for a known task from what the runner says of its job,
// at a time. Stopping says that this agent has been asked to stop the task.
func decide(k Known, job runner.Job, stopping bool, now time.Time) step {
	if job.Unknown {
		s := step{}
		if job.Lost {
			s.missing = k.Missing.Again(now)
			if job.Unaccounted {
				s.unaccounted = k.Unaccounted.Again(now)
			}
		}
		return s
	}
	if !job.State.Final() {
		if job.State == k.Reported || job.State == task.Pending && k.Reported == "" {
			return step{}
		}
		return step{report: task.Report{State: job.State, Reason: job.Reason}}
	}
	if job.NotBegun && !stopping {
		return step{again: true}
	}
	r := task.Report{State: job.State, Reason: job.Reason, ExitCode: job.ExitCode, Cost: job.Cost}
	if job.Cancelled && stopping {
		r = task.Report{State: task.Stopped, Reason: "stopped as the queue asked", Cost: job.Cost}
	}
	return step{report: r, end: true}
}

// A pause grows with each try that failed: 10 s, 20 s, and so on, at most 10 minutes.
func pause(tries int) time.Duration {
	return min(10*time.Second<<min(max(0, tries-1), 10), 10*time.Minute)
}

// maxSubmissions is how many jobs of a task may end or vanish before they began its
// command. Something is wrong with the task or its nodes then that does not pass.
const maxSubmissions = 6

// work is what is known of a task that the queue wants something done with.
type work struct {
	hasJob   bool
	busy     bool // somebody has the task's lock
	stopping bool // somebody has been asked to stop it
}

// wanted says which of the queue's actions are to be passed on: a start unless the
// task has a job or somebody works on it, a stop unless somebody is at it already.
func wanted(actions []task.Action, workOf func(task.ID) work) []task.Action {
	var out []task.Action
	for _, a := range actions {
		w := workOf(a.ID)
		if a.Kind == task.Start && (w.hasJob || w.busy) || a.Kind == task.Stop && w.busy && w.stopping {
			continue
		}
		out = append(out, a)
	}
	return out
}
