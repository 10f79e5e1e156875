package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/ponos-tools/ponos/lib/app"
	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/progress"
	"github.com/ponos-tools/ponos/lib/queue"
	"github.com/ponos-tools/ponos/lib/queue/spool"
	"github.com/ponos-tools/ponos/lib/task"
)

// unattended is how old a task is before its user is told that no agent takes turns: one
// may just have been started.
const unattended = 10 * time.Second

// noAgent is an error if no agent takes turns in the spool, or nil.
func noAgent(s *spool.Spool) error {
	last, alive, err := s.LastSeen()
	if err != nil || alive {
		return nil // what is wrong with the spool is told elsewhere
	}
	text := "no agent has taken a turn in this spool"
	if !last.Seen.IsZero() {
		seen := last.Seen.Local()
		format := time.TimeOnly
		if now := clock.Now().Local(); seen.YearDay() != now.YearDay() || seen.Year() != now.Year() {
			format = time.DateTime
		}
		text = fmt.Sprintf("no agent has taken a turn since %s (%s on host %s)", seen.Format(format), task.Clean(last.Agent), task.Clean(last.Host))
	}
	return fault.Hint(errors.New(text), "start it: ponos-poll --every 10s | ponos-stop | ponos-start")
}

// waiting is somebody who waits for a task.
type waiting struct {
	spool  *spool.Spool
	id     task.ID
	stop   string // what stops the task
	stderr io.Writer

	shown   int64        // bytes of the log
	absent  task.Absence // of the task
	trouble string       // what was told last
}

// wait follows a task: it prints the log as it is published, and ends with the
// task's status.
func (w *waiting) wait(ctx context.Context, stdout io.Writer) error {
	line := progress.Open(w.stderr, name)
	defer line.Close()
	w.stderr = line.Writer(w.stderr)
	// What a task prints must not command the terminal of who looks at it.
	text := app.Printable(line.Writer(stdout), app.IsTerminal(stdout))
	defer text.Close()
	began, e := clock.Now(), spool.Entry{State: task.Pending}
	for {
		seen, err := w.look(text)
		switch {
		case err == nil:
			e, w.absent = seen, task.Absence{}
			if e.State.Final() {
				return status(e)
			}
			line.Set(fmt.Sprintf("%s: %s, %s", task.Clean(e.Slug), e.State, clock.Since(began).Truncate(time.Second)))
			if clock.Since(began) > unattended {
				err = noAgent(w.spool)
			}
		case errors.Is(err, queue.ErrGone):
			if w.absent = w.absent.Again(clock.Now()); w.absent.Fact() {
				return fmt.Errorf("task %s: %w", w.id, err)
			}
			err = nil
		case !fault.Is(err, fault.Unavailable):
			return err
		}
		w.tell(err)
		select {
		case <-ctx.Done():
			app.Report(w.stderr, name, fault.Hint(fmt.Errorf("task %s stays in the spool: %s", w.id, e.State), w.stop+" stops it"))
			return context.Cause(ctx)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// look prints what is new in the log, and returns the task.
func (w *waiting) look(stdout io.Writer) (spool.Entry, error) {
	e, err := w.spool.Find(w.id)
	if err != nil {
		return e, err
	}
	// The log is published before the final state.
	w.shown, err = follow(w.spool.Log(w.id), w.shown, stdout)
	return e, err
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

// follow prints what has been added to a log since the last look. Each time it is
// published, the file is a new one.
func follow(path string, shown int64, stdout io.Writer) (int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return shown, nil
	}
	if err == nil {
		defer f.Close()
		_, err = f.Seek(shown, io.SeekStart)
	}
	if err != nil {
		return shown, fault.Errorf(fault.Unavailable, "log: %w", err)
	}
	n, err := io.Copy(stdout, f)
	var read *fs.PathError
	if errors.As(err, &read) && read.Path == path {
		err = fault.Errorf(fault.Unavailable, "log: %w", err)
	}
	return shown + n, err
}

// status is the exit status for the end of a task: that of its command, if that
// was run to its end.
func status(e spool.Entry) error {
	if e.State == task.Completed {
		return nil
	}
	err := fmt.Errorf("task %s: %s: %s", e.ID, e.State, task.Clean(e.Reason))
	if e.State == task.Failed && e.ExitCode > 0 && e.ExitCode < 256 {
		return fault.Exit(e.ExitCode, err)
	}
	return err
}
