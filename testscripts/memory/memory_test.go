package memory

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

func TestMain(m *testing.M) {
	harness.Main(m, nil, "ponos-poll", "ponos-start", "ponos-stop", "ponos-submit", "ponos-list", "ponos-log", "ponos-cancel", "jobpool")
}

func TestSlurm(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/memory/cgroup.procs"); err != nil {
		needs.Missing(t, "cgroups of version 1, which the Slurm of the tests can divide: "+err.Error())
	}
	t.Setenv("PONOS_CLUSTER_CGROUP", "yes")
	cluster := harness.Cluster(t)
	harness.Run(t, harness.Options{Dir: "slurm", Setup: func(env *testscript.Env) error {
		for name, value := range cluster {
			env.Setenv(name, value)
		}
		path := filepath.Join(env.WorkDir, "ponos.yaml")
		env.Setenv("PONOS_CONFIG", path)
		return os.WriteFile(path, fmt.Appendf(nil, "queue: spool:%[1]s/spool\ndata_dir: %[1]s/data\npid_file: %[1]s/pid\nslurm: {base: {time: 5, partition: cpu}}\n", env.WorkDir), 0o600)
	}})
}
