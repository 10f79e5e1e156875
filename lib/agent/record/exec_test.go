package record

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// TestMain is Exec where a test asks for that.
func TestMain(m *testing.M) {
	dir := os.Getenv("RECORD_DIR")
	if dir == "" {
		os.Exit(m.Run())
	}
	restart, _ := strconv.Atoi(os.Getenv("SLURM_RESTART_COUNT"))
	ctx, end := context.WithCancelCause(context.Background())
	if os.Getenv("RECORD_ASKED") != "" {
		end(app.Interrupted{Signal: syscall.SIGTERM})
	}
	most, _ := strconv.ParseInt(os.Getenv("RECORD_MAX_LOG"), 10, 64)
	code, err := Exec(ctx, Task{
		MaxLog: most,
		ID:     "a", Dir: dir, Job: os.Getenv("SLURM_JOB_ID"), Restart: restart, Attempt: 1, Source: os.Getenv("RECORD_SOURCE"),
	}, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// place is the directory of a task, whose jobs are started by hand.
type place struct {
	t      *testing.T
	dir    string
	source string
	counts string   // a file to which the command adds a line
	more   []string // environment
}

func newPlace(t *testing.T, command ...string) *place {
	t.Helper()
	p := &place{t: t, dir: t.TempDir(), source: t.TempDir(), counts: filepath.Join(t.TempDir(), "runs")}
	p.fill(command...)
	return p
}

// fill writes the files of the task.
func (p *place) fill(command ...string) {
	p.t.Helper()
	p.write("env", "DIR="+p.dir+"\x00RUNS="+p.counts+"\x00PONOS_TASK=a\x00")
	p.write("command", strings.Join(command, "\x00")+"\x00")
}

func (p *place) write(name, text string) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) begin(job string, restart int, out io.Writer) *exec.Cmd {
	p.t.Helper()
	self, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), "RECORD_DIR="+p.dir, "RECORD_SOURCE="+p.source, "SLURM_JOB_ID="+job, fmt.Sprintf("SLURM_RESTART_COUNT=%d", restart))
	c.Env = append(c.Env, p.more...)
	c.Stdout, c.Stderr = out, out
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		p.t.Fatal(err)
	}
	return c
}

// run runs a job, and returns its exit code, or -1 if it was killed, and what it has printed.
func (p *place) run(job string, restart int) (int, string) {
	p.t.Helper()
	var out strings.Builder
	c := p.begin(job, restart, &out)
	_ = c.Wait()
	return c.ProcessState.ExitCode(), out.String()
}

func (p *place) runs() int {
	b, _ := os.ReadFile(p.counts)
	return strings.Count(string(b), "\n")
}

func (p *place) journal(job string) Run {
	p.t.Helper()
	r, err := ReadRun(p.dir, job)
	if err != nil {
		p.t.Fatal(err)
	}
	r.Used = Used{} // which differs
	return r
}

// await waits until a start of a job has begun the command.
func (p *place) await(runs int) {
	p.t.Helper()
	for deadline := time.Now().Add(time.Minute); p.runs() < runs; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatal("the command has not begun")
		}
	}
}

const count = `echo run >>"$RUNS"; `

