package core

import (
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// NodeSpec is a node of the pool as it is declared.
type NodeSpec struct {
	Name string
	// Slots is how many CPUs tasks may use there; 0: as many as the worker sees.
	Slots int
	// Jobs maps the number of CPUs that the node would have to its number of slots; may be nil.
	Jobs func(cpus int) int
	// Most limits the CPUs to those that the job has on the node; 0: no limit.
	Most  int
	Local bool // this machine, over a pipe
	Group int  // component of a heterogeneous job
	// Host is the machine, if the name is more specific: several jobs may share one.
	Host string
	// Job is the Slurm job of the node, if it differs from the scheduler's, and Socket is where its
	// pilot accepts connections there.
	Job, Socket string
	// End is when the node's job ends; zero: as [EndOfJob] says.
	End time.Time
	// Life is how long the node's job was to last when it began; 0: unknown, or without end.
	Life time.Duration
	// Own says that the scheduler's own job ends then, and the scheduler with it.
	Own bool
}

// Policy configures the decisions of a scheduler.
type Policy struct {
	Place          pool.Place
	Pin            Pin
	ConnectTimeout time.Duration
	MinNodes       int
	NodeTimeout    time.Duration
	Reconnects     int
	Retries        int           // of tasks that failed
	LostRetries    int           // of tasks that began, and were lost
	Delay          time.Duration // between the starts of two tasks, at least
	TimeoutPercent int           // of the median time of the tasks that succeeded; 0: no such limit
	Halt           Halt
	Hold           bool
	ReadAhead      int // tasks in memory
	Serve          bool
	TrackSeq       bool // tasks may depend on others by number
	AwaitOrphans   bool // start nothing while workers of earlier runs may have tasks running
	RetryFailed    bool
	TimePerTask    time.Duration
	EndMargin      time.Duration // before the end of the allocation
	TermGrace      time.Duration // between SIGTERM and SIGKILL when the job is ended
	Batch          bool          // in a Slurm job, whose end may kill tasks
	ReleaseIdle    bool
	// Elastic says that nodes come and go: a pool without nodes does not end.
	Elastic bool
	// NodeSetup is run once at each node before everything else; empty: no setup.
	NodeSetup string
	// Probe is run at each node before its first task; empty: no probe.
	Probe string
}

// Pin says whether tasks are bound to their CPUs.
type Pin int

// The ways of binding.
const (
	PinAuto Pin = iota // in an allocation that confines its tasks to CPUs
	PinNone
	PinCores
)

// Halt says when to give up. Counts and percentages of 0 have no effect.
type Halt struct {
	Now                                  bool // end what runs, too
	Fail, Success, Done                  int
	Percent, SuccessPercent, DonePercent int // of all tasks, once three have ended; Percent: that have failed
}

// Names stores a byte for each of many names.
type Names interface {
	Get(name string) (byte, bool)
	Put(name string, value byte)
}

// PastWorker is a worker of an earlier run that may not have ended. Its leases end at Until.
type PastWorker struct {
	Key      uint16 // as in Past
	Identity wire.Identity
	Until    time.Time
	Spool    bool // it leaves a file
}

// Config is the configuration of a core.
type Config struct {
	Nodes    []NodeSpec
	Session  string
	Version  string
	Lease    time.Duration // for how long a worker may have tasks running without contact
	Finish   bool          // workers without a scheduler let their tasks end
	Past     []PastWorker
	Names    Names // for the ids of tasks that have ended; nil: in memory
	Requests bool  // tasks come by request only
	// Shared are the named resources that the tasks of all nodes share. Resources are those of nodes.
	Shared    pool.Named
	Resources []Resources
	Policy
}

// Resources are the named resources of nodes.
type Resources struct {
	Nodes []string // nil: all, except for names that another entry sets for a node
	Named pool.Named
}

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
	Config
	now time.Time
	out []Effect

	pool      *pool.Pool
	attempts  map[int64]*attempt // at workers that are connected
	onHold    map[int64]*pending
	trials    map[int64]*Node // tasks that failed at a node on trial, and are tried elsewhere
	undecided []*undecided
	deps      dependencies
	nodes     []*Node
	workers   []*Worker // that are connected
	orphans   []*Worker
	prior     map[uint16]*Worker // orphans of earlier runs
	results   map[int64]spooledResult
	opening   int // workers that are not ready yet
	orphaned  int // attempts at orphans
	hist      map[pool.Need]*histogram
	stats     stats
	sweeps    []*sweeping
	wides     map[int64]*attempt // of several nodes

	eof       bool
	lastSeq   int64
	phase     Phase
	why       string
	exit      int
	explicit  bool // exit was requested, whatever is left
	interrupt int
	killAt    time.Time
	ending    time.Time // when the scheduler's job ends
	margin    time.Duration
	longest   time.Duration // that a task can take at a node of a job that begins; 0: unknown
	handing   bool          // the next scheduler takes over
	paused    bool          // the journal cannot be written
	pausedAt  time.Time
	choked    bool
	releaseAt time.Time
	began     time.Time
	ticked    time.Time
	gone      float64 // CPU seconds of workers that have gone
	finished  bool
	refusals  int       // that were reported
	lastStart time.Time // of a task
	woken     bool      // the shell will wake the core when the next task may start
	unprinted bool      // nothing more can be printed
	suspended bool      // the job is
	asked     time.Time // about that
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
	worker *Worker
	until  time.Time
	wide   *attempt // nil: of one node
	others []*Worker
}

