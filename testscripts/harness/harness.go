package harness

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/testscripts/executable"
)

var update = flag.Bool("update", false, "rewrite the expected output in the scripts")

const module = "github.com/ponos-tools/ponos"

// Bin is the directory of the real binaries.
var Bin string

// Main builds the named tools and runs the tests with them on PATH. Each fake is
// a program on PATH too: a function of this test binary.
func Main(m *testing.M, fakes map[string]func(), tools ...string) {
	testscript.Main(runner{m, tools}, fakes)
}

type runner struct {
	m     *testing.M
	tools []string
}

// Run builds the tools and runs the tests.
func (r runner) Run() int {
	flag.Parse()
	syscall.Umask(0o022) // for what a tool writes for others, whatever the user's is
	go endsWithGo(os.Getppid())
	dir, err := os.MkdirTemp("", "ponos-bin")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.Chmod(dir, 0o755) // jobs of other users run the tools as well
	}
	if err == nil && len(r.tools) > 0 {
		err = buildTools(dir, r.tools)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building the tools:", err)
		return 1
	}
	Bin = dir
	os.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	code := r.m.Run()
	stopCluster()
	return code
}

// endsWithGo ends the tests with the "go test" that has started them. Where that was killed, no process reads what they print.
func endsWithGo(parent int) {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", parent))
	if err != nil || string(name) != "go\n" {
		return
	}
	for os.Getppid() == parent {
		time.Sleep(time.Second)
	}
	os.Exit(1)
}

// buildTools puts tools into dir. They are linked in a directory that all packages
// share, as go build links no program again that is up to date, and copied from there.
func buildTools(dir string, tools []string) error {
	shared := filepath.Join(Root(), "bin", "tests")
	if os.Getenv(coverVariable) != "" {
		shared += "-cover"
	}
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return errors.Join(compile(dir, tools), link(dir, tools)) // of another user, or read-only
	}
	held, err := lock.Wait(context.Background(), filepath.Join(shared, ".lock"))
	if err != nil {
		return errors.Join(compile(dir, tools), link(dir, tools))
	}
	defer held.Close()
	if err := compile(shared, tools); err != nil {
		return err
	}
	for _, program := range programs(tools) {
		data, err := os.ReadFile(filepath.Join(shared, program))
		if err != nil {
			return err
		}
		to := filepath.Join(dir, program)
		if err := errors.Join(os.WriteFile(to, data, 0o755), os.Chmod(to, 0o755)); err != nil {
			return err
		}
	}
	return link(dir, tools)
}

// own are the tools that are a program of their own, as they are installed.
var own = []string{"jobpool", "ponos", "ponos-worker"}

// programs are what tools are made of, as they are installed: one for all, and some of their own.
func programs(tools []string) (names []string) {
	for _, t := range tools {
		if !slices.Contains(own, t) {
			t = "ponos"
		}
		if !slices.Contains(names, t) {
			names = append(names, t)
		}
	}
	return names
}

// link makes the links to the program of all tools.
func link(dir string, tools []string) error {
	for _, t := range tools {
		if slices.Contains(own, t) {
			continue
		}
		if err := os.Symlink("ponos", filepath.Join(dir, t)); err != nil {
			return err
		}
	}
	return nil
}

func compile(dir string, tools []string) error {
	tags, more := "urfave_cli_no_docs", []string(nil)
	if covered := os.Getenv(coverVariable); covered != "" {
		var err error
		if more, err = coverArgs(covered); err != nil {
			return err
		}
		tags += ",covered"
	}
	args := append([]string{"build", "-trimpath", "-tags", tags, "-o", dir + "/"}, more...) // as "make build", to share what is compiled
	for _, t := range programs(tools) {
		args = append(args, module+"/cmd/"+t)
	}
	build := exec.Command("go", args...)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	return build.Run()
}

// Options says what scripts to run and with what.
type Options struct {
	Dir   string // directory of the scripts, default "."
	Setup func(*testscript.Env) error
	Cmds  map[string]func(*testscript.TestScript, bool, []string)
}

