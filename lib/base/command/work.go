package command

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Work is a program that this process attends to while it runs: with its streams,
// in its process group, so that a terminal's signals reach both.
type Work struct {
	p    *exec.Cmd
	done chan struct{}
	code int
	err  error
}

// StartWork starts a program. It ignores the Timeout of c. With DieWithParent, the program gets
// SIGTERM when this process ends, for whatever reason.
func StartWork(c Cmd) (*Work, error) {
	p := c.program()
	p.Env, p.Dir, p.ExtraFiles = c.Env, c.Dir, c.ExtraFiles
	p.Stdin, p.Stdout, p.Stderr = c.Stdin, c.Stdout, c.Stderr
	if c.DieWithParent {
		p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	}
	started, done := make(chan error), make(chan struct{})
	go func() {
		if c.DieWithParent { // the signal is sent when this thread ends
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
		}
		err := p.Start()
		started <- err
		if err == nil && c.DieWithParent {
			<-done
		}
	}()
	if err := <-started; err != nil {
		return nil, fault.Hint(&NotFoundError{c.Name, err}, "is it installed and in PATH?")
	}
	w := &Work{p: p, done: done}
	go func() {
		defer close(w.done)
		err := p.Wait()
		var exit *exec.ExitError
		switch {
		case err != nil && !errors.As(err, &exit):
			w.code, w.err = -1, err
		default:
			w.code = p.ProcessState.ExitCode()
			if ws, ok := p.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				w.code = 128 + int(ws.Signal())
			}
		}
	}()
	return w, nil
}

// Done is closed when the program has ended.
func (w *Work) Done() <-chan struct{} { return w.done }

// Ended reports whether the program has ended, even if Done does not show it yet: this process may have
// been suspended until now.
func (w *Work) Ended() bool {
	select {
	case <-w.done:
		return true
	default:
	}
	var info unix.Siginfo // of number 0 while the program runs
	err := unix.Waitid(unix.P_PID, w.p.Process.Pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0 || errors.Is(err, unix.ECHILD)
}

// Status is, after the end, the exit status as a shell would tell it.
func (w *Work) Status() (int, error) {
	<-w.done
	return w.code, w.err
}

// Signal sends a signal to the program; a program that has ended is not an error.
func (w *Work) Signal(s syscall.Signal) error {
	if err := w.p.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
