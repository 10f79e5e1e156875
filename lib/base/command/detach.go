package command

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Detach starts a program that continues when this process and its terminal are
// gone: in a session of its own, reading nothing and printing nowhere. Only Name,
// Args, Env, Dir and ExtraFiles of c count.
func Detach(c Cmd) error {
	p := c.program()
	p.Env, p.Dir, p.ExtraFiles = c.Env, c.Dir, c.ExtraFiles
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.Start(); err != nil {
		return fault.Hint(&NotFoundError{c.Name, err}, "is the installation complete?")
	}
	return p.Process.Release()
}

// Session is a program in a session of its own, whose output goes to a file.
type Session struct{ p *exec.Cmd }

// StartSession starts a program that this process waits for, but that continues if
// this process is killed. Of c, Name, Args, Env, Dir, ExtraFiles and CPUs count; if
// one of the CPUs is not there any more, the program may use all.
func StartSession(c Cmd, output *os.File) (*Session, error) {
	p := c.program()
	p.Env, p.Dir, p.ExtraFiles = c.Env, c.Dir, c.ExtraFiles
	p.Stdout, p.Stderr = output, output
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := onCPUs(c.CPUs, p.Start); err != nil {
		return nil, &NotFoundError{c.Name, err}
	}
	return &Session{p}, nil
}

// onCPUs starts a program by a thread that may use some CPUs only, as the program inherits
// that.
func onCPUs(ids []int, start func() error) error {
	var all, some unix.CPUSet
	for _, id := range ids {
		some.Set(id)
	}
	runtime.LockOSThread()
	bound := len(ids) > 0 && unix.SchedGetaffinity(0, &all) == nil && unix.SchedSetaffinity(0, &some) == nil
	err := start()
	if !bound || unix.SchedSetaffinity(0, &all) == nil {
		runtime.UnlockOSThread() // else the thread ends with its goroutine
	}
	return err
}

// PID is the process id, and the id of its process group and session.
func (s *Session) PID() int { return s.p.Process.Pid }

// CPUTime is how long the program and those that it has waited for have run on CPUs, once Wait
// has returned.
func (s *Session) CPUTime() time.Duration {
	if s.p.ProcessState == nil {
		return 0
	}
	return s.p.ProcessState.UserTime() + s.p.ProcessState.SystemTime()
}

// MaxRSS is the largest resident set that the program, or one of those that it has waited for, had, in
// bytes, once Wait has returned. It is at least that of this process, which has started the program.
func (s *Session) MaxRSS() int64 {
	if s.p.ProcessState == nil {
		return 0
	}
	usage, ok := s.p.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	return usage.Maxrss << 10
}

// Wait waits for the end and returns the exit status as a shell would tell it.
// What is left of the process group is killed, except for what belongs to others, as a program of sudo
// does.
func (s *Session) Wait() (int, error) {
	err := s.p.Wait()
	killErr := syscall.Kill(-s.p.Process.Pid, syscall.SIGKILL)
	if errors.Is(killErr, syscall.ESRCH) || errors.Is(killErr, syscall.EPERM) {
		killErr = nil
	}
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) {
		if ws, ok := s.p.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal()), killErr
		}
		return s.p.ProcessState.ExitCode(), killErr
	}
	return -1, err
}
