// Package runner is where tasks run: the interface, and what its implementations
// share. Runners are runner/slurm, runner/local and runner/vast.
package runner

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

var (
	// ErrRefused says that the runner will never take this task as it is.
	ErrRefused = errors.New("the job was refused")
	// ErrLater says that the runner has no room for the job at this time.
	ErrLater = errors.New("no room for the job at this time")
	// ErrFull says that the runner takes no more jobs for the time being, of whatever task.
	ErrFull = errors.New("no more jobs are taken at this time")
	// ErrUnmet says that at this time, nothing is there that a job of this kind could run
	// on. That may change without the task, so it does not end by it.
	ErrUnmet = errors.New("no nodes are there for such a job")
	// ErrUnsure says that there may be a job or not: the runner is to be looked at again.
	ErrUnsure = errors.New("it is not known whether the job was submitted")
)

// A Runner runs tasks somewhere and can list what it runs, whoever started it.
type Runner interface {
	// Name is the runner's name in records and messages.
	Name() string

	// Check reports whether jobs can be run now, with a hint if they cannot.
	Check(ctx context.Context) (Checked, error)

	// Can is what the runner can do that not all can. It is the same at any time.
	Can() Abilities

	// Jobs is the state of all jobs of this agent: those that the runner finds by
	// itself, and each known one, whatever became of it. It takes a fixed number of
	// calls, however many jobs there are. An incomplete list is an error. Known is
	// called once, perhaps while the runner asks already.
	Jobs(ctx context.Context, known func() ([]Ref, error)) ([]Job, error)

	// Preview is what Start would do for a submission.
	Preview(ctx context.Context, s Submission) (Preview, error)

	// Start makes a job run the script. It is idempotent: a task that already has a
	// job is adopted. The error wraps ErrUnsure if there may be one all the same;
	// after ErrRefused, ErrLater, ErrFull, ErrUnmet and any other one there is none.
	Start(ctx context.Context, s Submission) (Job, error)

	// Stop ends all jobs of a task and waits for their end within the bound of the
	// configuration. Jobs already gone are success.
	Stop(ctx context.Context, r Ref) error
}

// Preview is what would be submitted, for people: a command that runs the script, or a text.
type Preview struct {
	Argv []string
	Text string
}

// Checked is what a check has found that is of interest to people.
type Checked struct {
	Detail   string // "": nothing but that jobs can be run
	Warnings []string
}

// Abilities are what a runner can do that not all can; nil: this one cannot.
type Abilities struct {
	Batch  Batcher
	Trim   Trimmer
	Past   Historian
	Remote Remote
	Price  Priced
}

// Submission is a job to be started.
type Submission struct {
	Task   task.ID
	Label  string // for people: the slug
	Dir    string // directory of the task
	Script string // path of the job script; "" for a Remote runner
	Image  string // for a Remote runner
	Needs
	Attempt int
	Hold    *os.File // the lock of the task
	Again   bool     // an earlier try may have started a job
	// Before are the jobs of earlier attempts, which are not to be adopted.
	Before []string
	// Shared is how the task runs in a job array; nil: it does not.
	Shared *Shared
}

// Shared is how a task runs as an element of a job array.
type Shared struct {
	// Like is equal for tasks whose scripts differ in nothing but the task.
	Like string
	// Script is the job script of an array whose element with index i is task i.
	Script func(ids []task.ID) []byte
	// Alone makes the job script of the task by itself, which is not there before.
	Alone func() error
	Links string // directory for links to the directories of tasks
}

// Started is what has become of one of several submissions: as of Start.
type Started struct {
	Job Job
	Err error
}

// A Batcher starts several tasks by one call of its scheduler.
type Batcher interface {
	// Alike is equal for tasks that can be started together, and at most how many of them;
	// "" if the task is started by itself.
	Alike(ctx context.Context, s Submission) (key string, most int)
	// StartAll is Start for tasks that are alike.
	StartAll(ctx context.Context, all []Submission) []Started
}

