package command

import (
	"errors"
	"runtime"
	"syscall"
	"time"
)

// Child is a program started by StartChild.
type Child struct{ PID int }

// StartChild starts a program that has the standard streams of this process and
// gets SIGTERM when this process ends. Nothing else in the process may start
// programs. The thread that starts it is kept.
func StartChild(path string, argv, env []string) (*Child, error) {
	type result struct {
		pid int
		err error
	}
	started := make(chan result)
	go func() {
		runtime.LockOSThread()
		pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
			Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM},
		})
		started <- result{pid, err}
		select {}
	}()
	r := <-started
	return &Child{r.pid}, r.err
}

// Wait waits for the program, and for what comes to this process meanwhile.
func (c *Child) Wait() syscall.WaitStatus {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil && !errors.Is(err, syscall.EINTR) || pid == c.PID {
			return status
		}
	}
}

// Reap waits for orphans that have ended, at most that long.
func (c *Child) Reap(limit time.Duration) {
	for end := time.Now().Add(limit); time.Now().Before(end); {
		if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil || pid == 0 {
			return
		}
	}
}
