package worker

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/executor/proc"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// status is the state of a process: "S", "T" for a stopped one, "" for none.
func status(t *testing.T, pid int) string {
	t.Helper()
	stat := content(t, "/proc", itoa(pid)+"/stat")
	_, rest, _ := strings.Cut(stat, ") ")
	state, _, _ := strings.Cut(rest, " ")
	return state
}

// A worker that cannot begin says why, to the scheduler and to its caller.
func TestWorkersThatCannotBegin(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	write(t, filepath.Join(dir, "logs"), "")
	for _, tt := range []struct {
		name  string
		first *wire.Message // nil: none
		fatal string
		want  string
	}{
		{"no scheduler", nil, "", "the scheduler disconnected before its first message"},
		{"a task first", &wire.Message{Run: task(1, "true")}, "", "the scheduler did not begin with its setup"},
		{"no run directory", &wire.Message{Setup: &wire.Setup{Run: "/nowhere"}}, "the run directory cannot be reached from host: stat /nowhere: no such file or directory", ""},
		{"no place for logs", &wire.Message{Setup: &wire.Setup{Run: wire.Text(dir), Output: wire.Output{Files: true}}}, "mkdir " + dir + "/logs: not a directory", ""},
		{"no place for merged logs", &wire.Message{Setup: &wire.Setup{Run: wire.Text(dir), Output: wire.Output{Merged: true}}}, "mkdir " + dir + "/logs: not a directory", ""},
		{"no place for results", &wire.Message{Setup: &wire.Setup{Run: wire.Text(filepath.Join(dir, "file")), Finish: true}}, "mkdir " + dir + "/file: not a directory", ""},
	} {
		in, toWorker := io.Pipe()
		fromWorker, out := io.Pipe()
		ended := make(chan error, 1)
		go func() {
			ended <- Run(Options{
				In: in, Out: out, Hello: wire.Hello{Protocol: wire.Protocol, Host: "host"}, Temp: t.TempDir(), Clock: func() int64 { return 1 },
				Processes: func(int, executor.Handler) executor.System { t.Errorf("%s: it begins", tt.name); return nil },
			})
			out.Close()
		}()
		w := wire.NewWriter(toWorker)
		r := wire.NewReader(fromWorker)
		if hello, err := r.Greeting(); err != nil || hello.Host != "host" {
			t.Fatalf("%s: greeting %+v, %v", tt.name, hello, err)
		}
		if tt.first != nil {
			w.Send(tt.first)
		} else {
			toWorker.Close()
		}
		var m wire.Message
		err := r.Next(&m)
		if tt.fatal == "" && !errors.Is(err, io.EOF) || tt.fatal != "" && (err != nil || string(m.Fatal) != tt.fatal) {
			t.Errorf("%s: %+v, %v", tt.name, m, err)
		}
		if want, err := tt.want+tt.fatal, <-ended; err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", tt.name, err, want)
		}
		toWorker.Close()
		_ = w.Close()
	}
}

// Signals are reported; SIGTERM ends the tasks as well, and gives back what has not begun.
func TestSignals(t *testing.T) {
	s := open(t, nil)
	s.run(task(1, "exec sleep 1000"))
	follow := task(2, "true")
	follow.Follow = true
	s.run(follow)
	s.runs(1)
	signalled := func() string {
		return s.next("a signal", func(m *wire.Message) bool { return m.Signal != "" }).Signal
	}
	s.signals <- syscall.SIGUSR1
	if got := signalled(); got != "USR1" {
		t.Error(got)
	}
	s.signals <- syscall.SIGTERM
	if got := signalled(); got != "TERM" {
		t.Error(got)
	}
	back := func() int64 {
		return s.next("a task back", func(m *wire.Message) bool { return m.Back != nil }).Back.Seq
	}
	if got := back(); got != 2 {
		t.Errorf("task %d is given back", got)
	}
	if got := s.ended(s.done(1)); got != "stopped signal 15" {
		t.Error(got)
	}
	s.run(task(3, "true"))
	if got := back(); got != 3 {
		t.Errorf("task %d is given back", got)
	}
	if rest := s.bye(); len(rest) > 0 {
		t.Errorf("unexpected messages %+v", rest)
	}
}

