package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/remove"
	"github.com/ponos-tools/ponos/lib/executor/outside"
	"github.com/ponos-tools/ponos/lib/executor/proc"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Task is what a job is to run.
type Task struct {
	ID      string
	Dir     string
	Job     string
	Restart int // how often the scheduler has requeued the job
	Attempt int
	Tried   int    // attempts before this one
	Source  string // the command runs in a copy of this directory
	Place   string // without Source: the directory in which it runs
	Venv    string // a virtual environment; "": none
	MaxLog  int64  // bytes of the command's output that are written; 0: it writes them itself
	Peak    bool   // also note the memory of the command: nobody else measures it
}

// execution carries out the steps of a start.
type execution struct {
	Task
	start   Start
	log     io.Writer
	hearing sync.Mutex
	heard   outside.Heard   // guarded by it
	command int             // its process, while a request to end may have come before it; guarded by it
	ask     context.Context // ends when the job is asked to end
	signals *outside.Listener
	journal *os.File // leads to it wherever the directory is by the end of the command
	argv    []string
	env     []string
	output  *output
	used    Used // by the command, and the processes that it has waited for
}

// Exec runs the command of a task with the streams, the process group and the limits of this process, and
// returns the exit code of the job. It keeps the record of that, and tells what it waits for in the log.
//
// SIGTERM asks a job to end: the scheduler sends it to the command as well, which may take its time. SIGCONT may be
// a warning of that; see package outside. Other signals are for the command alone.
//
// A request that has come before is the cause of the end of ctx.
func Exec(ctx context.Context, t Task, log io.Writer) (code int, err error) {
	x := &execution{Task: t, log: log, start: Start{Job: t.Job, Restart: t.Restart, Tried: t.Tried}}
	if x.start.Host, err = os.Hostname(); err != nil {
		return 1, err
	}
	x.start.PID = os.Getpid()
	x.start.Started, _ = proc.Started(x.start.PID)
	// The worker of mode local gives its job two locks, which it is to hold, and not what it leaves behind.
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	defer x.listen(ctx)()
	// Slurm makes the file of the output with the umask of the user.
	var output unix.Stat_t
	if err := unix.Fstat(1, &output); err == nil && output.Mode&unix.S_IFMT == unix.S_IFREG && output.Mode&0o077 != 0 {
		x.tell(unix.Fchmod(1, output.Mode&0o700))
	}
	for do := x.start.First(); ; {
		if do.Say != "" {
			fmt.Fprintln(log, do.Say)
		}
		if do.Step == Exit {
			return do.Code, nil
		}
		x.sleep(do.After)
		saw := x.carryOut(do)
		if saw.Err != nil {
			_, missing := os.Stat(t.Dir)
			saw.Gone = errors.Is(missing, fs.ErrNotExist)
		}
		do = x.start.Next(saw, x.asked())
	}
}

// listen handles signals until the returned function is called.
func (x *execution) listen(ctx context.Context) (stop func()) {
	ask, end := context.WithCancel(context.Background())
	x.ask = ask
	hear := func(s os.Signal) {
		x.hearing.Lock()
		x.heard.Hear(s, clock.Now())
		if s == syscall.SIGTERM {
			x.pass()
			end()
		}
		x.hearing.Unlock()
	}
	before := func() {
		var i app.Interrupted
		if errors.As(context.Cause(ctx), &i) && i.Signal == syscall.SIGTERM {
			hear(i.Signal)
		}
	}
	before()
	context.AfterFunc(ctx, before)
	signals := []os.Signal{syscall.SIGTERM, syscall.SIGCONT}
	for _, s := range []os.Signal{
		syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
	} {
		if !signal.Ignored(s) { // which it is to stay for the command
			signals = append(signals, s)
		}
	}
	x.signals = outside.Listen(hear, signals...)
	return func() {
		x.signals.Close()
		end()
	}
}

// pass passes a request to end on to a command that was not there yet when it came.
func (x *execution) pass() {
	if x.command != 0 {
		_ = syscall.Kill(x.command, syscall.SIGTERM)
	}
}

