package agent

import (
	"context"
	"io"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// plainQueue has no place for what a queue need not keep. Whatever else it is asked fails the test.
type plainQueue struct{ queue.Queue }

func (plainQueue) Explain(map[task.ID]string) error { return nil }

func (plainQueue) PutAttempt(context.Context, task.ID, task.Attempt, io.ReadSeeker) error { return nil }

// plainRunner can do nothing that not all runners can.
type plainRunner struct{ runner.Runner }

func (plainRunner) Can() runner.Abilities { return runner.Abilities{} }
