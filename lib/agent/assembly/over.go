package assembly

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// onEndLimit is how long the command of a group may run.
const onEndLimit = time.Minute

// RunOnEnd runs the commands of groups whose tasks have ended.
func (p *System) RunOnEnd(ctx context.Context) error {
	q, ok := p.Agent.Queue.(queue.Filled)
	if !ok {
		return nil
	}
	return runOnEnd(ctx, q, command.System)
}

func runOnEnd(ctx context.Context, q queue.Filled, system command.Runner) error {
	over, err := q.Over()
	errs := []error{err}
	for _, o := range over {
		_, err := system.Run(ctx, command.Cmd{
			Name: "/bin/sh", Args: []string{"-c", o.Command}, Dir: o.Where(), Env: append(os.Environ(), o.Environment()...),
			Stdout: io.Discard, Timeout: onEndLimit,
		})
		if ctx.Err() != nil {
			break // a later turn runs it again
		}
		errs = append(errs, q.Ran(o, err))
	}
	return errors.Join(errs...)
}

// SignOff tells the users of the queue that this agent takes no more turns.
func (p *System) SignOff() error {
	if q, ok := p.Agent.Queue.(queue.Filled); ok {
		return q.SignOff()
	}
	return nil
}
