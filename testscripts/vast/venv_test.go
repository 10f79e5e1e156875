package vast

import (
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

// environment is a virtual environment with packages of PyPI, made once per machine
// in the user's cache directory.
type environment struct {
	name, requirements string
	// packages take the place of requirements. Newest has pip look for newer ones each
	// time; where the registry cannot be reached, those that are there will do.
	packages []string
	newest   bool
	once     sync.Once
	dir      string
	err      error
}

var (
	// All tests of the transport "cli" run the newest vastai program.
	clientEnv = &environment{name: "vast-newest", packages: []string{"vastai"}, newest: true}
	workerEnv = &environment{name: "arkindex", requirements: "testscripts/arkindex/worker/requirements.txt"}
)

// client is the virtual environment of the real vastai program.
func client(t *testing.T) string { return clientEnv.get(t) }

func (e *environment) get(t *testing.T) string {
	t.Helper()
	e.once.Do(func() { e.dir, e.err = e.make() })
	if e.err != nil {
		t.Fatalf("virtual environment of the tests: %v", e.err)
	}
	return e.dir
}

func (e *environment) make() (string, error) {
	wanted := e.packages
	text := []byte(strings.Join(wanted, "\n"))
	if e.requirements != "" {
		var err error
		file := filepath.Join(harness.Root(), e.requirements)
		if text, err = os.ReadFile(file); err != nil {
			return "", err
		}
		wanted = []string{"-r", file}
	}
	version, err := exec.Command("python3", "-c", "import sys; print(sys.version, sys.prefix)").Output()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(text, version...))
	dir := filepath.Join(cache, "ponos-tests", e.name+"-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	held, err := lock.Try(filepath.Join(dir, "lock"))
	for start := time.Now(); err != nil; held, err = lock.Try(filepath.Join(dir, "lock")) {
		if time.Since(start) > 5*time.Minute {
			return "", err
		}
		time.Sleep(100 * time.Millisecond)
	}
	defer held.Close()
	made, done := filepath.Join(dir, "venv"), filepath.Join(dir, "done")
	install := append([]string{filepath.Join(made, "bin/python3"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, wanted...)
	steps := [][]string{{"python3", "-m", "venv", "--clear", made}, install}
	if _, err := os.Stat(done); err == nil {
		if e.newest {
			cmd := exec.Command(install[0], append(install[1:], "--upgrade")...)
			cmd.Env = outside()
			_ = cmd.Run() // what was there before is still there
		}
		return made, nil
	}
	for _, argv := range steps {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = outside()
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
		}
	}
	return made, os.WriteFile(done, nil, 0o644)
}

// outside is the environment that the tests were started with, for the one program
// that may use the network: pip.
func outside() []string { return before }

var before = os.Environ()