// What a job runs, what it answers, and what it leaves in its journal.
func TestExec(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		command []string
		before  func(p *place)
		code    int
		runs    int
		out     string
		want    Run
	}{
		"fails":          {command: []string{"sh", "-c", count + "exit 7"}, code: 7, runs: 1, want: Run{Begun: true, Ended: true, Closed: true, Code: 7}},
		"succeeds":       {command: []string{"sh", "-c", count + `[ "$PONOS_JOB" = 5 ] && [ "$PWD" = "$DIR/work" ]`}, runs: 1, want: Run{Begun: true, Ended: true, Closed: true}},
		"is owned":       {command: []string{"sh", "-c", count}, before: func(p *place) { _ = os.Symlink("4", filepath.Join(p.dir, Owner(1))) }, out: "job 5: the task is run by job 4\n"},
		"is not found":   {command: []string{"no-such-program"}, code: 127, out: "job 5: no-such-program: not found\n", want: Run{Begun: true, Ended: true, Closed: true, Code: 127}},
		"is a directory": {command: []string{"/"}, code: 126, out: "job 5: /: permission denied\n", want: Run{Begun: true, Ended: true, Closed: true, Code: 126}},
		"is killed":      {command: []string{"sh", "-c", count + "kill -KILL $$"}, code: 137, runs: 1, want: Run{Begun: true, Ended: true, Closed: true, Code: 137}},
		"is asked to end, and succeeds": {
			command: []string{"sh", "-c", "trap '' TERM; " + count + "kill -TERM $PPID"}, runs: 1, want: Run{Begun: true, Cut: true, Closed: true},
		},
		"is asked to end, and fails": {
			command: []string{"sh", "-c", "trap '' TERM; " + count + "kill -TERM $PPID; exit 3"}, code: 3, runs: 1, want: Run{Begun: true, Cut: true, Closed: true, Code: 3},
		},
		"removes its directory": {
			command: []string{"sh", "-c", count + `rm -rf "$DIR"; exit 7`}, code: 7, runs: 1, want: Run{Begun: true, Ended: true, Closed: true, Code: 7},
		},
		"removes its record": {
			command: []string{"sh", "-c", count + `rm "$DIR"/run.* "$DIR"/owner.*`}, runs: 1, want: Run{Begun: true, Ended: true, Closed: true},
		},
		"names no interpreter": {
			command: []string{"./script"}, before: func(p *place) {
				executable.Write(p.t, filepath.Join(p.source, "script"), count+"[[ a = a ]] && exit 4\n")
			},
			code: 4, runs: 1, want: Run{Begun: true, Ended: true, Closed: true, Code: 4},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, tt.command...)
			if tt.before != nil {
				tt.before(p)
			}
			code, out := p.run("5", 0)
			if code != tt.code || p.runs() != tt.runs || out != tt.out {
				t.Errorf("exit %d, %d runs, %q", code, p.runs(), out)
			}
			if got := p.journal("5"); got != tt.want {
				t.Errorf("journal %+v; want %+v", got, tt.want)
			}
			if owner, err := os.Readlink(filepath.Join(p.dir, Owner(1))); owner == "" {
				t.Error(err)
			}
		})
	}
}

// What a signal to the job alone (scancel --batch) or to all of it (scancel --full) does, where the command handles it and
// where it dies of it: SIGTERM asks the job to end, and the others are for the command alone.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM"} {
		handles, got := "trap 'echo got' "+name+"; ", "got\n"
		if name == "TERM" { // it is passed on if it comes right after the command has begun
			handles, got = "trap '' TERM; ", ""
		}
		for command, want := range map[string]struct {
			code int
			out  string
		}{
			handles + "kill -" + name + " $PPID; echo done": {0, "done\n"},
			handles + "kill -" + name + " 0; echo done":     {0, got + "done\n"},
			"ulimit -c 0; kill -" + name + " 0; echo done":  {128 + int(unix.SignalNum("SIG"+name)), ""},
		} {
			t.Run(command, func(t *testing.T) {
				t.Parallel()
				p := newPlace(t, "sh", "-c", count+"exec 2>/dev/null; "+command)
				code, out := p.run("5", 0)
				if code != want.code || p.runs() != 1 || want.out != "" && out != want.out {
					t.Errorf("exit %d, %d runs, %q", code, p.runs(), out)
				}
				cut := name == "TERM"
				if got, want := p.journal("5"), (Run{Begun: true, Ended: !cut, Cut: cut, Closed: true, Code: want.code}); got != want {
					t.Errorf("journal %+v; want %+v", got, want)
				}
			})
		}
	}
}

// A job is begun once more: what has ended is not run again, what was cut short is, and what still runs is waited for.
func TestExecAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sh", "-c", count+`if [ "$SLURM_RESTART_COUNT" = 0 ]; then kill -TERM $PPID; exit 143; fi; echo more >>kept; exit 6`)
	for _, want := range []struct{ restart, code, runs int }{{0, 143, 1}, {1, 6, 2}, {1, 6, 2}, {5, 6, 2}} {
		if code, out := p.run("5", want.restart); code != want.code || p.runs() != want.runs {
			t.Errorf("restart %d: exit %d, %d runs, %q", want.restart, code, p.runs(), out)
		}
	}
	if got, want := p.journal("5"), (Run{Restart: 1, Begun: true, Ended: true, Closed: true, Code: 6}); got != want {
		t.Errorf("journal %+v; want %+v", got, want)
	}

	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	begun := "\nbegun " + host + " 999999 1;\n" // there is no such process
	for journal, want := range map[string]struct{ code, runs int }{
		begun:                     {7, 1}, // it was killed, and its command with it
		begun + "\nexited 3;\n":   {3, 0}, // it was killed right after its command
		begun + "\nexited 143;\n": {7, 1},
		begun + "\ncut 0;\n":      {7, 1},
	} {
		q := newPlace(t, "sh", "-c", count+"exit 7")
		q.write(Journal("5", 0), journal)
		if code, out := q.run("5", 0); code != want.code || q.runs() != want.runs {
			t.Errorf("%q: exit %d, %d runs, %q", journal, code, q.runs(), out)
		}
	}

	for _, restart := range []int{0, 1} { // of the start that finds another one
		q := newPlace(t, "sh", "-c", count+`while ! [ -e "$DIR/go" ]; do sleep 0.02; done; exit 7`)
		var first, second strings.Builder
		a := q.begin("5", 0, &first)
		q.await(1)
		b := q.begin("5", restart, &second)
		time.Sleep(200 * time.Millisecond) // it would have run the command by now
		q.write("go", "")
		_, _ = a.Process.Wait()
		if state, _ := b.Process.Wait(); state.ExitCode() != 7 || q.runs() != 1 {
			t.Errorf("restart %d: exit %d, %d runs, %q", restart, state.ExitCode(), q.runs(), second.String())
		}
	}
}

