package ponostask

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil, "ponos-task") }

func TestTask(t *testing.T) { harness.Run(t, harness.Options{}) }

func TestSlurm(t *testing.T) {
	cluster := harness.Cluster(t)
	harness.Run(t, harness.Options{Dir: "slurm", Setup: func(env *testscript.Env) error {
		for name, value := range cluster {
			env.Setenv(name, value)
		}
		env.Setenv("EXAMPLES", filepath.Join(harness.Root(), "examples"))
		return os.Chmod(env.WorkDir, 0o755)
	}})
}
