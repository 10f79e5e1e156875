package pilot

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
)

// The test binary is a bridge when it is called as one.
func TestMain(m *testing.M) {
	if socket := os.Getenv("PILOT_TEST_BRIDGE"); socket != "" {
		status, err := Bridge(socket)
		if err != nil {
			_, _ = io.WriteString(os.Stderr, err.Error())
			status = 99
		}
		os.Exit(status)
	}
	os.Exit(m.Run())
}

func TestFiles(t *testing.T) {
	run := t.TempDir()
	if _, err := Nodes(run); err == nil {
		t.Error("a run without pilots has nodes")
	}
	p := &Pool{ID: "x", Args: []string{"a b", "\x01"}, MaxJobs: 3, Linger: 1.5}
	if err := Save(run, p); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(run); err != nil || got.ID != "x" || got.MaxJobs != 3 || got.Args[1] != "\x01" {
		t.Errorf("%+v, %v", got, err)
	}
	n := Node{Job: "7", Name: "n1", CPUs: 4, Socket: "/s", End: time.Unix(1e9, 0).UTC()}
	if err := Announce(run, n); err != nil {
		t.Fatal(err)
	}
	// A file that is cut off is not a node.
	if err := os.WriteFile(path(run, "8@n2.json"), []byte(`{"job":"8"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Nodes(run); err != nil || len(got) != 1 || got[0] != n {
		t.Errorf("%+v, %v", got, err)
	}
	if again := (&Node{Job: "7", Name: "n1", Start: 2}); n.Label() != "n1@7" || again.Label() != "n1@7.2" {
		t.Errorf("called %s, and %s when it was requeued twice", n.Label(), again.Label())
	}
	Withdraw(run, n)
	if got, err := Nodes(run); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if Dismissed(run, "7") || Dismiss(run, "7") != nil || !Dismissed(run, "7") || Dismissed(run, "8") || Begin(run, "7") != nil || Dismissed(run, "7") {
		t.Error("dismissed")
	}
	if Drained(run, "7") || Drain(run, "7") != nil || !Drained(run, "7") || Drained(run, "8") || Begin(run, "7") != nil || Drained(run, "7") {
		t.Error("drained")
	}
	if _, over := Over(run); over || SetOver(run, 75) != nil {
		t.Error("over")
	}
	if status, over := Over(run); !over || status != 75 || Reopen(run, true) != nil || !Retry(run) || !Retry(run) || TakeRetry(run) != nil || Retry(run) {
		t.Errorf("over with %d", status)
	}
	if _, over := Over(run); over || Reopen(run, false) != nil {
		t.Error("it is over again")
	}
}

func TestWanted(t *testing.T) {
	for _, c := range []struct {
		what string
		b    Backlog
		want int
	}{
		{"nothing", Backlog{Jobs: 1}, 0},
		{"a short task", Backlog{Waiting: 1, Jobs: 0.25, Mean: 0.1}, 1},
		{"a minute of work for one job", Backlog{Waiting: 240, Jobs: 60, Mean: 1}, 1},
		{"more", Backlog{Waiting: 241, Jobs: 60.25, Mean: 1}, 2},
		{"wide tasks", Backlog{Waiting: 240, Jobs: 240, Mean: 1}, 4},
		{"long tasks", Backlog{Waiting: 8, Jobs: 2, Mean: 3600}, 2},
		{"long tasks, for which there is no room", Backlog{Waiting: 8, Jobs: 2, Running: 3, Mean: 3600}, 5},
		{"tasks that fill jobs, by a sum", Backlog{Waiting: 8, Jobs: 2.0000000001, Mean: 3600}, 2},
		{"a job that is short", Backlog{Waiting: 240, Jobs: 60, Mean: 1, Life: 60}, 4},
		{"a job that is long", Backlog{Waiting: 240, Jobs: 60, Mean: 1, Life: 3600}, 1},
		{"nothing is known of tasks", Backlog{Waiting: 5, Jobs: 5}, 5},
		{"nothing is known of jobs", Backlog{Waiting: 5}, 1},
		{"a task of more nodes than a job has", Backlog{Waiting: 1, Jobs: 0.25, Mean: 0.1, Width: 5, Nodes: 2}, 3},
		{"a task of as many", Backlog{Waiting: 1, Jobs: 0.25, Mean: 0.1, Width: 2, Nodes: 2}, 1},
		{"a task of several, of jobs of unknown size", Backlog{Waiting: 1, Jobs: 0.25, Mean: 0.1, Width: 4}, 1},
	} {
		if got := Wanted(c.b); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// A job that was cancelled is not replaced, but the last one that lasts is.
func TestMissing(t *testing.T) {
	for name, tt := range map[string]struct {
		p    Places
		want int
	}{
		"none yet":                        {Places{Most: 3, Wanted: 2}, 2},
		"limit":                           {Places{Most: 3, Wanted: 5, Present: 2, Lasting: 2}, 1},
		"enough":                          {Places{Most: 3, Wanted: 2, Present: 2, Lasting: 2}, 0},
		"cancelled":                       {Places{Most: 2, Wanted: 2, Present: 1, Lasting: 1, Kept: 1}, 0},
		"cancelled, below the limit":      {Places{Most: 9, Wanted: 2, Present: 1, Lasting: 1, Kept: 1}, 0},
		"cancelled, more are wanted":      {Places{Most: 9, Wanted: 4, Present: 1, Lasting: 1, Kept: 1}, 2},
		"all others cancelled":            {Places{Most: 3, Wanted: 9, Present: 1, Lasting: 1, Kept: 5}, 0},
		"cancelled, the last one ends":    {Places{Most: 2, Wanted: 2, Present: 1, Kept: 1, Last: true}, 1},
		"all end":                         {Places{Most: 2, Wanted: 9, Present: 2, Last: true}, 1},
		"all end, the next one is there":  {Places{Most: 2, Wanted: 9, Present: 3, Lasting: 1}, -1},
		"the limit has become smaller":    {Places{Most: 1, Wanted: 9, Present: 3, Lasting: 3, Kept: 1}, -2},
		"nothing waits":                   {Places{Most: 2, Present: 1, Lasting: 1, Kept: 1}, -1},
		"the last one ends, many are cut": {Places{Most: 3, Wanted: 1, Present: 1, Kept: 2, Last: true}, 1},
	} {
		if n := tt.p.Missing(); n != tt.want {
			t.Errorf("%s: %d, want %d", name, n, tt.want)
		}
	}
}

// What a pilot that was killed has left is removed by the next one, and nothing else is.
func TestDeadPilots(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	alive, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	h := &Host{Complain: func(err error) { t.Error(err) }}
	go h.Serve(alive)
	dead, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	is := func(l *net.UnixListener) bool {
		_, err := os.Stat(l.Addr().String())
		return err == nil
	}
	removeDead()
	if !is(alive) || !is(dead) {
		t.Errorf("alive %v, dead %v: both are new", is(alive), is(dead))
	}
	old := time.Now().Add(-time.Hour)
	for _, l := range []*net.UnixListener{alive, dead} {
		if err := os.Chtimes(filepath.Dir(l.Addr().String()), old, old); err != nil {
			t.Fatal(err)
		}
	}
	next, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	if !is(alive) || is(dead) || !is(next) {
		t.Errorf("alive %v, dead %v, the next one %v", is(alive), is(dead), is(next))
	}
	Close(alive)
	Close(next)
}

// Where Slurm ends a bridge, and the streams that it has handed over stay open, the worker is told.
func TestWorkerOutlivesBridge(t *testing.T) {
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer Close(l)
	told := filepath.Join(t.TempDir(), "told")
	script := fmt.Sprintf("trap 'touch %s; exit 0' %d; echo ready; while :; do sleep 0.1; done", told, int(syscall.SIGIO))
	h := &Host{Worker: command.Cmd{Name: "/bin/sh", Args: []string{"-c", script}}, HungUp: syscall.SIGIO, Complain: func(err error) { t.Error(err) }}
	go h.Serve(l)
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "PILOT_TEST_BRIDGE="+l.Addr().String())
	in, out, err := pipes(c)
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
		t.Fatal(err)
	}
	_ = c.Process.Kill()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(told); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal("the worker does not learn that its bridge has ended")
		}
	}
	_ = c.Wait()
	h.End(time.Minute)
}

// pipes are the standard input and output of a program.
func pipes(c *exec.Cmd) (io.WriteCloser, io.Reader, error) {
	in, err := c.StdinPipe()
	out, outErr := c.StdoutPipe()
	return in, out, errors.Join(err, outErr)
}

func TestBridge(t *testing.T) {
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Dir(l.Addr().String())); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("the directory of the socket: %v, %v", st.Mode(), err)
	}
	done := filepath.Join(t.TempDir(), "done")
	h := &Host{
		Worker:   command.Cmd{Name: "/bin/sh", Args: []string{"-c", `read -r line; echo "got $line"; while read -r line; do :; done; echo "$line" >` + done + `; exit 86`}},
		Complain: func(err error) { t.Error(err) },
	}
	go h.Serve(l)
	bridge := func() (*exec.Cmd, io.WriteCloser, io.Reader) {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "PILOT_TEST_BRIDGE="+l.Addr().String())
		in, err := c.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c, in, out
	}
	c, in, out := bridge()
	if _, err := io.WriteString(in, "this\n"); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 9)
	if _, err := io.ReadFull(out, b); err != nil || string(b) != "got this\n" {
		t.Errorf("%q, %v", b, err)
	}
	_ = in.Close()
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Errorf("%q, %v", rest, err)
	}
	if err := c.Wait(); c.ProcessState.ExitCode() != 86 {
		t.Errorf("the bridge has ended with %v", err)
	}
	// The bridge is killed: the worker sees the end of its input, and goes on.
	if err := os.Remove(done); err != nil {
		t.Fatal(err)
	}
	c, in, out = bridge()
	if _, err := io.WriteString(in, "that\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, b); err != nil {
		t.Fatal(err)
	}
	_ = c.Process.Kill()
	_ = in.Close()
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(done); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal("the worker did not go on without its bridge")
		}
	}
	_ = c.Wait()
	h.End(time.Minute)
	Close(l)
	if _, err := os.Stat(filepath.Dir(l.Addr().String())); err == nil {
		t.Error("the directory of the socket is left")
	}
	late := exec.Command(os.Args[0])
	late.Env = append(os.Environ(), "PILOT_TEST_BRIDGE="+l.Addr().String())
	if out, err := late.CombinedOutput(); late.ProcessState.ExitCode() != 99 || !strings.Contains(string(out), "the pilot of this node does not answer") {
		t.Errorf("without a pilot: %q, %v", out, err)
	}
}

// A run may have new jobs for years: the oldest files of those that have ended go, and nothing else.
func TestFilesOfEndedJobsAreForgotten(t *testing.T) {
	run := t.TempDir()
	for _, dir := range []string{path(run), filepath.Join(run, Logs)} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now().Add(-time.Hour)
	put := func(age int, name ...string) {
		t.Helper()
		file := filepath.Join(append([]string{run}, name...)...)
		at := begin.Add(time.Duration(age) * time.Second)
		if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Chtimes(file, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	kept := []string{"3.log", "4.log", "input", "pool.json", "pilot.sh", "over", "retry", "7@n.json", "a.log"}
	for _, name := range kept {
		put(0, Dir, name)
	}
	put(0, Logs, "n.log") // of a node that is no job's
	put(0, Logs, "n@3.2.log")
	for i := range keptFiles + 3 {
		job := strconv.Itoa(1000 - i)
		put(1+i, Dir, job+".log")
		put(1+i, Logs, "n@"+job+".1.log")
	}
	put(0, Dir, "5.leave")
	forget(run, Listing{Have: []Job{{ID: "3"}}, Ending: []string{"4"}})
	for dir, want := range map[string][2]int{Dir: {len(kept), keptFiles}, Logs: {2, keptFiles}} {
		entries, err := os.ReadDir(filepath.Join(run, dir))
		if err != nil || len(entries) != want[0]+want[1] {
			t.Errorf("%s: %d files, %v", dir, len(entries), err)
		}
		for _, gone := range []string{"1000.log", "998.log", "n@1000.1.log", "5.leave"} {
			if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == gone }) {
				t.Errorf("%s/%s is left", dir, gone)
			}
		}
	}
	for _, name := range kept {
		if _, err := os.Stat(path(run, name)); err != nil {
			t.Error(err)
		}
	}
}

// The logs of nodes tell which start of a job was the last, and of no other job.
func TestRestarts(t *testing.T) {
	run := t.TempDir()
	if err := os.Mkdir(filepath.Join(run, Logs), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, n := range []Node{{Name: "a", Job: "7"}, {Name: "b-1.x", Job: "7", Start: 2}, {Name: "b", Job: "17", Start: 3}, {Name: "a", Job: "8"}} {
		if err := os.WriteFile(filepath.Join(run, Logs, n.Label()+".log"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for job, want := range map[string]int{"7": 2, "17": 3, "8": 0, "9": 0} {
		if got := Restarts(run, job); got != want {
			t.Errorf("job %s: %d restarts, want %d", job, got, want)
		}
	}
}
