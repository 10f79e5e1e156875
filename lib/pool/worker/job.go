package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/machine"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// job is a task on this node.
type job struct {
	run     wire.Run
	queued  bool
	command executor.Command
	pid     int // while it runs
	began   time.Time
	told    bool      // the scheduler knows that it runs
	shell   bool      // it is a script without "#!"
	lacked  time.Time // when the system first lacked resources to start it
	out     *capture
	sent    [2]int64 // bytes of it that the scheduler has had while it runs
	stdin   *os.File
	fulls   int64      // see logs, when it began
	done    *wire.Done // how it has ended, if that is not yet to be reported
	doubt   time.Time  // until when its cause may become known
}

// patience is how long a start is tried again while the system lacks resources for another process or
// file, no process of a task runs whose end might free some, and none has started or ended.
const patience = 10 * time.Second

// next prepares the next ready task for its launch; nil if there is none.
func (w *worker) next() *executor.Command {
	for len(w.ready) > 0 {
		j := w.ready[0]
		w.ready = w.ready[1:]
		if w.start(j) {
			return &j.command
		}
	}
	w.ready = nil
	return nil
}

// startReady starts all that is ready.
func (w *worker) startReady() {
	for c := w.next(); c != nil; c = w.next() {
		w.exec.Start(c)
	}
}

// start makes a task ready to be started; the result arrives as an event. It reports false if the task has
// ended already, or waits.
func (w *worker) start(j *job) bool {
	j.began = clock.Now()
	if w.exec.Why(&j.command) != "" { // it was ended while it waited
		w.end(j, &wire.Done{})
		return false
	}
	if !w.gate.pass(j.began) {
		w.again = append(w.again, j)
		return false
	}
	if j.run.Prepare && !w.prepare(j) {
		return false
	}
	if w.setup.Noop {
		w.end(j, &wire.Done{})
		return false
	}
	l, err := w.launch(j)
	if err != nil {
		w.cannotStart(j, err)
		return false
	}
	j.command.Launch, j.command.Of = *l, j
	j.command.Limit = time.Duration(j.run.Timeout * float64(time.Second))
	name := w.taskName(j.run.Key)
	j.command.Name, j.command.Memory = strings.ReplaceAll(name, "/", "-"), j.run.Need.Mem
	if w.Orphans != nil {
		j.command.Marks = []string{taskVar + name}
	}
	return true
}

// taskVar begins the entry of the environment by which the processes of a task are known.
const taskVar = "JOBPOOL_TASK="

// launch prepares the start of a task.
func (w *worker) launch(j *job) (*executor.Launch, error) {
	r := &j.run
	l := &executor.Launch{Dir: string(r.Dir), Env: w.taskEnv(r), Nice: w.setup.Nice}
	if l.Dir == "" {
		l.Dir = string(w.setup.Dir)
	}
	var err error
	if r.Nodes != nil {
		if l.Env, err = w.describeNodes(r, l.Env); err != nil {
			return nil, err
		}
	}
	if l.Argv, err = w.argv(r); err != nil {
		return nil, err
	}
	path := w.path
	if len(r.Env) > 0 {
		path = lookup(l.Env, "PATH")
	}
	if l.Path, err = w.find(l.Argv[0], l.Dir, path); err != nil {
		return nil, err
	}
	if w.setup.Pin {
		l.CPUs = r.CPUs
	}
	if r.Stdin != "" && j.stdin == nil {
		if j.stdin, err = stdinFile(string(r.Stdin)); err != nil {
			return nil, err
		}
	}
	stdin := w.null
	if j.stdin != nil {
		stdin = j.stdin
	}
	if j.out == nil {
		j.fulls = w.logs.fulls.Load()
		if j.out, err = w.logs.open(j); err != nil {
			return nil, &outputError{err}
		}
	}
	l.Files = []uintptr{stdin.Fd(), uintptr(j.out.files[0]), uintptr(j.out.files[1])}
	return l, nil
}

// outputError says that there is no file for the output of a task. The task's program is not the
// cause.
type outputError struct{ err error }

func (e *outputError) Error() string {
	var path *os.PathError
	if errors.As(e.err, &path) && path.Op == "open" { // the same for many tasks
		return fmt.Sprintf("output: %s a file in %q: %v", path.Op, filepath.Dir(path.Path), path.Err)
	}
	return "output: " + e.err.Error()
}
func (e *outputError) Unwrap() error { return e.err }

