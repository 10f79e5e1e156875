package nfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// A pilot on another host, which sees what the agent does late, runs each packed task once, and a
// task that is stopped ends there.
func TestPackedTasks(t *testing.T) {
	t.Parallel()
	const tasks = 30
	dir := t.TempDir()
	backing, agent, node, slurm := filepath.Join(dir, "disk"), filepath.Join(dir, "agent"), filepath.Join(dir, "node"), filepath.Join(dir, "slurm")
	for _, d := range []string{backing, slurm} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	view(t, backing, agent)
	view(t, backing, node)
	configuration := fmt.Sprintf("queue: spool:%[1]s/spool\ndata_dir: %[1]s/data\npid_file: %[2]s/pid\nslurm: {base: {partition: cpu, time: 5}, stop_wait: 10m, pack: {linger: 3s, jobs: 1, cpus: 4}}\n", agent, dir)
	if err := os.WriteFile(filepath.Join(dir, "ponos.yaml"), []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "PONOS_CONFIG="+filepath.Join(dir, "ponos.yaml"), "HOME="+dir, "SLURM_CONF="+filepath.Join(slurm, "slurm.conf"),
		"PATH="+filepath.Join(harness.Root(), "testscripts/fakeslurm")+":"+harness.Bin+":"+os.Getenv("PATH"))
	sh := func(script string, args ...string) string {
		t.Helper()
		c := exec.Command("bash", append([]string{"-c", script, "sh"}, args...)...)
		c.Env, c.Dir, c.Stderr = env, dir, os.Stderr
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	until := func(what string, is func() bool) {
		t.Helper()
		if !harness.Wait(is) {
			t.Fatalf("%s: not in time\n%s", what, sh("ponos-list --long; cat pilot.out"))
		}
	}
	harness.Programs(t, "git", "python3")
	sh("ponos-setup >/dev/null")
	for range tasks {
		sh("ponos-submit -- sh -c 'echo $PONOS_TASK >>$1/ran; sleep 0.2' x $1 2>/dev/null", dir)
	}
	stopped := sh("ponos-submit -- sh -c 'echo $$ >$1/pid.stopped; sleep 600' x $1 2>/dev/null", dir)
	sh("ponos-poll | ponos-start --pack >/dev/null; sed -i s/PENDING/RUNNING/ slurm/queue")

	// Its node has the view of another host in the same place.
	pilot := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", `mount --bind "$1" "$2" && cd "$2"/data/state/pools/* && exec bash pilots/pilot.sh`, "sh", node, agent)
	out, err := os.Create(filepath.Join(dir, "pilot.out"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	pilot.Env = append(env, "SLURM_JOB_ID=101", "SLURMD_NODENAME=cpu1", "SLURM_JOB_NODELIST=cpu1", "SLURM_JOB_NUM_NODES=1",
		"SLURM_JOB_CPUS_PER_NODE=4", "SLURM_CPUS_ON_NODE=4", fmt.Sprintf("SLURM_JOB_END_TIME=%d", time.Now().Add(time.Hour).Unix()))
	pilot.Dir, pilot.Stdout, pilot.Stderr = dir, out, out
	if err := pilot.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- pilot.Wait() }()
	t.Cleanup(func() { _ = pilot.Process.Kill() })

	until("the tasks are over, but one that runs", func() bool {
		return strings.Count(sh("ponos-poll >/dev/null; ponos-list --long"), " completed ") == tasks && sh("cat pid.stopped 2>/dev/null || true") != ""
	})
	sh("ponos-stop $1 >/dev/null", stopped)
	until("the task that was stopped is gone", func() bool { return sh("ps -o pid= -p $(cat pid.stopped) || true") == "" })
	if got := sh("ponos-list --long $1", stopped); !strings.Contains(got, " stopped ") {
		t.Errorf("the task that was stopped:\n%s", got)
	}
	if ran := sh("sort ran | uniq -d; wc -l <ran"); ran != fmt.Sprint(tasks) {
		t.Errorf("tasks that ran twice, and how many ran:\n%s", ran)
	}
	until("the pilot ends", func() bool { return len(ended) > 0 })
	if err := <-ended; err != nil {
		t.Errorf("the pilot: %v\n%s", err, sh("cat pilot.out"))
	}
}
