package slurm

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
)

// limitEnv sets how long a command of Slurm may take.
const limitEnv = "PONOS_SLURM_TIMEOUT"

// Limits of each command of Slurm. The commands themselves stop waiting for the controller after
// MessageTimeout, usually 10 to 100 seconds.
const (
	usual = time.Minute
	soon  = 15 * time.Second // where the caller can do without the answer
)

// Patience is how long a command of Slurm may take.
func Patience() time.Duration {
	limit, err := patience()
	if err != nil {
		return usual
	}
	return limit
}

// Soon is how long a command of Slurm may take whose answer the caller can do without.
func Soon() time.Duration { return min(Patience(), soon) }

// Question returns a context for the commands of one question, which together have a limit: a Slurm that does not answer takes the
// time of one command, however many there are. Silent returns the error of the first that has not answered, or nil. A question may be
// part of another one.
func Question(ctx context.Context, limit time.Duration) (asking context.Context, silent func() error, cancel context.CancelFunc) {
	first, ok := ctx.Value(firstSilent{}).(*atomic.Pointer[error])
	if !ok {
		first = new(atomic.Pointer[error])
	}
	silent = func() error {
		if err := first.Load(); err != nil {
			return *err
		}
		return nil
	}
	ctx, cancel = context.WithTimeout(context.WithValue(ctx, firstSilent{}, first), limit)
	return ctx, silent, cancel
}

// firstSilent is the key of the error of the first command of a question that has not answered.
type firstSilent struct{}

// note keeps the error of a command that has not answered, if it is the first of its question.
func note(ctx context.Context, err error) {
	if first, ok := ctx.Value(firstSilent{}).(*atomic.Pointer[error]); ok && errors.As(err, new(*command.TimeoutError)) {
		first.CompareAndSwap(nil, &err)
	}
}

// CheckEnvironment returns an error if the variable that sets the limit has none, for tools to say so whether or not they come
// to run a command of Slurm: answers may be known from before.
func CheckEnvironment() error {
	_, err := patience()
	return err
}

func patience() (time.Duration, error) {
	text := os.Getenv(limitEnv)
	if text == "" {
		return usual, nil
	}
	limit, err := unit.Duration(text)
	if err != nil {
		return 0, fault.Errorf(fault.Usage, "%s: %w", limitEnv, err)
	}
	if limit <= 0 {
		return 0, fault.Errorf(fault.Usage, "%s: %q: expected more than 0", limitEnv, text)
	}
	return limit, nil
}
