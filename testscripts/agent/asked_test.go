package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// A job is asked to end, by a signal that reaches its script alone, at each of the script's
// forks, the one that becomes the command among them; then Slurm begins it again. In all,
// the command has come to its end once.
func TestAskedToEndAtEachFork(t *testing.T) {
	t.Parallel()
	harness.Programs(t, "strace")
	dir := t.TempDir()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile(filepath.Join(dir, "ponos.yaml"), []byte(fmt.Sprintf("mode: local\nqueue: spool:%[1]s/spool\ndata_dir: %[1]s/data\npid_file: %[1]s/pid\n", dir)), 0o600))
	effects := filepath.Join(dir, "effects")
	must(os.WriteFile(filepath.Join(dir, "command"), []byte("for i in 1 2 3 4 5; do sleep 0.05; done\necho ended >>"+shell.Quote(effects)+"\n"), 0o600))
	run := func(name string, args ...string) string {
		t.Helper()
		c := exec.Command(name, args...)
		c.Env = append(os.Environ(), "PONOS_CONFIG="+filepath.Join(dir, "ponos.yaml"), "HOME="+dir)
		var messages strings.Builder
		c.Stderr = &messages
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s%s", name, args, err, out, messages.String())
		}
		return strings.TrimSpace(string(out))
	}
	run("ponos-setup")
	id := run("ponos-submit", "--", "bash", filepath.Join(dir, "command"))
	run("ponos-start", "--dry-run", id)
	task := filepath.Join(dir, "data/state/tasks", id)

	const forks = "clone,clone3,fork,vfork"
	begin := func(restart string, before ...string) string {
		t.Helper()
		args := append(before, "bash", filepath.Join(task, "job.sh"))
		c := exec.Command(args[0], args[1:]...)
		c.Env = append(os.Environ(), "SLURM_JOB_ID=7", "SLURM_RESTART_COUNT="+restart)
		out, err := c.CombinedOutput()
		if c.ProcessState == nil || c.ProcessState.ExitCode() != 0 && c.ProcessState.ExitCode() != 143 {
			t.Fatalf("%v\n%s", err, out)
		}
		b, err := os.ReadFile(effects)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(b)
	}
	at := 1
	for ; ; at++ {
		names, err := filepath.Glob(filepath.Join(task, "*.[0-9]*")) // owners and journals
		must(err)
		for _, name := range append(names, filepath.Join(task, "work"), effects) {
			must(os.RemoveAll(name))
		}
		trace := filepath.Join(dir, "trace")
		first := begin("0", "strace", "-qq", "-o", trace, "-e", "trace="+forks, "-e", fmt.Sprintf("inject=%s:signal=TERM:when=%d", forks, at))
		if b, err := os.ReadFile(trace); err != nil || !strings.Contains(string(b), "SIGTERM") {
			must(err)
			break
		}
		if all := begin("1"); all != "ended\n" {
			t.Errorf("asked to end at fork %d: the command did %q, and in all %q", at, first, all)
		}
	}
	if at < 5 {
		t.Errorf("only %d forks", at-1)
	}
}
