package queue

import (
	"fmt"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

// A Client is a queue as the people see it who fill it: ponos-submit, -list, -log, -retry and -cancel know it, and nothing of what is
// behind it. Errors are of kind fault.Unavailable if the queue cannot be reached, or belongs to somebody else.
type Client interface {
	// Add submits a task, which has an id.
	Add(Entry) error
	// AddAll submits tasks together: all of them or none, even if it is killed. It gives them ids, which grow. With a key, tasks whose
	// parameters were submitted with this key before are left out; the command is what they have in common, and must be the same each
	// time, or the error is of kind fault.Usage.
	AddAll(key string, command []string, all []Entry) (Batch, error)
	// Retry submits tasks that retry those in RetryOf, which must have ended: all of them or none, except those whose RetryOf was
	// retried before.
	Retry(all []Entry) (Batch, error)
	// Writable returns an error if this user must not add, retry or cancel tasks.
	Writable() error
	// Cancel requests the stop of tasks; one that no agent has taken yet is stopped at once. The errors are in the order of the tasks.
	Cancel(all []Summary) []error

	// List returns the tasks, the oldest first, with the reasons of those that wait.
	List() ([]Summary, error)
	// Glance is List for a person who waits: without reasons, and it may miss what has changed in this moment.
	Glance() ([]Summary, error)
	// Look notices later changes of tasks, and with logs of those.
	Look(logs bool) Look
	// Read returns the complete task of a summary.
	Read(Summary) (Entry, error)
	// Find returns a task in any state. The error wraps ErrGone if there is none.
	Find(id task.ID) (Entry, error)
	// Latest returns the last retry of a task: the task itself, if it was not retried.
	Latest(id task.ID) (task.ID, error)
	// Agents returns the last heartbeats of all agents, running or not.
	Agents() ([]Beat, error)
	// Failures says by groups why the commands that follow them have not run.
	Failures() (map[string]string, error)

	// Log returns the path of a task's log, which grows while the task runs.
	Log(id task.ID) string
	// Artifacts returns the directory of a task's artifacts.
	Artifacts(id task.ID) string
	// SourcePath returns the path of the archive (.tar.gz) or patch (.patch) with a hash, and TempDir the directory in which files of
	// the queue are made before they get their names.
	SourcePath(hash, suffix string) string
	TempDir() string
}

// A Look reports whether there may have been a change since its last call.
type Look func() bool

// MaxBatch is how many tasks can be submitted together.
const MaxBatch = 100_000

// Batch is the state of a batch.
type Batch struct {
	IDs []task.ID // of the tasks, in their order
	New int       // how many of them were submitted by this call
}

// Entry is a task as it was submitted, and what has become of it: the content of its file in a spool. Fields are only ever added.
type Entry struct {
	ID          task.ID           `json:"id"`
	Slug        string            `json:"slug,omitempty"`       // the name
	Group       string            `json:"group,omitempty"`      // see CheckGroup
	Key         string            `json:"key,omitempty"`        // of the submission; see CheckKey
	Parameters  map[string]string `json:"parameters,omitempty"` // of a sweep; see CheckParameters
	State       task.State        `json:"state"`
	Reason      string            `json:"reason,omitempty"`
	ExitCode    int               `json:"exit_code,omitempty"`
	Agent       string            `json:"agent,omitempty"`
	Process     string            `json:"process,omitempty"`
	Source      task.Source       `json:"source"`
	Image       string            `json:"image,omitempty"`
	Worker      string            `json:"worker,omitempty"`
	Command     []string          `json:"command,omitempty"`
	Env         map[string]string `json:"env,omitempty"`
	RequiresGPU bool              `json:"requires_gpu,omitempty"`
	Request     task.Request      `json:"request,omitzero"`
	Retry       string            `json:"retry,omitempty"`    // rules of lib/task/need
	Attempts    []task.Attempt    `json:"attempts,omitempty"` // those before the last one
	After       []task.ID         `json:"after,omitempty"`
	Files       []task.File       `json:"files,omitempty"`     // URLs are file://
	AtMost      int               `json:"at_most,omitempty"`   // so many of the group are taken by agents at a time; 0: any
	OnEnd       OnEnd             `json:"on_end,omitzero"`     // of the group
	Keep        []string          `json:"keep,omitempty"`      // patterns of lib/agent/code/kept
	Kept        string            `json:"kept,omitempty"`      // directory of what was kept
	RetryOf     task.ID           `json:"retry_of,omitempty"`  // the task that this one does again
	Attempt     int               `json:"attempt,omitempty"`   // the first of its own, from 1; 0: 1
	Variables   []string          `json:"variables,omitempty"` // names of Env, when that is gone
	Created     time.Time         `json:"created"`
	Started     time.Time         `json:"started,omitzero"`
	Ended       time.Time         `json:"ended,omitzero"`
	Job         string            `json:"job,omitempty"` // the last one, when it has ended
	CPUSeconds  *float64          `json:"cpu_seconds,omitempty"`
	MaxMemory   *int64            `json:"max_memory,omitempty"` // bytes
	task.Rent
}

// Tries returns how often the task was tried, by itself and by its retries before.
func (e Entry) Tries() int { return max(1, e.Attempt) + len(e.Attempts) }

// OnEnd is a command that runs when the tasks of a group have ended.
type OnEnd struct {
	Command   string `json:"command"`   // a line of the shell
	Directory string `json:"directory"` // where it runs, if that is there
}

// Summary is what a listing needs of a task. Its texts are as they are in the task's file: hostile.
type Summary struct {
	ID       task.ID
	Slug     string
	Group    string
	State    task.State
	Reason   string
	ExitCode int
	Agent    string // that has taken it
	Attempt  int    // see Entry.Tries
	RetryOf  task.ID
	Retried  bool // another task does it again
	AtMost   int
	Waits    string // of a new task: the ids of those that it comes after, with spaces between
	Created  time.Time
	Started  time.Time
	Ended    time.Time
}

const parentEnded = "parent task %s ended as %s"

// ParentEnded is the reason of a task whose parent was not completed.
func ParentEnded(parent task.ID, as task.State) string { return fmt.Sprintf(parentEnded, parent, as) }

// FailedParent returns the parent by which a task has ended without having been started, or "".
func FailedParent(r Summary) task.ID {
	var id, state string
	if n, err := fmt.Sscanf(r.Reason, parentEnded, &id, &state); r.State != task.Error || err != nil || n != 2 {
		return ""
	}
	return task.ID(id)
}

// Beat is the heartbeat of an agent at its last turn: the content of agents/NAME.json of a spool.
type Beat struct {
	Agent string    `json:"agent"`
	Host  string    `json:"host"`
	PID   int       `json:"pid"`
	Start string    `json:"start,omitempty"` // of the process, as lib/base/command tells it
	Mode  string    `json:"mode"`
	Data  string    `json:"data"` // identity of the agent's data_dir
	Dir   string    `json:"data_dir"`
	Seen  time.Time `json:"seen"`
	// Every is the time between two turns in seconds; 0: the agent is called from
	// outside, such as by cron.
	Every float64 `json:"every_seconds"`
	Ended bool    `json:"ended,omitempty"` // it has been ended, and takes no more turns
}

// Late reports whether an agent has been ended, or has missed several of its turns.
func (b Beat) Late(now time.Time) bool {
	if b.Ended {
		return true
	}
	limit := 10 * time.Minute // cron may call it only every few minutes
	if b.Every > 0 {
		limit = max(2*time.Minute, time.Duration(5*b.Every*float64(time.Second)))
	}
	return now.Sub(b.Seen) > limit
}

// Moment is a time, without the day if that is today.
func Moment(t, now time.Time) string {
	t, now = t.Local(), now.Local()
	if t.YearDay() != now.YearDay() || t.Year() != now.Year() {
		return t.Format(time.DateTime)
	}
	return t.Format(time.TimeOnly)
}