// The end of the connection ends tasks.
func TestSchedulerLost(t *testing.T) {
	s := open(t, nil)
	s.run(task(1, "exec sleep 1000"))
	pid := s.runs(1)
	s.lose()
	if rest := s.rest(); len(rest) != 1 || rest[0].Done == nil || s.ended(rest[0].Done) != "stopped signal 15" {
		t.Errorf("%+v", rest)
	}
	if !gone(pid) {
		t.Error("the task runs")
	}
}

// readSpool reads what a worker has left for the next scheduler.
func readSpool(t *testing.T, run string) (lines []Spool, files map[string]string) {
	t.Helper()
	files = map[string]string{}
	entries, err := os.ReadDir(filepath.Join(run, SpoolDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text := content(t, filepath.Join(run, SpoolDir), e.Name())
		if !strings.Contains(e.Name(), "-") {
			files[e.Name()] = text
			continue
		}
		for line := range strings.Lines(text) {
			var l Spool
			if err := json.Unmarshal([]byte(line), &l); err != nil {
				t.Fatalf("%s: %q: %v", e.Name(), line, err)
			}
			lines = append(lines, l)
		}
	}
	return lines, files
}

// Tasks that may finish without their scheduler leave their results in the run directory. Those of
// several nodes cannot.
func TestFinishWithoutScheduler(t *testing.T) {
	for _, how := range []string{"cut", "leave", "signal"} {
		run := t.TempDir()
		s := open(t, func(_ *Options, setup *wire.Setup) { setup.Run, setup.Finish = wire.Text(run), true })
		fifo := filepath.Join(s.dir, "go")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		s.run(task(1, "echo one; read line < go; echo two >&2; exit 3"))
		wide := task(2, "exec sleep 1000")
		wide.Nodes = []wire.Node{{Node: "n1", Host: "h1", Group: -1}, {Node: "n2", Host: "h2", Group: -1}}
		s.run(wide)
		follow := task(3, "true")
		follow.Follow = true
		s.run(follow)
		s.runs(1)
		s.runs(2)
		switch how {
		case "signal": // what is sent to the scheduler from now on does not arrive
			s.signals <- HungUp
		case "leave":
			s.send(&wire.Message{Leave: true})
			s.next("the answer to leave", func(m *wire.Message) bool { return m.Left })
			s.run(task(4, "true"))
			if m := s.next("what comes after that", func(m *wire.Message) bool { return m.Back != nil && m.Back.Seq == 4 }); m.Back.Attempt != 1 {
				t.Errorf("%+v", m)
			}
		}
		if how != "signal" {
			s.lose()
		}
		until(t, "a task of several nodes ends", func() bool { lines, _ := readSpool(t, run); return len(lines) >= 3 })
		write(t, fifo, "on\n")
		if how == "signal" {
			until(t, "the result is kept", func() bool { lines, _ := readSpool(t, run); return len(lines) >= 4 })
			s.lose()
		}
		for _, m := range s.rest() {
			if m.Done != nil {
				t.Errorf("the result is sent to nobody: %+v", m.Done)
			}
		}
		lines, held := readSpool(t, run)
		if len(lines) != 5 || lines[0].Node != "n1" || len(lines[1].Running) != 2 || !lines[4].End {
			t.Fatalf("%s: %+v", how, lines)
		}
		if d := lines[2].Done; d == nil || d.Seq != 2 || s.ended(d) != "stopped signal 15" {
			t.Errorf("%s: a task of several nodes: %+v", how, d)
		}
		if d := lines[3].Done; d == nil || d.Seq != 1 || s.ended(d) != "exit 3" || d.OutSize != 4 || d.ErrSize != 4 {
			t.Errorf("%s: a task that finishes: %+v", how, d)
		}
		sameFiles(t, "output", held, map[string]string{"1.1.1": "one\n", "1.1.2": "two\n"})
	}
}

// Slurm ends all processes of a job at once. A task that has ended so before its worker knows of it was
// stopped, and did not fail, though there is no scheduler that could tell.
func TestJobEndsWithoutScheduler(t *testing.T) {
	for _, job := range []bool{true, false} {
		run := t.TempDir()
		s := open(t, func(_ *Options, setup *wire.Setup) { setup.Run, setup.Finish = wire.Text(run), true })
		s.run(task(1, "exec sleep 1000"))
		s.run(task(2, "exec sleep 1000"))
		s.run(task(3, "read line < go; exit 3"))
		fifo := filepath.Join(s.dir, "go")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		pid := s.runs(1)
		s.runs(2)
		s.runs(3)
		s.send(&wire.Message{Leave: true})
		s.next("the answer to leave", func(m *wire.Message) bool { return m.Left })
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		write(t, fifo, "on\n")
		until(t, "a task fails", func() bool { lines, _ := readSpool(t, run); return len(lines) >= 3 })
		want := "signal 15"
		if job {
			want = "stopped signal 15"
		} else {
			until(t, "a killed task fails", func() bool { lines, _ := readSpool(t, run); return len(lines) >= 4 })
		}
		s.signals <- syscall.SIGTERM
		s.next("a signal", func(m *wire.Message) bool { return m.Signal == "TERM" })
		s.lose()
		s.rest()
		ends := map[int64]string{}
		lines, _ := readSpool(t, run)
		for _, l := range lines {
			if l.Done != nil {
				ends[l.Done.Seq] = s.ended(l.Done)
			}
		}
		if ends[1] != want || ends[2] != "stopped signal 15" || ends[3] != "exit 3" {
			t.Errorf("with the end of the job %v: %v", job, ends)
		}
	}
}

// A spool that was not needed is removed.
func TestSpoolIsRemoved(t *testing.T) {
	run := t.TempDir()
	s := open(t, func(_ *Options, setup *wire.Setup) { setup.Run, setup.Finish = wire.Text(run), true })
	s.run(task(1, "echo one"))
	if got := s.ended(s.done(1)); got != `ok out "one\n"` {
		t.Error(got)
	}
	if lines, _ := readSpool(t, run); len(lines) != 1 || lines[0].Node != "n1" || !strings.HasPrefix(lines[0].Session, "test-") {
		t.Errorf("while it is connected: %+v", lines)
	}
	s.send(&wire.Message{Bye: true})
	s.rest()
	if _, held := readSpool(t, run); len(held) > 0 {
		t.Errorf("left: %v", held)
	}
}

// A worker requests leases, and ends its tasks before the last one expires.
func TestLeaseExpires(t *testing.T) {
	s := open(t, func(_ *Options, setup *wire.Setup) { setup.Lease, setup.Grace = 60, 10 })
	s.run(task(1, "exec sleep 1000"))
	pid := s.runs(1)
	renewal := func() int64 {
		return s.next("a request for a lease", func(m *wire.Message) bool { return m.Renew != 0 }).Renew
	}
	asked := renewal()
	if asked != s.clock.Load() {
		t.Errorf("requested at %d, it is %d", asked, s.clock.Load())
	}
	if end := leaseOf(t, s); end != asked+int64(time.Minute) {
		t.Errorf("the supervisor is told %d", end)
	}
	s.clock.Add(int64(4 * time.Second))
	s.send(&wire.Message{Lease: asked + int64(3*time.Second)})
	until(t, "the lease is extended", func() bool { return leaseOf(t, s) == asked+int64(63*time.Second) })
	// 12 seconds are kept to end the tasks.
	for range 11 {
		s.clock.Add(int64(4 * time.Second))
		ticks(s)
	}
	if gone(pid) {
		t.Error("the task has ended 15 seconds before the lease")
	}
	s.clock.Add(int64(4 * time.Second))
	if got := s.ended(s.done(1)); got != "stopped signal 15" {
		t.Error(got)
	}
	s.lose()
	s.rest()
}

// A worker that was stopped for longer than its lease stops its tasks until the scheduler has
// answered, and does not count the time against their limits.
func TestLeaseAfterAPause(t *testing.T) {
	for _, answered := range []bool{true, false} {
		s := open(t, func(_ *Options, setup *wire.Setup) { setup.Lease, setup.Grace = 60, 10 })
		r := task(1, "exec sleep 1000")
		r.Timeout = 1000
		s.run(r)
		pid := s.runs(1)
		s.next("a request for a lease", func(m *wire.Message) bool { return m.Renew != 0 })
		s.clock.Add(int64(time.Hour))
		asked := s.next("a request for a lease", func(m *wire.Message) bool { return m.Renew != 0 }).Renew
		until(t, "the task is stopped", func() bool { return status(t, pid) == "T" })
		if answered {
			s.send(&wire.Message{Lease: asked})
			until(t, "the task goes on", func() bool { return status(t, pid) == "S" })
			s.send(&wire.Message{Kill: &wire.Kill{Key: r.Key, Why: wire.Cancelled}})
			if got := s.ended(s.done(1)); got != "cancelled signal 15" {
				t.Error(got)
			}
			continue
		}
		s.clock.Add(int64(answer) - 1)
		ticks(s)
		if got := status(t, pid); got != "T" {
			t.Errorf("before the end of the wait: state %q", got)
		}
		s.clock.Add(2)
		if d := s.done(1); d.What != wire.Stopped || d.Signal == 0 { // SIGTERM and SIGKILL come at once
			t.Error(s.ended(d))
		}
		s.lose()
		s.rest()
	}
}

func leaseOf(t *testing.T, s *session) int64 {
	t.Helper()
	f, err := os.Open(filepath.Join(s.temp, leaseFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return leaseEnd(f)
}

// What is left of a worker: nothing while one of its processes lives.
func TestClear(t *testing.T) {
	s := open(t, func(_ *Options, setup *wire.Setup) { setup.Keep = true })
	s.run(task(1, "echo $JOBPOOL_TASK; setsid sleep 1000 >/dev/null 2>&1 & echo $!"))
	lines := strings.Fields(string(s.done(1).Out))
	if len(lines) != 2 {
		t.Fatalf("%q", lines)
	}
	name, _, _ := strings.Cut(lines[0], "/")
	pid := atoi(lines[1])
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	start, alive := proc.Started(pid)
	if !alive {
		t.Fatal("the process that is left has ended")
	}
	lives := wire.Identity{Session: name, Node: "n1", Processes: []wire.Process{{PID: pid, Start: start}}}
	dead := wire.Identity{Session: name, Node: "n1", Processes: []wire.Process{{PID: pid, Start: start + 1}}}
	other := wire.Identity{Session: name, Node: "n2"}
	for _, tt := range []struct {
		name  string
		id    wire.Identity
		keep  bool
		want  bool
		alive bool
	}{
		{"a worker that lives", lives, false, false, true},
		{"a worker that is dead, to be kept", dead, true, true, true},
		{"a worker of another node", other, false, true, true},
		{"a worker that is dead", dead, false, true, false},
	} {
		if got := Clear(tt.id, tt.keep); got != tt.want {
			t.Errorf("%s: clear: %v", tt.name, got)
		}
		if gone(pid) == tt.alive {
			t.Errorf("%s: what it left is alive: %v", tt.name, !tt.alive)
		}
	}
}

// A worker tells when the ones before are gone, those that it was asked for.
func TestOrphansOfOthers(t *testing.T) {
	var asked []string
	s := open(t, func(o *Options, setup *wire.Setup) {
		setup.Orphans = []wire.Identity{{Session: "a"}, {Session: "b"}}
		o.Clear = func(f wire.Identity, _ bool) bool {
			asked = append(asked, f.Session)
			return len(asked) != 1
		}
	})
	s.next("they are gone", func(m *wire.Message) bool { return m.Clear })
	if want := []string{"a", "a", "b"}; !slices.Equal(asked, want) {
		t.Errorf("asked %v, want %v", asked, want)
	}
}
