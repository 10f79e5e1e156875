package agent

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// The whole pipeline is killed at any moment, over and over, with git and pip at
// work: in the end each task has run exactly once.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	killedAtAnyMoment(t, "local: {max_jobs: 2}\n", nil)
}

func TestKilledAtAnyMomentOnSlurm(t *testing.T) {
	vars := harness.Cluster(t)
	t.Parallel()
	killedAtAnyMoment(t, "slurm: {base: {partition: cpu, time: 5}}\n", vars)
}

func killedAtAnyMoment(t *testing.T, section string, vars map[string]string) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { killLocalJobs(dir) })
	configuration := fmt.Sprintf(config, dir) + section
	configuration = strings.Replace(configuration, "local: {max_jobs: 2, stop_wait: 10s}\n", "", 1)
	if err := os.WriteFile(filepath.Join(dir, "ponos.yaml"), []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "PONOS_CONFIG="+filepath.Join(dir, "ponos.yaml"), "HOME="+dir)
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	run := func(name string, args ...string) string {
		c := exec.Command(name, args...)
		c.Env, c.Dir = env, dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("git", "init", "-q", "-b", "main", "repo")
	if err := os.WriteFile(filepath.Join(dir, "repo", "install_ponos_slurm.sh"), []byte("sleep 0.2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run("git", "-C", "repo", "add", "-A")
	run("git", "-C", "repo", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "x")
	want := map[string]int{}
	for i := range 10 {
		args := []string{"--", "sh", "-c", "echo $PONOS_TASK >>" + filepath.Join(dir, "ran")}
		if i%2 == 0 {
			args = append([]string{"--repository", "repo"}, args...)
		}
		want[run("ponos-submit", args...)] = 1
	}

	const pipeline = "ponos-poll | ponos-stop | ponos-start"
	random := rand.New(rand.NewPCG(1, 2))
	kills := 0
	for range 60 {
		c := exec.Command("bash", "-c", pipeline)
		c.Env, c.Dir, c.SysProcAttr = env, dir, &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(random.IntN(120)) * time.Millisecond)
		if syscall.Kill(-c.Process.Pid, syscall.SIGKILL) == nil {
			kills++
		}
		_ = c.Wait()
	}
	deadline := time.Now().Add(90 * time.Second)
	for {
		run("bash", "-c", "set -o pipefail; "+pipeline)
		list := run("ponos-submit", "--list")
		if strings.Count(list, " completed ") == len(want) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("tasks are not over:\n%s", list)
		}
		time.Sleep(300 * time.Millisecond)
	}
	b, err := os.ReadFile(filepath.Join(dir, "ran"))
	if err != nil {
		t.Fatal(err)
	}
	ran := strings.Fields(string(b))
	slices.Sort(ran)
	for _, id := range ran {
		want[id]--
	}
	for id, left := range want {
		if left != 0 {
			t.Errorf("task %s has run %d times", id, 1-left)
		}
	}
	if kills < 20 {
		t.Errorf("only %d pipelines were killed: the test is too quick", kills)
	}
}