// ofRun reports whether the file system of the run directory is full, read-only or fails: all tasks lack their files.
func (e *outputError) ofRun(run string) bool {
	var path *os.PathError
	return errors.As(e.err, &path) && run != "" && strings.HasPrefix(path.Path, run+"/") && fault.Storage(path)
}

func stdinFile(text string) (*os.File, error) {
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "stdin")
	if _, err = f.WriteString(text); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// argv returns what to run: the command itself, if a shell would run the same.
func (w *worker) argv(r *wire.Run) ([]string, error) {
	if r.Mark {
		r.Mark = false
		r.Text = wire.Text(strings.ReplaceAll(string(r.Text), "{%}", strconv.Itoa(r.Slot)))
	}
	if r.Argv {
		return strings.Split(string(r.Text), "\x00"), nil
	}
	if strings.IndexByte(string(r.Text), 0) >= 0 {
		return nil, errors.New("command has a NUL in it")
	}
	if w.setup.Shell == "" {
		words := strings.Fields(string(r.Text))
		if len(words) == 0 {
			return nil, errors.New("command is empty")
		}
		return words, nil
	}
	if !w.setup.Always {
		if words, ok := shell.Split(string(r.Text)); ok {
			return words, nil
		}
	}
	return []string{string(w.setup.Shell), "-c", string(r.Text)}, nil
}

// find looks up a program like a shell.
func (w *worker) find(name, dir, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	key := name
	if path != w.path {
		key = name + "\x00" + path
	}
	if p, ok := w.found[key]; ok {
		return p, nil
	}
	err := error(syscall.ENOENT)
	for _, d := range filepath.SplitList(path) {
		p := filepath.Join(d, name)
		if d == "" || d == "." {
			p = "./" + name
		}
		at := p
		if !filepath.IsAbs(at) {
			at = filepath.Join(dir, p)
		}
		st, e := os.Stat(at)
		switch {
		case e != nil || st.IsDir():
		case st.Mode()&0o111 == 0:
			err = syscall.EACCES
		default:
			if filepath.IsAbs(p) {
				w.found[key] = p
			}
			return p, nil
		}
	}
	return "", &os.PathError{Op: "exec", Path: name, Err: err}
}

// taskEnv is the environment of a task.
func (w *worker) taskEnv(r *wire.Run) []string {
	env := w.base
	if len(r.Env) > 0 {
		env = append(make([]string, 0, len(env)+len(r.Env)+12), env...)
		for _, kv := range wire.Strings(r.Env) {
			env = setenv(env, kv)
		}
	}
	env = append(env, // w.base is clipped, so this makes a copy
		"JOBPOOL_SEQ="+strconv.FormatInt(r.Seq, 10),
		"JOBPOOL_ATTEMPT="+strconv.Itoa(int(r.Attempt)),
		"JOBPOOL_NODE="+w.setup.Node,
		"JOBPOOL_SLOT="+strconv.Itoa(r.Slot),
		"PARALLEL_SEQ="+strconv.FormatInt(r.Seq, 10), // as GNU parallel calls them
		"PARALLEL_JOBSLOT="+strconv.Itoa(r.Slot),
		taskVar+w.taskName(r.Key),
		"JOBPOOL_CPUS="+machine.FormatList(r.CPUs),
		"JOBPOOL_NCPUS="+strconv.Itoa(r.Need.CPUs),
	)
	if w.setup.Run != "" {
		env = append(env, "JOBPOOL_RUN="+string(w.setup.Run))
	}
	if r.ID != "" {
		env = append(env, "JOBPOOL_ID="+string(r.ID))
	}
	if w.setup.HideGPUs {
		ids := strings.Join(r.GPUs, ",")
		env = append(env, "JOBPOOL_GPUS="+ids, w.setup.GPUVar+"="+ids)
		if r.Need.Share > 0 {
			env = append(env, "JOBPOOL_GPU_SHARE="+pool.Amount(r.Need.Share).Number())
		}
	}
	for _, name := range r.Need.Named.Names() {
		env = append(env, "JOBPOOL_RESOURCE_"+strings.ToUpper(name)+"="+r.Need.Named.Get(name).Number())
	}
	if lookup(env, "OMP_NUM_THREADS") == "" && r.Need.CPUs > 0 {
		threads := r.Need.CPUs
		if r.Nodes != nil { // a rank for each CPU
			threads = 1
		}
		env = append(env, "OMP_NUM_THREADS="+strconv.Itoa(threads))
	}
	return env
}

// taskName identifies one attempt in the whole run; processes that a task leaves behind are known by
// it.
func (w *worker) taskName(k wire.Key) string {
	return fmt.Sprintf("%s/%d.%d", w.setup.Session, k.Seq, k.Attempt)
}

