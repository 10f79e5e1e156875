// Package runner defines where tasks run: the interface, and what its implementations share. Runners
// are lib/agent/runner/slurm, lib/agent/runner/local and lib/market/rented.
package runner

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

var (
	// ErrRefused says that the runner will never accept this task unchanged.
	ErrRefused = errors.New("the job was refused")
	// ErrLater says that the runner has no room for the job at this time.
	ErrLater = errors.New("no room for the job at this time")
	// ErrFull says that the runner accepts no more jobs of any task at this time.
	ErrFull = errors.New("no more jobs are accepted at this time")
	// ErrUnmet says that no nodes could run a job of this kind at this time. That may change without
	// a change of the task, so the task does not end.
	ErrUnmet = errors.New("no suitable nodes are available")
	// ErrUnsure says that there may be a job or not: a later listing decides.
	ErrUnsure = errors.New("it is not known whether the job was submitted")
)

// A Runner runs tasks somewhere and can list what it runs, including what another process started.
type Runner interface {
	// Name is the runner's name in records and messages.
	Name() string

	// Check reports whether jobs can be run now, with a hint if they cannot.
	Check(ctx context.Context) (Checked, error)

	// Can returns the optional abilities of the runner. They never change.
	Can() Abilities

	// Jobs returns the state of all jobs of this agent: those that the runner finds itself, and all
	// known ones, including those that have vanished. It makes a fixed number of calls, however many
	// jobs there are. An incomplete list is an error. Known is called once, possibly while the
	// runner's own query runs.
	Jobs(ctx context.Context, known func() ([]Ref, error)) ([]Job, error)

	// Preview returns what Start would do for a submission.
	Preview(ctx context.Context, s Submission) (Preview, error)

	// Start makes a job run the script. It is idempotent: a task that already has a job is adopted.
	// If the error wraps ErrUnsure, there may still be a job; after ErrRefused, ErrLater, ErrFull,
	// ErrUnmet and any other error there is none.
	Start(ctx context.Context, s Submission) (Job, error)

	// Stop ends all jobs of a task and waits for their end, within the bound of the configuration.
	// Jobs already gone count as success.
	Stop(ctx context.Context, r Ref) error
}

// Preview is what would be submitted, for people: a command that runs the script, or a text.
type Preview struct {
	Argv []string
	Text string
}

// Checked is what a check has found that is of interest to people.
type Checked struct {
	Detail   string // "": only that jobs can be run
	Warnings []string
}

// Abilities are optional features of a runner; nil: it does not have them.
type Abilities struct {
	Batch  Batcher
	Trim   Trimmer
	Past   Historian
	Remote Remote
	Price  Priced
	Limit  Limiter
}

// Submission is a job to be started.
type Submission struct {
	Task   task.ID
	Label  string // the slug, for people
	Dir    string // directory of the task
	Script string // path of the job script; "" for a Remote runner
	Image  string // for a Remote runner
	Needs
	Attempt int
	Hold    *os.File // the lock of the task
	Again   bool     // an earlier try may have started a job
	// Before are the jobs of earlier attempts, which are not to be adopted.
	Before []string
	// Shared says how the task runs in a job array; nil: it cannot.
	Shared *Shared
}

// Shared says how a task runs as an element of a job array.
type Shared struct {
	// Like is equal for tasks whose scripts differ only in the task.
	Like string
	// Script returns the job script of an array whose element with index i is task i.
	Script func(ids []task.ID) []byte
	// Alone writes the job script of the task alone, which does not exist before.
	Alone func() error
	Links string // directory for links to the directories of tasks
}

// Started is the result of one of several submissions: the results of Start.
type Started struct {
	Job Job
	Err error
}

// A Batcher starts several tasks by one call of its scheduler.
type Batcher interface {
	// Alike returns a key that is equal for tasks that can be started together, and how many of them
	// at most; "" if the task is started alone.
	Alike(ctx context.Context, s Submission) (key string, most int)
	// StartAll is Start for tasks that are alike.
	StartAll(ctx context.Context, all []Submission) []Started
}

// Needs are the resources of a task, in addition to those of the configuration.
type Needs struct {
	GPU     bool
	Request task.Request
	// Changed are options of sbatch by which this attempt differs from the first one.
	Changed []string
}

// Own reports whether a task has needs of its own: its result says nothing about other tasks.
func (n Needs) Own() bool { return !n.Request.IsZero() || len(n.Changed) > 0 }

