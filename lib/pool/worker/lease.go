package worker

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"time"

	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/executor/proc"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// A task that is lost runs again elsewhere, so it must have ended here by then. Leases ensure that: a
// worker may have tasks running until a time on its own clock, counted from its request. It ends them
// before that. If it cannot, as it does not run itself, its supervisor does.
type lease struct {
	w             *worker
	fromScheduler int64 // its end, in nanoseconds of the clock
	end           int64 // the same, or that of the spool if it is later
	next          time.Time
	file          *os.File
	over          bool
	ticked        int64 // when it was last checked
	paused        int64 // tasks are stopped until the scheduler answers, at most until then
}

// stall is for how long this process must not have run to be taken for stopped, possibly with the
// whole job: Slurm suspends jobs to let others run.
const stall = 5 * time.Second

// answer is for how long the scheduler may be silent after that.
const answer = 10 * time.Second

// leaseFile is where the supervisor finds the end of the lease.
const leaseFile = "lease"

// keepFile exists if the supervisor of a worker that has ended well is to release what tasks have
// left running.
const keepFile = "keep"

// spoolLease is for how long tasks may run without a scheduler after the spool was
// touched. It is less than stale of the scheduler.
const spoolLease = 100 * time.Second

func newLease(w *worker) (*lease, error) {
	l := &lease{w: w, ticked: w.Hello.Clock}
	var err error
	if l.file, err = os.OpenFile(filepath.Join(w.Temp, leaseFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	l.renewed(w.Hello.Clock)
	return l, nil
}

// duration returns how long a lease lasts.
func (l *lease) duration() time.Duration {
	return time.Duration(l.w.setup.Lease * float64(time.Second))
}

// ending is how long it takes to end tasks.
func (l *lease) ending() time.Duration {
	return time.Duration((l.w.setup.Grace + wire.LeaseSlack) * float64(time.Second))
}

// renewed handles a lease that was requested at that time.
func (l *lease) renewed(asked int64) {
	l.fromScheduler = max(l.fromScheduler, asked+int64(l.duration()))
	l.extend(l.fromScheduler)
	if l.paused != 0 && l.fromScheduler-l.w.Clock() > int64(l.ending()) {
		l.paused = 0
		l.w.exec.Pause(false)
	}
}

func (l *lease) extend(end int64) {
	if end <= l.end {
		return
	}
	l.end = end
	_, _ = l.file.WriteAt(binary.LittleEndian.AppendUint64(nil, uint64(end)), 0)
}

// tick requests another lease in time, and ends everything when there is none.
func (l *lease) tick(t time.Time) {
	now := l.w.Clock()
	gap := time.Duration(now - l.ticked)
	l.ticked = now
	switch {
	case l.paused != 0 && now < l.paused:
		return
	case l.paused != 0: // the lease expired long ago
		l.paused = 0
		l.w.schedulerLost()
		l.w.stopAll(wire.Stopped, true)
	case gap > stall:
		l.w.postpone(gap)
		if time.Duration(l.fromScheduler-now) <= l.ending() && !l.w.lost.Load() {
			// The scheduler may have been stopped as well, and not know of it.
			l.paused = now + int64(answer)
			l.w.exec.Pause(true)
			l.next = time.Time{}
		}
	}
	if !l.w.lost.Load() && t.After(l.next) {
		l.next = t.Add(min(15*time.Second, (l.duration()-l.ending())/4))
		l.w.out.Send(&wire.Message{Renew: now})
	}
	if l.paused != 0 {
		return
	}
	if left := time.Duration(l.fromScheduler - now); left <= l.ending() {
		l.w.schedulerLost()
	}
	if left := time.Duration(l.end - now); left <= l.ending() && !l.over {
		l.over = true
		l.w.stopAll(wire.Stopped, false)
	}
}

// leaseEnd reads the end of a worker's lease, as its supervisor.
func leaseEnd(f *os.File) int64 {
	var b [8]byte
	if n, _ := f.ReadAt(b[:], 0); n < len(b) {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(b[:]))
}

// Clear reports whether nothing is left of an orphan of this machine. When
// the worker and its supervisor have ended, what is left of their tasks is killed,
// unless that is to be kept.
func Clear(f wire.Identity, keep bool) bool {
	for _, p := range f.Processes {
		if start, alive := proc.Started(p.PID); alive && start == p.Start {
			return false
		}
	}
	if keep {
		return true
	}
	return executor.KillAll(func() []int {
		return proc.WithVariables("JOBPOOL_NODE="+f.Node, "JOBPOOL_TASK="+f.Session+"/")
	}, func() {})
}

// awaitOrphans reports to the scheduler when nothing is left of the workers that it names.
func (w *worker) awaitOrphans(stop <-chan struct{}) {
	if len(w.setup.Orphans) == 0 || w.Clear == nil {
		return
	}
	pause := 20 * time.Millisecond
	for _, f := range w.setup.Orphans {
		for !w.Clear(f, w.setup.Keep) {
			select {
			case <-time.After(pause):
			case <-stop:
				return
			}
			pause = min(2*pause, 500*time.Millisecond)
		}
	}
	w.out.Send(&wire.Message{Clear: true})
}
