package program

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// machine is what "uname -m" prints here.
func machine(t *testing.T) string {
	t.Helper()
	var u syscall.Utsname
	if err := syscall.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var name strings.Builder
	for _, c := range u.Machine {
		if c != 0 {
			name.WriteByte(byte(c))
		}
	}
	return name.String()
}

// job is a script that becomes a program.
type job struct {
	t        *testing.T
	dir, bin string
	env      []string
}

func newJob(t *testing.T) *job {
	t.Helper()
	return &job{t: t, dir: t.TempDir(), bin: t.TempDir(), env: []string{"PATH=" + os.Getenv("PATH"), "SLURM_JOB_ID=7"}}
}

// program puts a program of a machine into place, whole at once.
func (j *job) program(machine, text string) {
	j.t.Helper()
	path := filepath.Join(j.bin, machine, file)
	executable.Write(j.t, path+".new", "#!/bin/bash\nif [ \"$1\" = --version ]; then echo ponos-worker 1.2; exit; fi\n"+text)
	if err := os.Rename(path+".new", path); err != nil {
		j.t.Fatal(err)
	}
}

func (j *job) start(before string) (c *exec.Cmd, out *output) {
	j.t.Helper()
	out = &output{name: filepath.Join(j.t.TempDir(), "out")}
	f, err := os.Create(out.name)
	if err != nil {
		j.t.Fatal(err)
	}
	defer f.Close()
	c = exec.Command("bash", "-c", before+"ponos_dir="+j.dir+"\nset -- one 'two words'\n"+Text(j.bin))
	c.Env, c.Stdout, c.Stderr = j.env, f, f
	if err := c.Start(); err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { _ = c.Process.Kill() })
	return c, out
}

// run returns the exit status of the script, -1 if a signal ended it, and what it printed.
func (j *job) run(before string) (int, string) {
	j.t.Helper()
	c, out := j.start(before)
	_ = c.Wait()
	return c.ProcessState.ExitCode(), out.text()
}

type output struct{ name string }

func (o *output) text() string {
	b, _ := os.ReadFile(o.name)
	return string(b)
}

func (o *output) await(t *testing.T, words string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !strings.Contains(o.text(), words); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %q: %q", words, o.text())
		}
	}
}

// quick has a script wait without pauses, by a function that its environment exports.
const quick = "BASH_FUNC_sleep%%=() { :; }"

func TestBecomesTheProgram(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	j.program(machine(t), `echo $$ "$#" "$@" >&2; bash -c 'sleep; echo "$0"' passed; exit 5`)
	j.env = append(j.env, quick)
	c, out := j.start("")
	_ = c.Wait()
	// The same process, with its arguments and the environment as it was.
	if want := fmt.Sprintf("%d 2 one two words\npassed\n", c.Process.Pid); c.ProcessState.ExitCode() != 5 || out.text() != want {
		t.Errorf("exit %d, %q; want %q", c.ProcessState.ExitCode(), out.text(), want)
	}
}

