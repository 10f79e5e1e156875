package submit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// unattended is how long a task is waited for before a warning says that no agent takes
// turns: one may just have been started.
const unattended = 10 * time.Second

// waiting follows a task until it has ended.
type waiting struct {
	spool  queue.Client
	id     task.ID
	stop   string        // what stops the task
	start  func() string // how the agent is started
	stderr io.Writer

	shown   int64        // bytes of the log
	absent  task.Absence // of the task
	trouble string       // what was printed last
}

// starter is how the agent that takes the tasks is started.
func starter(c *cli.Context) func() string {
	return func() string { return tasklist.Start(c.String("config"), c.String("spool")) }
}

// wait follows a task: it prints the log as it is published, and ends with the
// task's status.
func (w *waiting) wait(ctx context.Context, stdout io.Writer) error {
	line := progress.Open(w.stderr, name)
	defer line.Close()
	w.stderr = line.Writer(w.stderr)
	// The output of a task must not control the reader's terminal.
	text := app.Printable(line.Writer(stdout), app.IsTerminal(stdout))
	defer text.Close()
	began, e := clock.Now(), queue.Entry{State: task.Pending}
	for {
		seen, err := w.printLog(text)
		switch {
		case err == nil:
			e, w.absent = seen, task.Absence{}
			if e.State.Final() {
				return status(e)
			}
			line.Set(fmt.Sprintf("%s: %s, %s", task.Clean(e.Slug), e.State, clock.Since(began).Truncate(time.Second)))
			w.attended(began, e.Agent)
		case errors.Is(err, queue.ErrGone):
			if w.absent = w.absent.Again(clock.Now()); w.absent.Fact() {
				return fmt.Errorf("task %s: %w", w.id, err)
			}
		case !fault.Is(err, fault.Unavailable):
			return err
		default:
			w.tell(err)
		}
		select {
		case <-ctx.Done():
			app.Report(w.stderr, name, fault.Hint(fmt.Errorf("task %s is not stopped: it is %s", w.id, e.State), "to stop it, run "+w.stop))
			return context.Cause(ctx)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// printLog prints what is new in the log, and returns the task.
func (w *waiting) printLog(stdout io.Writer) (queue.Entry, error) {
	e, err := w.spool.Find(w.id)
	if err != nil {
		return e, err
	}
	// The log is published before the final state.
	w.shown, err = tasklist.Follow(w.spool.Log(w.id), w.shown, stdout)
	return e, err
}

// attended tells when the agents of the tasks, or all of them, take no turns.
func (w *waiting) attended(began time.Time, agents ...string) {
	err := tasklist.Unattended(w.spool, w.start, agents...)
	if err != nil && clock.Since(began) < unattended {
		return
	}
	w.tell(err)
}

// tell says once what keeps the task waiting. It may pass.
func (w *waiting) tell(err error) {
	if err == nil {
		w.trouble = ""
		return
	}
	if w.trouble != err.Error() {
		w.trouble = err.Error()
		app.Report(w.stderr, name, err)
	}
}

// status is the exit status for the end of a task: that of its command, if that
// was run to its end.
func status(e queue.Entry) error {
	if e.State == task.Completed {
		return nil
	}
	err := fmt.Errorf("task %s: %s: %s", e.ID, e.State, task.Clean(e.Reason))
	if e.State == task.Failed && e.ExitCode > 0 && e.ExitCode < 256 {
		return fault.Exit(e.ExitCode, err)
	}
	return err
}

// waitForGroup waits for the tasks of a group.
func waitForGroup(c *cli.Context, stderr io.Writer) error {
	for _, f := range Flags() {
		if name := f.Names()[0]; c.IsSet(name) && !slices.Contains([]string{"config", "spool", "wait", "group"}, name) {
			return fault.Errorf(fault.Usage, "--%s: no command to run", name)
		}
	}
	if err := queue.CheckGroup(c.String("group")); err != nil {
		return fault.Errorf(fault.Usage, "--group: %w", err)
	}
	s, err := tasklist.Open(c.String("config"), c.String("spool"))
	if err != nil {
		return err
	}
	all, err := s.List()
	if err != nil {
		return err
	}
	var ids []task.ID
	for _, r := range all {
		if r.Group == c.String("group") && !r.Retried {
			ids = append(ids, r.ID)
		}
	}
	if len(ids) == 0 {
		return fmt.Errorf("no task is in the group %q", c.String("group"))
	}
	w := waiting{spool: s, start: starter(c), stop: stopOf(c, c.String("group")), stderr: stderr}
	return w.waitForAll(c, ids)
}

// stopOf is the command that stops the tasks of a group.
func stopOf(c *cli.Context, group string) string {
	if c.IsSet("spool") {
		return fmt.Sprintf("ponos-cancel --spool %s --group %s", shell.Quote(c.String("spool")), group)
	}
	return "ponos-cancel --group " + group
}

// waitForAll waits until all tasks have ended. Of those that did not complete, it names some.
func (w *waiting) waitForAll(c *cli.Context, ids []task.ID) error {
	line := progress.Open(w.stderr, name)
	defer line.Close()
	w.stderr = line.Writer(w.stderr)
	wanted := make(map[task.ID]bool, len(ids))
	for _, id := range ids {
		wanted[id] = true
	}
	began := clock.Now()
	var seen tasklist.Count
	for {
		polled := time.Now() //nolint:forbidigo // how long a look takes on this machine
		all, err := w.spool.List()
		switch {
		case err == nil:
			all = slices.DeleteFunc(all, func(r queue.Summary) bool { return !wanted[r.ID] })
			seen = tasklist.CountOf(all)
			over, err := w.some(line, all, len(ids), began)
			if over || err != nil {
				return err
			}
			w.attended(began, tasklist.Agents(all, 0)...)
		case fault.Is(err, fault.Unavailable):
			w.tell(err)
		default:
			return err
		}
		pause := max(300*time.Millisecond, 4*time.Since(polled)) //nolint:forbidigo // the same
		select {
		case <-c.Done():
			app.Report(w.stderr, name, fault.Hint(fmt.Errorf("the tasks are not stopped: %s", seen), "to stop them, run "+w.stop))
			return context.Cause(c.Context)
		case <-time.After(min(pause, 10*time.Second)):
		}
	}
}

// some looks at the tasks that are waited for, and reports whether they are over.
func (w *waiting) some(line *progress.Line, all []queue.Summary, wanted int, began time.Time) (bool, error) {
	count := tasklist.CountOf(all)
	line.Set(fmt.Sprintf("%s, %s", count, clock.Since(began).Truncate(time.Second)))
	over := 0
	var bad []queue.Summary
	for _, r := range all {
		if r.State.Final() {
			if over++; r.State != task.Completed {
				bad = append(bad, r)
			}
		}
	}
	if missing := wanted - len(all); missing > 0 {
		// One look that does not show them proves nothing.
		if w.absent = w.absent.Again(clock.Now()); !w.absent.Fact() {
			return false, nil
		}
		if over == len(all) {
			return true, fmt.Errorf("%d of %d tasks are gone from the spool", missing, wanted)
		}
	} else {
		w.absent = task.Absence{}
	}
	if over < len(all) {
		return false, nil
	}
	if len(bad) == 0 {
		return true, nil
	}
	const most = 5
	for _, r := range bad[:min(len(bad), most)] {
		app.Report(w.stderr, name, fmt.Errorf("task %s (%s): %s: %s", r.ID, task.Clean(r.Slug), r.State, task.Clean(r.Reason)))
	}
	return true, fmt.Errorf("%d of %d tasks did not complete", len(bad), wanted)
}
