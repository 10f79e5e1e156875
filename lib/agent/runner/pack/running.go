package pack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/executor"
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
	command executor.Command
	started chan executor.Event
	pid     int
	begun   time.Time
	over    time.Time
	how     *executor.End // once it is over
	end     End           // why it is ended
	noted   bool          // end is recorded
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
	r.name, r.started = n.Name, make(chan executor.Event, 1)
	r.command = executor.Command{
		Launch: executor.Launch{
			Path: w.bash, Argv: append([]string{"bash", "--", filepath.Join(r.dir, "job.sh")}, w.self...), Dir: r.dir, Env: w.environ(r),
			Files: []uintptr{w.null.Fd(), output.Fd(), output.Fd()}, Outlives: true,
		},
		Of: r, Name: r.job, Memory: cmp.Or(r.ticket.Mem, executor.Unlimited), Limit: r.ticket.Limit, Script: true,
		// A job of another cluster may have the same id.
		Marks: []string{"PONOS_TASK=" + string(r.ticket.Task), "PONOS_JOB=" + r.job},
	}
	if w.bind {
		r.command.CPUs = r.slot.CPUs
	}
	if err = os.WriteFile(w.begunMark(r), nil, 0o600); err == nil {
		w.exec.Start(&r.command)
		e := <-r.started
		r.pid, err = e.PID, e.Err
	}
	if err != nil {
		_ = os.Remove(w.begunMark(r))
		w.pool.Release(r.slot)
		return false, err
	}
	w.running[r] = name
	w.begun++
	return true, nil
}

// event handles the start or the end of a job script, in a thread of its own.
func (w *worker) event(e executor.Event) *executor.Command {
	r := e.Of.(*running)
	if e.End == nil {
		r.begun = clock.Now() // here, as a short task ends before its start is handled
		r.started <- e
		return nil
	}
	r.over, r.how = clock.Now(), e.End
	w.noteUsed(r)
	w.ended <- r
	return nil
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
	run, err := record.ReadRun(r.dir, r.job)
	if err == nil && run.Over() && run.Restart == w.restart {
		err = record.WriteUsed(r.dir, r.job, w.restart, record.Used{CPU: r.how.CPUTime(), Memory: r.how.Peak})
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(w.out, "pilot %s: task %s: what it used: %v\n", w.id, r.ticket.Task, fault.Text(err))
	}
}

// before records why a task is about to be ended for a limit.
func (w *worker) before(c *executor.Command, why executor.Why, used int64) bool {
	r := c.Of.(*running)
	if why == executor.Timeout {
		return w.note(r, End{Why: Timeout, Limit: int64(r.ticket.Limit)})
	}
	return w.note(r, r.exceeded(used))
}

func (r *running) exceeded(used int64) End {
	return End{Why: OOM, Used: max(used, r.ticket.Mem), Limit: r.ticket.Mem}
}

// note records why a task is ended. If that cannot be recorded, as on a full disk, the task is still
// ended, and the reason is recorded later. It reports false if this start is about to kill all tasks.
func (w *worker) note(r *running, e End) bool {
	if later, _ := w.superseded(); later {
		return false
	}
	err := e.note(r.dir, r.job)
	if err != nil {
		fmt.Fprintf(w.out, "pilot %s: task %s: %v\n", w.id, r.ticket.Task, fault.Text(err))
	}
	r.end, r.noted = e, err == nil
	return true
}

// finish handles the end of a job script.
func (w *worker) finish(ctx context.Context, r *running) {
	name := w.running[r]
	delete(w.running, r)
	w.pool.Release(r.slot)
	if r.how.ByKernel && r.end.Why == "" {
		r.end = r.exceeded(r.how.Peak)
	}
	w.settling.Go(func() {
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
	run, err := record.ReadRun(r.dir, r.job)
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
			run.Code = r.how.Code()
		}
		if err := record.WriteRun(r.dir, r.job, w.restart, word, run.Code); err != nil {
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
