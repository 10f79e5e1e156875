package slurm

import (
	"context"
	"strings"
)

// Ping reports whether a controller answers.
func (c *Client) Ping(ctx context.Context) error {
	_, err := c.Output(ctx, 0, "scontrol", "ping")
	return err
}

// Version returns the version of a command of Slurm, such as 22.05.8.
func (c *Client) Version(ctx context.Context, name string) (string, error) {
	out, err := c.Output(ctx, 0, name, "--version")
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(out))
	if len(fields) < 2 {
		return "", parseError(name, 1, "%q is no version", strings.TrimSpace(string(out)))
	}
	return fields[1], nil
}

// Cluster returns the name of the cluster.
func (c *Client) Cluster(ctx context.Context) (string, error) {
	out, err := c.Output(ctx, 0, "scontrol", "show", "config")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == "ClusterName" {
			return strings.TrimSpace(value), nil
		}
	}
	return "", parseError("scontrol show config", 1, "it has no ClusterName")
}
