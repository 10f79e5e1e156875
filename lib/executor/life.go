package executor

import (
	"syscall"
	"time"
)

// Why is why a command is ended. Owners have reasons of their own.
type Why string

// Reasons of an executor.
const (
	Timeout     Why = "timeout" // its time limit
	OutOfMemory Why = "oom"     // it has used more memory than it may
)

// State is how far a command has got; see the drawing of the package.
type State int

// The states, in their order.
const (
	Waiting State = iota // not started, or the start has failed
	Starting
	Running
	Asked  // to end, by SIGTERM
	Killed // by SIGKILL
	Ended
)

// again is the time between two SIGKILLs.
const again = time.Second

// life is what has become of a command. It has no effects: its methods return the signal to send, or 0.
type life struct {
	state State
	// want is the state that it is to get to: Asked or Killed, as soon as it runs.
	want State
	why  Why
	// until is when its time is up (Running), when it is killed (Asked), or killed again (Killed).
	until time.Time
}

// starts: it is about to be started.
func (l *life) starts() { l.state = Starting }

// failed: it could not be started.
func (l *life) failed() { l.state = Waiting }

// begun: it runs from now on, for limit at most if that is not 0.
func (l *life) begun(now time.Time, limit, grace time.Duration) syscall.Signal {
	l.state, l.until = Running, time.Time{}
	if limit > 0 {
		l.until = now.Add(limit)
	}
	return l.pursue(now, grace)
}

// end: it is to get to Asked or Killed. The first reason counts.
func (l *life) end(why Why, want State, now time.Time, grace time.Duration) syscall.Signal {
	if l.state == Ended {
		return 0
	}
	if l.why == "" {
		l.why = why
	}
	l.want = max(l.want, want)
	return l.pursue(now, grace)
}

// pursue goes to the state that is wanted.
func (l *life) pursue(now time.Time, grace time.Duration) syscall.Signal {
	if l.state < Running || l.state >= l.want {
		return 0
	}
	l.state = l.want
	if l.state == Asked {
		l.until = now.Add(grace)
		return syscall.SIGTERM
	}
	l.until = now.Add(again)
	return syscall.SIGKILL
}

// tick: time has passed. Late says that its time is up, and that it has not been asked to end.
func (l *life) tick(now time.Time, grace time.Duration) (sig syscall.Signal, late bool) {
	if l.until.IsZero() || now.Before(l.until) {
		return 0, false
	}
	switch l.state {
	case Running:
		return 0, true
	case Asked:
		l.want = Killed
		return l.pursue(now, grace), false
	case Killed:
		l.until = now.Add(again)
		return syscall.SIGKILL, false
	default:
		return 0, false
	}
}

// postpone: time has passed that does not count.
func (l *life) postpone(d time.Duration) {
	if !l.until.IsZero() {
		l.until = l.until.Add(d)
	}
}

// ended: its process has ended.
func (l *life) ended() { l.state, l.until = Ended, time.Time{} }