// New creates a core, which first of all opens its nodes: the effects are those of the first Tick.
func New(cfg Config, now time.Time) *Core {
	c := &Core{
		Config: cfg, now: now, began: now, pool: &pool.Pool{Place: cfg.Place, Shared: cfg.Shared}, attempts: map[int64]*attempt{},
		onHold: map[int64]*pending{}, trials: map[int64]*Node{}, wides: map[int64]*attempt{}, prior: map[uint16]*Worker{}, results: map[int64]spooledResult{},
		hist: map[pool.Need]*histogram{}, deps: newDependencies(cfg.TrackSeq, cfg.Names), eof: cfg.Requests,
	}
	c.pool.Late = c.lateAt
	c.pool.Ends = func(t *pool.Task) int64 {
		if d := lasts(t); d > 0 {
			return c.now.Add(d).UnixMicro()
		}
		return 0
	}
	c.takeOver()
	for _, spec := range cfg.Nodes {
		n := &Node{Spec: spec, unswept: map[wire.Key]bool{}, trust: trust{limit: unproven}}
		c.nodes = append(c.nodes, n)
		c.plan(n, now, cfg.ConnectTimeout)
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
			c.read(in)
		}
	case InputEnded:
		c.eof = true
	case InputGrows:
		c.eof = false
	case InputFailed:
		c.eof = true
		c.stopExplicitly(Draining, e.Why, 2)
	case *Submit:
		c.submit(e)
	case *Retry:
		c.retry(e)
	case *Cancel:
		c.cancel(e)
	case Drain:
		c.drain(e.Why)
	case Signal:
		c.signal(e.Signal)
	case AddNodes:
		c.addNodes(e.Specs)
	case *RemoveNodes:
		c.removeNodes(e)
	case EndOfJob:
		c.setEnd(e.At)
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
		if c.paused {
			c.paused = false
			c.say("journal: it can be written again")
		}
	case Printing:
		c.choked = e.Choked
	case Wake:
		c.woken = false
	case OutputLost:
		c.outputLost(e)
	case OutputBroken:
		c.outputBroken(e)
	case Tick:
		c.tick(e)
	default:
		c.say("internal error: unknown event %T", e)
	}
	c.schedule()
	c.finished = c.isFinished()
	return c.out
}

func (c *Core) do(e Effect) { c.out = append(c.out, e) }

func (c *Core) say(format string, args ...any) { c.do(Say{fmt.Sprintf(format, args...)}) }

func (c *Core) send(w *Worker, m *wire.Message) { c.do(Send{w, m}) }

// Finished reports whether the run has ended, except for what is to be printed.
func (c *Core) Finished() bool { return c.finished }

// Phase returns how far the end of the run has progressed.
func (c *Core) Phase() Phase { return c.phase }

// Full reports whether enough input is in memory. While none of the tasks in memory can start, more
// are read, as they may wait for later ones.
func (c *Core) Full() bool {
	if c.phase != Running || c.paused {
		return true
	}
	n := c.pool.Waiting() + c.deps.waiting()
	return n >= c.ReadAhead && (len(c.attempts) > 0 || c.pool.Waiting() > 0)
}

