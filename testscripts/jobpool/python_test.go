package jobpool

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

var pythonVersion = regexp.MustCompile(`^Python 3\.(\d+)\.`)

// pythons are the oldest and the newest Python of this machine, from 3.6 on: those in PATH,
// and those that pyenv has.
func pythons(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		found, _ := filepath.Glob(filepath.Join(dir, "python3*"))
		names = append(names, found...)
	}
	if home, err := os.UserHomeDir(); err == nil {
		found, _ := filepath.Glob(filepath.Join(home, ".pyenv/versions/*/bin/python3"))
		names = append(names, found...)
	}
	byMinor := map[int]string{}
	for _, name := range names {
		// Debian has the parts that make environments in a package of their own.
		out, _ := exec.Command(name, "-c", "import ensurepip, platform; print('Python', platform.python_version())").Output()
		if m := pythonVersion.FindSubmatch(out); m != nil {
			if minor, _ := strconv.Atoi(string(m[1])); minor >= 6 && byMinor[minor] == "" {
				byMinor[minor] = name
			}
		}
	}
	var minors []int
	for minor := range byMinor {
		minors = append(minors, minor)
	}
	if slices.Sort(minors); len(minors) == 0 {
		needs.Missing(t, "python3, from 3.6 on, with venv")
	}
	return slices.Compact([]string{byMinor[minors[0]], byMinor[minors[len(minors)-1]]})
}

func TestPython(t *testing.T) {
	t.Parallel()
	module, err := filepath.Abs("../../lib/python")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := filepath.Abs("python/test_pool.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, python := range pythons(t) {
		t.Run(strings.ReplaceAll(strings.TrimPrefix(python, "/"), "/", "-"), func(t *testing.T) {
			p := newPool(t)
			serve := p.command("serve", "-q", "--run", "pool", "-j2")
			if err := serve.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = serve.Process.Kill(); _ = serve.Wait() })
			await(p, "the pool answers", func() bool { return p.command("ctl", "status", "--run", "pool").Run() == nil })
			ctx, cancel := context.WithTimeout(t.Context(), 2*harness.Patience)
			defer cancel()
			c := exec.CommandContext(ctx, python, "-B", "-W", "error", "-X", "faulthandler", tests)
			c.Cancel = func() error { return c.Process.Signal(syscall.SIGABRT) } // it prints where it is
			c.WaitDelay = time.Second
			c.Dir = p.dir
			c.Env = append(os.Environ(), "PYTHONPATH="+module, "RUN="+filepath.Join(p.dir, "pool"), "PATH="+harness.Bin+":"+os.Getenv("PATH"))
			out, err := c.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "\nOK\n") || strings.Contains(string(out), "Warning") || strings.Contains(string(out), "skipped") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// maxWheel is how large a wheel may be: 6.7 MB when this was written.
const maxWheel = 8 << 20

// The wheel is installed into an environment of its own, and has all that it needs.
func TestWheel(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		c := exec.Command(name, args...)
		c.Dir, c.Env = dir, append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "PATH=") || strings.HasPrefix(kv, "PYTHONPATH=") }), "PATH=/usr/bin:/bin")
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %v: %v\n%s", name, args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	script, err := filepath.Abs("../../lib/packaging/wheel")
	if err != nil {
		t.Fatal(err)
	}
	programs := filepath.Join(dir, "programs") + "/"
	build := exec.Command("go", "build", "-trimpath", "-tags", "urfave_cli_no_docs", "-ldflags", "-s -w", "-o", programs, "./cmd/jobpool", "./cmd/lfind")
	build.Dir, build.Env = harness.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made := []string{script, "v1.2.3-4-gabc", "amd64", programs + "jobpool", programs + "lfind", filepath.Join(dir, "dist")}
	all := pythons(t)
	wheel := run(all[0], made...)
	if filepath.Base(wheel) != "ponos_jobpool-1.2.3+4.gabc-py3-none-manylinux_2_5_x86_64.manylinux1_x86_64.whl" {
		t.Errorf("it is called %q", wheel)
	}
	first, err := os.ReadFile(wheel)
	if err != nil {
		t.Fatal(err)
	}
	if len(first) > maxWheel {
		t.Errorf("it has %d bytes", len(first))
	}
	if run(all[len(all)-1], made...); len(all) == 1 {
		if again, err := os.ReadFile(wheel); err != nil || string(again) != string(first) {
			t.Errorf("the second one differs: %v", err)
		}
	}
	for _, python := range all {
		venv := harness.Bare(t, python)
		in := filepath.Join(venv, "bin/python3")
		run(in, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel)
		out := run(in, "-c", "import jobpool\nwith jobpool.Pool(options=['-j2']) as pool:\n    print(list(pool.map(divmod, [7, 8], [2, 3])), pool.run('echo out').result().stdout.strip())")
		if out != "[(3, 1), (2, 2)] out" {
			t.Errorf("%s: %q", python, out)
		}
		// lfind is there for --alloc, and says what is wrong.
		alloc := exec.Command(filepath.Join(venv, "bin/jobpool"), "--alloc", "cpu(cores=x)", "true", ":::", "1")
		alloc.Dir, alloc.Env = dir, []string{"PATH=/usr/bin:/bin", "HOME=" + dir}
		if out, _ := alloc.CombinedOutput(); alloc.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), "cores") {
			t.Errorf("%s: --alloc: %v: %q", python, alloc.ProcessState, out)
		}
		run(in, "-m", "pip", "--disable-pip-version-check", "uninstall", "--quiet", "--yes", "ponos-jobpool")
		if _, err := os.Stat(filepath.Join(venv, "bin/jobpool")); err == nil {
			t.Errorf("%s: the program is left", python)
		}
	}
}
