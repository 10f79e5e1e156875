package harness

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/lock"
)

// Venv returns a virtual environment with the packages of a requirements file, by
// its path in the project. It is made once per machine, in the user's cache directory.
func Venv(t *testing.T, name, requirements string) string {
	t.Helper()
	dir, err := venv(name, filepath.Join(Root(), requirements))
	if err != nil {
		t.Fatalf("virtual environment of the tests: %v", err)
	}
	return dir
}

func venv(name, requirements string) (string, error) {
	text, err := os.ReadFile(requirements)
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
	sum := sha256.Sum256(append(text, version...))
	dir := filepath.Join(cache, "ponos-tests", name+"-"+hex.EncodeToString(sum[:6]))
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
	if _, err := os.Stat(done); err == nil {
		return made, nil
	}
	for _, argv := range [][]string{
		{"python3", "-m", "venv", "--clear", made},
		{filepath.Join(made, "bin/python3"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", requirements},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
		}
	}
	return made, os.WriteFile(done, nil, 0o644)
}
