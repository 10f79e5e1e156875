package pack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/cgroup"
	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/machine"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/shell"
)

const (
	// checkInterval is how often a pilot checks for tickets, and checks the tasks that it runs.
	checkInterval = time.Second
	// Spare is how much sooner than its job a pilot ends.
	Spare = 30 * time.Second
	// settleTries is how often it tries to record the end of a task, a second apart.
	settleTries = 600
	// telling is how long after the end of a task its pilot may learn that it was asked to end.
	telling = 2 * time.Second
	// maxTaken is how many tickets a pilot takes at most before it is requeued.
	maxTaken = 1_000_000
	// suspended is the time between two checks from which on the job was suspended.
	suspended = 10 * time.Second
)

// worker is a running pilot.
type worker struct {
	Pilot
	dir     string // of the class
	id      string // of the pilot's job
	restart int
	ends    time.Time
	out     io.Writer
	pool    pool.Pool
	node    *pool.Node
	bind    bool

	gpuVariable string // names the GPUs of a task
	parent      cgroup.Parent
	divides     bool         // parent may be divided
	recorded    atomic.Int32 // see Ran

	began   bool                // a task
	taken   int                 // the number of the last ticket
	begun   int                 // tasks
	mine    []string            // tickets that it had before it was requeued
	running map[*running]string // by the names of their tickets
	ended   chan *running
	// settling counts ends that are being recorded.
	settling sync.WaitGroup
}

// running is a running task.
type running struct {
	ticket  Ticket
	job     string
	dir     string
	name    string // see Note
	slot    *pool.Slot
	session *command.Session
	group   *cgroup.Group // nil: its memory is measured
	code    int
	err     error
	begun   time.Time
	over    time.Time
	away    time.Duration // how long it was suspended
	until   time.Time     // the end of its time limit
	asked   time.Time     // when it was asked to end
	end     End           // why
	noted   bool          // end is recorded
	used    atomic.Int64  // bytes: the most memory that was seen
}

// work runs the tasks of a pilot.
func work(ctx context.Context, dir string, out io.Writer) error {
	w := &worker{dir: dir, out: out, id: os.Getenv("SLURM_JOB_ID"), running: map[*running]string{}, ended: make(chan *running)}
	if w.id == "" || strings.Trim(w.id, "0123456789") != "" {
		return errors.New("a pilot runs in a job of Slurm: invalid SLURM_JOB_ID")
	}
	b, err := os.ReadFile(filepath.Join(dir, pilotFile))
	if err == nil {
		err = json.Unmarshal(b, &w.Pilot)
	}
	if err != nil {
		return err
	}
	if dismissed(dir, w.id) {
		fmt.Fprintf(out, "pilot %s: no task is left for it\n", w.id)
		return nil
	}
	if err := w.begin(); err != nil {
		return err
	}
	fmt.Fprintf(out, "pilot %s: begun on %s, restart %d\n", w.id, machine.Hostname(), w.restart)
	err = w.serve(ctx)
	w.settling.Wait()
	fmt.Fprintf(out, "pilot %s: ended after %d tasks\n", w.id, w.begun)
	return err
}

// begin finds out what resources the pilot has.
func (w *worker) begin() error {
	w.restart, _ = strconv.Atoi(os.Getenv("SLURM_RESTART_COUNT"))
	now := clock.Now()
	w.ends = now.Add(w.Time)
	if end, err := strconv.ParseInt(os.Getenv("SLURM_JOB_END_TIME"), 10, 64); err == nil && end > 0 {
		w.ends = now.Add(time.Unix(end, 0).Sub(now)) // with a monotonic reading: the system clock may be set
	}
	ids := machine.Affinity()
	// If the job may use more CPUs than it has requested, others may use them as well.
	if w.bind = len(ids) == w.CPUs; !w.bind {
		ids = ids[:0]
		for i := range w.CPUs {
			ids = append(ids, i)
		}
	}
	mem := w.Mem
	if mem == 0 {
		mem = 1 << 62
	}
	gpus, variable, err := w.devices()
	if err != nil {
		return err
	}
	w.gpuVariable = variable
	if w.Mem > 0 {
		w.parent, w.divides = cgroup.Delegated()
	}
	w.node = pool.NewNode(machine.Hostname(), machine.Topology(os.DirFS("/"), ids), gpus, mem, pool.Named{})
	w.pool.AddNode(w.node)
	own := filepath.Join(w.dir, takenDir, w.id)
	if err := mkdir(own); err != nil {
		return err
	}
	if w.mine, err = names(own); err != nil {
		return err
	}
	// Tickets that were dropped had numbers as well. A second attempt of a task in a job of the same
	// name would not run: its job script would find that the command of that job has ended.
	w.taken = w.restart * maxTaken
	for _, name := range w.mine {
		if n, _, ok := parseTaken(name); ok {
			w.taken = max(w.taken, n)
		}
	}
	return nil
}

