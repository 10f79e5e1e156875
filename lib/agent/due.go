package agent

import (
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

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
