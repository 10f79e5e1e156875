package pack

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/pool/machine"
)

// childVar is set in the environment of the process that runs the tasks of a pilot; its value is the
// id of the process that watches it.
const childVar = "PONOS_PILOT_OF"

// guardVar is the variable by which the guard of a pilot finds the processes of its tasks.
const guardVar = "PONOS_PILOT"

// Run is a pilot: in the job that the environment names, it runs tasks of the class in a directory
// until none has come for a while, or its time is up. A child process runs the tasks. If that is
// killed, its processes are inherited by this process, which ends them; if this process is killed,
// the child ends its tasks; if both are, a guard does. End is when Slurm ends a job, or zero; it is asked every ten minutes, as
// time limits may be changed.
func Run(ctx context.Context, dir string, out io.Writer, end func(ctx context.Context, job string) (time.Time, error)) error {
	// The first SIGTERM ends ctx. Others come at the same time, as Slurm sends it to both processes, one
	// sends it to the other, and the kernel does for each thread of a parent that ends. None may end
	// the process before its tasks.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM)
	if os.Getenv(childVar) != "" {
		syscall.CloseOnExec(command.GuardFile)
		return work(ctx, dir, out, end, 10*time.Minute)
	}
	if err := command.AdoptOrphans(); err != nil {
		return err
	}
	mark := machine.GuardMark(guardVar)
	guard := command.StartGuard([]string{os.Args[0], "guard", mark}, func(err error) {
		fmt.Fprintf(out, "pilot %s: %v\n", os.Getenv("SLURM_JOB_ID"), err)
	})
	defer guard.End()
	env := append([]string{fmt.Sprintf("%s=%d", childVar, os.Getpid()), mark}, os.Environ()...)
	child, err := command.StartChild("/proc/self/exe", os.Args, env, guard)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(child.PID, syscall.SIGTERM) })
	status := child.Wait()
	stop()
	tasks := func() []int {
		return slices.DeleteFunc(machine.Children(), func(pid int) bool { return pid == guard.PID() })
	}
	for left := tasks(); len(left) > 0; left = tasks() {
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		child.Reap(10 * time.Millisecond)
		time.Sleep(5 * time.Millisecond)
	}
	switch {
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
func orphaned() bool { return os.Getenv(childVar) != fmt.Sprint(os.Getppid()) }

// Guard is the program that ends the tasks of a pilot whose processes were both killed: it finds them by
// a mark, once the pipe is closed.
func Guard(pipe io.Reader, mark string) { machine.Guard(pipe, mark) }
