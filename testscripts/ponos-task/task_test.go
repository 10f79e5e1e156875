package ponostask

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil, "ponos-task") }

func TestTask(t *testing.T) {
	harness.Run(t, harness.Options{Setup: func(env *testscript.Env) error {
		env.Setenv("PATH", filepath.Join(harness.Root(), "testscripts/fakeslurm")+":"+env.Getenv("PATH"))
		env.Setenv("SLURM_CONF", filepath.Join(env.WorkDir, "slurm/slurm.conf"))
		return nil
	}})
}

func TestSlurm(t *testing.T) {
	// A job that is preempted has this time to save, on a machine that is busy.
	t.Setenv("PONOS_CLUSTER_KILLWAIT", "30")
	cluster := harness.Cluster(t)
	harness.Run(t, harness.Options{Dir: "slurm", Setup: func(env *testscript.Env) error {
		for name, value := range cluster {
			env.Setenv(name, value)
		}
		env.Setenv("EXAMPLES", filepath.Join(harness.Root(), "examples"))
		return os.Chmod(env.WorkDir, 0o755)
	}})
}
