// Package outside is the rule of ends beside signals from outside: those of Slurm, of a supervisor, of the tool or of
// a pool to a command, its group or its job. An end that comes with such a signal, or within a moment of it, is never
// a plain success, unless it was recorded before the signal.
//
//	Quiet ──SIGCONT──► Warned ──SIGUSR1──► Drained ──SIGTERM──► Asked
//	                   for Notice: what ends stays open, and a signal counts from the warning
//
// Each state but Warned may be skipped to; Warned ends by itself. An owner hears its own signals, and decides about
// an end when that is no longer open.
package outside

import (
	"os"
	"syscall"
	"time"
)

// Notice is how much later than the end of a command its cause, the end of the node or the job or a signal to its
// step, may become known.
const Notice = 1500 * time.Millisecond

// Moment is how long before its owner notices a signal a command may have been ended by that signal: Slurm signals
// the processes of a step one after the other, and the owner is often the last.
const Moment = 250 * time.Millisecond

// Heard is when signals came that commands may have got, too, by one clock; zero: they have not.
type Heard struct {
	Warned  time.Time // the last SIGCONT, which Slurm sends before it ends what is in a job
	Drained time.Time // the last SIGUSR1
	Asked   time.Time // the first SIGTERM
}

// Hear notes a signal, and returns since when commands may have got it. Other signals than the three are not noted.
func (h *Heard) Hear(s os.Signal, now time.Time) (since time.Time) {
	if since = now; h.Open(now) > 0 {
		since = h.Warned
	}
	switch s {
	case syscall.SIGCONT:
		h.Warned = now
	case syscall.SIGUSR1:
		h.Drained = since
	case syscall.SIGTERM:
		if h.Asked.IsZero() {
			h.Asked = since
		}
	}
	return since
}

// Cuts reports whether a command that has ended then may have been ended by a signal. What ends after a request to
// end does; draining lets commands go on, and so counts for Notice alone.
func (h Heard) Cuts(ended time.Time) bool {
	since := func(t time.Time) bool { return !t.IsZero() && !ended.Add(Moment).Before(t) }
	return since(h.Asked) || since(h.Drained) && !ended.After(h.Drained.Add(Notice))
}

// Open returns for how long an end that comes now stays open because of a warning; 0: it does not.
func (h Heard) Open(now time.Time) time.Duration {
	if h.Warned.IsZero() {
		return 0
	}
	return max(0, Notice-now.Sub(h.Warned))
}
