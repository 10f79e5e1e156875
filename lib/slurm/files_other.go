//go:build !linux

package slurm

import "os"

func widen(*os.File) {}

// unnamed is a temporary file that has no name any more.
func unnamed() (*os.File, error) {
	f, err := os.CreateTemp("", "ponos-*")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}
