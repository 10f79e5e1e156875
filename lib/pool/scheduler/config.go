package scheduler

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// The configuration of a scheduler's pool is that of its core.
type (
	NodeSpec = core.NodeSpec
	Halt     = core.Halt
	Status   = core.Status
)

// Link is a connection to a worker.
type Link interface {
	io.Reader
	io.Writer
	// Close ends the connection, by force after a moment, and returns how it ended.
	Close() error
	// Abort ends it at once, when the worker has not answered yet.
	Abort()
	// End returns, after Close, what is known of the worker.
	End() core.End
	// Leave ends the connection without waiting for the worker, and without ending it.
	Leave()
}

// Permanent is an error of Dial after which another try does not help.
type Permanent struct{ Err error }

func (p Permanent) Error() string { return p.Err.Error() }
func (p Permanent) Unwrap() error { return p.Err }

// Config is the configuration of a scheduler, and its connections to the outside.
type Config struct {
	Nodes   []NodeSpec
	Dial    func(ctx context.Context, n NodeSpec) (Link, error)
	Source  input.Tasks
	Journal *journal.Journal
	History *journal.History
	Setup   wire.Setup // Node, Threads, Pin and the GPU fields are filled in
	Version string
	// Reach returns how nodes reach each other; may be nil.
	Reach func() wire.Reach
	// Shared and Resources are those of a core.
	Shared    pool.Named
	Resources []core.Resources

	Stdout, Stderr io.Writer
	// Message shows the user a line.
	Message func(format string, args ...any)
	// Line shows the line of progress on the terminal, or takes it away.
	Line     func(text string)
	Signals  <-chan os.Signal
	Requests <-chan *Request
	// Added takes tasks that are added to the run, for which Source is read again after its end; may be nil.
	Added *input.Growing
	// NamedNodes returns the nodes that a user names; nil: none can be added.
	NamedNodes func(names []string) ([]NodeSpec, error)
	// Ends sends when the allocation ends, again whenever that changes.
	Ends <-chan time.Time
	// Changes are nodes that come and go; may be nil.
	Changes <-chan core.Event
	// Began is called once the journal says that this run has begun, and with which Policy; may be nil.
	Began func()
	// Closed is the decision of an earlier scheduler of this run; may be nil. Close records such a decision
	// for the next ones.
	Closed *core.Closing
	Close  func(core.Closing)
	// Call is what the schedulers of one call of the user have in common; empty: there is only this one.
	Call string
	// Observe is called with the status each second; may be nil. It must not block.
	Observe func(*Status)
	// Job asks Slurm for the state of the job; may be nil.
	Job func(ctx context.Context) (Job, error)
	// Release gives nodes back to Slurm, keeping those named; may be nil.
	Release func(ctx context.Context, keep []string) error

	Policy
}

// Policy is how the scheduler decides, and what it prints.
type Policy struct {
	core.Policy
	ConnectAtOnce int
	ForceResume   bool
	KeepOrder     bool
	Tag           bool
	Live          Live
	Quiet         bool
	Verbose       bool
	Progress      Progress
	Status        string // file
	Resume        string // command that continues the run, for messages
}

// Live says whether output is printed while tasks run.
type Live int

// The ways of printing while tasks run.
const (
	LiveNone  Live = iota
	LiveLines      // whole lines
	LiveRaw        // as it comes
)

// Progress says how progress is shown.
type Progress int

// The ways of showing progress.
const (
	ProgressNone Progress = iota
	ProgressLines
	ProgressTerminal
)

// Job is the state of a Slurm job.
type Job struct {
	End       time.Time // zero: not known
	Suspended bool
}

// Result is how a run has ended.
type Result struct {
	core.Summary
	Err error
}