// A request that comes before the program listens is not lost: the command does not begin.
func TestExecIsAskedBefore(t *testing.T) {
	t.Setenv("RECORD_ASKED", "1")
	p := newPlace(t, "sh", "-c", count)
	if code, out := p.run("5", 0); code != terminated || p.runs() != 0 || p.journal("5") != (Run{}) {
		t.Errorf("exit %d, %d runs, %q, journal %+v", code, p.runs(), out, p.journal("5"))
	}
}

// After a warning, a success may prove to be an end by a signal, too: it is sealed when no request has followed.
func TestExecIsWarned(t *testing.T) {
	t.Parallel()
	x := &execution{}
	defer x.listen(context.Background())()
	if err := syscall.Kill(os.Getpid(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	warned := func() bool {
		x.hearing.Lock()
		defer x.hearing.Unlock()
		return !x.heard.Warned.IsZero()
	}
	for deadline := time.Now().Add(time.Minute); !warned(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not hear of the warning")
		}
	}
	for _, tt := range []struct {
		open         time.Duration
		ended, asked bool // when the command ended, and when that was sealed
		want         string
	}{
		{0, false, false, "ended 0"},
		{0, true, true, "cut 0"},
		{time.Second, true, true, "cut 0"},
		{time.Second, false, false, "exited 0, ended 0"},
		{time.Second, false, true, "exited 0, cut 0"},
	} {
		s := Start{step: Execute}
		do := s.Next(Saw{Open: tt.open}, tt.ended)
		got := do.Line
		if do = s.Next(Saw{}, tt.ended); do.Step == Settle {
			if do.After != tt.open {
				t.Errorf("it settles for %v", do.After)
			}
			got += ", " + s.Next(Saw{}, tt.asked).Line
		}
		if got != tt.want {
			t.Errorf("open for %v: %q; want %q", tt.open, got, tt.want)
		}
	}
}

// A command does not outlive the program that would record its end; nothing says then how it has ended.
func TestExecIsKilled(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sh", "-c", `echo $$ >"$DIR/pid"; `+count+`exec sleep 600`)
	var out strings.Builder
	c := p.begin("5", 0, &out)
	p.await(1)
	_ = c.Process.Kill()
	_ = c.Wait()
	b, _ := os.ReadFile(filepath.Join(p.dir, "pid"))
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); syscall.Kill(pid, 0) == nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the command is alive")
		}
		if state, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); strings.Contains(string(state), ") Z ") {
			break // nobody waits for it here
		}
	}
	if got, want := p.journal("5"), (Run{Begun: true}); got != want {
		t.Errorf("journal %+v; want %+v", got, want)
	}
}

// The directory is moved away while the command runs: the journal goes with it.
func TestExecWhileTheDirectoryIsAway(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sh", "-c", count+`mv "$DIR" "$DIR.away"; exit 7`)
	if code, out := p.run("5", 0); code != 7 {
		t.Errorf("exit %d, %q", code, out)
	}
	p.dir += ".away"
	if got, want := p.journal("5"), (Run{Begun: true, Ended: true, Closed: true, Code: 7}); got != want {
		t.Errorf("journal %+v; want %+v", got, want)
	}
}

