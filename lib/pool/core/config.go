package core

import (
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
	Most int
	// Mem limits the memory to that of the job on the node, and MemPerGPU to so much for each GPU there, in
	// bytes; 0: no limit.
	Mem, MemPerGPU int64

	Local bool // this machine, over a pipe
	Group int  // component of a heterogeneous job
	// Host is the machine, if the name is more specific: several jobs may share one.
	Host string
	// Job is the Slurm job of the node, if it differs from the scheduler's, and Socket is where its
	// pilot accepts connections there.
	Job, Socket string
	// JobNodes is how many nodes that job has; 0: unknown.
	JobNodes int
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
	ReadAhead      int  // tasks in memory
	Serve          bool // the pool stays open for more tasks
	RetryFailed    bool
	TimePerTask    time.Duration
	EndMargin      time.Duration // before the end of the allocation
	TermGrace      time.Duration // between SIGTERM and SIGKILL when the job is ended
	Batch          bool          // in a Slurm job, whose end may kill tasks
	ReleaseIdle    bool
	// Elastic says that nodes come and go: a pool without nodes does not end.
	Elastic bool
	// MaxJobs is how many jobs may give their nodes at a time; 0: unknown.
	MaxJobs int
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
	Nodes   []NodeSpec
	Session string
	Version string
	Lease   time.Duration // for how long a worker may have tasks running without contact
	Finish  bool          // workers without a scheduler let their tasks end
	Past    []PastWorker
	Names   Names // for the ids of tasks that have ended; nil: in memory
	// Succeeded are tasks of earlier runs, from a number to another, that may not be read again.
	Succeeded [][2]int64
	// Closed is what an earlier scheduler has decided about the end of this run; nil: nothing.
	Closed *Closing
	// Done and Failed are how many tasks have ended under the schedulers before, as [Halt] counts them.
	Done, Failed int64
	// Shared are the named resources that the tasks of all nodes share. Resources are those of nodes.
	Shared    pool.Named
	Resources []Resources
	Policy
}

// Closing is the decision that a run starts nothing more, and ends when all that runs has ended. In an
// elastic pool, it holds for the schedulers that follow.
type Closing struct {
	Why  string `json:"why"`
	Exit int    `json:"exit"` // the status of the run
	// Explicit says that the status does not depend on what is left.
	Explicit bool `json:"explicit,omitempty"`
}

// Resources are the named resources of nodes.
type Resources struct {
	Nodes []string // nil: all, except for names that another entry sets for a node
	Named pool.Named
}