// Run runs the scripts of a directory as parallel subtests. A script has HOME, TZ (see
// [Zone]), LC_ALL=C.UTF-8 and ROOT, the directory of the project; beyond testscript's own commands it has
//
//	exits CODE PROGRAM [ARG...]   runs a program that must end with that status
//	eventually PATTERN PROGRAM [ARG...]   repeats a program until its output matches
//	signal NAME PIDFILE           sends a signal to the process whose id is in a file
//	json FILE                     fails unless every line of FILE is a JSON value
//	runs PATTERN                  fails unless a process of this script has such a command line
//	ended PIDFILE                 waits until the processes whose ids are in a file have ended
//
// A script fails if a command prints an error of Go's library as it is, or writes it into a file such as a log. There are
// the conditions [root], [has:PROGRAM]: the machine has a program, which the tests do not stand in for, and
// [slurm:VERSION]: the Slurm of this machine is that version or a later one.
func Run(t *testing.T, o Options) {
	t.Helper()
	if o.Dir == "" {
		o.Dir = "."
	}
	cmds := map[string]func(*testscript.TestScript, bool, []string){
		"exits": exits, "eventually": eventually, "signal": sendSignal, "json": jsonLines, "runs": runs, "ended": ended,
	}
	for name, cmd := range o.Cmds {
		cmds[name] = cmd
	}
	testscript.RunT(watched{t}, testscript.Params{
		Dir: o.Dir, UpdateScripts: *update, RequireExplicitExec: true, RequireUniqueNames: true,
		Deadline: time.Now().Add(scriptTime),
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			for name, value := range map[string]string{"HOME": home, "TZ": Zone(), "LC_ALL": "C.UTF-8", "ROOT": Root(), "USER": User(), "LOGNAME": User()} {
				env.Setenv(name, value)
			}
			env.Vars = append(env.Vars, Clock()...)
			executable.Settle() // The script may run the files that have just been written for it.
			if err := os.MkdirAll(home, 0o755); err != nil {
				return err
			}
			before := files(env.WorkDir)
			env.Defer(func() {
				w, _ := env.T().(watched)
				for _, line := range written(env.WorkDir, before) {
					w.Errorf("a command writes an error of Go's library: %s", line)
				}
			})
			if o.Setup != nil {
				return o.Setup(env)
			}
			return nil
		},
		Cmds: cmds,
		Condition: func(cond string) (bool, error) {
			if cond == "root" {
				return os.Geteuid() == 0, nil
			}
			if program, ok := strings.CutPrefix(cond, "has:"); ok {
				return onCallersPath(program), nil
			}
			if least, ok := strings.CutPrefix(cond, "slurm:"); ok {
				version, err := slurmVersion(t.TempDir())
				return version >= least, err
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}

// slurmVersion is the version of Slurm on PATH, such as 22.05.8. It makes a file in a directory, as no command of Slurm
// says its version without a configuration.
func slurmVersion(dir string) (string, error) {
	conf := filepath.Join(dir, "slurm.conf")
	if err := os.WriteFile(conf, []byte("ClusterName=none\nSlurmctldHost=localhost\n"), 0o600); err != nil {
		return "", err
	}
	c := exec.Command("sbatch", "--version")
	c.Env = append(os.Environ(), "SLURM_CONF="+conf)
	said, err := c.Output() // slurm-wlm 22.05.8
	_, version, _ := strings.Cut(strings.TrimSpace(string(said)), " ")
	return version, err
}

// User is the name of the user who runs the tests, or the number of one without a name.
func User() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}

// Root is the directory of the project.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [args...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got, err := status(ts.Exec(args[1], args[2:]...))
	ts.Check(err)
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// status is the exit status that the error of an Exec stands for.
func status(err error) (int, error) {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		return exit.ExitCode(), nil
	}
	return 0, err
}

// scriptTime limits all scripts of a directory together.
const scriptTime = 45 * time.Minute

// Patience limits how long a script waits for something to happen, on a machine
// that is busy.
const Patience = 10 * time.Minute

// Wait calls holds until it returns true, and reports whether it did so within [Patience]. The pauses
// between calls grow: on a busy machine, checks slow down what they wait for.
func Wait(holds func() bool) bool {
	pause := 20 * time.Millisecond
	for deadline := time.Now().Add(Patience); !holds(); pause = min(pause*3/2, 400*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually pattern program [args...]")
	}
	if !Wait(func() bool {
		err := ts.Exec(args[1], args[2:]...)
		return err == nil && matches(ts, args[0], ts.ReadFile("stdout"))
	}) {
		ts.Fatalf("%q did not print %q within %v", strings.Join(args[1:], " "), args[0], Patience)
	}
}
