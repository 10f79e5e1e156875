package slurm

import (
	"context"
	"errors"
	"strings"
)

// Cancel cancels a job. One that has ended already is success.
func (c *Client) Cancel(ctx context.Context, id string) error {
	_, err := c.Output(ctx, 0, "scancel", "--", id)
	var e *Error
	if errors.As(err, &e) && (strings.Contains(e.Exit.Stderr, "Invalid job id") || strings.Contains(e.Exit.Stderr, "already completing or completed")) {
		return nil
	}
	return err
}