// asked reports whether the job is asked to end.
func (x *execution) asked() bool {
	x.hearing.Lock()
	defer x.hearing.Unlock()
	return !x.heard.Asked.IsZero()
}

// open returns for how long an end that comes now stays open because the job was warned.
func (x *execution) open() time.Duration {
	x.hearing.Lock()
	defer x.hearing.Unlock()
	return x.heard.Open(clock.Now())
}

// sleep waits, but not for long once the job is asked to end.
func (x *execution) sleep(d time.Duration) {
	if d == 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-x.ask.Done():
	}
}

func (x *execution) carryOut(do Do) (saw Saw) {
	switch do.Step {
	case Claim:
		saw.Owner, saw.Err = x.claim()
	case Look, Confirm:
		saw.Run, saw.Begun, saw.Err = x.look()
	case Prepare:
		saw.Damaged, saw.Err = x.prepare()
	case Open:
		x.journal, saw.Err = os.OpenFile(x.path(), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	case Execute:
		saw.Code, saw.Err = x.execute()
		saw.Open = x.open()
	case End:
		x.restore()
		if x.used.CPU > 0 {
			_ = x.note(usedLine(x.used)) // the end counts without it
		}
		saw.Err = x.note(do.Line)
	case Begin, Seal:
		saw.Err = x.note(do.Line)
	}
	return saw
}

func (x *execution) path() string  { return filepath.Join(x.Dir, Journal(x.Job, x.Restart)) }
func (x *execution) owner() string { return filepath.Join(x.Dir, Owner(x.Attempt)) }

// claim makes this job the one that runs the task. Only another owner's name says that it has nothing to do:
// all else that keeps the link from being made is an error.
func (x *execution) claim() (owner string, err error) {
	if err = os.Symlink(x.Job, x.owner()); err == nil {
		return x.Job, nil
	}
	if owner, readErr := os.Readlink(x.owner()); readErr == nil && owner != "" {
		return owner, nil
	}
	return "", fmt.Errorf("it cannot take the task: %w", err)
}

// look sees first who has ended, and reads after that what they have noted. Who begins in between counts as alive.
func (x *execution) look() (run Run, begun []Begun, err error) {
	_, before, err := read(x.Dir, x.Job)
	if err != nil {
		return run, nil, err
	}
	over := map[Process]bool{}
	for _, b := range before {
		start, is := proc.Started(b.PID)
		over[b.Process] = over[b.Process] || b.Host == x.start.Host && (!is || start != b.Started)
	}
	run, begun, err = read(x.Dir, x.Job)
	for i, b := range begun {
		begun[i].Alive = b.Host == x.start.Host && !over[b.Process]
	}
	return run, begun, err
}

// prepare reads the variables and the command, and goes to where the command runs.
func (x *execution) prepare() (damaged bool, err error) {
	variables, err := x.words(runner.EnvFile)
	if err != nil {
		return false, err
	}
	if x.argv, err = x.words(runner.CommandFile); err != nil {
		return false, err
	}
	// The last variable shows that all of them were read.
	if len(variables) == 0 || variables[len(variables)-1] != "PONOS_TASK="+x.ID || len(x.argv) == 0 {
		return true, nil
	}
	x.env = x.environ(variables)
	work := x.work()
	if _, err := os.Stat(work); x.Place != "" && errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(x.log, "job %s: node %s has no directory %s\n", x.Job, x.start.Host, work)
		return true, nil
	}
	if err := x.copy(work); err != nil {
		return false, err
	}
	if err := os.Chdir(work); err != nil { // the task may have taken its own permissions away
		return false, errors.Join(os.Chmod(work, 0o700), os.Chdir(work)) //nolint:gosec // a directory
	}
	return false, nil
}

