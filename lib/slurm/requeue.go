package slurm

import (
	"context"
	"strings"
)

// Requeue puts a job back into the queue; if it runs, Slurm ends it first.
func (c *Client) Requeue(ctx context.Context, id string) error {
	_, err := c.Output(ctx, 0, "scontrol", "requeue", id)
	return err
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

// EarlierRuns returns how the runs of a job have ended before it was requeued,
// the first one first, as accounting tells it: PREEMPTED, REQUEUED, NODE_FAIL.
func (c *Client) EarlierRuns(ctx context.Context, id string) ([]string, error) {
	out, err := c.Output(ctx, 0, "sacct", "--noheader", "--parsable2", "--allocations", "--duplicates", "--jobs="+id, "--format=State")
	if err != nil {
		return nil, err
	}
	return parseRuns(string(out)), nil
}

// parseRuns leaves out the run that is not over.
func parseRuns(text string) []string {
	var runs []string
	for line := range strings.Lines(text) {
		state, _, _ := strings.Cut(strings.TrimSpace(line), " ") // CANCELLED by 1000
		switch state {
		case "", "PENDING", "RUNNING", "COMPLETING", "SUSPENDED", "CONFIGURING":
		default:
			runs = append(runs, state)
		}
	}
	return runs
}
