package core

import (
	"strconv"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Phase is the progress of the end of a run.
type Phase int

// The phases.
const (
	Running  Phase = iota
	Draining       // nothing new starts
	Stopping       // what runs gets SIGTERM
	Killing        // and SIGKILL
)

var phases = [...]string{"running", "draining", "stopping", "killing"}

func (p Phase) String() string { return phases[p] }

// ExitLeft is the status of a run that was ended with work left.
const ExitLeft = 75

// attempt is a task at a worker.
type attempt struct {
	task    *pool.Task
	worker  *Worker
	slot    *pool.Slot // nil: it follows on a slot, and has not begun as far as is known
	sent    time.Time
	started float64
	pid     int
	why     wire.Outcome // why it was ended on request
	// recalled says that the worker was asked to give it back.
	recalled bool
	// beside is what an attempt at an orphan occupies of the node, as the present worker sees it.
	beside *pool.Slot
	// before: it is from an earlier run, and nothing else is known of it.
	before bool
	// claim is what such an attempt holds of what all nodes share.
	claim *pool.Slot
	lost  string // which of its nodes was lost, and why
}

func (a *attempt) key() wire.Key { return wire.Key{Seq: a.task.Seq, Attempt: a.task.Attempt} }

// Core is the state of a scheduler.
type Core struct {
	*base
	ending   ending
	orphans  orphans
	nodes    nodes
	tasks    tasks
	began    time.Time
	ticked   time.Time
	finished bool
}

// pending is the end of an attempt that is not yet the end of its task.
type pending struct {
	task   *pool.Task
	result *Result
	output Output
}

// undecided is an attempt that has ended for a reason that is not yet clear.
type undecided struct {
	pending
	worker  *Worker
	arrived time.Time
	until   time.Time
	wide    *attempt // nil: of one node
	others  []*Worker
}

// New creates a core, which first of all opens its nodes: the effects are those of the first Tick.
func New(cfg Config, now time.Time) *Core {
	b := &base{Config: cfg, now: now, pool: &pool.Pool{Place: cfg.Place, Shared: cfg.Shared}}
	c := &Core{base: b, ending: ending{base: b, closed: cfg.Closed}, orphans: newOrphans(b), began: now}
	c.nodes = nodes{base: b, ending: &c.ending, orphans: &c.orphans, trials: map[int64]*Node{}}
	c.tasks = tasks{
		base: b, ending: &c.ending, orphans: &c.orphans, nodes: &c.nodes,
		attempts: map[int64]*attempt{}, onHold: map[int64]*pending{}, wides: map[int64]*attempt{},
		hist: map[pool.Need]*histogram{}, deps: newDependencies(cfg.Names), stays: cfg.Serve,
	}
	c.pool.Late = c.tasks.lateAt
	c.pool.Ends = func(t *pool.Task) int64 {
		if d := lasts(t); d > 0 {
			return c.now.Add(d).UnixMicro()
		}
		return 0
	}
	for _, tasks := range cfg.Succeeded {
		c.tasks.deps.succeeded(tasks[0], tasks[1])
	}
	for _, spec := range cfg.Nodes {
		c.nodes.add(spec)
	}
	return c
}

// Handle handles an event, and returns the effects in the order in which they must take place. The
// result is valid until the next call.
func (c *Core) Handle(e Event, now time.Time) []Effect {
	c.now = now
	clear(c.out)
	c.out = c.out[:0]
	switch e := e.(type) {
	case Tasks:
		for _, in := range e.Inputs {
			c.tasks.read(in)
		}
	case InputEnded:
		c.tasks.eof = true
	case InputGrows:
		c.tasks.eof = false
	case InputOpen:
		c.tasks.stays = c.Serve && e.Open
	case InputFailed:
		c.tasks.eof = true
		c.stopExplicitly(Draining, e.Why, 2)
	case Submit:
		c.do(Taken{c.tasks.submit(e.Task)})
	case Retry:
		c.do(Counted{c.tasks.retry(e)})
	case Cancel:
		c.do(Counted{c.tasks.cancel(e)})
	case Drain:
		c.drain(e.Why)
	case Signal:
		c.signal(e.Signal)
	case Rest:
		c.rest()
	case AddNodes:
		c.addNodes(e.Specs)
	case RemoveNodes:
		c.do(Counted{c.removeNodes(e)})
	case JobLimit:
		c.MaxJobs = e.Jobs
	case EndOfJob:
		c.ending.setJob(e.At)
	case JobState:
		c.jobState(e.Suspended)
	case Connected:
		c.connected(e.Worker, e.Hello)
	case NotConnected:
		c.notConnected(e)
	case Received:
		c.receive(e.Worker, e.Messages)
	case ConnectionLost:
		c.connectionLost(e.Worker, e.Why, e.End)
	case WorkerEnded:
		c.ended(e.Worker, e.End)
	case Spooled:
		c.spooled(e)
	case JournalFailed:
		c.journalFailed(e)
	case JournalWorks:
		if c.ending.paused() {
			c.ending.unwritten = time.Time{}
			c.say("journal: it can be written again")
		}
	case Printing:
		c.ending.choked = e.Choked
	case Wake:
		c.tasks.woken = false
		c.tasks.checkUndecided()
	case OutputLost:
		c.outputLost(e)
	case OutputBroken:
		c.outputBroken(e)
	case Tick:
		c.tick(e)
	default:
		c.say("internal error: unknown event %T", e)
	}
	c.checkHalt()
	c.tasks.schedule()
	c.finished = c.isFinished()
	return c.out
}

// Finished reports whether the run has ended, except for what is to be printed.
func (c *Core) Finished() bool { return c.finished }

// Phase returns how far the end of the run has progressed.
func (c *Core) Phase() Phase { return c.ending.Phase() }

// Full reports whether enough input is in memory. While none of the tasks in memory can start, more
// are read, as they may wait for later ones.
func (c *Core) Full() bool {
	if c.ending.phase != Running || c.ending.paused() {
		return true
	}
	if c.ending.closed != nil {
		return !c.orphans.unclaimed() && len(c.orphans.results) == 0
	}
	n := c.pool.Waiting() + c.tasks.deps.waiting()
	return n >= c.ReadAhead && (len(c.tasks.attempts) > 0 || c.pool.Waiting() > 0)
}

// patience is how long the journal may be unwritable.
const patience = 10 * time.Second

func (c *Core) journalFailed(e JournalFailed) {
	for _, k := range e.Unsent {
		if a := c.tasks.attempts[k.Seq]; a != nil && a.task.Attempt == k.Attempt {
			c.tasks.takeBack(a)
		}
	}
	if !c.ending.paused() {
		c.ending.unwritten = c.now
		c.say("journal: %s: nothing new is started", e.Why)
	}
}

// stall is how long the scheduler must not have run to be taken for stopped.
const stall = 5 * time.Second

// tick does what depends on time.
func (c *Core) tick(e Tick) {
	if !c.ticked.IsZero() && c.now.Sub(c.ticked) > stall {
		c.resumed(c.now.Sub(c.ticked))
	}
	c.ticked = c.now
	c.checkWorkers()
	c.tasks.checkUndecided()
	c.nodes.checkTrials()
	c.checkEnd()
	c.checkNodeEnds()
	c.nodes.group()
	c.tasks.checkSlow()
	c.dismiss(e.Needed)
	c.releaseIdle(e.Needed)
}

// runs returns the number of tasks that run, as far as is known.
func (ts *tasks) runs() int64 {
	n := len(ts.attempts)
	for _, w := range ts.nodes.workers {
		n -= w.queued
	}
	return int64(n)
}

func (c *Core) outputBroken(e OutputBroken) {
	if e.Closed {
		c.ending.verdict.Explicit = false
		c.stopExplicitly(Killing, "the output was closed", 128+int(syscall.SIGPIPE))
		return
	}
	c.say("output: %s", e.Why)
	c.ending.unprinted = true
	c.stop(Stopping, "output: "+e.Why, 3)
}

// outputLost turns the end of a task into a failure.
func (c *Core) outputLost(e OutputLost) {
	if c.tasks.stats.outputLost < 10 {
		c.say("task %d: its output is lost: %s", e.Task.Seq, e.Why)
	}
	if e.Result.What == wire.OK {
		c.tasks.stats.outputLost++
		c.do(LostOutput(e))
	}
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.FormatInt(n, 10) + " " + what + "s"
}
