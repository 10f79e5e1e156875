package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Cmd is a program to run, as an argument list: no shell is involved.
type Cmd struct {
	Name    string
	Arg0    string // by what the program is called, if not by Name
	Args    []string
	Env     []string // nil: that of this process
	Dir     string
	Stdin   io.Reader
	Stdout  io.Writer // nil: captured in Result.Stdout
	Stderr  io.Writer // nil: captured in Result.Stderr, at most maxStderr bytes
	Timeout time.Duration
	// ExtraFiles are open in the program as descriptors 3, 4, …
	ExtraFiles []*os.File
	// DieWithParent kills the program (not what it has started) at once when
	// this process ends in whatever way.
	DieWithParent bool
}

func (c Cmd) arg0() string {
	if c.Arg0 != "" {
		return c.Arg0
	}
	return c.Name
}

// path is the file of the program. One that is not looked for in PATH may be relative to Dir.
func (c Cmd) path() (string, error) {
	if strings.Contains(c.Name, "/") {
		return c.Name, nil
	}
	return Path(c.Name)
}

// program is the process that is to be started.
func (c Cmd) program() *exec.Cmd {
	p := exec.Command(c.Name, c.Args...)
	p.Args[0] = c.arg0()
	return p
}

// Result is what a program printed, as far as it was captured.
type Result struct{ Stdout, Stderr []byte }

// A Runner runs programs. System is the real one.
type Runner interface {
	Run(ctx context.Context, c Cmd) (Result, error)
}

// System runs programs on this machine.
var System Runner = system{}

// ExitError reports a program that ran and failed.
type ExitError struct {
	Name   string
	Code   int            // exit status; -1 if a signal ended it
	Signal syscall.Signal // 0 if it exited
	Stderr string
}

func (e *ExitError) Error() string {
	how := fmt.Sprintf("exit status %d", e.Code)
	if e.Signal != 0 {
		how = fmt.Sprintf("ended by signal %d (%v)", int(e.Signal), e.Signal)
	}
	if s := strings.TrimSpace(e.Stderr); s != "" {
		return fmt.Sprintf("%s: %s: %s", e.Name, how, s)
	}
	return fmt.Sprintf("%s: %s", e.Name, how)
}

// NotFoundError reports a program that could not be started.
type NotFoundError struct {
	Name string
	err  error
}

func (e *NotFoundError) Error() string {
	switch {
	case e.err == nil, errors.Is(e.err, exec.ErrNotFound), errors.Is(e.err, fs.ErrNotExist):
		return e.Name + ": program not found"
	case errors.Is(e.err, fs.ErrPermission):
		return e.Name + ": program may not be executed"
	}
	return e.Name + ": " + e.err.Error()
}
func (e *NotFoundError) Unwrap() error { return e.err }

// TimeoutError reports a program that was killed because its time was up.
type TimeoutError struct {
	Name    string
	Timeout time.Duration // 0: that of the caller was up before
}

func (e *TimeoutError) Error() string {
	if e.Timeout == 0 {
		return e.Name + ": no answer in time"
	}
	return fmt.Sprintf("%s: no answer within %v", e.Name, e.Timeout)
}

// maxStderr limits what is kept of a program's complaints.
const maxStderr = 64 << 10

// afterKill is how long the pipes of a killed program are still read, as
// something it has started may keep them open.
const afterKill = 2 * time.Second

type system struct{}

