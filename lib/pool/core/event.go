package core

import (
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Event is something that has happened. It is one of the types of this file that Handle names.
type Event any

// Input is one task that was read.
type Input struct {
	Task *pool.Task
	Past Past
	// Cancelled: it is not to run.
	Cancelled bool
	// Bad says why it cannot be run, and Said is the message for the user; empty for most.
	Bad, Said string
}

// Past is what earlier runs know of a task.
type Past struct {
	State PastState
	// Worker is the key of the [PastWorker] that it was handed to last; 0: none.
	Worker uint16
	// Seconds is how long it took, if it has succeeded; 0: unknown.
	Seconds float64
	// Deaths is how often in a row it was handed out before its scheduler died.
	Deaths int
}

// PastState is how far a task has come in earlier runs.
type PastState uint8

// The states.
const (
	Unrun     PastState = iota // it has not run, or is left
	Started                    // it was handed to a worker, and no end is known
	Failed                     // it has ended, and not well; it is not to run again
	Cancelled                  // the same
	Succeeded                  // it has ended well
)

// The events.
type (
	// Tasks are tasks that were read, in order.
	Tasks struct{ Inputs []Input }
	// InputEnded tells that no more tasks come.
	InputEnded struct{}
	// InputGrows tells that more tasks come after all.
	InputGrows struct{}
	// InputOpen tells, of an input that has been read to its end, whether a pool that stays open may get more tasks.
	InputOpen struct{ Open bool }
	// InputFailed tells that the input cannot be used any further, and why.
	InputFailed struct{ Why string }
	// Submit adds a task by request. The effect Taken answers it.
	Submit struct{ Task *pool.Task }
	// Retry lets tasks on hold run again. Counted answers with their number.
	Retry struct {
		Seqs []int64
		All  bool
	}
	// Cancel ends tasks, in whatever state they are. Counted answers with their number.
	Cancel struct {
		Seqs  []int64
		Names []string // ids or numbers
		All   bool
	}
	// Drain starts nothing new, and lets what runs end.
	Drain struct{ Why string }
	// Signal is a signal that the scheduler got.
	Signal struct{ Signal syscall.Signal }
	// Rest hands over if still nothing runs in the scheduler's job.
	Rest struct{}
	// AddNodes adds nodes to the pool, and updates the end of those that it has.
	AddNodes struct{ Specs []NodeSpec }
	// RemoveNodes removes nodes once what runs there has ended, or at once if Now is set. Counted
	// answers with how many the pool had.
	RemoveNodes struct {
		Names []string
		Now   bool
	}
	// JobLimit changes how many jobs may give their nodes at a time.
	JobLimit struct{ Jobs int }
	// EndOfJob tells when the allocation ends.
	EndOfJob struct{ At time.Time }
	// JobState answers AskJob: whether Slurm has suspended the job.
	JobState struct{ Suspended bool }

	// Connected: a worker has sent its greeting.
	Connected struct {
		Worker *Worker
		Hello  *wire.Hello
	}
	// NotConnected: a worker could not be reached. Permanent: another try would not help.
	NotConnected struct {
		Worker    *Worker
		Why       string
		Permanent bool
	}
	// Received are messages of a worker.
	Received struct {
		Worker   *Worker
		Messages []wire.Message
	}
	// ConnectionLost: a connection has ended, with what is known of the worker.
	ConnectionLost struct {
		Worker *Worker
		Why    string
		End    End
	}
	// WorkerEnded says what is known of the end of a worker whose connection has ended.
	WorkerEnded struct {
		Worker *Worker
		End    End
	}
	// Spooled is what an orphan has left in the run directory.
	Spooled struct {
		Worker *Worker
		// Running is what it lets end; Listed says that it has listed them.
		Running []wire.Key
		Listed  bool
		Done    []SpooledDone
		Touched bool // it was alive since the last time
		Ended   bool // it says that it has ended
		Missing bool // there is no file
	}

	// JournalFailed: the journal cannot be written. Unsent are attempts that were not sent to any
	// worker, and will not be.
	JournalFailed struct {
		Why    string
		Unsent []wire.Key
	}
	// JournalWorks: it can be written again.
	JournalWorks struct{}
	// Printing says whether too much waits to be printed to start more tasks.
	Printing struct{ Choked bool }
	// OutputLost: output of a task that has ended is lost.
	OutputLost struct {
		Task   *pool.Task
		Result *Result
		Why    string
	}
	// Wake is the answer to WakeAt.
	Wake struct{}
	// OutputBroken: nothing more can be printed. Closed: the reader has gone.
	OutputBroken struct {
		Why    string
		Closed bool
	}
	// Tick: time has passed. Needed are workers that still hold output to be printed.
	Tick struct{ Needed map[*Worker]bool }
)

// End is what is known of the end of a worker.
type End uint8

// The ends.
const (
	Unknown End = iota // it may run on, and its tasks may
	Left               // it has ended, and nothing of its tasks is left
	Died               // it was killed or has failed, and nothing of its tasks is left
)

// SpooledDone is the end of an attempt at an orphan, with the files of its output.
type SpooledDone struct {
	Done  *wire.Done
	Files [2]string
}

// Effect is something to be done. It is one of the types below.
type Effect any

// Output is what a task has printed: here, at its worker, or in files.
type Output struct {
	Bytes  [2][]byte
	Worker *Worker // where to fetch it; nil: it is here
	Size   [2]int64
	From   [2]int64  // what is before was printed already
	Files  [2]string // where it lies, from an orphan
	Near   [2]string // where it lies while the worker is there, if it is on this machine
}

// Empty reports whether there is none.
func (o *Output) Empty() bool {
	return o.Worker == nil && len(o.Bytes[0]) == 0 && len(o.Bytes[1]) == 0 && o.Files[0] == ""
}

// Result is how an attempt has ended. Times are seconds, MaxRSS is bytes.
type Result struct {
	wire.Key
	Node         string
	What         wire.Outcome
	Exit, Signal int
	Start        float64 // since 1970
	Seconds      float64
	User, System float64
	MaxRSS       int64
	Error        wire.Text
	Tails        [2]wire.Tail // of a failure
	NoFile       bool         // see wire.Done
	// Dependency says that it was cancelled because of a task on which it depends.
	Dependency bool
}

// The effects.
type (
	// Connect is to reach a worker, which is to answer within a time.
	Connect struct {
		Worker *Worker
		Within time.Duration
	}
	// Close ends a connection. WorkerEnded follows if nothing of the worker is left.
	Close struct{ Worker *Worker }
	// Setup is the first message for a worker, whose first lease may run until then.
	Setup struct {
		Worker  *Worker
		Pin     bool
		Orphans []wire.Identity
		Until   time.Time
	}
	// Lease answers a worker that asks for a lease, which may run until then.
	Lease struct {
		Worker *Worker
		Asked  int64
		Until  time.Time
	}
	// Send is a message for a worker.
	Send struct {
		Worker  *Worker
		Message *wire.Message
	}
	// Start hands a task to a worker: first to the journal, then to the worker.
	Start struct {
		Worker *Worker
		Run    *wire.Run
		Others []*Worker // of the other nodes of Run.Parts
	}
	// Say tells the user something.
	Say struct{ Text string }
	// NodeEvent is for the journal: something happened to a node.
	NodeEvent struct {
		Node, What, Why string
		Worker          *wire.Identity
	}
	// Tried is an attempt that has ended and was not the last. Its output is not
	// printed, unless Print says so.
	Tried struct {
		Task   *pool.Task
		Result *Result
		Output Output
		Print  bool
	}
	// Ended is the end of a task.
	Ended struct {
		Task   *pool.Task
		Result *Result
		Output Output
	}
	// LostOutput is for the journal: a task that has ended counts as failed, as
	// output of it is lost.
	LostOutput struct {
		Task   *pool.Task
		Result *Result
		Why    string
	}
	// Close the run: see Closing. The next scheduler is to know it.
	CloseRun struct{ Closing }
	// WakeAt asks for a Wake after some time.
	WakeAt struct{ After time.Duration }
	// Taken answers Submit. Refused says why the task is not taken; empty: it is.
	Taken struct{ Refused string }
	// Counted answers Retry, Cancel and RemoveNodes.
	Counted struct{ Count int }
	// AskJob requests whether the job is suspended, as nodes are silent.
	AskJob struct{}
	// Skipped is a task that had ended in a run before.
	Skipped struct{ Task *pool.Task }
	// Live is what a running task has printed.
	Live struct {
		Worker *Worker
		Task   *pool.Task
		Data   *wire.Data
	}
	// Fetched is a piece of output that was requested.
	Fetched struct{ Data *wire.Data }
	// OutputGone: nothing more comes from a worker.
	OutputGone struct{ Worker *Worker }
	// Release gives nodes back whose workers are ending, and keeps the others.
	Release struct {
		Workers []*Worker
		Keep    []string
	}
)
