package scheduler

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// NodeSpec is a node to be connected.
type NodeSpec struct {
	Name string
	// Slots is how many CPUs tasks may have there; 0: as many as the worker sees.
	Slots int
	// Jobs makes the slots of the CPUs that the node would have otherwise; may be nil.
	Jobs func(cpus int) int
	// Most bounds the CPUs by what the job has on the node; 0: no bound.
	Most  int
	Local bool // this machine, over a pipe
	Group int  // component of a heterogeneous job
}

// Link is a connection to a worker.
type Link interface {
	io.Reader
	io.Writer
	// Close ends the connection, with force after a moment, and tells how it ended.
	Close() error
	// Abort ends it at once, when the worker has not answered yet.
	Abort()
	// Ended reports, after Close, whether the worker has ended and nothing that it had
	// started is left.
	Ended() bool
}

// Source is where tasks come from. It ends with io.EOF.
type Source interface {
	Next() (*pool.Task, error)
	// Ready reports whether the next task is there without waiting for it.
	Ready() bool
}

// Permanent is an error of Dial that trying again does not help.
type Permanent struct{ Err error }

func (p Permanent) Error() string { return p.Err.Error() }
func (p Permanent) Unwrap() error { return p.Err }

// Config is what a head is to do, and its connections to the world.
type Config struct {
	Nodes   []NodeSpec
	Dial    func(ctx context.Context, n NodeSpec) (Link, error)
	Source  Source // nil: only requests
	Journal *journal.Journal
	History *journal.History
	Setup   wire.Setup // Node, Threads, Pin and the GPU fields are filled in
	Version string

	Stdout, Stderr io.Writer
	// Message tells the user something, a line at a time.
	Message func(format string, args ...any)
	// Line shows the line of progress on the terminal, or takes it away.
	Line     func(text string)
	Signals  <-chan os.Signal
	Requests <-chan *Request
	// Ends tells when the allocation ends, again whenever that changes.
	Ends <-chan time.Time
	// Release gives nodes back to Slurm, keeping those named; may be nil.
	Release func(ctx context.Context, keep []string) error

	Policy
}

// Policy is how the head decides.
type Policy struct {
	Place          pool.Place
	Pin            Pin
	ConnectTimeout time.Duration
	ConnectAtOnce  int
	MinNodes       int
	NodeTimeout    time.Duration
	Reconnects     int
	Retries        int // of tasks that failed
	LostRetries    int
	Delay          time.Duration // between the starts of two tasks, at least
	TimeoutPercent int           // of the median time of the tasks that succeeded; 0: no such limit
	Halt           Halt
	Hold           bool
	ReadAhead      int // tasks in memory
	Serve          bool
	TrackSeq       bool // tasks may depend on others by number
	ResumeByText   bool
	ForceResume    bool
	RetryFailed    bool
	TimePerTask    time.Duration
	EndMargin      time.Duration // before the end of the allocation
	TermGrace      time.Duration // between SIGTERM and SIGKILL when the job is ended
	KeepOrder      bool
	Tag            bool
	Live           Live
	Quiet          bool
	Verbose        bool
	Batch          bool // in a Slurm job, whose log is to tell how it went
	Progress       Progress
	Status         string // file
	Resume         string // command that goes on with the run, for messages
}

// Live says whether output is printed while tasks run.
type Live int

// The ways of printing while tasks run.
const (
	LiveNone  Live = iota
	LiveLines      // whole lines
	LiveRaw        // as it comes
)

// Pin says whether tasks are bound to their CPUs.
type Pin int

// The ways of binding.
const (
	PinAuto Pin = iota // in an allocation that confines its tasks to CPUs
	PinNone
	PinCores
)

// Progress says how progress is shown.
type Progress int

// The ways of showing progress.
const (
	ProgressNone Progress = iota
	ProgressLines
	ProgressTerminal
)

// Halt says when to give up.
type Halt struct {
	Now     bool // end what runs, too
	Fail    int  // after so many failures; 0: never
	Success int  // after so many successes
	Done    int  // after so many ends of either kind
	// After that part of the tasks has failed, succeeded, or ended; three have ended at
	// least.
	Percent, SuccessPercent, DonePercent int
}

// Result is how a run has ended.
type Result struct {
	Done, Failed, Cancelled, Skipped int64
	Left                             int64 // were not run, or not to their end
	Attempts, Lost                   int64
	// Why the run has ended before all was done; empty if it was done.
	Why string
	// Exit is the status for the shell.
	Exit int
	Err  error
}
