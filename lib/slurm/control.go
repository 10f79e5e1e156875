package slurm

import (
	"context"
	"errors"
	"strings"
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