func setenv(env []string, kv string) []string {
	name, _, _ := strings.Cut(kv, "=")
	for i, old := range env {
		if strings.HasPrefix(old, name+"=") {
			env[i] = kv
			return env
		}
	}
	return append(env, kv)
}

// event handles the start or end of a program.
func (w *worker) event(e executor.Event) {
	j := e.Of.(*job)
	switch {
	case e.Err != nil:
		if errors.Is(e.Err, syscall.ENOEXEC) && !j.run.Argv && !j.shell {
			// A script without "#!" is run by the shell.
			j.shell = true
			j.run.Argv = true
			j.run.Text = wire.Text(strings.Join([]string{"/bin/sh", "-c", string(j.run.Text)}, "\x00"))
			w.ready = append(w.ready, j)
			return
		}
		w.cannotStart(j, e.Err)
	case e.End == nil:
		w.moved = clock.Now()
		j.pid = e.PID
		if j.stdin != nil {
			j.stdin.Close()
			j.stdin = nil
		}
	default:
		w.moved = clock.Now()
		d := &wire.Done{
			What: wire.Outcome(e.End.Why), Exit: max(0, e.End.Status.ExitStatus()), Signal: signalOf(e.End.Status),
			User: tv(e.End.Usage.Utime), System: tv(e.End.Usage.Stime), MaxRSS: max(e.End.MaxRSS(), e.End.Peak),
		}
		if e.End.Why == executor.OutOfMemory {
			outOfMemory(d, e.End, j.run.Need.Mem)
		}
		w.end(j, d)
	}
}

// outOfMemory says how a task has ended that needed more memory than it had declared.
func outOfMemory(d *wire.Done, e *executor.End, declared int64) {
	limit := unit.ShortSize(declared)
	d.Error = wire.Text(fmt.Sprintf("it used %s, its limit is %s", unit.ShortSize(d.MaxRSS&^(1<<20-1)), limit))
	if e.ByKernel {
		d.Error = wire.Text("it needs more than its limit of " + limit)
	}
	if d.Signal == 0 && d.Exit == 0 {
		d.Signal = int(syscall.SIGKILL)
	}
}

func signalOf(s syscall.WaitStatus) int {
	if s.Signaled() {
		return int(s.Signal())
	}
	return 0
}

func tv(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// cannotStart ends a task that could not be started, or tries again later if the system only lacks
// resources at present.
func (w *worker) cannotStart(j *job, err error) {
	// EBADF is what fork reports at the limit of open files.
	for _, e := range []error{syscall.EAGAIN, syscall.EBADF, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ETXTBSY} {
		if errors.Is(err, e) && w.patient(j) && w.exec.Why(&j.command) == "" && !w.ending {
			w.again = append(w.again, j)
			// Its open files may be what others lack.
			if j.out != nil {
				j.out.discard()
				j.out = nil
			}
			if j.stdin != nil {
				j.stdin.Close()
				j.stdin = nil
			}
			w.logs.shrink()
			return
		}
	}
	d := &wire.Done{What: wire.NoStart, Exit: 125, Error: wire.Text(fault.Text(err))}
	var output *outputError
	name, dir := "", string(j.run.Dir)
	if words, e := w.argv(&j.run); e == nil {
		name = words[0]
	}
	if dir == "" {
		dir = string(w.setup.Dir)
	}
	if errors.As(err, &output) {
		d.Error, d.NoFile = wire.Text(output.Error()), output.ofRun(string(w.setup.Run))
	} else if _, e := os.Stat(dir); e != nil {
		d.Error = wire.Text(fmt.Sprintf("directory %q: %v", dir, errors.Unwrap(e)))
	} else if errors.Is(err, syscall.EACCES) && unix.Access(dir, unix.X_OK) != nil {
		d.Error = wire.Text(fmt.Sprintf("directory %q: %v", dir, syscall.EACCES))
	} else if errors.Is(err, syscall.ENOENT) {
		d.Exit, d.Error = 127, wire.Text(fmt.Sprintf("%q: program not found", name))
		if _, e := os.Stat(filepath.Join(dir, name)); e == nil && !strings.Contains(name, "/") {
			d.Error = wire.Text(fmt.Sprintf("%q: program not found in PATH, but there is ./%s", name, name))
		}
	} else if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOEXEC) || errors.Is(err, syscall.E2BIG) {
		d.Exit, d.Error = 126, wire.Text(fmt.Sprintf("%q: %v", name, unwrapped(err)))
	}
	delete(w.found, name)
	w.end(j, d)
}