// patience is how long the journal may be unwritable.
const patience = 10 * time.Second

func (c *Core) journalFailed(e JournalFailed) {
	for _, k := range e.Unsent {
		if a := c.attempts[k.Seq]; a != nil && a.task.Attempt == k.Attempt {
			c.takeBack(a)
		}
	}
	if !c.paused {
		c.paused, c.pausedAt = true, c.now
		c.say("journal: %s: nothing new is started", e.Why)
	}
}

// isFinished ends the run when there is nothing more to do.
func (c *Core) isFinished() bool {
	if c.paused && c.now.Sub(c.pausedAt) > patience {
		c.stopExplicitly(Draining, "the journal cannot be written", 3)
	}
	for _, a := range c.attempts {
		if !c.keptRunning(a) {
			return false
		}
	}
	if len(c.undecided)+len(c.sweeps) > 0 {
		return false
	}
	c.handed()
	if c.phase == Running && c.choked {
		return false
	}
	if c.phase >= Draining {
		c.chargeAll()
		return true
	}
	if c.Serve || len(c.onHold) > 0 || !c.eof || c.orphaned > 0 {
		return c.noNode()
	}
	if c.pool.Waiting() == 0 {
		if c.chargeAll() {
			c.schedule() // what depends on them can start
			return false
		}
		if c.deps.waiting() == 0 {
			return true
		}
		c.refuseUnmet()
		return c.pool.Waiting() == 0 && c.deps.waiting() == 0
	}
	return c.stuck()
}

// lastWords is how much later than the end of its connection the end of a worker may become known.
const lastWords = 2 * time.Second

// noNode ends the run when there is no node, and none will come.
func (c *Core) noNode() bool {
	if c.awaited() {
		return false
	}
	if c.orphaned > 0 && slices.ContainsFunc(c.orphans, func(w *Worker) bool { return len(w.attempts) > 0 && c.now.Sub(w.since) < lastWords }) {
		return false
	}
	if c.opening > 0 || slices.ContainsFunc(c.workers, func(w *Worker) bool { return w.State == Ready || w.ending }) {
		return false
	}
	if len(c.workers) > 0 && c.pool.Waiting() == 0 {
		return false
	}
	c.stop(Draining, c.noNodeWhy(), 3)
	c.chargeAll()
	return true
}

func (c *Core) noNodeWhy() string {
	if c.stats.attempts == 0 {
		return "no node can be used"
	}
	return "all nodes are gone"
}

// stuck ends the run when nothing that waits can ever start.
func (c *Core) stuck() bool {
	if c.noNode() {
		return true
	}
	if c.awaited() || c.opening > 0 || c.paused || c.woken || c.onTrial() {
		return false
	}
	if slices.ContainsFunc(c.workers, func(w *Worker) bool { return w.ending }) {
		return false // another one may take its place
	}
	if c.stats.attempts == 0 && len(c.workers) < c.MinNodes || c.AwaitOrphans && len(c.prior) > 0 {
		return false
	}
	why := "the remaining tasks cannot end before the job does"
	if !c.allLate() {
		why = "no remaining node can run the remaining tasks"
	}
	c.stop(Draining, why, ExitLeft)
	c.chargeAll()
	return true
}

// stop advances the end of the run; it never goes back.
func (c *Core) stop(to Phase, why string, exit int) {
	if c.why == "" {
		c.why, c.exit = why, exit
	}
	if to <= c.phase {
		return
	}
	c.phase = to
	c.leaveOrphans()
	for _, w := range c.workers {
		for _, q := range w.backlog {
			for _, a := range q {
				c.recall(a)
			}
		}
	}
	switch to {
	case Stopping:
		c.killAt = c.now.Add(c.TermGrace)
		c.killAll(false)
	case Killing:
		c.killAt = c.now.Add(5 * time.Second)
		c.killAll(true)
	}
}

// stopExplicitly stops with a status that does not depend on what is left.
func (c *Core) stopExplicitly(to Phase, why string, exit int) {
	if !c.explicit {
		c.why, c.exit, c.explicit = why, exit, true
	}
	c.stop(to, why, exit)
}

