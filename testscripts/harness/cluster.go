package harness

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ponos-tools/ponos/lib/clock"
)

// cluster is the real Slurm of this test binary.
var cluster struct {
	once sync.Once
	dir  string
	env  map[string]string
	err  error
}

// Cluster starts the real Slurm cluster of this test package, fresh and with a
// directory and ports of its own, unless it runs already. It returns the variables
// that programs need to speak to it, and to have its clock. It ends with the tests.
//
// Where Slurm cannot be had the test is skipped, in one line that says why; with
// PONOS_TEST_SLURM=require it fails.
func Cluster(t testing.TB) map[string]string {
	t.Helper()
	cluster.once.Do(startCluster)
	if cluster.err != nil {
		if os.Getenv("PONOS_TEST_SLURM") == "require" {
			t.Fatalf("no Slurm: %v", cluster.err)
		}
		t.Skipf("needs a real Slurm: %v", cluster.err)
	}
	return cluster.env
}

func startCluster() {
	if os.Getenv("PONOS_TEST_SLURM") == "no" {
		cluster.err = fmt.Errorf("PONOS_TEST_SLURM=no")
		return
	}
	if os.Geteuid() != 0 {
		cluster.err = fmt.Errorf("starting the cluster takes root")
		return
	}
	if _, err := os.Stat("/etc/debian_version"); err != nil {
		cluster.err = fmt.Errorf("the cluster needs Debian's packages")
		return
	}
	wd, err := os.Getwd()
	if err != nil {
		cluster.err = err
		return
	}
	// Packages run side by side: each has its own cluster, in the range of ports
	// that its name leads to.
	h := fnv.New32a()
	h.Write([]byte(wd))
	dir := fmt.Sprintf("/tmp/ponos-cluster-%s-%08x", filepath.Base(wd), h.Sum32())
	port := 20000 + int(h.Sum32()%500)*20
	up := exec.Command(filepath.Join(Root(), "testscripts/cluster/up"), "--clean")
	// Without the programs of the tests that stand in for Slurm's.
	up.Env = append(os.Environ(), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PONOS_CLUSTER="+dir, fmt.Sprintf("PONOS_CLUSTER_PORT=%d", port))
	var out, log bytes.Buffer
	up.Stdout, up.Stderr = &out, &log
	cluster.dir = dir
	if err := up.Run(); err != nil {
		cluster.err = fmt.Errorf("testscripts/cluster/up: %w\n%s", err, log.String())
		return
	}
	cluster.env = map[string]string{}
	for line := range strings.Lines(out.String()) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		cluster.env[name] = value
	}
	if value, moved := os.LookupEnv(clock.Variable); moved {
		cluster.env[clock.Variable] = value
	}
}

// stopCluster ends the cluster, if one was started.
func stopCluster() {
	if cluster.dir == "" {
		return
	}
	down := exec.Command(filepath.Join(Root(), "testscripts/cluster/down"), "--purge")
	down.Env = append(os.Environ(), "PONOS_CLUSTER="+cluster.dir)
	if out, err := down.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "testscripts/cluster/down: %v\n%s", err, out)
	}
}
