package command

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Process is a program that runs beside this one, such as a connection. It has
// a session of its own, so that the keys of a terminal do not reach it.
type Process struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser
	cmd    *exec.Cmd
	name   string
}

// StartProcess starts c; Stdin and Stdout of c are ignored, Timeout too. Its
// standard error goes to c.Stderr, which must be a file so that no goroutine has to
// copy, or nil for none.
func StartProcess(c Cmd) (*Process, error) {
	path, err := c.path()
	if err != nil {
		return nil, err
	}
	p := &Process{name: c.Name, cmd: c.program()}
	p.cmd.Path, p.cmd.Err = path, nil
	p.cmd.Env, p.cmd.Dir, p.cmd.ExtraFiles = c.Env, c.Dir, c.ExtraFiles
	if f, ok := c.Stderr.(*os.File); ok {
		p.cmd.Stderr = f
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.Stdin, p.Stdout = in, out
	if err := p.cmd.Start(); err != nil {
		return nil, fault.Hint(&NotFoundError{c.Name, err}, fmt.Sprintf("is %q installed and in PATH?", c.Name))
	}
	return p, nil
}

// PID is the process id, which is the id of its session too.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends sig to the program and what it has started.
func (p *Process) Signal(sig syscall.Signal) error { return syscall.Kill(-p.PID(), sig) }

// Wait waits for the end of the program. Stdout must have been read to its end.
func (p *Process) Wait() error {
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	e := &ExitError{Name: p.name, Code: exit.ExitCode()}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		e.Signal = ws.Signal()
	}
	return e
}
