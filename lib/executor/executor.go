package executor

import (
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/executor/cgroup"
)

// Unlimited is the memory of a command that is only measured.
const Unlimited = math.MaxInt64

// Period is how often Tick is to be called.
const Period = 100 * time.Millisecond

// A Command is a program that an Executor starts, with all that it starts in turn. Its owner sets the
// exported fields before the start.
type Command struct {
	Launch               // but for Tag
	Of     any           // what it is for its owner
	Name   string        // unique on the machine, if its memory is limited: that of its cgroup
	Memory int64         // bytes that it may use; 0: not limited; Unlimited: it is measured
	Limit  time.Duration // for which it may run; 0: not limited
	// Marks are entries of its environment that no other command has together. Processes that have left
	// its session are found by them.
	Marks []string
	// Script: the program records how another one ends that it runs. If they use too much memory, it is
	// spared for the time of the grace.
	Script bool

	// Guarded by the executor:
	life  life
	pid   int // 0: it has not begun
	began time.Time
	group *cgroup.Group // nil: the kernel does not limit its memory
	used  int64         // bytes, the most that was measured
	away  time.Duration
}

// Event tells that a command has started, could not be started, or has ended.
type Event struct {
	*Command
	PID int
	Err error // it could not be started; it may be started again
	End *End  // how it has ended, with all that it has left
}

// End is how a command has ended.
type End struct {
	Status syscall.WaitStatus
	Usage  syscall.Rusage
	// Why the executor or its owner has ended it; "": they have not.
	Why      Why
	Peak     int64         // bytes, the most memory that it is known to have used
	ByKernel bool          // the kernel has ended it, or a part of it, for its memory
	Away     time.Duration // for which it was postponed
}

// Code is the exit status as a shell tells it.
func (e *End) Code() int {
	if e.Status.Signaled() {
		return 128 + int(e.Status.Signal())
	}
	return max(0, e.Status.ExitStatus())
}

// CPUTime is how long the program, and those that it has waited for, have run on CPUs.
func (e *End) CPUTime() time.Duration {
	return time.Duration(e.Usage.Utime.Nano() + e.Usage.Stime.Nano())
}

// MaxRSS is the largest resident set of the program, or of one that it has waited for, in bytes. It is at
// least that of this process, which has started the program.
func (e *End) MaxRSS() int64 { return e.Usage.Maxrss << 10 }

// Options of an Executor.
type Options struct {
	// System starts the programs: Programs, or a Spawner.
	System func(Handler) System
	// Handle is told of all events, by several threads. What it returns, if anything, is started next.
	Handle func(Event) *Command
	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration
	// Limiter limits memory; nil: none is limited.
	Limiter *Limiter
	// Before is called by Tick when a command is to be ended for its time or its memory, of which it was
	// seen to use so many bytes. If it reports false, the command runs on for now. May be nil.
	Before func(c *Command, why Why, used int64) bool
	// Suspended: if Tick is called so much later than the time before, this process was suspended; see
	// Postpone. 0: its owner looks for that.
	Suspended time.Duration
	// Orphans finds processes that were reparented to this one; nil: it adopts none.
	Orphans func() []int
	// Family begins the first mark of all commands, where there are Orphans.
	Family string
	// Keep: what ended commands have left running is not ended.
	Keep bool
}

// An Executor starts commands, limits them, and ends them. It is to be told that time passes; see Tick.
type Executor struct {
	o      Options
	system System

	mu        sync.Mutex        // guards the following, and the state of commands
	commands  map[*Command]bool // that were started, and have not ended
	strange   bool              // there are orphans of unknown commands
	left      []cgroup.Group
	measuring bool
	measured  []measured
	next      time.Time // of the next measurement
	ticked    time.Time
}

// New returns an executor.
func New(o Options) *Executor {
	e := &Executor{o: o, commands: map[*Command]bool{}}
	e.system = o.System(e.event)
	return e
}

// Start starts a command. Its events follow.
func (e *Executor) Start(c *Command) { e.system.Start(*e.prepare(c)) }

// prepare returns what is to be started.
func (e *Executor) prepare(c *Command) *Launch {
	e.mu.Lock()
	c.life.starts()
	e.commands[c] = true
	e.mu.Unlock()
	l := c.Launch
	l.Tag = c
	e.o.Limiter.confine(c, &l)
	return &l
}

// event handles the start or end of a program, in the thread that has seen it.
func (e *Executor) event(s SpawnEvent) *Launch {
	c := s.Tag.(*Command)
	told := Event{Command: c, PID: s.PID, Err: s.Err}
	switch {
	case s.Err != nil:
		e.mu.Lock()
		delete(e.commands, c)
		c.life.failed()
		e.leave(c)
		e.mu.Unlock()
	case !s.Ended:
		e.mu.Lock()
		c.pid, c.began = s.PID, clock.Now()
		e.signal(c, c.life.begun(c.began, c.Limit, e.o.Grace))
		e.mu.Unlock()
	default:
		told.End = e.end(c, s)
	}
	next := e.o.Handle(told)
	if next == nil {
		return nil
	}
	return e.prepare(next)
}

