package worker

import (
	"os"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/pool/machine"
)

// Supervise runs the worker as a child and returns its exit status. When the
// worker is killed in whatever way, its tasks come to this process, which ends
// them; when this process is killed, the worker gets SIGTERM.
func Supervise(argv []string, env []string, signals <-chan os.Signal) (int, error) {
	if err := command.AdoptOrphans(); err != nil {
		return 1, err
	}
	temp, err := os.MkdirTemp("", "jobpool-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(temp)
	child, err := command.StartChild("/proc/self/exe", argv, append(env, TempVar+"="+temp))
	if err != nil {
		return 1, err
	}
	// The connection is the child's alone: it must be seen to end with it.
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		_ = syscall.Dup3(int(null.Fd()), 0, 0)
		_ = syscall.Dup3(int(null.Fd()), 1, 0)
	}
	done := make(chan syscall.WaitStatus, 1)
	go func() { done <- child.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = syscall.Kill(child.PID, s.(syscall.Signal))
		case status := <-done:
			killAll(machine.Children, func() { child.Reap(10 * time.Millisecond) })
			if status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
			return status.ExitStatus(), nil
		}
	}
}

// TempVar is the variable that tells a worker its directory for files.
const TempVar = "JOBPOOL_WORKER_TEMP"
