package jobpool

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// mostRequests is how many commands of Slurm a call of --alloc may cost on a cluster where nothing waits, and a whole
// small run after another one.
const mostRequests = 15

// A call of --alloc, with its plan, is few requests to Slurm; another run a moment later uses the plan again.
func TestRequestsOfASmallRun(t *testing.T) {
	first := inSlurm(t, nil)
	bin, asked := filepath.Join(first.dir, "counted"), filepath.Join(first.dir, "asked")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sbatch", "squeue", "scontrol", "sacct", "sacctmgr", "sprio", "sshare", "sinfo", "scancel", "srun"} {
		real, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		executable.Write(t, filepath.Join(bin, name), fmt.Sprintf("#!/bin/sh\necho \"%s $*\" >>'%s'\nexec '%s' \"$@\"\n", name, asked, real))
	}
	await(first, "the cluster is idle", func() bool { return first.quietly("squeue", "--noheader") == "" })
	env := append(os.Environ(), append(first.env,
		"PATH="+bin+":"+harness.Bin+":"+os.Getenv("PATH"), "HOME="+first.dir, "XDG_CACHE_HOME="+filepath.Join(first.dir, "cache"))...)
	requests := func() (lines []string) {
		b, _ := os.ReadFile(asked)
		_ = os.Remove(asked)
		for line := range strings.Lines(string(b)) {
			if !strings.HasSuffix(line, " --version\n") { // which asks nobody
				lines = append(lines, line)
			}
		}
		return lines
	}
	for i, run := range []string{"one", "two"} {
		c := exec.Command(filepath.Join(harness.Bin, "jobpool"), "--alloc", "cpu(cores=1) & duration=5m", "--max-jobs", "2", "--linger", "1s",
			"--run", run, "echo {}", ":::", "1", "2", "3", "4", "5", "6", "7", "8")
		c.Dir, c.Env = first.dir, env
		said, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, said)
		}
		call := requests()
		await(first, "run "+run+" ends", func() bool {
			_, err := os.Stat(filepath.Join(first.dir, run, "pilots/over"))
			return err == nil && len(first.jobs()) == 0
		})
		all := append(call, requests()...)
		t.Logf("run %s: %d requests of the call, %d with its jobs\n%s%s", run, len(call), len(all), said, strings.Join(all, ""))
		if len(call) > mostRequests || i > 0 && len(all) > mostRequests {
			t.Errorf("run %s: %d requests of the call, %d with its jobs, want at most %d", run, len(call), len(all), mostRequests)
		}
		if again := strings.Contains(string(said), ", as planned at "); again != (i > 0) {
			t.Errorf("run %s says: %s", run, said)
		}
	}
}