// end ends what a command has left, and returns how it has ended.
func (e *Executor) end(c *Command, s SpawnEvent) *End {
	e.mu.Lock()
	delete(e.commands, c)
	c.life.ended()
	end := &End{Status: s.Status, Usage: s.Usage, Why: c.life.why, Peak: c.used, Away: c.away}
	e.mu.Unlock()
	e.endLeft(c)
	if c.group != nil {
		end.Peak, end.ByKernel = max(end.Peak, c.group.Peak()), c.group.Killed()
		e.mu.Lock()
		e.leave(c) // before the owner is told, who may close the executor
		e.mu.Unlock()
	}
	if end.ByKernel && end.Why == "" {
		end.Why = OutOfMemory
	}
	return end
}

// leave gives up the cgroup of a command. The caller holds the lock.
func (e *Executor) leave(c *Command) {
	if c.group != nil {
		e.left = append(e.left, *c.group)
		c.group = nil
		e.removeGroups()
	}
}

// End has a command end: Asked by SIGTERM and after the grace by SIGKILL, or Killed at once. One that has
// not been started yet gets the signal as soon as it runs. The first reason counts.
func (e *Executor) End(c *Command, why Why, how State) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.signal(c, c.life.end(why, how, clock.Now(), e.o.Grace))
}

// Why is why a command is being ended, or was; "": it is not.
func (e *Executor) Why(c *Command) Why {
	e.mu.Lock()
	defer e.mu.Unlock()
	return c.life.why
}

// Pass passes a signal from outside on to all commands, which may have got it already.
func (e *Executor) Pass(sig syscall.Signal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.commands {
		e.signalRunning(c, sig)
	}
}

// Pause stops all commands that run, or lets them go on.
func (e *Executor) Pause(stop bool) {
	sig := syscall.SIGCONT
	if stop {
		sig = syscall.SIGSTOP
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.commands {
		e.signalRunning(c, sig)
	}
}

func (e *Executor) signalRunning(c *Command, sig syscall.Signal) {
	if c.pid != 0 {
		_ = e.system.Signal(c.pid, sig)
	}
}

// signal signals a command. A stopped one must be woken up to notice. The caller holds the lock.
func (e *Executor) signal(c *Command, sig syscall.Signal) {
	if sig == 0 {
		return
	}
	if e.system.Signal(c.pid, sig) == nil && sig != syscall.SIGKILL {
		_ = e.system.Signal(c.pid, syscall.SIGCONT)
	}
}

// Postpone extends the time limits of commands by a time, up to now, in which this process was stopped:
// they were stopped, too.
func (e *Executor) Postpone(d time.Duration, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for c := range e.commands {
		if c.pid != 0 {
			away := min(d, now.Sub(c.began)) // it may have begun after that
			c.away += away
			c.life.postpone(away)
		}
	}
}

// Tick is to be called each Period: it ends commands whose time is up or that use too much memory.
func (e *Executor) Tick(now time.Time) {
	away := now.Sub(e.ticked)
	if e.o.Suspended > 0 && !e.ticked.IsZero() && away > e.o.Suspended {
		e.Postpone(away, now)
	}
	e.ticked = now
	var late []*Command
	e.mu.Lock()
	for c := range e.commands {
		sig, isLate := c.life.tick(now, e.o.Grace)
		e.signal(c, sig)
		if isLate {
			late = append(late, c)
		}
	}
	strange := e.strange
	e.mu.Unlock()
	for _, c := range late {
		if e.o.Before == nil || e.o.Before(c, Timeout, 0) {
			e.End(c, Timeout, Asked)
		}
	}
	e.judge(now)
	if strange {
		e.endAdopted()
	}
}

// Close ends what is left of all commands, and removes their cgroups. No command may run.
func (e *Executor) Close() {
	if e.o.Orphans != nil && !e.o.Keep {
		KillAll(e.o.Orphans, e.system.Reap)
	}
	for range 20 { // processes that were killed are in their cgroup for a moment
		e.mu.Lock()
		e.removeGroups()
		left := len(e.left)
		e.mu.Unlock()
		if left == 0 {
			return
		}
		time.Sleep(again / 20)
	}
}

// removeGroups removes the cgroups in which nothing is left. The caller holds the lock.
func (e *Executor) removeGroups() {
	kept := e.left[:0]
	for _, g := range e.left {
		if g.Remove() != nil {
			kept = append(kept, g)
		}
	}
	e.left = kept
}
