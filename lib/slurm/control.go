package slurm

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/command"
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

// Runs reports whether a job in a state has its nodes and was not requested to end. Slurm shows a job
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

// Slices are the other tasks of a job array, as one of them sees them.
type Slices struct {
	Before  []string // those that have processes, and must end before this one begins its work
	Waiting bool     // whether others wait or run, that can continue the work
}

// Slices returns what there is of a job array beside the task with this id.
func (c *Client) Slices(ctx context.Context, array, id string) (Slices, error) {
	// Times that are compared must not repeat an hour at the end of summer time.
	out, err := c.Command(ctx, command.Cmd{Name: "squeue", Env: append(c.environ(), "TZ=UTC"),
		Args: []string{"--noheader", "--states=all", "--jobs=" + array, "--format=%A %T %S"}})
	if err != nil {
		return Slices{}, err
	}
	return parseSlices(string(out), id)
}

// parseSlices reads rows of an id, a state, and the time of the start. A task that Slurm is ending is
// before one that runs, whatever the clocks of the cluster said at their starts.
func parseSlices(text, id string) (Slices, error) {
	type row struct {
		id, state, start string
		n                uint64
	}
	var own *row
	var others []row
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) != 3 {
			return Slices{}, parseError("squeue", i+1, "invalid line %q: expected an id, a state and a time", line)
		}
		n, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			return Slices{}, parseError("squeue", i+1, "invalid job id %q", fields[0])
		}
		r := row{fields[0], fields[1], fields[2], n}
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