// words reads words that are each ended by a zero byte; none if the file is missing from the directory.
func (x *execution) words(name string) (words []string, err error) {
	b, err := os.ReadFile(filepath.Join(x.Dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(x.Dir)
	}
	for word := range bytes.SplitSeq(b, []byte{0}) {
		words = append(words, string(word))
	}
	if err != nil || words[len(words)-1] != "" { // something is missing at the end
		return nil, err
	}
	return words[:len(words)-1], nil
}

// work is where the command runs.
func (x *execution) work() string {
	if x.Place != "" {
		return x.Place
	}
	return filepath.Join(x.Dir, "work")
}

// copy copies the source. After a restart, the copy is there, in the state in which the task has left it.
func (x *execution) copy(work string) error {
	if info, err := os.Stat(work); err == nil && info.IsDir() {
		return nil
	}
	part := work + ".new"
	err := remove.All(work)
	if err == nil {
		err = remove.All(part)
	}
	if err != nil {
		return err
	}
	copying, err := command.StartWork(command.Cmd{
		Name: "cp", Args: []string{"-R", "--", x.Source, part}, Stderr: x.log, DieWithParent: true,
	})
	if err != nil {
		return err
	}
	code, err := copying.Status()
	if err == nil && code != 0 {
		err = &command.ExitError{Name: "cp", Code: code}
	}
	if err != nil {
		return err
	}
	return os.Rename(part, work)
}

// environ is the environment of the command: that of the job, with the variables of the task. An element of
// a job array runs one task, which is not to see the others. What acts on its own job uses PONOS_JOB and
// PONOS_JOB_ID: for one element, the raw id is that of the array.
func (x *execution) environ(variables []string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "SLURM_ARRAY_") || strings.HasPrefix(v, "OLDPWD=")
	})
	env = append(env, "PWD="+x.work(), "PONOS_JOB="+x.Job, "PONOS_JOB_ID="+os.Getenv("SLURM_JOB_ID"))
	env = append(env, variables...)
	if x.Venv != "" {
		env = append(env, "VIRTUAL_ENV="+x.Venv, "PATH="+filepath.Join(x.Venv, "bin")+":"+value(env, "PATH"))
	}
	last := map[string]int{}
	for i, v := range env {
		name, _, _ := strings.Cut(v, "=")
		last[name] = i
	}
	kept := env[:0]
	for i, v := range env {
		if name, _, _ := strings.Cut(v, "="); last[name] == i {
			kept = append(kept, v)
		}
	}
	return kept
}

func value(env []string, name string) (value string) {
	for _, v := range env {
		if text, ok := strings.CutPrefix(v, name+"="); ok {
			value = text
		}
	}
	return value
}

// execute runs the command. Its error says that the machine could not start it now.
func (x *execution) execute() (code int, err error) {
	path, code := find(x.argv[0], value(x.env, "PATH"))
	why := syscall.ENOENT
	if code == notExecutable {
		why = syscall.EACCES
	}
	var pid int
	if code == 0 {
		pid, err = x.fork(path, x.argv)
		if errors.Is(err, syscall.ENOEXEC) { // a script that does not say by what: as bash would run it
			shell, missing := find("bash", value(x.env, "PATH"))
			if missing != 0 {
				shell = "/bin/sh"
			}
			pid, err = x.fork(shell, append([]string{shell, path}, x.argv[1:]...))
		}
		switch {
		case err == nil:
			return x.wait(pid), nil
		case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
			return 0, fmt.Errorf("the command cannot be started: %w", err)
		}
		code = notExecutable
		if errors.As(err, &why); why == syscall.ENOENT {
			code = notFound
		}
	}
	text := why.Error()
	if why == syscall.ENOENT && path == "" {
		text = "not found"
	}
	fmt.Fprintf(x.log, "job %s: %s: %s\n", x.Job, x.argv[0], text)
	return code, nil
}

// Exit codes of commands that could not be started, as shells have them.
const (
	notExecutable = 126
	notFound      = 127
)

