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
	"github.com/ponos-tools/ponos/lib/queue/spool"
	"github.com/ponos-tools/ponos/lib/task"
)

// wait follows a task: it prints the log as it is published, and ends with the
// task's status.
func wait(ctx context.Context, s *spool.Spool, id task.ID, stdout, stderr io.Writer) error {
	line := progress.Open(stderr, name)
	defer line.Close()
	// What a task prints must not command the terminal of who looks at it.
	text := app.Printable(line.Writer(stdout), app.IsTerminal(stdout))
	defer text.Close()
	shown, began := int64(0), clock.Now()
	for {
		e, err := s.Find(id)
		if err != nil {
			return err
		}
		if !e.State.Final() {
			line.Set(fmt.Sprintf("%s: %s, %s", task.Clean(e.Slug), e.State, clock.Since(began).Truncate(time.Second)))
		}
		// The log is published before the final state.
		if shown, err = follow(s.Log(id), shown, text); err != nil {
			return err
		}
		if e.State.Final() {
			return status(e)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// follow prints what has been added to a log since the last look. Each time it is
// published, the file is a new one.
func follow(path string, shown int64, stdout io.Writer) (int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return shown, nil
	}
	if err != nil {
		return shown, err
	}
	defer f.Close()
	if _, err := f.Seek(shown, io.SeekStart); err != nil {
		return shown, err
	}
	n, err := io.Copy(stdout, f)
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