// Ref is a job as the agent remembers it.
type Ref struct {
	Task      task.ID   `json:"id"`
	Label     string    `json:"slug,omitempty"` // as in its Submission; "": unknown
	Job       string    `json:"job,omitempty"`
	Attempt   int       `json:"attempt"`
	Before    Jobs      `json:"before,omitempty"` // jobs of earlier attempts
	Submitted time.Time `json:"submitted,omitzero"`
	Lost      bool      `json:"lost,omitempty"` // what its starts have recorded may be lost
	// Missing is the absence of any trace of the job at the runner, Unaccounted its absence in accounting, while it is missing.
	Missing     task.Absence `json:"missing,omitzero"`
	Unaccounted task.Absence `json:"unaccounted,omitzero"`
	Rules       string       `json:"rules,omitempty"` // retry rules: with them, the cause of a failure is needed
	Dir         string       `json:"-"`               // directory of the task
}

// Jobs are names of jobs with commas between them, so that they can be compared; a list in JSON.
type Jobs string

// All returns the names.
func (j Jobs) All() []string {
	if j == "" {
		return nil
	}
	return strings.Split(string(j), ",")
}

// Has reports whether a job is one of them.
func (j Jobs) Has(job string) bool { return slices.Contains(j.All(), job) }

// And returns them with one more; "" is none.
func (j Jobs) And(job string) Jobs {
	if job == "" || j.Has(job) {
		return j
	}
	return Jobs(strings.Join(append(j.All(), job), ","))
}

// MarshalJSON writes a list.
func (j Jobs) MarshalJSON() ([]byte, error) { return json.Marshal(j.All()) }

// UnmarshalJSON reads a list, or the text that the cache of the agent once had in its place.
func (j *Jobs) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, (*string)(j))
	}
	var all []string
	err := json.Unmarshal(b, &all)
	*j = Jobs(strings.Join(all, ","))
	return err
}

// Job is what a place shows of the job of one task: which job that is, one state, and what belongs to the state.
type Job struct {
	Task  task.ID
	ID    string
	Claim Claim
	// Instead is the recorded job, if Claim says that another one counts.
	Instead string
	// Spare are other pending jobs of the task, although this one owns the task.
	Spare     []string
	Submitted time.Time
	Restarts  int

	Sight  Sight
	Reason string // for people
	End           // if it has ended
}

// End is how a job has ended.
type End struct {
	State    task.State // a final one
	ExitCode int
	// Cause is why a job has failed, as rules of lib/task/need name it, if that is one of their reasons
	// except the exit code. Had is what the job had then, where that is known.
	Cause     string
	Had       Had
	task.Rent // if jobs of this runner cost money
}

// Shows returns the state of a task whose job is seen so; "" if nothing is known.
func (j Job) Shows() task.State {
	switch {
	case j.Sight == Waits:
		return task.Pending
	case j.Sight == Runs:
		return task.Running
	case j.Sight.Over():
		return j.State
	}
	return ""
}

// Claim says how a job came to be that of its task.
type Claim int

const (
	Recorded Claim = iota // it is the recorded one, or has this agent's mark
	Found                 // Start has found it, not submitted it
	Other                 // it counts in place of Instead
	Renamed               // it is Instead, and got its present name when it began
	// Strange: another process may have started the job, though it has this agent's name. It is left alone unless the queue
	// gives its task to this agent.
	Strange
)

// Sight is what a place shows of a job.
//
//	nothing follows yet:                                                it has ended, as its End says:
//	Unclear      it is not known at this time           Waits ──► Runs ──► Ended      by itself
//	Past         an old record alone shows it             │                Cancelled  it was cancelled
//	Traceless    unclear, as it has left no trace         │                Outlived   and is shown still
//	Unaccounted  traceless, and accounting, which         └──────────────► Unbegun    before its command
//	             answered, lacks it too
//
// Only the agent knows whether it has cancelled a job itself. An outlived job is one that the scheduler shows as running though
// its command has ended long ago: it is to be cancelled. After Unbegun the task may be submitted again: it is proven that the
// command has not run.
type Sight int

const (
	Unclear Sight = iota
	Past
	Traceless
	Unaccounted
	Waits
	Runs
	Ended
	Cancelled
	Outlived
	Unbegun
)

// Sure reports whether something may follow.
func (s Sight) Sure() bool { return s >= Waits }