func unwrapped(err error) error {
	var e syscall.Errno
	if errors.As(err, &e) {
		return e
	}
	return err
}

// patient reports whether resources that a task lacks may still become free.
func (w *worker) patient(j *job) bool {
	now := clock.Now()
	if j.lacked.IsZero() {
		j.lacked = now
	}
	if now.Sub(j.lacked) < patience || now.Sub(w.moved) < patience {
		return true
	}
	for _, other := range w.jobs {
		if other.pid != 0 {
			return true
		}
	}
	return false
}

// end reports the end of a task and starts the next one on its slot.
func (w *worker) end(j *job, d *wire.Done) {
	now := clock.Now()
	if j.stdin != nil {
		j.stdin.Close()
	}
	if j.run.Nodes != nil {
		_ = os.RemoveAll(w.nodesDir(j.run.Key))
	}
	d.What = outcome(d.What, w.exec.Why(&j.command), w.ended)
	d.Key, d.Start, d.Seconds = j.run.Key, seconds(j.began), now.Sub(j.began).Seconds()
	j.pid, j.done = 0, d
	if open := w.open(d, now); open > 0 {
		j.doubt = now.Add(open)
		return
	}
	w.conclude(j)
}

// outcome is how a task has ended that was ended by this worker for a reason, if there is one. After SIGTERM
// to this worker, an end that comes by itself does not count: its processes may have got the signal before.
func outcome(what wire.Outcome, why executor.Why, signaled bool) wire.Outcome {
	switch {
	case why != "":
		return wire.Outcome(why)
	case signaled && what == "":
		return wire.Stopped
	}
	return what
}

// open returns for how long it stays open whether a signal from outside was before this end: after a
// warning, or where no scheduler decides this.
func (w *worker) open(d *wire.Done, now time.Time) time.Duration {
	switch warned := w.heard.Open(now); {
	case d.What == "" && warned > 0:
		return warned
	case w.lost.Load() && w.spool != nil:
		return d.Open()
	}
	return 0
}

// cutOff decides about tasks whose end is open: a signal has come.
func (w *worker) cutOff() {
	for _, j := range w.jobs {
		if j.done != nil && w.heard.Cuts(time.UnixMicro(int64((j.done.Start+j.done.Seconds)*1e6))) {
			j.done.What = wire.Stopped
		}
	}
}

// doubted reports whether the task has ended for a reason that was not clear, and now is.
func (j *job) doubted(now time.Time) bool {
	return j.done != nil && (j.done.What != "" || !now.Before(j.doubt))
}

// conclude reports how a task has ended.
func (w *worker) conclude(j *job) {
	d := j.done
	delete(w.jobs, j.run.Key)
	if next := w.follower(j.run.Need); next != nil {
		next.run.CPUs, next.run.GPUs, next.run.Slot = j.run.CPUs, j.run.GPUs, j.run.Slot
		d.Next = &next.run.Key
		w.ready = append(w.ready, next)
	}
	if j.run.Prepare {
		if err := w.node.end(d.What == "" && d.Exit == 0 && d.Signal == 0); err != nil {
			d.What, d.Exit, d.Error = wire.NoStart, 125, wire.Text(fault.Text(err))
		}
	}
	w.plenty.Store(w.queued*2 >= w.filled)
	w.logs.finish(j, d)
}

// report sends the end of a task to the scheduler, or else to the spool.
func (w *worker) report(d *wire.Done) {
	if w.lost.Load() && w.spool != nil {
		w.spool.done(d)
		return
	}
	if d.Next != nil && w.plenty.Load() {
		w.out.SendSoon(&wire.Message{Done: d})
		return
	}
	w.out.Send(&wire.Message{Done: d})
}

// kill ends a task.
func (w *worker) kill(j *job, why wire.Outcome, now bool) {
	if j.queued {
		w.unqueue(j)
		w.report(&wire.Done{Key: j.run.Key, What: why, Start: seconds(clock.Now())})
		return
	}
	if j.done != nil { // it has ended
		return
	}
	how := executor.Asked
	if now {
		how = executor.Killed
	}
	w.exec.End(&j.command, executor.Why(why), how)
}

// postpone extends the time limits of tasks by the time for which this process was stopped, as they
// were stopped, too.
func (w *worker) postpone(d time.Duration) {
	w.exec.Postpone(d, clock.Now())
	for _, j := range w.jobs {
		j.doubt = j.doubt.Add(d)
	}
}