// A full disk keeps a job from beginning its command, until there is room.
func TestExecOnAFullDisk(t *testing.T) {
	t.Parallel()
	for _, code := range []int{0, 7} {
		p := newPlace(t)
		needs.Mount(t, p.dir, "tmpfs", 0, "size=64k")
		p.fill("sh", "-c", count+"exit "+strconv.Itoa(code))
		fill, err := os.Create(filepath.Join(p.dir, "first"))
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			_, err = fill.Write(make([]byte, 4096))
		}
		fill.Close()
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		said := func() int {
			b, _ := os.ReadFile(out.Name())
			return strings.Count(string(b), "no space left on device; trying again in ")
		}
		c := p.begin("5", 0, out)
		for deadline := time.Now().Add(time.Minute); said() == 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the job does not try again")
			}
		}
		if p.runs() != 0 {
			t.Error("the command has begun on a full disk")
		}
		_ = os.Remove(fill.Name())
		_ = c.Wait()
		if got, want := p.journal("5"), (Run{Begun: true, Ended: true, Closed: true, Code: code}); got != want || c.ProcessState.ExitCode() != code {
			t.Errorf("exit %d, journal %+v; want %+v", c.ProcessState.ExitCode(), got, want)
		}
	}
}

// The CPU time of a command is known with its end.
func TestUsed(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done")
	if code, out := p.run("5", 0); code != 0 {
		t.Errorf("exit %d, %q", code, out)
	}
	if run, err := ReadRun(p.dir, "5"); err != nil || !run.Over() || run.Used.CPU == 0 {
		t.Errorf("%+v, %v", run, err)
	}
}

// With a limit the output passes the program of the job, which says what is missing. Without one, the command writes itself.
func TestMaxLog(t *testing.T) {
	t.Parallel()
	const left = "job 5: the output has more than 8 bytes (max_task_log): the rest is left out\n"
	for name, tt := range map[string]struct{ max, script, out string }{
		"none":              {"", `[ /proc/self/fd/1 -ef "$FILE" ] && echo the file itself`, "the file itself\n"},
		"less":              {"8", "echo seven77; exit 3", "seven77\n"},
		"more":              {"8", "echo 1234; echo 5678 >&2; echo 9; exit 3", "1234\n567\n" + left + "job 5: 4 bytes of the output are left out\n"},
		"much":              {"8", "head -c 1000008 /dev/zero | tr '\\0' '\\n'; exit 3", "\n\n\n\n\n\n\n\n" + left + "job 5: 1000000 bytes of the output are left out\n"},
		"in the background": {"8", "sleep 100 & echo a; exit 3", "a\njob 5: the output of what the command has left in the background is lost\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, "bash", "-c", tt.script)
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			p.write("env", "FILE="+out.Name()+"\x00PONOS_TASK=a\x00")
			p.more = []string{"RECORD_MAX_LOG=" + tt.max}
			c := p.begin("5", 0, out)
			_ = c.Wait()
			_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // what is left
			b, err := os.ReadFile(out.Name())
			if string(b) != tt.out || err != nil || c.ProcessState.ExitCode() != 3 && tt.max != "" {
				t.Errorf("%v, %q; want %q", c.ProcessState, b, tt.out)
			}
		})
	}
}

// Output that has no room is told when there is room again, and keeps nothing from its end.
func TestLimitedOutputWithoutRoom(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	full := true
	l := &limited{limit: 10, job: "5", to: writerFunc(func(p []byte) (int, error) {
		if full {
			return 0, syscall.ENOSPC
		}
		return out.Write(p)
	})}
	for _, text := range []string{"lost\n", "here", "much"} {
		if n, err := l.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%q: %d, %v", text, n, err)
		}
		full = false
	}
	l.end()
	want := "herem\njob 5: the output has more than 10 bytes (max_task_log): the rest is left out\n" +
		"job 5: 3 bytes of the output are left out\njob 5: 5 bytes of the output are lost: no space left on device\n"
	if out.String() != want {
		t.Errorf("%q; want %q", out.String(), want)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// Slurm limits and ends a job: its command gets no limit, group, session or cgroup of its own.
func TestExecLimitsNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t, "bash", "-c", `read -ra own </proc/$$/stat; read -ra job </proc/$PPID/stat
		[ "${own[4]} ${own[5]}" = "${job[4]} ${job[5]}" ] || echo "group and session: ${own[4]} ${own[5]}, of the job ${job[4]} ${job[5]}"
		for file in cgroup limits; do diff <(grep -v '^Max open files' /proc/$$/$file) <(grep -v '^Max open files' /proc/$PPID/$file); done`)
	if code, out := p.run("5", 0); code != 0 || out != "" {
		t.Errorf("exit %d, %q", code, out)
	}
}