// Gone reports whether the job has left no trace.
func (s Sight) Gone() bool { return s == Traceless || s == Unaccounted }

// Over reports whether the job has ended.
func (s Sight) Over() bool { return s >= Ended }

// Proof is how long a job must have left no trace, or an odd one, before what its place shows is believed: lists lag, are short,
// and are wrong after a crash. The zero value: it is believed at once.
type Proof struct {
	Looks       int           // in a row, as task.Absence counts them
	For         time.Duration // and for so long
	Unaccounted bool          // and accounting must have answered without the job, until that was a fact
	Never       bool          // nothing that is known would prove it
	Why         string        // what is seen until then
}

// Fact are the looks that make an absence a fact.
const Fact = task.Fact

// And returns the proof that is as strong as both.
func (p Proof) And(q Proof) Proof {
	why := p.Why
	if q.Looks > p.Looks || q.For > p.For || why == "" {
		why = q.Why
	}
	return Proof{max(p.Looks, q.Looks), max(p.For, q.For), p.Unaccounted || q.Unaccounted, p.Never || q.Never, why}
}

// Believe returns what follows from what a place shows of a job that the agent remembers: that, or until it is proven, that the
// job is in doubt. Lacking says that accounting has answered and does not show it.
func Believe(shown Job, p Proof, ref Ref, lacking bool, now time.Time) Job {
	m := ref.Missing
	if !p.Never && m.Misses >= p.Looks && (p.For == 0 || m.For(now) >= p.For) && (!p.Unaccounted || ref.Unaccounted.Fact()) {
		return shown
	}
	doubt := Traceless
	if lacking {
		doubt = Unaccounted
	}
	return Job{
		Task: shown.Task, ID: shown.ID, Claim: shown.Claim, Instead: shown.Instead, Spare: shown.Spare, Submitted: shown.Submitted,
		Restarts: shown.Restarts, Sight: doubt, Reason: p.Why,
	}
}

// Had are the limits of a job, and where it ran.
type Had struct {
	Memory int64 // bytes on each node; 0: unknown
	Time   time.Duration
	Nodes  string // as a hostlist
}

// A Remote runner runs a task's image on another machine, where the agent cannot place files: no code
// is prepared for it. It finds the result of Place in the task's directory, in EnvFile and
// CommandFile, and writes the output of its jobs to Output itself.
type Remote interface {
	// Place returns the variables and the command of a task. Its errors are the task's own fault,
	// unless they wrap ErrLater.
	Place(ctx context.Context, t task.Task) (env map[string]string, command []string, err error)
}

// Limit is a limit on how many jobs may be submitted at a time, and how many are.
type Limit struct {
	Of        string // whose, such as "alice" or "QoS short"
	Used, Max int
}

// A Limiter knows the limits on submitted jobs.
type Limiter interface {
	// Limits returns those that may be the reason of a refusal of a job with such needs, the one with the least room first.
	Limits(ctx context.Context, n Needs, refusal string) ([]Limit, error)
}

// A Trimmer cancels jobs that the agent does not need, without waiting for their end.
type Trimmer interface {
	Trim(ctx context.Context, id task.ID, jobs []string) error
}

// A Historian finds jobs that its scheduler no longer shows.
type Historian interface {
	// Past returns the jobs of this agent that were submitted since a time, the last one of each
	// task, by one call. It returns none if the scheduler keeps no records.
	Past(ctx context.Context, since time.Time, dir func(task.ID) string) ([]Job, error)
}

// A Priced runner's jobs cost money.
type Priced interface {
	// Rent returns what an ended job has cost, and where it ran; zero if that is unknown.
	Rent(r Ref) task.Rent
}

// EnvFile and CommandFile are files in a task's directory: variables of the job, and the words of its
// command, each terminated by a zero byte.
const (
	EnvFile     = "env"
	CommandFile = "command"
)

// Output is the file in a task's directory that the output of its jobs goes to.
const Output = "job.out"

// OpenOutput opens Output for appending. What an earlier start of the task has put in its place is
// removed: opening a pipe would block, and a link leads elsewhere.
func OpenOutput(dir string) (*os.File, error) {
	path := filepath.Join(dir, Output)
	if info, err := os.Lstat(path); err == nil && !info.Mode().IsRegular() {
		if err := os.RemoveAll(path); err != nil {
			return nil, err
		}
	}
	// A process of the task may be faster.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.SetNonblock(int(f.Fd()), false); err != nil { // or the task would inherit it
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
