package harness

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/needs"
)

// cluster is the real Slurm of this test binary.
var cluster struct {
	once sync.Once
	lock net.Listener // see clusterPort
	held *Held
	env  map[string]string
	err  error
}

// Held is a cluster that ends with the process that holds it, however that ends.
type Held struct {
	Env   map[string]string // what its programs need to speak to it
	end   io.Closer
	holds *exec.Cmd
	said  *bytes.Buffer
}

// Hold starts a cluster in a directory, with 20 ports from that one on, of the Slurm in the directories of path. The
// caller's environment may have further settings of testscripts/cluster/up.
func Hold(dir string, port int, path string) (*Held, error) {
	h := &Held{Env: map[string]string{}, said: &bytes.Buffer{}}
	h.holds = exec.Command(filepath.Join(Root(), "testscripts/cluster/held"))
	h.holds.Env = append(os.Environ(), "PATH="+path, "PONOS_CLUSTER="+dir, fmt.Sprintf("PONOS_CLUSTER_PORT=%d", port))
	h.holds.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // It outlives what ends all processes of a group.
	h.holds.Stderr = h.said
	end, err := h.holds.StdinPipe()
	if err != nil {
		return nil, err
	}
	h.end = end
	stdout, err := h.holds.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := h.holds.Start(); err != nil {
		return nil, err
	}
	exports, err := io.ReadAll(stdout)
	if err != nil || len(exports) == 0 {
		return nil, cmp.Or(h.Close(), err, errors.New("testscripts/cluster/held: no exports"))
	}
	for line := range strings.Lines(string(exports)) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		h.Env[name] = value
	}
	return h, nil
}

// Close ends the cluster and removes its directory.
func (h *Held) Close() error {
	_ = h.end.Close()
	if err := h.holds.Wait(); err != nil {
		said := strings.Join(strings.Fields(h.said.String()), " ") // in a line, as reasons of skips are
		return fmt.Errorf("testscripts/cluster/held: %w: %s", err, said[max(0, len(said)-1000):])
	}
	return nil
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
	if cluster.err = noCluster(); cluster.err != nil {
		return
	}
	port, err := clusterPort()
	if err != nil {
		cluster.err = err
		return
	}
	// The Slurm that the caller's PATH leads to, without the programs of the tests that stand in for it.
	cluster.held, cluster.err = Hold(fmt.Sprintf("/tmp/ponos-cluster-%d", port), port, callersPath+systemPath)
	if cluster.err != nil {
		return
	}
	cluster.env = cluster.held.Env
	for _, variable := range Clock() {
		name, value, _ := strings.Cut(variable, "=")
		cluster.env[name] = value
	}
}

// noCluster is why there cannot be a cluster here.
func noCluster() error {
	if os.Getenv("PONOS_TEST_SLURM") == "no" {
		return errors.New("PONOS_TEST_SLURM=no")
	}
	if os.Geteuid() != 0 {
		return errors.New("starting its cluster takes root")
	}
	if _, err := os.Stat("/etc/debian_version"); err != nil {
		return errors.New("the cluster needs Debian's packages")
	}
	return nil
}

const systemPath = ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

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
	// A package begins at a range of its own.
	h := fnv.New32a()
	h.Write([]byte(wd))
	for i := range uint32(ranges) {
		port := first + int((h.Sum32()+i)%ranges)*ports
		lock, err := net.Listen("tcp4", fmt.Sprintf("127.0.0.1:%d", port+ports-1))
		if err != nil {
			continue
		}
		if free(port, ports-1) {
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

// stopCluster ends the cluster, if one was started.
func stopCluster() {
	if cluster.held == nil {
		return
	}
	if err := cluster.held.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	cluster.lock.Close()
}
