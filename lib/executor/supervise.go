package executor

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/executor/proc"
)

// AdoptOrphans makes this process the parent of whatever its children leave behind, so that it can be found
// and ended.
func AdoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// Supervised is a program that executes commands, and is to leave nothing behind when it is killed.
type Supervised struct {
	Argv, Env []string
	// Var is the variable by which the child knows its supervisor; see Alone.
	Var string
	// Signals are passed on to it.
	Signals <-chan os.Signal
	// Expired is asked four times a second whether it is to be killed; may be nil.
	Expired func() bool
	// Keep is asked, once it has ended, whether what it has left is kept; may be nil.
	Keep func(syscall.WaitStatus) bool
}

// Supervise runs the program of this process once more, as a child with the standard streams of this
// process, and returns how that has ended. If it is killed, the processes that it has started are
// reparented to this process, which ends them: none says that nothing is left. If this process is killed,
// the child gets SIGTERM, and Alone reports it. Once the child runs, this process has no standard input
// and output any more: connections close with the child.
func Supervise(s Supervised) (status syscall.WaitStatus, none bool, err error) {
	if err := AdoptOrphans(); err != nil {
		return 0, false, err
	}
	pid, err := startChild(s.Argv, append(s.Env, fmt.Sprintf("%s=%d", s.Var, os.Getpid())))
	if err != nil {
		return 0, false, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		_ = syscall.Dup3(int(null.Fd()), 0, 0)
		_ = syscall.Dup3(int(null.Fd()), 1, 0)
	}
	done := make(chan syscall.WaitStatus, 1)
	go func() { done <- waitFor(pid) }()
	looks := time.NewTicker(250 * time.Millisecond)
	defer looks.Stop()
	for {
		select {
		case sig := <-s.Signals:
			if n, ok := sig.(syscall.Signal); ok {
				_ = syscall.Kill(pid, n)
			}
		case <-looks.C:
			if s.Expired != nil && s.Expired() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		case status := <-done:
			if s.Keep != nil && s.Keep(status) {
				return status, false, nil
			}
			return status, KillAll(proc.Children, reapAll), nil
		}
	}
}

// Alone reports whether the supervisor of this process has ended.
func Alone(variable string) bool { return os.Getenv(variable) != strconv.Itoa(os.Getppid()) }

// startChild starts this program, which gets SIGTERM when this process ends. The thread that starts it is
// kept: the signal is sent when that ends.
func startChild(argv, env []string) (pid int, err error) {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		var err error
		pid, err = syscall.ForkExec("/proc/self/exe", argv, &syscall.ProcAttr{
			Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM},
		})
		started <- err
		select {}
	}()
	err = <-started
	return pid, err
}

// waitFor waits for a child, and for what comes to this process meanwhile.
func waitFor(child int) syscall.WaitStatus {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) || pid == child {
			return status
		}
	}
}

// reapAll waits for the orphans that have ended.
func reapAll() {
	for {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid == 0 {
			return
		}
	}
}