// NFS may show directory and program late: they are waited for, and signals that do not ask a job to end do nothing.
func TestWaits(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	dir := j.dir
	j.dir = filepath.Join(dir, "late")
	c, out := j.start("")
	out.await(t, "job 7: waiting for "+j.dir+"\n")
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGCONT} {
		if err := c.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(j.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	j.program(machine(t), "echo ran")
	_ = c.Wait()
	if c.ProcessState.ExitCode() != 0 || strings.Count(out.text(), "\n") != 2 || !strings.HasSuffix(out.text(), "\nran\n") {
		t.Errorf("%v, %q", c.ProcessState, out.text())
	}
}

// What does not start has not begun: the job waits until it is asked to end, or for 10 minutes.
func TestDoesNotBegin(t *testing.T) {
	t.Parallel()
	here := machine(t)
	for name, tt := range map[string]struct {
		make func(j *job)
		out  string
	}{
		"no program":         {func(*job) {}, "BIN/" + here + "/ponos-worker"},
		"of another machine": {func(j *job) { j.program("vax", "") }, "BIN/" + here + "/ponos-worker"},
		"no task":            {func(j *job) { j.program(here, ""); j.dir = "/nowhere" }, "/nowhere"},
		"fails": {func(j *job) {
			executable.Write(t, filepath.Join(j.bin, here, file), "#!/bin/sh\necho no memory >&2\necho more\nexit 2\n")
		}, "a start of BIN/" + here + "/ponos-worker, which failed: no memory"},
		"damaged": {func(j *job) { executable.Write(t, filepath.Join(j.bin, here, file), "\x7fELF\x02") }, "a start of BIN/" + here + "/ponos-worker, which failed: "},
		"empty":   {func(j *job) { executable.Write(t, filepath.Join(j.bin, here, file), "") }, "a start of BIN/" + here + "/ponos-worker, which failed: "},
		"says nothing": {func(j *job) {
			executable.Write(t, filepath.Join(j.bin, here, file), "#!/bin/sh\nexit 2\n")
		}, "a start of BIN/" + here + "/ponos-worker, which failed: it says nothing\n"},
		"another program": {func(j *job) {
			executable.Write(t, filepath.Join(j.bin, here, file), "#!/bin/sh\necho vim 9\n")
		}, "a start of BIN/" + here + "/ponos-worker, which failed: it does not say that it is ponos-worker\n"},
		"of no known machine": {func(j *job) { executable.Write(t, filepath.Join(j.bin, here, file), "#!/nowhere/sh\n") }, "a start of BIN/" + here + "/ponos-worker, which failed: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := newJob(t)
			tt.make(j)
			j.env = append(j.env, quick)
			code, out := j.run("")
			want := "waited 10 minutes for " + strings.ReplaceAll(tt.out, "BIN", j.bin)
			if code != 143 || strings.Count(out, "waiting for ") != 1 || strings.Count(out, "\n") != 2 || !strings.Contains(out, want) {
				t.Errorf("exit %d, %q; want %q", code, out, want)
			}

			j.env = j.env[:len(j.env)-1]
			c, waits := j.start("")
			waits.await(t, "waiting for ")
			_ = c.Process.Signal(syscall.SIGTERM)
			_ = c.Wait()
			if c.ProcessState.ExitCode() != 143 || strings.Contains(waits.text(), "10 minutes") {
				t.Errorf("asked to end: %v, %q", c.ProcessState, waits.text())
			}
		})
	}
}

// Where programs may not be run, a copy is, which leaves nothing behind.
func TestRunsACopy(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	needs.Mount(t, j.bin, "tmpfs", syscall.MS_NOEXEC, "size=1m")
	j.program(machine(t), "echo ran \"$@\"")
	local := t.TempDir()
	j.env = append(j.env, "TMPDIR="+local)
	code, out := j.run("")
	if left, err := os.ReadDir(local); code != 0 || out != "ran one two words\n" || len(left) != 0 || err != nil {
		t.Errorf("exit %d, %q, left %v, %v", code, out, left, err)
	}
}

