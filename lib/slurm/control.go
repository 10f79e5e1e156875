package slurm

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Requeue puts a job back into the queue; if it runs, Slurm ends it first.
func (c *Client) Requeue(ctx context.Context, id string) error {
	_, err := c.Output(ctx, 0, "scontrol", "requeue", id)
	return err
}

// Cancel cancels a job. One that has ended already is success.
func (c *Client) Cancel(ctx context.Context, id string) error {
	_, err := c.Output(ctx, 0, "scancel", "--", id)
	var e *Error
	if errors.As(err, &e) && e.Says("Invalid job id", "already completing or completed") {
		return nil
	}
	return err
}

// CancelPending cancels the tasks of a job array that wait.
func (c *Client) CancelPending(ctx context.Context, array string) error {
	_, err := c.Output(ctx, 0, "scancel", "--state=PENDING", "--", array)
	var e *Error
	if errors.As(err, &e) && e.Says("Invalid job id", "already completing or completed") {
		return nil
	}
	return err
}

// Runs reports whether a job in a state has its nodes and was not told to end. Slurm shows a job
// as SIGNALING for a moment after each signal that it sends, its warning of the time limit among them.
func Runs(state string) bool {
	switch state {
	case "RUNNING", "SIGNALING", "CONFIGURING", "RESIZING", "SUSPENDED", "STOPPED":
		return true
	}
	return false
}

// State returns the state of a job that the controller knows.
func (c *Client) State(ctx context.Context, id string) (string, error) {
	out, err := c.Output(ctx, 0, "squeue", "--noheader", "--states=all", "--jobs="+id, "--format=%T")
	if err != nil {
		return "", err
	}
	state, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return state, nil
}

// TimeLeft returns how much time a running job has until its limit, or Unlimited.
func (c *Client) TimeLeft(ctx context.Context, id string) (time.Duration, error) {
	out, err := c.Output(ctx, 0, "squeue", "--noheader", "--jobs="+id, "--format=%L")
	if err != nil {
		return 0, err
	}
	return ParseDuration(string(out))
}

// Before returns the ids of those tasks of a job array that were started before one of
// them and have processes: that run, or that Slurm is ending.
func (c *Client) Before(ctx context.Context, array, id string) ([]string, error) {
	out, err := c.Output(ctx, 0, "squeue", "--noheader", "--states=all", "--jobs="+array, "--format=%A %T %S")
	if err != nil {
		return nil, err
	}
	return parseBefore(string(out), id)
}

// parseBefore reads rows of an id, a state, and the time of the start.
func parseBefore(text, id string) ([]string, error) {
	type row struct {
		id    string
		n     uint64
		start string
	}
	var own *row
	var alive []row
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return nil, parseError("squeue", i+1, "invalid line %q: expected an id, a state and a time", line)
		}
		n, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			return nil, parseError("squeue", i+1, "invalid job id %q", fields[0])
		}
		r := row{fields[0], n, fields[2]}
		if fields[0] == id {
			own = &r
		} else if Runs(fields[1]) || fields[1] == "COMPLETING" {
			alive = append(alive, r)
		}
	}
	if own == nil {
		return nil, parseError("squeue", 1, "job %s is missing", id)
	}
	var before []string
	for _, r := range alive {
		if r.start < own.start || r.start == own.start && r.n < own.n {
			before = append(before, r.id)
		}
	}
	return before, nil
}
