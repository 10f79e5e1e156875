//go:build !linux

package slurm

import "os"

func widen(*os.File) {}

// unnamed returns a temporary file that has already been unlinked.
func unnamed() (*os.File, error) {
	f, err := os.CreateTemp("", "ponos-*")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}
