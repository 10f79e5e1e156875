package pack

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/executor"
)

// childVar is set in the environment of the process that runs the tasks of a pilot; its value is the
// id of the process that watches it.
const childVar = "PONOS_PILOT_OF"

// Run is a pilot: in the job that the environment names, it runs tasks of the class in a directory
// until none has come for a while, or its time is up. A child process runs the tasks. If that is
// killed, its processes are inherited by this process, which ends them; if this process is killed,
// the child ends its tasks. End is when Slurm ends a job, or zero; it is asked every ten minutes, as
// time limits may be changed.
func Run(ctx context.Context, dir string, out io.Writer, end func(ctx context.Context, job string) (time.Time, error)) error {
	// The first SIGTERM ends ctx. Others come at the same time, as Slurm sends it to both processes, one
	// sends it to the other, and the kernel does for each thread of a parent that ends. None may end
	// the process before its tasks.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
	if os.Getenv(childVar) != "" {
		return work(ctx, dir, out, end, 10*time.Minute)
	}
	signals := make(chan os.Signal, 1)
	stop := context.AfterFunc(ctx, func() { signals <- syscall.SIGTERM })
	defer stop()
	status, _, err := executor.Supervise(executor.Supervised{Argv: os.Args, Env: os.Environ(), Var: childVar, Signals: signals})
	switch {
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case status.Signaled():
		return fmt.Errorf("the process that runs the tasks of the pilot was killed by signal %d", status.Signal())
	case status.ExitStatus() != 0:
		return fault.Exit(status.ExitStatus(), nil) // it has printed why
	}
	return nil
}

// orphaned reports whether the process that watches this one is gone.
func orphaned() bool { return executor.Alone(childVar) }
