// Package queue defines where tasks come from: Queue is what an agent knows of it, Client what the tools know that fill it.
// Queues are lib/agent/queue/arkindex and lib/agent/queue/spool.
package queue

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

// What a queue may report about a task. The first two mean that the task no longer belongs to the
// agent.
var (
	ErrGone    = errors.New("the queue has no such task")
	ErrNotMine = errors.New("the task is assigned to another agent")
	// ErrBroken is for permanent errors: a task with an invalid definition, or one that needs what
	// does not exist; an artifact that the queue refuses. Another try does not help.
	ErrBroken = errors.New("this can never be done")
)

// A Queue hands out tasks and accepts reports about them. An error is of kind fault.Unavailable if
// the queue cannot be reached or refuses a request, and wraps one of the errors above if that is the
// reason. It does not name the task, which the caller knows.
type Queue interface {
	// Register makes this agent known and prepares everything below. It may be called at any time,
	// any number of times.
	Register(ctx context.Context) (Identity, error)

	// Actions returns what the queue requests from this agent, the oldest request first. It is also
	// the heartbeat. An action is repeated until the agent reports a state that answers it. Actions
	// returned with an error are still valid: the error is about others. Starts of tasks for which
	// hasJob is true may be left out, which saves checking each of them: there may be many, and they
	// may wait for hours. nil: no task has a job.
	Actions(ctx context.Context, hasJob func(task.ID) bool) ([]task.Action, error)

	// Task returns the definition of a task that is assigned to this agent.
	Task(ctx context.Context, id task.ID) (task.Task, error)
	// State returns the state of a task in the queue.
	State(ctx context.Context, id task.ID) (task.State, error)

	// Claim claims a task before it is started, where several agents share a queue. ErrNotMine:
	// another one was faster.
	Claim(ctx context.Context, id task.ID) error

	// Report reports the state of a task to the queue. It may be repeated.
	Report(ctx context.Context, id task.ID, r task.Report) error

	// PutAttempt records an attempt that is followed by another one, and keeps its output, if the
	// queue can store that. It may be repeated.
	PutAttempt(ctx context.Context, id task.ID, a task.Attempt, output io.ReadSeeker) error
	// Explain records why tasks wait that have jobs, if the queue can store that. It replaces what
	// this agent has recorded before.
	Explain(why map[task.ID]string) error

	// PutLog replaces the published log of a task.
	PutLog(ctx context.Context, id task.ID, log io.ReadSeeker) error

	// Artifacts lists the artifacts of a finished task.
	Artifacts(ctx context.Context, id task.ID) ([]task.Artifact, error)
	// GetArtifact writes one of those to a file, from its beginning.
	GetArtifact(ctx context.Context, id task.ID, a task.Artifact, to *os.File) error
	// PutArtifact publishes one file. It may be repeated.
	PutArtifact(ctx context.Context, id task.ID, a task.Artifact, from io.ReadSeeker) error
	// GetFile writes one of the task's files to a file, from its beginning.
	GetFile(ctx context.Context, f task.File, to *os.File) error

	// Offline returns what a task needs that will have no network access.
	Offline(ctx context.Context, t task.Task) (Offline, error)

	// Tidy removes what killed tools have left in the queue and, if keep is not 0, tasks that ended
	// longer ago than that, if they are this agent's to keep.
	Tidy(keep time.Duration) error
}

// Identity is the identity of this agent in the queue.
type Identity struct {
	Agent    string // the agent's id
	Hostname string
	Farm     string
}

// Offline replaces what a worker would request from the queue while it runs. The zero value means
// that the task requests nothing.
type Offline struct {
	Configuration []byte            // contents of the file given to the worker by its configuration flag; nil: none
	Schema        []byte            // OpenAPI document of the queue; nil: none
	SchemaEnv     string            // variable that names the file with Schema
	Env           map[string]string // variables to set
	Unset         []string          // variables to remove
}
