// Package fairshare tests the tool of that name end to end: against commands that
// answer as Slurm once did, and against a real cluster.
package fairshare

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) {
	fakes := map[string]func(){}
	for _, name := range []string{"squeue", "sprio", "sshare", "scontrol", "sbatch", "sacct", "sacctmgr", "sreport"} {
		fakes[name] = func() { os.Exit(answer(name, os.Args[1:])) }
	}
	harness.Main(m, fakes, "fairshare")
}

func TestScripts(t *testing.T) {
	recorded := filepath.Join(harness.Root(), "lib/slurm/testdata/22.05.8/queue")
	now, err := harness.RecordedAt(recorded)
	if err != nil {
		t.Fatal(err)
	}
	harness.Run(t, harness.Options{Setup: func(env *testscript.Env) error {
		env.Setenv(clock.Variable, now)
		env.Setenv("TZ", "UTC") // that of the cluster
		env.Setenv("RECORDED", recorded)
		env.Setenv("COMMON", filepath.Join(harness.Root(), "testscripts/fairshare/answers"))
		env.Setenv("ASKED", filepath.Join(env.WorkDir, "asked"))
		return nil
	}})
}