// Nothing of a copy is left behind by a job that is killed while it makes one.
func TestCopiesNamelessly(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	path := filepath.Join(j.bin, machine(t), file)
	if err := errors.Join(os.Mkdir(filepath.Dir(path), 0o700), syscall.Mkfifo(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	local := t.TempDir()
	j.env = append(j.env, "TMPDIR="+local)
	c, out := j.start("")
	var source *os.File
	err := error(syscall.ENXIO) // as long as nobody reads it
	for deadline := time.Now().Add(5 * time.Minute); errors.Is(err, syscall.ENXIO) && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		source, err = os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(local)
	if len(left) != 0 || err != nil {
		t.Errorf("while it copies: %v, %v", left, err)
	}
	_, err = source.WriteString("#!/bin/bash\necho ponos-worker ran\n")
	if err := errors.Join(err, source.Close(), c.Wait()); err != nil || out.text() != "ponos-worker ran\n" {
		t.Errorf("%v, %q", err, out.text())
	}
}

// Where there is no room for a copy, another place is taken, and nothing is said of it.
func TestNoRoomForACopy(t *testing.T) {
	t.Parallel()
	j := newJob(t)
	j.program(machine(t), "echo ran\nexit\n"+strings.Repeat("#\n", 1<<19))
	if err := os.Chmod(filepath.Join(j.bin, machine(t), file), 0o600); err != nil {
		t.Fatal(err)
	}
	local := t.TempDir()
	needs.Mount(t, local, "tmpfs", 0, "size=64k")
	j.env = append(j.env, "TMPDIR="+local)
	if code, out := j.run(""); code != 0 || out != "ran\n" {
		t.Errorf("exit %d, %q", code, out)
	}
}

// With little address space a program for 32 bits runs, if there is one.
func TestLittleAddressSpace(t *testing.T) {
	t.Parallel()
	if runtime.GOARCH != "amd64" {
		needs.Missing(t, "amd64")
	}
	j := newJob(t)
	j.program("x86_64", "echo 64")
	if code, out := j.run("ulimit -v 500000\n"); code != 0 || out != "64\n" {
		t.Errorf("exit %d, %q", code, out)
	}
	j.program("i686", "echo 32")
	for limit, want := range map[string]string{"500000": "32\n", "unlimited": "64\n", "2000000": "64\n"} {
		if code, out := j.run("ulimit -v " + limit + "\n"); code != 0 || out != want {
			t.Errorf("%s: exit %d, %q; want %q", limit, code, out, want)
		}
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	installed, dir := t.TempDir(), filepath.Join(t.TempDir(), "bin")
	paths := func() (map[string]Programs, error) {
		return map[string]Programs{
			"x86_64":  {file: filepath.Join(installed, "x86_64", file), pool: filepath.Join(installed, "x86_64", file)},
			"aarch64": {file: filepath.Join(installed, "aarch64", file)},
		}, nil
	}
	place := func(text string) string {
		t.Helper()
		for _, m := range []string{"x86_64", "aarch64"} {
			executable.Write(t, filepath.Join(installed, m, file), text+m)
		}
		bin, err := (&Store{Dir: dir, Installed: paths}).Place()
		if err != nil {
			t.Fatal(err)
		}
		return bin
	}
	one := place("one")
	if place("one") != one {
		t.Error("another place for the same programs")
	}
	if err := os.WriteFile(filepath.Join(one, "x86_64", file), []byte("cut"), 0o600); err != nil {
		t.Fatal(err)
	}
	two := place("two")
	if again := place("one"); again != one || two == one {
		t.Errorf("%q, %q, %q", one, two, again)
	}
	b, err := os.ReadFile(filepath.Join(one, "x86_64", file))
	if info, statErr := os.Stat(filepath.Join(one, "x86_64", file)); string(b) != "onex86_64" || err != nil || statErr != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%q, %v, %v", b, err, statErr)
	}
	three := place("three")

	s := &Store{Dir: dir, Named: func() ([]string, error) { return []string{filepath.Base(two)}, nil }}
	left := func(want ...string) {
		t.Helper()
		all, err := filepath.Glob(filepath.Join(dir, "*", "*", file))
		var bins []string
		for _, path := range all {
			if bin := filepath.Dir(filepath.Dir(path)); !slices.Contains(bins, bin) {
				bins = append(bins, bin)
			}
		}
		slices.Sort(want)
		if err != nil || !slices.Equal(bins, want) {
			t.Errorf("left %q, %v; want %q", bins, err, want)
		}
	}
	old := time.Now().Add(-48 * time.Hour)
	for _, bin := range []string{one, two, three} {
		if err := os.Chtimes(bin, old, old); err != nil {
			t.Fatal(err)
		}
	}
	before := clock.Now().Add(-24 * time.Hour)
	jobs := func(named ...string) func() ([]string, bool, error) {
		return func() ([]string, bool, error) { return named, true, nil }
	}
	if err := s.Prune(before, func() ([]string, bool, error) { return nil, false, nil }); err != nil {
		t.Error(err)
	}
	if err := s.Prune(before, func() ([]string, bool, error) { return nil, true, errors.New("squeue is away") }); err == nil {
		t.Error("no error")
	}
	left(one, two, three)
	if err := s.Prune(before, jobs(filepath.Base(three))); err != nil {
		t.Error(err)
	}
	left(two, three)
	place("two") // an earlier version comes back
	s.Named = nil
	if err := s.Prune(before, jobs()); err != nil {
		t.Error(err)
	}
	left(two)
	s.Named = func() ([]string, error) { return nil, errors.New("not known") }
	if err := s.Prune(clock.Now().Add(time.Hour), jobs()); err == nil {
		t.Error("no error")
	}
	left(two)

	if err := (&Store{Dir: filepath.Join(dir, "none")}).Prune(before, jobs()); err != nil {
		t.Error(err)
	}
	full := &Store{Dir: filepath.Join(dir, "missing", "bin"), Installed: paths}
	if _, err := full.Place(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := os.Mkdir(filepath.Dir(full.Dir), 0o700); err != nil {
		t.Fatal(err)
	}
	bin, err := full.Place()
	if err != nil || filepath.Dir(bin) != full.Dir {
		t.Errorf("after an error: %q, %v", bin, err)
	}
	if err := os.RemoveAll(bin); err != nil {
		t.Fatal(err)
	}
	again, err := full.Place()
	if _, missing := os.Stat(filepath.Join(bin, "aarch64", file)); again != bin || errors.Join(err, missing) != nil {
		t.Errorf("after it was removed: %q, %v, %v", again, err, missing)
	}
}
