package lfind

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ponos-tools/ponos/testscripts/captures"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// TestMain has the program replay, which prints a capture for the fakes: replay FILE COMMAND ARG...
func TestMain(m *testing.M) {
	harness.Main(m, map[string]func(){"replay": func() {
		if err := captures.Replay(os.Stdout, os.Args[1], os.Args[2], os.Args[3:]...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(99)
		}
	}}, "lfind")
}

// TestScripts runs lfind with programs that stand in for Slurm and ssh. Their
// answers are in the directory slurm of each script.
func TestScripts(t *testing.T) {
	harness.Run(t, harness.Options{Setup: func(env *testscript.Env) error {
		fakes := filepath.Join(harness.Root(), "testscripts/lfind/fakes")
		env.Setenv("PATH", fakes+string(os.PathListSeparator)+env.Getenv("PATH"))
		env.Setenv("FAKE_SLURM", filepath.Join(env.WorkDir, "slurm"))
		env.Setenv("SLURM_CONF", "/none")
		env.Setenv("LFIND_TOKENS", filepath.Join(env.WorkDir, "held"))
		env.Setenv("TESTDATA", filepath.Join(harness.Root(), "lib"))
		return os.MkdirAll(filepath.Join(env.WorkDir, "slurm"), 0o755)
	}})
}
