package harness

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/needs"
)

func TestMain(m *testing.M) { Main(m, nil) }

// holder has a test of a process of its own hold a cluster in a directory, with ports from that one on: "DIR PORT".
const holder = "PONOS_TEST_HOLDER"

// A test that is killed, at whatever time, leaves neither a process nor a file of its cluster.
func TestClusterEndsWithItsTest(t *testing.T) {
	if held := strings.Fields(os.Getenv(holder)); len(held) == 2 {
		port, err := strconv.Atoi(held[1])
		if err != nil {
			t.Fatal(err)
		}
		h, err := Hold(held[0], port, callersPath+systemPath)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("holds", h.Env["SLURM_CONF"])
		select {}
	}
	if err := noCluster(); err != nil {
		needs.Missing(t, "a real Slurm: "+err.Error())
	}
	for _, tt := range []struct {
		name  string
		ready func(t *testing.T, dir string, lines *bufio.Scanner)
	}{
		{"while it starts", func(t *testing.T, dir string, _ *bufio.Scanner) {
			if !Wait(func() bool { return len(marked(dir)) > 0 }) {
				t.Error("no daemon starts")
			}
		}},
		{"while a job runs", func(t *testing.T, dir string, lines *bufio.Scanner) {
			for lines.Scan() && !strings.HasPrefix(lines.Text(), "holds") {
			}
			conf := filepath.Join(dir, "etc/slurm.conf")
			if lines.Text() != "holds "+conf {
				t.Errorf("it says %q", lines.Text())
			}
			left := exec.Command("srun", "--quiet", "sh", "-c", "setsid sleep 1000 & exec sleep 1000")
			left.Dir = dir
			left.Env = append(os.Environ(), "SLURM_CONF="+conf)
			if err := left.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = left.Process.Kill(); _ = left.Wait() })
			if !Wait(func() bool { return len(tasks(dir)) >= 2 && len(steps(dir)) > 0 }) {
				t.Error("no job runs")
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			port, err := clusterPort()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { cluster.lock.Close() }()
			dir := fmt.Sprintf("/tmp/ponos-cluster-%d", port)
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			c := exec.Command(self, "-test.run=^TestClusterEndsWithItsTest$")
			c.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d", holder, dir, port))
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			tt.ready(t, dir, bufio.NewScanner(out))
			_ = c.Process.Kill()
			_ = c.Wait()
			if !Wait(func() bool {
				files, err := filepath.Glob(dir + "*")
				return err == nil && len(files) == 0 && len(marked(dir)) == 0 && len(tasks(dir)) == 0 && len(steps(dir)) == 0
			}) {
				files, _ := filepath.Glob(dir + "*")
				t.Errorf("left: processes %v, %v and %v, files %v", marked(dir), tasks(dir), steps(dir), files)
			}
		})
	}
}

// marked are the daemons of a cluster.
func marked(dir string) []int { return processes("PONOS_CLUSTER_DAEMON="+dir+"\x00", "") }

// tasks are the processes of jobs of a cluster.
func tasks(dir string) []int {
	return processes("SLURM_CONF="+filepath.Join(dir, "etc/slurm.conf")+"\x00", "sleep\x00")
}

// steps are the slurmstepds of a cluster. One that is left tells the end of its job to the next cluster of that directory.
func steps(dir string) (pids []int) {
	cwds, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, cwd := range cwds {
		comm, _ := os.ReadFile(filepath.Join(filepath.Dir(cwd), "comm"))
		to, _ := os.Readlink(cwd)
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(cwd))); err == nil && string(comm) == "slurmstepd\n" && strings.HasPrefix(to, dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// processes have a variable, and a command line that begins so.
func processes(variable, command string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, _ := os.ReadFile(filepath.Join(dir, "environ"))
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && strings.Contains(string(environ), variable) && strings.HasPrefix(string(line), command) {
			pids = append(pids, pid)
		}
	}
	return pids
}
