package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// A job is asked to end, by a signal that reaches it alone, at each of the system calls with which it takes the task, makes
// its copy, keeps its record, and begins the command, which makes none of those; then Slurm begins it again. In all, the
// command has come to its end once.
func TestAskedToEndAtEachStep(t *testing.T) {
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
	effects, pipe, source := filepath.Join(dir, "effects"), filepath.Join(dir, "pipe"), filepath.Join(dir, "source")
	must(errors.Join(syscall.Mkfifo(pipe, 0o600), os.Mkdir(source, 0o700)))
	must(os.WriteFile(filepath.Join(dir, "command"), []byte("read -t 0.2 _ <>"+shell.Quote(pipe)+"\necho ended >>"+shell.Quote(effects)+"\n"), 0o600))
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

	begin := func(restart string, before ...string) string {
		t.Helper()
		args := append(before, filepath.Join(harness.Bin, "ponos"), "ponos-worker", "exec", "--task="+id, "--job=7", "--attempt=1",
			"--restart="+restart, "--source="+source, task)
		c := exec.Command(args[0], args[1:]...)
		out, err := c.CombinedOutput()
		// It is ended by the signal where it does not listen yet.
		if c.ProcessState == nil || !slices.Contains([]int{0, 143, -1}, c.ProcessState.ExitCode()) {
			t.Fatalf("%v\n%s", err, out)
		}
		b, err := os.ReadFile(effects)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return string(b)
	}
	// The call is the nth of that name in one thread: over all names, the number would depend on how threads share the CPUs.
	asked := func(call string, n int) bool {
		t.Helper()
		names, err := filepath.Glob(filepath.Join(task, "*.[0-9]*")) // owners and journals
		must(err)
		for _, name := range append(names, filepath.Join(task, "work"), effects) {
			must(os.RemoveAll(name))
		}
		trace := filepath.Join(dir, "trace")
		first := begin("0", "strace", "-f", "-qq", "-o", trace, "-e", "trace="+call, "-e", fmt.Sprintf("inject=%s:signal=TERM:when=%d", call, n))
		if b, err := os.ReadFile(trace); err != nil || !strings.Contains(string(b), "SIGTERM") {
			must(err)
			return false
		}
		if all := begin("1"); all != "ended\n" {
			t.Errorf("asked to end at %s %d: the command did %q, and in all %q", call, n, first, all)
		}
		return true
	}
	made := 0
	for _, call := range []string{"symlinkat", "renameat", "chdir", "fsync", "clone", "clone3", "fork", "vfork"} {
		for n := 1; asked(call, n); n++ {
			made++
		}
	}
	if made < 5 {
		t.Errorf("only %d calls", made)
	}
}
