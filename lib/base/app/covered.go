//go:build covered

package app

import (
	"os"
	"path/filepath"
	"strconv"
)

// coverDir is set by the linker in the tools that "make cover" tests.
var coverDir string

// Most of these tools run in an environment that a script or a job has made. It comes before the
// runtime looks for GOCOVERDIR, which it does in the package main. Each user has a directory, as none
// can replace the files of another.
func init() {
	dir := filepath.Join(coverDir, strconv.Itoa(os.Getuid()))
	_ = os.Mkdir(dir, 0o777)     // the runtime reports a missing directory
	os.Setenv("GOCOVERDIR", dir) //nolint:errcheck // as above
}
