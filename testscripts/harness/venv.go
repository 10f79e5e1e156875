package harness

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
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
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return madeVenv(filepath.Join(cache, "ponos-tests"), name, "python3", string(text), "--quiet", "--disable-pip-version-check", "-r", requirements)
}

// madeVenv makes a virtual environment below dir, unless it is there: for this Python,
// and for what of is. What pip is to install there, if anything, are its arguments.
func madeVenv(dir, name, python, of string, install ...string) (string, error) {
	version, err := exec.Command(python, "-c", "import sys; print(sys.version, sys.prefix)").Output()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(of), version...))
	dir = filepath.Join(dir, name+"-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	held, err := lock.TryFor(filepath.Join(dir, "lock"), 5*time.Minute)
	if err != nil {
		return "", err
	}
	defer held.Close()
	made, done := filepath.Join(dir, "venv"), filepath.Join(dir, "done")
	if _, err := os.Stat(done); err == nil {
		return made, nil
	}
	steps := [][]string{{python, "-m", "venv", "--clear", made}}
	if len(install) > 0 {
		steps = append(steps, append([]string{filepath.Join(made, "bin/python3"), "-m", "pip", "install"}, install...))
	}
	for _, argv := range steps {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
		}
	}
	return made, os.WriteFile(done, nil, 0o644)
}

// Python is a program for [Main]: the python3 behind it in PATH, but that "-m venv DIR"
// copies an environment that this Python has made once, which takes a tenth of the time.
func Python() {
	real, err := behind("python3")
	if err != nil {
		fmt.Fprintln(os.Stderr, "python3:", err)
		os.Exit(127)
	}
	if args := os.Args[1:]; len(args) == 3 && args[0] == "-m" && args[1] == "venv" {
		if made, err := madeVenv(filepath.Join(Root(), "bin", "tests"), "bare", real, ""); err == nil {
			if exec.Command("cp", "-a", made, args[2]).Run() == nil {
				os.Exit(0)
			}
		}
	}
	err = syscall.Exec(real, append([]string{real}, os.Args[1:]...), os.Environ())
	fmt.Fprintln(os.Stderr, "python3:", err)
	os.Exit(126)
}

// behind returns the next program of that name in PATH that is not this one.
func behind(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	mine, err := os.Stat(self)
	if err != nil {
		return "", err
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 && !os.SameFile(info, mine) && filepath.IsAbs(path) {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

// HyperQueue is the release that benchmarks compare with.
const HyperQueue = "hyperqueue==0.27.0"

// Pip installs packages for Python and returns the directory that has them; "" where they cannot
// be had: a benchmark continues without its peers.
func Pip(tb testing.TB, packages ...string) string {
	tb.Helper()
	dir := tb.TempDir()
	out, err := exec.Command("python3", append([]string{"-m", "pip", "install", "--quiet", "--root-user-action=ignore", "--target", dir}, packages...)...).CombinedOutput()
	if err != nil {
		tb.Logf("without %v: %v: %s", packages, err, out)
		return ""
	}
	return dir
}
