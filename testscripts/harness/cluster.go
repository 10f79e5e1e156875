package harness

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/needs"
)

// cluster is the real Slurm of this test binary.
var cluster struct {
	once sync.Once
	lock net.Listener // see clusterPort
	dir  string
	env  map[string]string
	err  error
}

// Cluster starts the real Slurm cluster of this test package, fresh and with a
// directory and ports of its own, unless it runs already. It returns the variables
// that programs need to speak to it, and to have its clock. It ends with the tests.
//
// Where Slurm cannot be had the test is skipped, in one line that says why.
func Cluster(t testing.TB) map[string]string {
	t.Helper()
	cluster.once.Do(startCluster)
	if cluster.err != nil {
		needs.Missing(t, "a real Slurm: "+cluster.err.Error())
	}
	return cluster.env
}

func startCluster() {
	if os.Getenv("PONOS_TEST_SLURM") == "no" {
		cluster.err = fmt.Errorf("PONOS_TEST_SLURM=no")
		return
	}
	if os.Geteuid() != 0 {
		cluster.err = fmt.Errorf("starting its cluster takes root")
		return
	}
	if _, err := os.Stat("/etc/debian_version"); err != nil {
		cluster.err = fmt.Errorf("the cluster needs Debian's packages")
		return
	}
	port, err := clusterPort()
	if err != nil {
		cluster.err = err
		return
	}
	dir := fmt.Sprintf("/tmp/ponos-cluster-%d", port)
	up := exec.Command(filepath.Join(Root(), "testscripts/cluster/up"), "--clean")
	// The Slurm that the caller's PATH leads to, without the programs of the tests that stand in for it.
	up.Env = append(os.Environ(), "PATH="+callersPath+":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PONOS_CLUSTER="+dir, fmt.Sprintf("PONOS_CLUSTER_PORT=%d", port))
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
	for _, variable := range Clock() {
		name, value, _ := strings.Cut(variable, "=")
		cluster.env[name] = value
	}
}

// callersPath is PATH before the tools and the stand-ins of the tests are put before it.
var callersPath = os.Getenv("PATH")

// clusterPort returns the first of 20 ports that are this process's until it ends, and which
// nothing listens on. Packages run side by side, and whole suites of one directory or of
// another root: what they all share is the network, so the last port of a range is its lock.
func clusterPort() (int, error) {
	wd, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	const first, ports, ranges = 20000, 20, 500
	// A package begins at a range of its own, where it finds what a killed run of it has left.
	h := fnv.New32a()
	h.Write([]byte(wd))
	for i := range uint32(ranges) {
		port := first + int((h.Sum32()+i)%ranges)*ports
		lock, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port+ports-1))
		if err != nil {
			continue
		}
		if free(port, ports-1) || left(port) {
			cluster.lock = lock
			return port, nil
		}
		lock.Close()
	}
	return 0, fmt.Errorf("no %d free ports in a row from %d to %d", ports, first, first+ranges*ports)
}

// free tells whether nothing listens on n ports.
func free(port, n int) bool {
	for p := port; p < port+n; p++ {
		l, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

// left tells whether a killed run has left its cluster there, which --clean ends.
func left(port int) bool {
	_, err := os.Stat(fmt.Sprintf("/tmp/ponos-cluster-%d", port))
	return err == nil
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
	cluster.lock.Close()
}
