package chaos

import (
	"fmt"
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

// Each tool is killed at the first, second, fourth and eighth of each system call
// that can be seen from outside, while it prepares, starts, reports and ends tasks
// of this machine, with git at work: each task still runs once, and is completed.
func TestKilledAtEachSystemCall(t *testing.T) {
	t.Parallel()
	harness.Programs(t, "strace", "git")
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	configuration := fmt.Sprintf("mode: local\nqueue: spool:%[1]s/spool\ndata_dir: %[1]s/data\npid_file: %[1]s/pid\nlocal: {max_jobs: 4}\n", dir)
	must(os.WriteFile(filepath.Join(dir, "ponos.yaml"), []byte(configuration), 0o600))
	env := append(os.Environ(), "PONOS_CONFIG="+filepath.Join(dir, "ponos.yaml"), "HOME="+dir, mark+"="+dir)
	w := &world{t: t, dir: dir}
	t.Cleanup(func() {
		for _, pid := range w.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	run := func(name string, args ...string) string {
		t.Helper()
		c := exec.Command(name, args...)
		c.Env, c.Dir = env, dir
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	run("git", "init", "-q", "-b", "main", "repo")
	must(os.WriteFile(filepath.Join(dir, "repo", "install_ponos_slurm.sh"), []byte("sleep 0.1\n"), 0o644))
	run("git", "-C", "repo", "add", "-A")
	run("git", "-C", "repo", "-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "x")

	run("ponos-poll") // else ponos-submit says that no agent has taken a turn
	want := map[string]int{}
	submit := func() {
		args := []string{"--", "sh", "-c", "echo $PONOS_TASK >>" + filepath.Join(dir, "ran")}
		if len(want)%2 == 0 {
			args = append([]string{"--repository", "repo"}, args...)
		}
		want[run("ponos-submit", args...)] = 1
	}
	kills := 0
	for _, when := range []int{1, 2, 4, 8} {
		for _, call := range systemCalls {
			for stage := range stageNames {
				if len(want) < 3*len(systemCalls)/2*when { // new ones all the way
					submit()
				}
				if killedAt(env, dir, injection{stage, call, when}) {
					kills++
				}
			}
		}
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		run("bash", "-c", "set -o pipefail; ponos-poll | ponos-stop | ponos-start")
		list := run("ponos-list", "--long")
		if strings.Count(list, " completed ") == len(want) {
			break
		}
		if time.Now().After(deadline) {
			lines := slices.DeleteFunc(strings.Split(list, "\n"), func(line string) bool { return strings.Contains(line, " completed ") })
			t.Fatalf("tasks are not over:\n%s\n%s", strings.Join(lines, "\n"), run("bash", "-c", "cd data/state; find tasks local; tail -n 20 tasks/*/*.json tasks/*/*.log done/*/tail.log; true"))
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "ran"))
	must(err)
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
	if kills < 30 {
		t.Errorf("only %d tools were killed", kills)
	}
	t.Logf("%d tools were killed over %d tasks", kills, len(want))
}

// killedAt runs one turn, in which a tool is killed at a system call, unless it
// makes fewer.
func killedAt(env []string, dir string, i injection) bool {
	var words []string
	for stage, name := range stageNames {
		if stage == i.stage {
			name = fmt.Sprintf("strace -f -b execve -qqq -o /dev/null -e trace=%[1]s -e inject=%[1]s:signal=KILL:when=%[2]d %[3]s", i.call, i.when, name)
		}
		words = append(words, name)
	}
	c := exec.Command("bash", "-c", strings.Join(words, " | ")+`; echo "${PIPESTATUS[@]}"`)
	c.Env, c.Dir = env, dir
	out, err := c.Output()
	if err != nil {
		return false
	}
	statuses := strings.Fields(string(out))
	statuses = statuses[max(0, len(statuses)-len(stageNames)):]
	return len(statuses) == len(stageNames) && statuses[i.stage] == "137"
}