// mkdir creates a directory, but not its parents.
func mkdir(path string) error {
	if err := os.Mkdir(path, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// serve runs tasks.
func (w *worker) serve(ctx context.Context) error {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	idle, done := clock.Now(), ctx.Done()
	looked := idle
	for {
		late := false // pending tasks need more time than the pilot has left
		if ctx.Err() == nil {
			var err error
			if late, err = w.fill(); err != nil {
				fmt.Fprintf(w.out, "pilot %s: %v\n", w.id, err) // it may pass
			}
		}
		if len(w.running) > 0 {
			idle = clock.Now()
		} else if ctx.Err() != nil || late || clock.Since(idle) >= w.Linger || clock.Until(w.ends) < Spare {
			if late {
				fmt.Fprintf(w.out, "pilot %s: its time ends in %v, too soon for tasks that wait\n", w.id, clock.Until(w.ends).Round(time.Second))
			}
			return context.Cause(ctx)
		}
		select {
		case r := <-w.ended:
			w.finish(ctx, r)
		case <-tick.C:
			if orphaned() { // Slurm has ended the pilot
				return errors.Join(errors.New("the process that watches the pilot is gone"), w.killAll())
			}
			if away := clock.Since(looked); away > suspended { // suspended time does not count for the limits of tasks
				for r := range w.running {
					away := min(away, clock.Since(r.begun)) // it may have begun after that
					r.until, r.away = r.until.Add(away), r.away+away
				}
			}
			looked = clock.Now()
			members := w.members()
			for r, name := range w.running {
				w.enforce(r, name, members[r.session.PID()])
			}
		case <-done:
			done = nil
			for r := range w.running {
				w.signal(r, syscall.SIGTERM)
			}
		}
	}
}

// killAll kills all tasks, and waits for their end.
func (w *worker) killAll() error {
	for r := range w.running {
		w.signal(r, syscall.SIGKILL)
	}
	for range w.running {
		<-w.ended
	}
	return nil
}

// fill starts tasks while there is room: first those that the pilot had before it was requeued, then
// the oldest pending ones. Late says that some need more time than is left.
func (w *worker) fill() (late bool, err error) {
	mine := w.mine
	w.mine = nil
	for _, name := range mine {
		_, t, ok := parseTaken(name)
		switch {
		case !ok:
		case !w.node.HasRoom(need(t)):
			w.mine = append(w.mine, name)
		default:
			w.run(name, t)
		}
	}
	if w.node.Free().CPUs == 0 {
		return false, nil
	}
	waiting, err := names(filepath.Join(w.dir, waitingDir))
	if err != nil {
		return false, err
	}
	own := filepath.Join(w.dir, takenDir, w.id)
	if len(waiting) > 0 {
		if err = mkdir(own); err != nil { // an empty one may have been removed
			return false, err
		}
	}
	for _, name := range waiting {
		t, ok := parseTicket(name)
		switch {
		case !ok:
			continue
		case clock.Until(w.ends) < t.Limit+Spare:
			late = true
			continue
		case !w.node.HasRoom(need(t)):
			return late, nil // or a task that needs much would never run
		}
		mine := taken(w.taken+1, name)
		path := filepath.Join(own, mine)
		if err := os.Rename(filepath.Join(w.dir, waitingDir, name), path); err != nil {
			// If a request was sent twice, NFS may report the result of the second one.
			if _, statErr := os.Lstat(path); statErr != nil {
				if ignoreMissing(err) != nil {
					return late, err
				}
				continue // another pilot has it
			}
		}
		if w.taken++; !w.began { // submitters now know that pilots do begin tasks
			w.began = ignoreMissing(os.Remove(filepath.Join(w.dir, triesFile))) == nil
		}
		w.run(mine, t)
	}
	return late, err
}

// need returns what a task takes of its pilot.
func need(t Ticket) pool.Need { return pool.Need{CPUs: t.CPUs, GPUs: t.GPUs, Mem: t.Mem} }

// run starts the task of a ticket that the pilot has. A task that is not to be run is dropped; a
// failed start is tried again while the ticket exists.
func (w *worker) run(name string, t Ticket) {
	n, _, _ := parseTaken(name)
	r := &running{ticket: t, job: w.id + "." + strconv.Itoa(n), dir: filepath.Join(w.Tasks, string(t.Task))}
	started, err := w.start(r, name)
	switch _, lost := os.Lstat(filepath.Join(w.dir, takenDir, w.id, name)); {
	case started:
	case err == nil:
		w.drop(name)
	case errors.Is(lost, fs.ErrNotExist) && w.reachable(): // the agent has moved the directory
	default:
		fmt.Fprintf(w.out, "pilot %s: task %s: %v\n", w.id, t.Task, err)
		w.mine = append(w.mine, name)
	}
}

// reachable reports whether the directories of tickets and of tasks can be seen.
func (w *worker) reachable() bool {
	_, err := os.Stat(filepath.Join(w.dir, pilotFile))
	if err == nil {
		_, err = os.Stat(w.Tasks)
	}
	return err == nil
}

func (w *worker) drop(name string) {
	if err := ignoreMissing(os.Remove(filepath.Join(w.dir, takenDir, w.id, name))); err != nil {
		fmt.Fprintf(w.out, "pilot %s: %v\n", w.id, err)
	}
}

// start starts the job script of a task.
func (w *worker) start(r *running, name string) (started bool, err error) {
	n, t, ok, err := ReadNote(r.dir)
	if err == nil && !ok {
		err = fmt.Errorf("there is no %q", filepath.Join(r.dir, ticketFile))
	}
	if err != nil || t != r.ticket || Cancelled(r.dir, t.Key) || w.cancelled(name) {
		return false, err // it belongs to another pilot now, or is gone
	}
	output, err := os.OpenFile(filepath.Join(r.dir, runner.Output), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return false, err
	}
	defer output.Close()
	r.slot = w.pool.Occupy(w.node, &pool.Task{Spec: &pool.Spec{Need: need(r.ticket)}})
	c := command.Cmd{Name: "bash", Args: []string{"--", filepath.Join(r.dir, "job.sh")}, Dir: r.dir, Env: w.environ(r)}
	if w.bind {
		c.CPUs = r.slot.CPUs
	}
	w.confine(r, &c)
	if r.session, err = command.StartSession(c, output); err != nil {
		r.leave()
		w.pool.Release(r.slot)
		return false, err
	}
	r.name, r.begun = n.Name, clock.Now()
	r.until = r.begun.Add(r.ticket.Limit)
	w.running[r] = name
	w.begun++
	go func() {
		r.code, r.err = r.session.Wait()
		r.over = clock.Now()
		w.noteUsed(r)
		w.ended <- r
	}()
	return true, nil
}

// cancelled reports whether a ticket of the pilot is marked as cancelled.
func (w *worker) cancelled(name string) bool {
	f, err := os.Open(filepath.Join(w.dir, takenDir, w.id, name))
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	return err == nil && info.Size() > 0
}

// noteUsed records what a task has used, if its job script has not been killed: the CPU time of
// processes for which it has not waited is not known.
func (w *worker) noteUsed(r *running) {
	run, err := runner.ReadRun(r.dir, r.job)
	if err == nil && run.Over() && run.Restart == w.restart {
		err = runner.WriteUsed(r.dir, r.job, w.restart, runner.Used{CPU: r.session.CPUTime(), Memory: r.peak()})
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(w.out, "pilot %s: task %s: what it used: %v\n", w.id, r.ticket.Task, err)
	}
}

// members returns the processes of the running tasks, by session.
func (w *worker) members() map[int][]int {
	sessions := make([]int, 0, len(w.running))
	for r := range w.running {
		sessions = append(sessions, r.session.PID())
	}
	return machine.Members(sessions...)
}

// enforce ends a task that was cancelled, or that has exceeded a limit.
func (w *worker) enforce(r *running, name string, members []int) {
	now := clock.Now()
	excess := r.memory(members)
	if r.end.Why != "" {
		if now.Sub(r.asked) >= w.Grace {
			w.signal(r, syscall.SIGKILL)
		}
		return
	}
	switch {
	case w.cancelled(name):
		w.stop(r, End{Why: Stopped}, syscall.SIGTERM)
	case now.After(r.until):
		w.stop(r, End{Why: Timeout, Limit: int64(r.ticket.Limit)}, syscall.SIGTERM)
	case excess:
		w.stop(r, r.exceeded(), 0)
		r.killMembers(members)
	}
}

// stop records why a task is ended, and asks it to end. If that cannot be recorded, as on a full
// disk, the task is still ended, and the reason is recorded later.
func (w *worker) stop(r *running, e End, sig syscall.Signal) {
	err := e.note(r.dir, r.job)
	if err != nil {
		fmt.Fprintf(w.out, "pilot %s: task %s: %v\n", w.id, r.ticket.Task, err)
	}
	r.end, r.noted, r.asked = e, err == nil, clock.Now()
	if sig != 0 {
		w.signal(r, sig)
	}
}

// members returns the processes of a task.
func (r *running) members() []int { return machine.Members(r.session.PID())[r.session.PID()] }

// signal sends a signal to all processes of a task.
func (w *worker) signal(r *running, sig syscall.Signal) {
	_ = syscall.Kill(-r.session.PID(), sig) // it may have ended
	for _, pid := range r.members() {
		if group, err := syscall.Getpgid(pid); err == nil && group != r.session.PID() {
			_ = syscall.Kill(pid, sig)
		}
	}
}

// finish handles the end of a job script.
func (w *worker) finish(ctx context.Context, r *running) {
	name := w.running[r]
	delete(w.running, r)
	// Processes that have left the session. A job of another cluster may have the same id.
	for _, pid := range machine.WithVariables("PONOS_TASK="+string(r.ticket.Task), "PONOS_JOB="+r.job+"\x00") {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	w.pool.Release(r.slot)
	r.endMemory()
	w.settling.Go(func() {
		defer r.leave()
		for range settleTries {
			err := w.settle(ctx, r, name)
			if err == nil || errors.Is(err, fs.ErrNotExist) && w.reachable() {
				return
			}
			fmt.Fprintf(w.out, "pilot %s: task %s: %v\n", w.id, r.ticket.Task, err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(checkInterval):
			}
		}
	})
}

// settle records what the job script could not. The ticket of a task that was cut short with its
// pilot stays: the job may be requeued.
func (w *worker) settle(ctx context.Context, r *running, name string) error {
	run, err := runner.ReadRun(r.dir, r.job)
	if err != nil {
		return err
	}
	if r.end.Why != "" && !r.noted {
		if err := r.end.note(r.dir, r.job); err != nil {
			return err
		}
		r.noted = true
	}
	begun := run.Begun && run.Restart == w.restart
	if begun && !run.Closed { // the job script was killed
		word := "cut"
		if run.Ended {
			word = "ended"
		} else if !run.Cut {
			run.Code = r.code
		}
		if err := runner.WriteRun(r.dir, r.job, w.restart, word, run.Code); err != nil {
			return err
		}
	}
	if run.Ended || r.end.Why != "" && begun {
		w.noteRun(r, run)
		w.drop(name)
		return nil
	}
	// Its pilot is asked to end at the same time.
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(telling):
	}
	owner, err := Owner(r.dir, r.ticket.Attempt)
	if err == nil && owner == r.job {
		why := End{Why: Killed}
		if !begun {
			why.Why = Unbegun
		}
		if r.end.Why != "" {
			why = r.end
		}
		err = why.note(r.dir, r.job)
	}
	if err == nil {
		w.drop(name)
	}
	return err
}

// Script returns the batch script of a pilot, given the words of its command.
func Script(words []string) []byte {
	var b strings.Builder
	w := bufio.NewWriter(&b)
	fmt.Fprint(w, "#!/bin/bash\n# A pilot: a job that runs short tasks, made by ponos-start.\nexec")
	for _, word := range words {
		fmt.Fprint(w, " "+shell.Quote(word))
	}
	fmt.Fprintln(w)
	w.Flush()
	return []byte(b.String())
}
