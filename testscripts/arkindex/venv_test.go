package arkindex

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

var workerDir = filepath.Join(harness.Root(), "testscripts/arkindex/worker")

// packages returns a virtual environment with the real packages.
func packages(t *testing.T) string {
	t.Helper()
	return harness.Venv(t, harness.Packages{Name: "arkindex", File: "testscripts/arkindex/worker/requirements.txt"})
}

// site is the directory with the packages of the virtual environment.
func site(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(packages(t), "lib/python3*/site-packages"))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages of the virtual environment: %v, %v", found, err)
	}
	return found[0]
}

// repository makes a bare git repository of the real worker that can be served as
// files, and returns its commit.
func repository(t *testing.T, bare string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(workerDir)); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "install_ponos_slurm.sh")
	text, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	executable.Write(t, script, strings.ReplaceAll(string(text), "@SITE@", site(t)))
	git := func(args ...string) string {
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("init", "--quiet", "--initial-branch=main")
	git("add", "--all")
	git("commit", "--quiet", "--message=Worker")
	git("clone", "--quiet", "--bare", dir, bare)
	git("-C", bare, "update-server-info")
	return git("rev-parse", "HEAD")
}
