package arkindex

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/lock"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

var workerDir = filepath.Join(harness.Root(), "testscripts/arkindex/worker")

var venv struct {
	once sync.Once
	dir  string
	err  error
}

// packages returns a virtual environment with the real packages. It is made once
// per machine, in the user's cache directory.
func packages(t *testing.T) string {
	t.Helper()
	venv.once.Do(func() { venv.dir, venv.err = makeVenv() })
	if venv.err != nil {
		t.Fatalf("virtual environment of the tests: %v", venv.err)
	}
	return venv.dir
}

func makeVenv() (string, error) {
	requirements, err := os.ReadFile(filepath.Join(workerDir, "requirements.txt"))
	if err != nil {
		return "", err
	}
	version, err := exec.Command("python3", "-c", "import sys; print(sys.version, sys.prefix)").Output()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(requirements, version...))
	dir := filepath.Join(cache, "ponos-tests", "arkindex-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	done := filepath.Join(dir, "done")
	held, err := lock.Try(filepath.Join(dir, "lock"))
	for start := time.Now(); err != nil; held, err = lock.Try(filepath.Join(dir, "lock")) {
		if time.Since(start) > 5*time.Minute {
			return "", err
		}
		time.Sleep(100 * time.Millisecond)
	}
	defer held.Close()
	made := filepath.Join(dir, "venv")
	if _, err := os.Stat(done); err == nil {
		return made, nil
	}
	for _, argv := range [][]string{
		{"python3", "-m", "venv", "--clear", made},
		{filepath.Join(made, "bin/python3"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", filepath.Join(workerDir, "requirements.txt")},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
		}
	}
	return made, os.WriteFile(done, nil, 0o644)
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
	if err := os.WriteFile(script, bytes.ReplaceAll(text, []byte("@SITE@"), []byte(site(t))), 0o755); err != nil {
		t.Fatal(err)
	}
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
