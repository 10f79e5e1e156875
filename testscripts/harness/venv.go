package harness

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// Packages are what a virtual environment of the tests has: those of a requirements file, by its
// path in the project, and those of a list, as pip takes them; none: pip alone.
type Packages struct {
	Name string // of its directory
	File string
	List []string
	// Newest has pip look for newer ones, once in a test binary. Where the registry cannot be reached,
	// those that are there will do.
	Newest bool
}

// venvs are the environments that this test binary has made or found, by their names.
var venvs sync.Map

// Venv returns a virtual environment with packages, made once per checkout, or once in the directory that
// PONOS_TEST_VENVS names. Where they cannot be had, and with PONOS_TEST_SLURM=no, the test is skipped.
func Venv(t testing.TB, p Packages) string {
	t.Helper()
	if os.Getenv("PONOS_TEST_SLURM") == "no" {
		needs.Missing(t, "packages of PyPI: PONOS_TEST_SLURM=no")
	}
	once, _ := venvs.LoadOrStore(p.Name, sync.OnceValues(p.venv))
	dir, err := once.(func() (string, error))()
	if err != nil {
		t.Log(err)
		needs.Missing(t, "python3 with venv, and packages of PyPI")
	}
	return dir
}

func (p Packages) venv() (string, error) {
	of, install := strings.Join(p.List, "\n"), slices.Clone(p.List)
	if p.File != "" {
		file := filepath.Join(Root(), p.File)
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		of, install = string(text)+of, append(install, "-r", file)
	}
	dir := cmp.Or(os.Getenv("PONOS_TEST_VENVS"), filepath.Join(Root(), "bin", "tests"))
	made, err := madeVenv(dir, p.Name, "python3", of, install...)
	if err == nil && p.Newest {
		_ = pip(made, append(install, "--upgrade")...) // what was there before is still there
	}
	return made, err
}

// Bare returns a virtual environment of a Python without packages, which is the test's alone.
func Bare(t testing.TB, python string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "venv")
	if err := copyBare(python, dir); err != nil {
		t.Fatalf("virtual environment of the tests: %v", err)
	}
	return dir
}

// copyBare copies the environment that a Python has made once, which takes a tenth of the time.
func copyBare(python, dir string) error {
	made, err := madeVenv(filepath.Join(Root(), "bin", "tests"), "bare", python, "")
	if err != nil {
		return err
	}
	return exec.Command("cp", "-a", made, dir).Run()
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
	if err := outside(python, "-m", "venv", "--clear", made); err != nil {
		return "", err
	}
	if len(install) > 0 {
		if err := pip(made, install...); err != nil {
			return "", err
		}
	}
	return made, os.WriteFile(done, nil, 0o644)
}

// pip installs into a virtual environment.
func pip(venv string, install ...string) error {
	return outside(append([]string{filepath.Join(venv, "bin/python3"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"}, install...)...)
}

// outside runs a program with the environment that the tests were started with: some take the network
// from all other programs.
func outside(argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = Outside()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, out)
	}
	return nil
}

// Outside returns the environment that the tests were started with.
func Outside() []string { return slices.Clone(started) }

var started = os.Environ()

// Python is a program for [Main]: the python3 behind it in PATH, but that "-I -m venv
// DIR" copies an environment that this Python has made once.
func Python() {
	real, err := behind("python3")
	if err != nil {
		fmt.Fprintln(os.Stderr, "python3:", err)
		os.Exit(127)
	}
	if args := os.Args[1:]; len(args) == 4 && slices.Equal(args[:3], []string{"-I", "-m", "venv"}) {
		if copyBare(real, args[3]) == nil {
			os.Exit(0)
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
