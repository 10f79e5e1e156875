package agent

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// wait is what a turn knows of a task that does not run its command.
type wait struct {
	job    runner.Job // its job; without an ID there is none
	idle   bool       // the job ran in the last turn, and has not begun the command
	record Record     // without an ID there is none
	busy   bool       // a process works on it
	held   breaker    // of its kind; the zero value: its kind is not held
	stuck  string     // why no task of the agent can be started; "": they can
}

// why says what the task waits for; "" if it waits for nothing. The first row that fits counts:
//
//	its job is not known                       what the runner misses
//	its job is pending, or does not run        the reason of the runner
//	its job runs, and its command does not     that, and where the job says what it waits for
//	no job: a process works on it              that its code and its job are being made
//	no job: no task can be started             why: the agent's disk is full, or it has no program for jobs
//	no job: its code cannot be prepared        why, and when that is tried next
//	no job: its next attempt is not due        how the last one ended, and when
//	no job: its kind is held by a limit        the limit
//	no job: its kind is refused                the refusal, and when that is tried next
//	no job: its last try has failed            why, and when that is tried next
//	no job: none of these                      ponos-start
//
// A group, tasks that it comes after, and agents that do not run are for the queue to tell.
func (w wait) why(now time.Time) string {
	if w.job.ID != "" {
		switch {
		case !w.job.Sight.Sure() && w.job.Reason != "":
			return "job " + w.job.ID + ": " + w.job.Reason
		case !w.job.Sight.Sure():
			return "job " + w.job.ID + ": its state is not known"
		case w.job.Sight == runner.Waits && w.job.Reason == "":
			return "job " + w.job.ID + " waits"
		case w.idle && w.job.Sight == runner.Runs && w.job.Reason == "":
			return "job " + w.job.ID + " has not begun the command: see its log"
		}
		return w.job.Reason
	}
	r := w.record
	next := func(why string) string {
		if r.Retry.After(now) {
			return until(why, r.Retry)
		}
		return why
	}
	switch {
	case w.busy:
		return "its code is being prepared, or its job submitted"
	case w.stuck != "":
		return w.stuck
	case r.Preparing != nil:
		return r.preparing()
	case r.pauses(now) && r.Tries == 0 && len(r.Attempts) > 0:
		return fmt.Sprintf("attempt %d begins at %s: %s", r.Attempt, r.Retry.Local().Format(time.TimeOnly), r.Problem)
	case w.held.Full:
		return w.held.limit()
	case w.held.held():
		return until("held: "+w.held.Reason, w.held.Next)
	case r.Problem != "":
		return next(r.Problem)
	}
	return "waits for ponos-start"
}

// until is a reason with the time of the next try, which is not cut off where the reason is long.
func until(why string, at time.Time) string {
	next := "; next try at " + at.Local().Format(time.TimeOnly)
	if most := maxReason - len(next) - len("..."); len(why) > most {
		why = task.Clean(why[:most]) + "..."
	}
	return why + next
}

// maxReason is what task.Clean leaves of a reason.
const maxReason = 200

// full says that the disk of the state directory has no room for anything; "": it has.
func (s *Store) full() string {
	var fs unix.Statfs_t
	if unix.Statfs(s.Dir, &fs) == nil && fs.Blocks > 0 && (fs.Bavail == 0 || fs.Files > 0 && fs.Ffree == 0) {
		return fmt.Sprintf("no space is left on the disk of %q", s.Dir)
	}
	return ""
}

// unprovided says why there is no program for jobs; "": there is one.
func (a *Agent) unprovided() string {
	if a.Programs == nil {
		return ""
	}
	if _, err := a.Programs.Place(); err != nil {
		a.Log.Warn("no task can be started", "error", err)
		return fault.Text(err)
	}
	return ""
}
