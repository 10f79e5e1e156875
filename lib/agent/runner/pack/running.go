package pack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/executor/cgroup"
	"github.com/ponos-tools/ponos/lib/executor/proc"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

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

// need returns what a task takes of its pilot.
func need(t Ticket) pool.Need { return pool.Need{CPUs: t.CPUs, GPUs: t.GPUs, Mem: t.Mem} }

// run starts the task of a ticket that the pilot has. A task that is not to be run is dropped; a
// failed start is tried again while the ticket exists.
func (w *worker) run(name string, t Ticket) {
	n, _, _ := parseTaken(name)
	r := &running{ticket: t, job: w.id + "." + strconv.Itoa(n), dir: filepath.Join(w.Tasks, string(t.Task))}
	started, err := w.start(r, name)
	if err == nil {
		delete(w.problems, name)
	}
	switch _, lost := os.Lstat(filepath.Join(w.dir, takenDir, w.id, name)); {
	case started:
	case err == nil:
		w.drop(name)
	case errors.Is(lost, fs.ErrNotExist) && w.reachable(): // the agent has moved the directory
	default:
		w.report(name, fmt.Sprintf("task %s: ", t.Task), err)
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
		fmt.Fprintf(w.out, "pilot %s: %v\n", w.id, fault.Text(err))
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
	output, err := runner.OpenOutput(r.dir)
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
	if err = os.WriteFile(w.begunMark(r), nil, 0o600); err == nil {
		r.session, err = command.StartSession(c, output)
	}
	if err != nil {
		_ = os.Remove(w.begunMark(r))
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

// begunMark is the file that shows the agent that a task runs; see begunFile.
func (w *worker) begunMark(r *running) string {
	return filepath.Join(w.dir, takenDir, w.id, begunFile+r.job[strings.LastIndexByte(r.job, '.')+1:])
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
		fmt.Fprintf(w.out, "pilot %s: task %s: what it used: %v\n", w.id, r.ticket.Task, fault.Text(err))
	}
}

// members returns the processes of a task.
func (r *running) members() []int { return proc.Members(r.session.PID())[r.session.PID()] }

// members returns the processes of the running tasks, by session.
func (w *worker) members() map[int][]int {
	sessions := make([]int, 0, len(w.running))
	for r := range w.running {
		sessions = append(sessions, r.session.PID())
	}
	return proc.Members(sessions...)
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
	if later, _ := w.superseded(); later {
		return // this start is about to kill all tasks
	}
	err := e.note(r.dir, r.job)
	if err != nil {
		fmt.Fprintf(w.out, "pilot %s: task %s: %v\n", w.id, r.ticket.Task, fault.Text(err))
	}
	r.end, r.noted, r.asked = e, err == nil, clock.Now()
	if sig != 0 {
		w.signal(r, sig)
	}
}

// signal sends a signal to all processes of a task.
func (w *worker) signal(r *running, sig syscall.Signal) {
	_ = syscall.Kill(-r.session.PID(), sig) // it may have ended
	for _, pid := range r.members() {
		if group, err := syscall.Getpgid(pid); err == nil && group != r.session.PID() {
			_ = syscall.Kill(pid, sig)
		}
	}
}

// killLeft kills processes that have left the session of a task. A job of another cluster may have the
// same id.
func (r *running) killLeft() {
	for _, pid := range proc.WithVariables("PONOS_TASK="+string(r.ticket.Task), "PONOS_JOB="+r.job+"\x00") {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// finish handles the end of a job script.
func (w *worker) finish(ctx context.Context, r *running) {
	name := w.running[r]
	delete(w.running, r)
	r.killLeft()
	w.pool.Release(r.slot)
	r.endMemory()
	w.settling.Go(func() {
		defer r.leave()
		defer w.unmark(r)
		for range settleTries {
			err := w.settle(ctx, r, name)
			if errors.Is(err, fs.ErrNotExist) && w.reachable() { // its directory is gone: nothing can be recorded
				w.drop(name)
				return
			}
			if err == nil {
				return
			}
			fmt.Fprintf(w.out, "pilot %s: task %s: %v\n", w.id, r.ticket.Task, fault.Text(err))
			select {
			case <-ctx.Done():
				return
			case <-time.After(checkInterval):
			}
		}
	})
}

// unmark removes the file that shows the agent that a task runs, unless a later start of the pilot has
// created it again.
func (w *worker) unmark(r *running) {
	if later, err := w.superseded(); err == nil && !later {
		_ = os.Remove(w.begunMark(r))
	}
}

// superseded reports whether the pilot has a later start. That runs the tasks which this one has not
// seen to end, in jobs of the same names: neither their tickets nor their ends are those of this start.
func (w *worker) superseded() (bool, error) {
	all, err := names(filepath.Join(w.dir, takenDir, w.id))
	return w.later(all) > 0, err
}

// settle records what the job script could not. The ticket of a task that was cut short with its
// pilot stays: the job may be requeued.
func (w *worker) settle(ctx context.Context, r *running, name string) error {
	if later, err := w.superseded(); later || err != nil {
		return err
	}
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
	case <-time.After(endNotice):
	}
	if later, err := w.superseded(); later || err != nil {
		return err
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