func (c *Core) killAll(immediately bool) {
	for _, a := range sorted(c.attempts) {
		c.kill(a, wire.Stopped, immediately)
	}
}

func (c *Core) kill(a *attempt, why wire.Outcome, immediately bool) {
	if a.why == "" {
		a.why = why
	}
	c.send(a.worker, &wire.Message{Kill: &wire.Kill{Key: a.key(), Why: a.why, Now: immediately}})
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
	c.checkUndecided()
	c.checkTrials()
	c.checkEnd()
	c.checkNodeEnds()
	c.checkSlow()
	if c.phase == Stopping && c.now.After(c.killAt) {
		c.stop(Killing, "", 0)
	} else if c.phase == Killing && c.now.After(c.killAt) {
		// Workers that do not answer now are given up.
		for _, w := range slices.Clone(c.workers) {
			if len(w.attempts) > 0 || c.clears(w) {
				c.do(Close{w})
				c.connectionLost(w, "it did not answer", Unknown)
			}
		}
		c.killAt = c.now.Add(time.Minute)
	}
	c.dismiss(e.Needed)
	c.releaseIdle(e.Needed)
}

// signal follows the table in the manual.
func (c *Core) signal(s syscall.Signal) {
	switch s {
	case syscall.SIGINT:
		const code = 128 + int(syscall.SIGINT)
		c.interrupt++
		switch c.interrupt {
		case 1:
			c.stopExplicitly(Draining, "interrupted", code)
			if n := c.runs(); n > 0 {
				c.say("interrupted: waiting for %s; interrupt again to end them", plural(n, "task"))
			}
		case 2:
			c.say("interrupted: ending %s; interrupt again to kill them", plural(c.runs(), "task"))
			c.stopExplicitly(Stopping, "interrupted", code)
		default:
			c.stopExplicitly(Killing, "interrupted", code)
		}
	case syscall.SIGTERM, syscall.SIGHUP:
		c.explicit = false // it comes after all that was before
		c.stopExplicitly(Stopping, "ended by "+map[syscall.Signal]string{syscall.SIGTERM: "SIGTERM", syscall.SIGHUP: "SIGHUP"}[s], 128+int(s))
	case syscall.SIGUSR1:
		c.drain("drained by SIGUSR1")
	}
}

// runs returns the number of tasks that run, as far as is known.
func (c *Core) runs() int64 {
	n := len(c.attempts)
	for _, w := range c.workers {
		n -= w.queued
	}
	return int64(n)
}

func (c *Core) drain(why string) {
	if c.phase == Running && len(c.attempts)+c.pool.Waiting()+c.deps.waiting() > 0 {
		waits := ""
		if n := c.runs(); n > 0 {
			waits = ", waiting for " + plural(n, "task")
		}
		c.say("%s: nothing new is started%s", why, waits)
	}
	c.stop(Draining, why, ExitLeft)
}

func (c *Core) outputBroken(e OutputBroken) {
	if e.Closed {
		c.explicit = false
		c.stopExplicitly(Killing, "the output was closed", 128+int(syscall.SIGPIPE))
		return
	}
	c.say("output: %s", e.Why)
	c.unprinted = true
	c.stop(Stopping, "output: "+e.Why, 3)
}

// outputLost turns the end of a task into a failure.
func (c *Core) outputLost(e OutputLost) {
	if c.stats.outputLost < 10 {
		c.say("task %d: its output is lost: %s", e.Task.Seq, e.Why)
	}
	if e.Result.What == wire.OK {
		c.stats.outputLost++
		c.do(LostOutput(e))
	}
}

// setEnd records when the allocation ends.
func (c *Core) setEnd(at time.Time) {
	c.ending = at
	c.margin = c.EndMargin
	if c.margin == 0 {
		c.margin = min(30*time.Second, at.Sub(c.now)/10)
	}
}

// checkEnd ends what runs early enough for its end to be reported.
func (c *Core) checkEnd() {
	if c.ending.IsZero() || c.now.Before(c.ending.Add(-c.margin)) || c.phase >= Stopping {
		return
	}
	c.say("the job is about to end: ending %s", plural(c.runs(), "task"))
	c.stop(Stopping, "the time of the job was up", ExitLeft)
}

func plural(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.FormatInt(n, 10) + " " + what + "s"
}
