package slurm

import (
	"context"
	"errors"
	"strconv"
	"strings"
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

// State returns the state of a job, as long as the controller knows the job.
func (c *Client) State(ctx context.Context, id string) (string, error) {
	out, err := c.Output(ctx, "squeue", "--noheader", "--states=all", "--jobs="+id, "--format=%T")
	if err != nil {
		return "", err
	}
	state, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return state, nil
}

// TimeLeft returns how long a running job has until its time limit, or Unlimited.
func (c *Client) TimeLeft(ctx context.Context, id string) (time.Duration, error) {
	out, err := c.Output(ctx, "squeue", "--noheader", "--jobs="+id, "--format=%L")
	if err != nil {
		return 0, err
	}
	return ParseDuration(string(out))
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
	out, err := c.Command(ctx, command.Cmd{Name: "squeue", Env: append(c.environ(), "TZ=UTC"),
		Args: []string{"--noheader", "--states=all", "--jobs=" + array, "--format=%A %T %S"}})
	if err != nil {
		return Slices{}, err
	}
	return parseSlices(string(out), id)
}

// parseSlices parses rows of id, state and start time. A task that is COMPLETING always
// precedes a running one, even if the clocks of the nodes differ.
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
