//go:build covered

package app

import "os"

// coverDir is set by the linker in the tools that "make cover" tests.
var coverDir string

// Most of these tools run in an environment that a script or a job has made. It comes before the
// runtime looks for GOCOVERDIR, which it does in the package main.
func init() { os.Setenv("GOCOVERDIR", coverDir) } //nolint:errcheck // the runtime reports a missing directory