// Run runs c to its end.
func (system) Run(ctx context.Context, c Cmd) (Result, error) {
	began := time.Now()
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.Timeout, &TimeoutError{c.Name, c.Timeout})
		defer cancel()
	}
	var out bytes.Buffer
	var complaints tail
	path, err := c.path()
	if err != nil {
		return Result{}, err
	}
	p := exec.CommandContext(ctx, path, c.Args...)
	p.Args[0] = c.arg0()
	p.Env, p.Dir, p.Stdin, p.ExtraFiles = c.Env, c.Dir, c.Stdin, c.ExtraFiles
	if p.Stdout = c.Stdout; c.Stdout == nil {
		p.Stdout = &out
	}
	if p.Stderr = c.Stderr; c.Stderr == nil {
		p.Stderr = &complaints
	}
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.Cancel = func() error { return syscall.Kill(-p.Process.Pid, syscall.SIGKILL) }
	p.WaitDelay = afterKill
	err = run(p, c.DieWithParent)
	result := Result{out.Bytes(), complaints.Bytes()}
	if err == nil {
		return result, nil
	}
	switch cause := context.Cause(ctx); {
	case cause == context.DeadlineExceeded: //nolint:errorlint // the cause that nobody has given another one
		return result, &TimeoutError{c.Name, time.Since(began).Round(time.Second)}
	case cause != nil:
		return result, fmt.Errorf("%w", cause)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		e := &ExitError{Name: c.Name, Code: exit.ExitCode(), Stderr: string(result.Stderr)}
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			e.Signal = ws.Signal()
		}
		return result, e
	}
	if p.Process == nil {
		return result, fault.Hint(&NotFoundError{c.Name, err}, fmt.Sprintf("is %q installed and in PATH?", c.Name))
	}
	return result, fmt.Errorf("%s: %w", c.Name, err)
}

// Path returns where a program is found in PATH. What everyone may replace is not run: a relative directory, one that
// everyone may write, such as /tmp, and such a file are passed over.
func Path(name string) (string, error) {
	if strings.Contains(name, "/") {
		path, err := exec.LookPath(name)
		return path, notFound(name, err, "")
	}
	why, open := exec.ErrNotFound, ""
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path, err := exec.LookPath(filepath.Join(dir, name))
		switch {
		case relative(dir):
		case errors.Is(err, fs.ErrPermission):
			why = err
		case err != nil:
		case anyones(dir) || anyones(path):
			open = path
		default:
			return path, nil
		}
	}
	return "", notFound(name, why, open)
}

// Environ is the environment of this process for a program that starts others by their names, as git does, or looks for itself, as
// Python does: in its PATH are none of the directories that [Path] passes over.
func Environ() []string {
	env := os.Environ()
	for i, v := range env {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			dirs := slices.DeleteFunc(filepath.SplitList(path), func(dir string) bool { return relative(dir) || anyones(dir) })
			env[i] = "PATH=" + strings.Join(dirs, string(filepath.ListSeparator))
		}
	}
	return env
}

func relative(dir string) bool { return !filepath.IsAbs(dir) }

func anyones(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode()&0o002 != 0
}

func notFound(name string, err error, open string) error {
	switch {
	case err == nil:
		return nil
	case open != "":
		return fault.Hint(&NotFoundError{name, err}, fmt.Sprintf("%s is not run, as everyone may replace it", open))
	}
	return fault.Hint(&NotFoundError{name, err}, fmt.Sprintf("is %q installed and in PATH?", name))
}

// AllTools is set by the program that is all tools of the suite. It is the one that a link to it is named after, or a copy of it, or
// else its first argument.
var AllTools bool

// allTools is the name of that program, if it is no copy that is one of them.
const allTools = "ponos"

// Sibling is how another tool of the suite is run: the program beside this one, or this one
// if it is all tools, or else the one in PATH.
func Sibling(name string) ([]string, error) {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return []string{path}, nil
		}
		if AllTools && filepath.Base(self) == allTools {
			return Self(name)
		}
	}
	path, err := Path(name)
	return []string{path}, err
}

// Self is how this program is run again as the tool that it is now, by this process or one that it has started.
func Self(tool string) ([]string, error) {
	self, err := os.Executable()
	if _, missing := os.Stat(self); errors.Is(missing, fs.ErrNotExist) { // removed since, as by an upgrade
		self = fmt.Sprintf("/proc/%d/exe", os.Getpid())
	}
	if AllTools && filepath.Base(self) != tool {
		return []string{self, tool}, err
	}
	return []string{self}, err
}

// tail keeps the last maxStderr bytes written to it.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if over := len(t.b) - maxStderr; over > 0 {
		t.b = append(t.b[:0], t.b[over:]...)
	}
	return len(p), nil
}

func (t *tail) Bytes() []byte { return t.b }