// find looks a command up.
func find(name, path string) (found string, code int) {
	if strings.Contains(name, "/") {
		return name, 0
	}
	code = notFound
	for _, dir := range filepath.SplitList(path) {
		at := filepath.Join(dir, name)
		if !strings.Contains(at, "/") {
			at = "./" + at
		}
		info, err := os.Stat(at)
		switch {
		case err != nil || !info.Mode().IsRegular():
		case unix.Access(at, unix.X_OK) == nil:
			return at, 0
		default:
			found, code = at, notExecutable
		}
	}
	return found, code
}

// hearsLate is how long after it came a request to end may be heard.
const hearsLate = time.Second

// fork starts the command. It is killed with this process, as its end would not be recorded. A request to end that
// came before it was there has reached this process alone, which passes it on.
func (x *execution) fork(path string, argv []string) (pid int, err error) {
	if x.output, err = newOutput(x.MaxLog, x.Job, x.log); err != nil {
		return 0, err
	}
	runtime.LockOSThread() // until the end of the command, which is killed with the thread
	pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env: x.env, Files: x.output.files, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	x.output.begun()
	if err != nil {
		x.output.ended()
		return 0, err
	}
	x.hearing.Lock()
	defer x.hearing.Unlock()
	if x.command = pid; !x.heard.Asked.IsZero() {
		x.pass()
		x.command = 0
	}
	time.AfterFunc(hearsLate, x.begun)
	return pid, nil
}

// begun says that the command hears of requests itself, or has ended.
func (x *execution) begun() {
	x.hearing.Lock()
	defer x.hearing.Unlock()
	x.command = 0
}

// wait waits for the end of the command, and returns its exit code as a shell tells it.
func (x *execution) wait(pid int) int {
	var status syscall.WaitStatus
	var usage syscall.Rusage
	// First without taking it away, as another process may get its id.
	err := error(syscall.EINTR)
	for errors.Is(err, syscall.EINTR) {
		err = unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
	}
	x.begun()
	if err == nil {
		_, err = syscall.Wait4(pid, &status, 0, &usage)
	}
	x.output.ended()
	x.used.CPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	if x.Peak {
		x.used.Memory = usage.Maxrss << 10
	}
	x.signals.Settle(10 * hearsLate)
	switch {
	case err != nil: // an end that nobody knows is no success
		return 128 + int(syscall.SIGKILL)
	case status.Signaled():
		return 128 + int(status.Signal())
	default:
		return status.ExitStatus()
	}
}

// note adds a line to the journal of this start, and brings it to the disk. If another file is in the place of the
// journal by now, that gets the line too.
func (x *execution) note(line string) error {
	err := add(x.journal, line)
	held, heldErr := x.journal.Stat()
	there, thereErr := os.Stat(x.path())
	if heldErr == nil && thereErr == nil && os.SameFile(held, there) {
		return err
	}
	if addTo(x.path(), line) == nil {
		return nil
	}
	return err
}

// restore brings back the owner and the journal if the task has removed its own directory, or what is in it:
// it would count as not begun, and be run again. A directory that has been moved away, or is not mounted, stays away.
func (x *execution) restore() {
	if _, err := os.Stat(x.Dir); errors.Is(err, fs.ErrNotExist) {
		var held unix.Stat_t
		if unix.Fstat(int(x.journal.Fd()), &held) != nil || held.Nlink != 0 || os.Mkdir(x.Dir, 0o700) != nil {
			return
		}
	}
	if _, err := os.Lstat(x.owner()); errors.Is(err, fs.ErrNotExist) {
		x.tell(os.Symlink(x.Job, x.owner()))
	}
	if _, err := os.Lstat(x.path()); errors.Is(err, fs.ErrNotExist) {
		b, err := io.ReadAll(io.NewSectionReader(x.journal, 0, 1<<20))
		if err == nil {
			err = os.WriteFile(x.path(), b, 0o600)
		}
		x.tell(err)
	}
}

func (x *execution) tell(err error) {
	if err != nil {
		fmt.Fprintf(x.log, "job %s: %s\n", x.Job, fault.Text(err))
	}
}
