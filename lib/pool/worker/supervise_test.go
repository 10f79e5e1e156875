package worker

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/executor/proc"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// programVar is set where this test is the program of a node.
const programVar = "TEST_OF_THE_SUPERVISOR"

func TestMain(m *testing.M) {
	if os.Getenv(programVar) == "" {
		os.Exit(m.Run())
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1)
	temp := os.Getenv(TempVar)
	if temp == "" {
		code, err := Supervise([]string{"worker"}, os.Environ(), signals, os.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}
	err := executor.AdoptOrphans()
	if err == nil {
		err = Run(Options{
			In: os.Stdin, Out: os.Stdout, Hello: wire.Hello{Protocol: wire.Protocol, PID: os.Getpid(), Clock: proc.Clock()}, Temp: temp,
			Processes: func(threads int, handle executor.Handler) executor.System {
				return executor.NewSpawner(threads, handle)
			},
			Signals: signals, Environ: os.Environ(), Orphans: proc.Orphans(), Clock: proc.Clock,
			Alone: func() bool { return executor.Alone(SupervisorVar) },
		})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// supervised is a worker with its supervisor, as a program of its own.
type supervised struct {
	session
	worker     int // processes
	supervisor int
	status     chan syscall.WaitStatus
	tmp        string // its directory for temporary files
}

// supervise starts a worker below a supervisor, with some variables of its own.
func supervise(t *testing.T, edit func(*wire.Setup), variables ...string) *supervised {
	t.Helper()
	s := &supervised{
		session: session{t: t, messages: make(chan wire.Message, 1000), pids: map[int64]int{}, dir: t.TempDir()},
		status:  make(chan syscall.WaitStatus, 1), tmp: t.TempDir(),
	}
	in, toWorker, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fromWorker, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := os.Create(filepath.Join(s.dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan int, 1)
	processes{func(e executor.SpawnEvent) *executor.Launch {
		switch {
		case e.Err != nil:
			t.Errorf("the supervisor cannot be started: %v", e.Err)
			close(started)
		case e.Ended:
			s.status <- e.Status
		default:
			started <- e.PID
		}
		return nil
	}}.Start(executor.Launch{
		Path: "/proc/self/exe", Argv: []string{"worker"}, Env: slices.Concat(variables, os.Environ(), []string{programVar + "=1", "TMPDIR=" + s.tmp}), Dir: s.dir,
		Files: []uintptr{in.Fd(), out.Fd(), stderr.Fd()},
	})
	if s.supervisor = <-started; s.supervisor == 0 {
		t.FailNow()
	}
	in.Close()
	out.Close()
	stderr.Close()
	t.Cleanup(func() {
		_ = syscall.Kill(-s.supervisor, syscall.SIGKILL)
		toWorker.Close()
		fromWorker.Close()
	})
	s.to, s.hangUp = wire.NewWriter(toWorker), toWorker.Close
	r := wire.NewReader(fromWorker)
	hello, err := r.Greeting()
	if err != nil {
		t.Fatal(err)
	}
	s.worker = hello.PID
	go func() {
		defer close(s.messages)
		for {
			var m wire.Message
			if r.Next(&m) != nil {
				return
			}
			s.messages <- m
		}
	}()
	setup := &wire.Setup{Session: fmt.Sprintf("test-%d-%s", os.Getpid(), t.Name()), Node: "n1", Dir: wire.Text(s.dir), Shell: "/bin/sh", Threads: 1, Grace: 30, Lease: 1e6}
	edit(setup)
	s.send(&wire.Message{Setup: setup})
	return s
}

// exit waits for the end of the supervisor: "0", or "signal 9". Nothing may be left of the worker.
func (s *supervised) exit() string {
	s.t.Helper()
	status := <-s.status
	until(s.t, "the worker ends", func() bool { return gone(s.worker) })
	if left := files(s.t, s.tmp); status.Exited() && len(left) > 0 {
		s.t.Errorf("left in the directory for temporary files: %v", left)
	}
	if status.Signaled() {
		return fmt.Sprintf("signal %d", status.Signal())
	}
	return itoa(status.ExitStatus())
}

// away starts a process that leaves the session of its task, and the task.
const away = "setsid sleep 1000 >/dev/null 2>&1 & until grep -q ^sleep /proc/$!/cmdline; do sleep 0.01; done; echo $! > away; exec sleep 1000"

// left returns the process that has left its task.
func (s *supervised) left() (pid int) {
	s.t.Helper()
	until(s.t, "a process leaves its task", func() bool { pid = atoi(strings.TrimSpace(content(s.t, s.dir, "away"))); return pid > 0 })
	s.t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	return pid
}

// A supervisor ends with its worker, and clears the node.
func TestSupervisor(t *testing.T) {
	for _, tt := range []struct {
		name     string
		keep     bool
		teardown wire.Text
		stderr   string
	}{
		{"a teardown", false, "echo cleared $JOBPOOL_NODE; pwd", "cleared n1\nDIR\n"},
		{"a builtin", false, "echo cleared", "cleared\n"},
		{"a teardown that fails", false, "exit 3", "jobpool worker: the teardown of the node failed: /bin/sh: exit status 3\n"},
		{"none", false, "", ""},
		{"what tasks leave is kept", true, "echo cleared", "cleared\n"},
	} {
		s := supervise(t, func(setup *wire.Setup) { setup.Keep, setup.Teardown = tt.keep, tt.teardown })
		s.run(setup(1, "true"))
		if got := s.ended(s.done(1)); got != "ok" {
			t.Errorf("%s: the setup: %s", tt.name, got)
		}
		s.run(task(2, away))
		s.runs(2)
		pid := s.left()
		s.send(&wire.Message{Bye: true})
		if got := s.exit(); got != "0" {
			t.Errorf("%s: exit status %s", tt.name, got)
		}
		if gone(pid) == tt.keep {
			t.Errorf("%s: what a task has left is gone: %v", tt.name, gone(pid))
		}
		if got := strings.ReplaceAll(content(t, s.dir, "stderr"), s.dir, "DIR"); got != tt.stderr {
			t.Errorf("%s: it printed %q, want %q", tt.name, got, tt.stderr)
		}
	}
}

// The last job of a run on a node clears it, and only that one.
func TestTeardownWithSeveralJobs(t *testing.T) {
	for _, together := range []bool{false, true} {
		run, tmp, log := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "log")
		worker := func(job string) *supervised {
			s := supervise(t, func(setup *wire.Setup) {
				setup.Run, setup.Node = wire.Text(run), "n1@"+job
				setup.Teardown = wire.Text("echo cleared >>" + log)
			}, "TMPDIR="+tmp, "SLURM_JOB_ID="+job)
			s.run(setup(1, "echo set up >>"+log))
			if got := s.ended(s.done(1)); got != "ok" {
				t.Errorf("job %s: %s", job, got)
			}
			return s
		}
		first, second := worker("7"), worker("8")
		first.send(&wire.Message{Bye: true})
		if !together {
			first.exit()
			if got := content(t, log, ""); got != "set up\n" {
				t.Errorf("while the other job runs: %q", got)
			}
		}
		second.send(&wire.Message{Bye: true})
		second.exit()
		if together {
			first.exit()
		}
		if got := content(t, log, ""); got != "set up\ncleared\n" {
			t.Errorf("together %v: %q", together, got)
		}
		if left := files(t, tmp); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
}

// What is left of a worker that is killed, or stopped until its lease ends, is ended by its supervisor;
// and the worker ends its tasks when the supervisor is killed.
func TestKilledWorkers(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*supervised)
		want string
	}{
		{"killed", func(s *supervised) { _ = syscall.Kill(s.worker, syscall.SIGKILL) }, itoa(wire.Over)},
		{"stopped", func(s *supervised) { _ = syscall.Kill(s.worker, syscall.SIGSTOP) }, itoa(wire.Over)},
		{"its supervisor is killed", func(s *supervised) { _ = syscall.Kill(s.supervisor, syscall.SIGKILL) }, "signal 9"},
		{"asked to end", func(s *supervised) {
			_ = syscall.Kill(s.supervisor, syscall.SIGTERM)
			s.next("the signal", func(m *wire.Message) bool { return m.Signal == "TERM" })
			if got := s.ended(s.done(1)); got != "stopped signal 15" {
				t.Errorf("asked to end: %s", got)
			}
			s.lose()
		}, "0"},
	} {
		s := supervise(t, func(setup *wire.Setup) {
			if tt.name == "stopped" {
				setup.Lease, setup.Grace = 8, 0
			}
		})
		s.run(task(1, away))
		pid := s.left()
		task := s.runs(1)
		tt.do(s)
		if got := s.exit(); got != tt.want {
			t.Errorf("%s: exit status %s, want %s; it printed %s", tt.name, got, tt.want, content(t, s.dir, "stderr"))
		}
		until(t, tt.name+": the task ends", func() bool { return gone(task) })
		until(t, tt.name+": what it has left ends", func() bool { return gone(pid) })
	}
}

// A worker that fails leaves nothing.
func TestFailedWorker(t *testing.T) {
	s := supervise(t, func(setup *wire.Setup) { setup.Run = "/nowhere" })
	if m := s.next("why", func(m *wire.Message) bool { return m.Fatal != "" }); !strings.Contains(string(m.Fatal), "/nowhere: no such file or directory") {
		t.Errorf("%q", m.Fatal)
	}
	if got := s.exit(); got != itoa(wire.Over) {
		t.Errorf("exit status %s", got)
	}
}