// Needs are the resources of a task, beside those of the configuration.
type Needs struct {
	GPU     bool
	Request task.Request
	// Changed are options of sbatch by which this attempt differs from the first one.
	Changed []string
}

// Own reports whether a task has needs of its own: what becomes of it says nothing of
// others.
func (n Needs) Own() bool { return !n.Request.IsZero() || len(n.Changed) > 0 }

// Ref is a job as the agent remembers it.
type Ref struct {
	Task      task.ID
	Job       string
	Label     string       // as in its Submission; "" if it is not known
	Dir       string       // directory of the task
	Submitted time.Time    // zero: not known
	Missing   task.Absence // of any trace of it at the runner
	// Unaccounted is the absence of the job in accounting, while it is missing.
	Unaccounted task.Absence
	Attempt     int
	Lost        bool     // what its starts had written down may be lost
	Before      []string // jobs of earlier attempts
	Retried     bool     // it may be tried again: why it has failed is wanted
}

// Job is a job as the runner sees it.
type Job struct {
	Task    task.ID
	ID      string
	State   task.State // pending, running or final
	Unknown bool       // the state cannot be told at this time: nothing may follow from it
	Lost    bool       // Unknown, because there is no trace of the job
	// Unaccounted: accounting was asked for it as well, answered, and does not show it.
	Unaccounted bool
	// NotBegun says that the job is gone, or has ended, and provably has not run the
	// command: the task may be submitted again.
	NotBegun bool
	ExitCode int
	Reason   string // for people
	// Cause is why a job has failed, as rules of lib/need name it, if that is one of their
	// reasons but the exit code; Had is what it had then, where that is known.
	Cause    string
	Had      Had
	Restarts int
	// Cancelled says that somebody has ended the job; the agent knows whether it
	// was itself.
	Cancelled bool
	Adopted   bool // Start has found it, not made it
	// Untracked says that somebody else may have made the job, though it has this agent's
	// name: unless the queue gives its task to this agent, it is not to be touched.
	Untracked bool
	// Instead is the job that was recorded, if it is another one of the task's that counts.
	Instead string
	// Renamed says that Instead is this job, which has its name only since it began.
	Renamed bool
	// Stale says that the scheduler shows the job as running, though its command has ended
	// long ago: it is to be cancelled.
	Stale bool
	// Past says that the job was found in the scheduler's records of the past.
	Past bool
	// Spare are other jobs of the task that wait, though this one owns the task.
	Spare []string
	// Cost is what the job has cost in dollars, once it is over and if it costs
	// anything by itself.
	Cost      float64
	Submitted time.Time
}

// Had are the limits of a job, and where it ran.
type Had struct {
	Memory int64 // bytes on each node; 0: not known
	Time   time.Duration
	Nodes  string // as a hostlist
}

// A Remote runner runs a task's image elsewhere, where the agent can put nothing: no
// code is prepared for it. It finds what Place has said in the task's directory, in
// EnvFile and CommandFile, and puts the output of its jobs into Output itself.
type Remote interface {
	// Place returns the variables and the command of a task. Its errors are the
	// task's own, unless they wrap ErrLater.
	Place(ctx context.Context, t task.Task) (env map[string]string, command []string, err error)
}

// A Trimmer cancels jobs that the agent does not need, without waiting for their end.
type Trimmer interface {
	Trim(ctx context.Context, id task.ID, jobs []string) error
}

// A Historian finds jobs that its scheduler shows no more.
type Historian interface {
	// Past returns the jobs of this agent that were submitted since a time, the last one
	// of each task, by one call. It returns none where the scheduler keeps no records.
	Past(ctx context.Context, since time.Time, dir func(task.ID) string) ([]Job, error)
}

// A Priced runner's jobs cost money.
type Priced interface {
	// Cost is what a job that is over has cost in dollars, 0 if that is not known.
	Cost(r Ref) float64
}

// EnvFile and CommandFile are files in a task's directory: variables of the job, and
// the words of its command, each ended by a zero byte.
const (
	EnvFile     = "env"
	CommandFile = "command"
)

// Output is the file in a task's directory that the output of its jobs goes to.
const Output = "job.out"
