package slurm

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
)

// Requeue requeues a job. If the job runs, Slurm ends it first.
func (c *Client) Requeue(ctx context.Context, id string) error {
	_, err := c.Output(ctx, "scontrol", "requeue", id)
	return err
}

// Cancel cancels jobs by one call. If one has already ended, that is not an error.
func (c *Client) Cancel(ctx context.Context, ids ...string) error {
	_, err := c.Output(ctx, "scancel", append([]string{"--"}, ids...)...)
	var e *Error
	if errors.As(err, &e) && e.Says("Invalid job id", "already completing or completed") {
		return nil
	}
	return err
}

// CancelPending cancels the pending tasks of a job array.
func (c *Client) CancelPending(ctx context.Context, array string) error {
	_, err := c.Output(ctx, "scancel", "--state=PENDING", "--", array)
	var e *Error
	if errors.As(err, &e) && e.Says("Invalid job id", "already completing or completed") {
		return nil
	}
	return err
}

// Runs reports whether a job in a state has nodes and was not requested to end. Slurm shows
// SIGNALING for a moment after each signal that it sends, such as the warning before the time
// limit.
func Runs(state string) bool {
	switch state {
	case "RUNNING", "SIGNALING", "CONFIGURING", "RESIZING", "SUSPENDED", "STOPPED":
		return true
	}
	return false
}

// cells asks squeue for columns that have no text of users, by their letters, and returns the rows.
func (c *Client) cells(ctx context.Context, letters string, env []string, args ...string) ([][]string, error) {
	form := layout{command: "squeue", mark: "|"}
	format := "--format="
	for _, letter := range letters {
		format += "%" + string(letter) + form.mark
	}
	out, err := c.Command(ctx, command.Cmd{Name: "squeue", Args: append(append([]string{"--noheader"}, args...), format), Env: env})
	if err != nil {
		return nil, err
	}
	return cellsOf(bytes.NewReader(out), form, len(letters))
}

// cellsOf parses rows of so many columns.
func cellsOf(r io.Reader, form layout, count int) ([][]string, error) {
	set := func(c *columns, i int, to *[]string) { *to = append(*to, string(c.cells[i])) }
	return tableOf(r, form, slices.Repeat([]column[[]string]{{"column", set}}, count))
}

// State returns the state of a job, as long as the controller knows the job.
func (c *Client) State(ctx context.Context, id string) (string, error) {
	rows, err := c.cells(ctx, "T", nil, "--states=all", "--jobs="+id)
	if err != nil || len(rows) == 0 {
		return "", err
	}
	return rows[0][0], nil
}

// TimeLeft returns how long a running job has until its time limit, or Unlimited.
func (c *Client) TimeLeft(ctx context.Context, id string) (time.Duration, error) {
	rows, err := c.cells(ctx, "L", nil, "--jobs="+id)
	switch {
	case err != nil:
		return 0, err
	case len(rows) == 0:
		return 0, parseError("squeue", 1, "job %s is missing", id)
	}
	return ParseDuration(rows[0][0])
}

// Slices are the other tasks of a job array that continues one work in time slices, as seen by
// one of its tasks.
type Slices struct {
	Before  []string // ids of running or ending tasks that have precedence
	Waiting bool     // other tasks are pending or running, and can continue the work
}

// Slices returns the other tasks of a job array for the task with this id.
func (c *Client) Slices(ctx context.Context, array, id string) (Slices, error) {
	// The start times are compared, and in UTC no hour repeats.
	rows, err := c.cells(ctx, "ATS", append(c.environ(), "TZ=UTC"), "--states=all", "--jobs="+array)
	if err != nil {
		return Slices{}, err
	}
	return slicesOf(rows, id)
}

// slicesOf reads rows of id, state and start time. A task that is COMPLETING always
// precedes a running one, even if the clocks of the nodes differ.
func slicesOf(rows [][]string, id string) (Slices, error) {
	type row struct {
		id, state, start string
		n                uint64
	}
	var own *row
	var others []row
	for i, cells := range rows {
		n, err := strconv.ParseUint(cells[0], 10, 64)
		if err != nil {
			return Slices{}, parseError("squeue", i+1, "invalid job id %q", cells[0])
		}
		r := row{cells[0], cells[1], cells[2], n}
		if r.id == id {
			own = &r
		} else {
			others = append(others, r)
		}
	}
	if own == nil {
		return Slices{}, parseError("squeue", 1, "job %s is missing", id)
	}
	var s Slices
	for _, r := range others {
		switch {
		case r.state == "COMPLETING", Runs(r.state) && (r.start < own.start || r.start == own.start && r.n < own.n):
			s.Before = append(s.Before, r.id)
		}
		switch r.state {
		case "PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT":
			s.Waiting = true
		default:
			s.Waiting = s.Waiting || Runs(r.state)
		}
	}
	return s, nil
}
