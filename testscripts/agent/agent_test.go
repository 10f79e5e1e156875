package agent

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, map[string]func(){"python3": harness.Python}, "ponos-setup", "ponos-poll", "ponos-start", "ponos-stop", "ponos-submit", "ponos-task", "ponos-list", "ponos-log", "ponos-cancel", "ponos-retry", "ponos-run", "ponos-worker", "jobpool", "vast-reap")
}

// config is a configuration for the spool and the local runner, in $WORK/p.
const config = `queue: "spool:%[1]s/spool"
data_dir: "%[1]s/data"
pid_file: "%[1]s/ponos.pid"
logging: {path: "%[1]s/agent.log", task_format: "[agent %%(levelname)s] %%(message)s"}
local: {max_jobs: 2, stop_wait: 10m}
environments: {pip_flags: "--no-index --no-build-isolation"}
`

func setup(env *testscript.Env, more string) error {
	dir := filepath.Join(env.WorkDir, "p")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	env.Defer(func() { killLocalJobs(dir, env.WorkDir) })
	path := filepath.Join(dir, "ponos.yaml")
	env.Setenv("PONOS_CONFIG", path)
	env.Setenv("EXAMPLES", filepath.Join(harness.Root(), "examples"))
	for _, kv := range []string{"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.org", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.org"} {
		name, value, _ := strings.Cut(kv, "=")
		env.Setenv(name, value)
	}
	return os.WriteFile(path, []byte(fmt.Sprintf(config, dir)+more), 0o600)
}

var cmds = map[string]func(*testscript.TestScript, bool, []string){"drain": drain, "submit": submit, "state": state, "tmpfs": tmpfs, "agent": startAgent, "refused": refused}

func TestLocal(t *testing.T) {
	t.Parallel()
	harness.Run(t, harness.Options{Dir: "local", Cmds: cmds, Setup: func(env *testscript.Env) error { return setup(env, "") }})
}

func TestFake(t *testing.T) {
	t.Parallel()
	harness.Run(t, harness.Options{Dir: "fake", Cmds: cmds, Setup: func(env *testscript.Env) error {
		env.Setenv("PATH", filepath.Join(harness.Root(), "testscripts/fakeslurm")+":"+env.Getenv("PATH"))
		env.Setenv("SLURM_CONF", filepath.Join(env.WorkDir, "slurm/slurm.conf"))
		if err := os.Mkdir(filepath.Join(env.WorkDir, "slurm"), 0o700); err != nil {
			return err
		}
		return setup(env, "slurm: {base: {partition: cpu}, stop_wait: 20m}\n")
	}})
}

func TestSlurm(t *testing.T) {
	t.Parallel()
	onCluster(t, "slurm")
}

// TestNodes takes nodes away, which tests beside it would notice: it is not parallel.
func TestNodes(t *testing.T) {
	onCluster(t, "nodes")
}

func TestMPI(t *testing.T) {
	t.Parallel()
	harness.Programs(t, "mpicc.mpich=libmpich-dev", "gcc")
	onCluster(t, "mpi")
}

func onCluster(t *testing.T, dir string) {
	vars := harness.Cluster(t)
	harness.Run(t, harness.Options{Dir: dir, Cmds: cmds, Setup: func(env *testscript.Env) error {
		for name, value := range vars {
			env.Setenv(name, value)
		}
		return setup(env, "slurm: {base: {time: 5}, cpu: {partition: cpu}, gpu: {partition: gpu_spot, gres: 'gpu:1'}, stop_wait: 90s}\n")
	}})
}

// submit VARIABLE ARG... submits a task and sets a variable to its id.
func submit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: submit variable [arg...]")
	}
	ts.Check(ts.Exec("ponos-submit", args[1:]...))
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// refused PATTERN ARG... fails unless ponos-submit exits 2, prints nothing and says why.
func refused(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: refused pattern arg...")
	}
	err := ts.Exec("ponos-submit", args[1:]...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 2 {
		ts.Fatalf("%v; want exit status 2", err)
	}
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("stdout: %s", out)
	}
	if errs := ts.ReadFile("stderr"); !regexp.MustCompile("(?m)^ponos-submit: " + args[0]).MatchString(errs) {
		ts.Fatalf("stderr: %s", errs)
	}
}

// state ID STATE fails unless the task is in that state.
func state(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: state id state")
	}
	ts.Check(ts.Exec("ponos-list", "--long"))
	for line := range strings.Lines(ts.ReadFile("stdout")) {
		f := strings.Fields(line)
		if len(f) > 2 && f[0] == args[0] {
			if f[2] != args[1] {
				ts.Fatalf("want state %s: %s", args[1], line)
			}
			return
		}
	}
	ts.Fatalf("no task %s", args[0])
}

// drain [OPTION...] takes turns of the agent until all tasks are over. The options are those of
// ponos-start.
func drain(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("usage: drain [option...]")
	}
	out := ""
	if !harness.Wait(func() bool {
		turn := `set -o pipefail; ponos-poll | ponos-stop | ponos-start "$@" >>outcomes || true`
		ts.Check(ts.Exec("bash", append([]string{"-c", turn, "drain"}, args...)...))
		ts.Check(ts.Exec("ponos-list", "--long"))
		out = ts.ReadFile("stdout")
		return !strings.Contains(out, " pending ") && !strings.Contains(out, " running ") && !strings.Contains(out, " stopping ")
	}) {
		ts.Fatalf("tasks have not ended:\n%s", out)
	}
}

// tmpfs DIR SIZE mounts a small file system, until the script ends.
func tmpfs(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: tmpfs dir size")
	}
	dir := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(dir, 0o700))
	ts.Check(syscall.Mount("ponos-test", dir, "tmpfs", 0, "mode=0700,size="+args[1]))
	ts.Defer(func() { ts.Check(syscall.Unmount(dir, syscall.MNT_DETACH)) })
}

// agent runs the pipeline with a turn a second until "signal TERM p/ponos.pid", or
// the end of the script. What it prints goes to agent.out and agent.err.
func startAgent(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: agent")
	}
	c := exec.Command("bash", "-c", "(ponos-poll --every 1s | ponos-stop | ponos-start) >agent.out 2>agent.err")
	c.Dir, c.SysProcAttr = ts.Getenv("WORK"), &syscall.SysProcAttr{Setpgid: true}
	for _, name := range []string{"PATH", "HOME", "PONOS_CONFIG", "TZ", "LC_ALL", "SLURM_CONF", "USER", clock.Variable, clock.DayVariable} {
		c.Env = append(c.Env, name+"="+ts.Getenv(name))
	}
	ts.Check(c.Start())
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	ts.Defer(func() {
		select {
		case <-ended:
		case <-time.After(100 * time.Millisecond):
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	})
}

// killLocalJobs ends the processes that jobs of an agent have left, which run within a directory of the test.
func killLocalJobs(dir, within string) {
	files, _ := filepath.Glob(filepath.Join(dir, "data/state/local/running/*"))
	for _, file := range files {
		b, err := os.ReadFile(file)
		_, process, _ := strings.Cut(string(b), "\n")
		pid := 0
		if err == nil {
			_, err = fmt.Sscan(process, &pid)
		}
		if cwd, linkErr := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid)); err == nil && linkErr == nil && strings.HasPrefix(cwd, within) {
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
	}
}
