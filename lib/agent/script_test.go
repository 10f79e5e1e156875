package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/testscripts/executable"
)

// jobDir is the directory of a task whose command adds a line to a file, and whose jobs
// are run by hand.
type jobDir struct {
	t *testing.T
	Dir
	bin string // programs that stand before the system's
}

func newJobDir(t *testing.T, command ...string) *jobDir {
	t.Helper()
	j := &jobDir{t: t, Dir: Dir{t.TempDir(), "a"}, bin: t.TempDir()}
	source := t.TempDir()
	j.write(envFile, "RUNS="+j.file("runs")+"\x00PONOS_TASK=a\x00")
	j.write(commandFile, strings.Join(command, "\x00")+"\x00")
	s := script{Task: task.Task{ID: "a"}, Dir: j.Dir, Env: environment.Environment{Source: source}, Attempt: 1, Command: command}
	j.write(scriptFile, string(s.text()))
	return j
}

func (j *jobDir) write(name, text string) {
	j.t.Helper()
	if err := os.WriteFile(j.file(name), []byte(text), 0o600); err != nil {
		j.t.Fatal(err)
	}
}

// program puts a program before the system's: it fails as often as said, in words of
// its own, and is the system's then.
func (j *jobDir) program(name string, failures int, words string) {
	j.t.Helper()
	real, err := exec.LookPath(name)
	if err != nil {
		j.t.Fatal(err)
	}
	text := fmt.Sprintf("#!/bin/bash\nn=$(cat %[1]s 2>/dev/null || echo 0)\nif [ \"$n\" -lt %[2]d ]; then echo $((n+1)) >%[1]s; echo '%[3]s' >&2; exit 1; fi\nexec %[4]s \"$@\"\n",
		filepath.Join(j.bin, name+".count"), failures, words, real)
	executable.Write(j.t, filepath.Join(j.bin, name), text)
}

// run begins a job and returns its exit status and what it printed.
func (j *jobDir) run(job string, restart int, more ...string) (int, string) {
	j.t.Helper()
	c := exec.Command("bash", j.file(scriptFile))
	c.Env = append([]string{
		"PATH=" + j.bin + ":" + os.Getenv("PATH"), "HOME=" + j.Path, "SLURM_JOB_ID=" + job, fmt.Sprintf("SLURM_RESTART_COUNT=%d", restart),
	}, more...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.CombinedOutput()
	if c.ProcessState == nil {
		j.t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), string(out)
}

// runs is how often the command was run.
func (j *jobDir) runs() int {
	b, err := os.ReadFile(j.file("runs"))
	if err != nil && !os.IsNotExist(err) {
		j.t.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

func (j *jobDir) journal(job string) record.Run {
	j.t.Helper()
	r, err := record.ReadRun(j.Path, job)
	if err != nil {
		j.t.Fatal(err)
	}
	return r
}

var count = []string{"sh", "-c", `echo run >>"$RUNS"; exit 7`}

func TestAJobLeavesAJournal(t *testing.T) {
	t.Parallel()
	j := newJobDir(t, count...)
	code, out := j.run("5", 0)
	if code != 7 || j.runs() != 1 || out != "" {
		t.Errorf("exit %d, %d runs, %q", code, j.runs(), out)
	}
	if got, want := j.journal("5"), (record.Run{Begun: true, Ended: true, Closed: true, Code: 7}); got != want {
		t.Errorf("journal %+v; want %+v", got, want)
	}
	if got := j.journal("6"); got.Begun {
		t.Errorf("another job's journal: %+v", got)
	}
}

// Another job that owns the task ends a job with 0; anything else that keeps it from the
// task does not.
func TestOneJobOwnsTheTask(t *testing.T) {
	t.Parallel()
	j := newJobDir(t, count...)
	if err := os.Symlink("4", j.file(record.Owner(1))); err != nil {
		t.Fatal(err)
	}
	code, out := j.run("5", 0)
	if code != 0 || j.runs() != 0 || out != "job 5: the task is run by job 4\n" {
		t.Errorf("exit %d, %d runs, %q", code, j.runs(), out)
	}
}

func TestAFailedLinkIsNoOwner(t *testing.T) {
	t.Parallel()
	j := newJobDir(t, count...)
	j.program("ln", 2, "ln: failed to create symbolic link: Disk quota exceeded")
	code, out := j.run("5", 0)
	if code != 7 || j.runs() != 1 || !strings.Contains(out, "it cannot take the task: ln: failed to create symbolic link: Disk quota exceeded") {
		t.Errorf("exit %d, %d runs, %q", code, j.runs(), out)
	}
	if owner, err := record.ReadOwner(j.Path, 1); owner != "5" || err != nil {
		t.Errorf("owner %q, %v", owner, err)
	}
}

func TestTheJournalIsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, want := range []int{0, 7} {
		j := newJobDir(t, "sh", "-c", fmt.Sprintf(`echo run >>"$RUNS"; rm "$BIN"/sync.count; exit %d`, want))
		j.write(envFile, "RUNS="+j.file("runs")+"\x00BIN="+j.bin+"\x00PONOS_TASK=a\x00")
		j.program("sync", 2, "sync: error: No space left on device")
		code, out := j.run("5", 0)
		if code != want || j.runs() != 1 || strings.Count(out, "No space left on device") != 4 {
			t.Errorf("exit %d, %d runs, %q", code, j.runs(), out)
		}
		if got := j.journal("5"); !got.Ended || got.Code != want {
			t.Errorf("journal %+v", got)
		}
	}
}

// Slurm may begin a job again whose command has ended, with the same restart count or
// the next one.
func TestACommandThatHasEndedIsNotRunAgain(t *testing.T) {
	t.Parallel()
	j := newJobDir(t, count...)
	for _, restart := range []int{0, 0, 1, 5} {
		if code, out := j.run("5", restart); code != 7 || j.runs() != 1 {
			t.Errorf("restart %d: exit %d, %d runs, %q", restart, code, j.runs(), out)
		}
	}
	if got := j.journal("5"); !got.Ended || got.Restart != 0 {
		t.Errorf("journal %+v", got)
	}
}

// A command has ended although its script was killed before it could say how.
func TestAJobThatIsKilledRightAfterItsCommand(t *testing.T) {
	t.Parallel()
	j := newJobDir(t, count...)
	executable.Write(t, filepath.Join(j.bin, "sleep"), "#!/bin/sh\nkill -KILL $PPID\n")
	if code, out := j.run("5", 0); code != -1 {
		t.Fatalf("exit %d, %q", code, out)
	}
	if err := os.Remove(filepath.Join(j.bin, "sleep")); err != nil {
		t.Fatal(err)
	}
	if got, want := j.journal("5"), (record.Run{Begun: true, Ended: true, Code: 7}); got != want {
		t.Errorf("journal %+v; want %+v", got, want)
	}
	for _, restart := range []int{0, 1} {
		if code, out := j.run("5", restart); code != 7 || j.runs() != 1 {
			t.Errorf("exit %d, %d runs, %q", code, j.runs(), out)
		}
	}
}

// After a warning, a success may prove to be an end by a signal, too: Slurm signals one process after the other.
func TestAJobThatIsWarned(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		settling string
		want     record.Run
	}{
		{"kill -TERM $PPID", record.Run{Begun: true, Cut: true, Closed: true}},
		{"true", record.Run{Begun: true, Ended: true, Closed: true}},
	} {
		j := newJobDir(t, "sh", "-c", `echo run >>"$RUNS"; kill -CONT $PPID`)
		executable.Write(t, filepath.Join(j.bin, "sleep"), "#!/bin/sh\necho settles\n"+tt.settling+"\n")
		if code, out := j.run("5", 0); code != 0 || out != "settles\n" || j.runs() != 1 {
			t.Errorf("%s: exit %d, %d runs, %q", tt.settling, code, j.runs(), out)
		}
		if got := j.journal("5"); got != tt.want {
			t.Errorf("%s: journal %+v; want %+v", tt.settling, got, tt.want)
		}
	}
}

// The agent moves the directory away as soon as it has seen the end: the journal goes with it.
func TestTheDirectoryIsMovedRightAfterTheCommand(t *testing.T) {
	t.Parallel()
	j := newJobDir(t, count...)
	away := t.TempDir()
	executable.Write(t, filepath.Join(j.bin, "sleep"), "#!/bin/sh\nmv "+j.Path+" "+away+"/done\n")
	if code, out := j.run("5", 0); code != 7 {
		t.Errorf("exit %d, %q", code, out)
	}
	if r, err := record.ReadRun(filepath.Join(away, "done"), "5"); err != nil || !r.Ended || !r.Closed || r.Code != 7 {
		t.Errorf("journal %+v, %v", r, err)
	}
}

// What a signal to the script of a job alone (scancel --batch) or to all of the job (scancel --full) does, where the
// command handles it and where it dies of it: SIGTERM asks the job to end, and the others are for the command alone.
func TestSignals(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM"} {
		handles, got := "trap 'echo got' "+name+"; ", "got\n"
		if name == "TERM" { // the script passes one on that comes right after the command has begun
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
				j := newJobDir(t, "sh", "-c", `echo run >>"$RUNS"; exec 2>/dev/null; `+command)
				code, out := j.run("5", 0)
				if code != want.code || j.runs() != 1 || want.out != "" && out != want.out {
					t.Errorf("exit %d, %d runs, %q", code, j.runs(), out)
				}
				cut := name == "TERM"
				if got, want := j.journal("5"), (record.Run{Begun: true, Ended: !cut, Cut: cut, Closed: true, Code: want.code}); got != want {
					t.Errorf("journal %+v; want %+v", got, want)
				}
			})
		}
	}
}

// A job that was asked to end is run again if Slurm begins it again.
func TestAJobThatWasPreemptedRunsAgain(t *testing.T) {
	t.Parallel()
	j := newJobDir(t, "sh", "-c", `echo run >>"$RUNS"; if [ "$SLURM_RESTART_COUNT" = 0 ]; then kill -TERM $PPID; exit 143; fi`)
	if code, out := j.run("5", 0); code != 143 {
		t.Fatalf("exit %d, %q", code, out)
	}
	if got, want := j.journal("5"), (record.Run{Begun: true, Cut: true, Closed: true, Code: 143}); got != want {
		t.Errorf("journal %+v; want %+v", got, want)
	}
	if code, out := j.run("5", 1); code != 0 || j.runs() != 2 {
		t.Errorf("exit %d, %d runs, %q", code, j.runs(), out)
	}
	if got, want := j.journal("5"), (record.Run{Restart: 1, Begun: true, Ended: true, Closed: true}); got != want {
		t.Errorf("journal %+v; want %+v", got, want)
	}
}

// The task's directory is away when the command ends, and the job is killed before it is
// back: what the command did is in its journal all the same.
func TestTheDirectoryIsAwayAtTheEnd(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"0", "7"} {
		away := t.TempDir()
		j := newJobDir(t, "sh", "-c", `echo run >>"$RUNS"; mv `+away+`/../task-`+code+` `+away+`/; exit `+code)
		moved := filepath.Join(filepath.Dir(away), "task-"+code)
		if err := os.Rename(j.Path, moved); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{scriptFile, envFile} {
			b, err := os.ReadFile(filepath.Join(moved, name))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(moved, name), []byte(strings.ReplaceAll(string(b), j.Path, moved)), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(moved, envFile), []byte("RUNS="+filepath.Join(away, "runs")+"\x00PONOS_TASK=a\x00"), 0o600); err != nil {
			t.Fatal(err)
		}
		j.Path = moved
		if got, out := j.run("5", 0); fmt.Sprint(got) != code {
			t.Errorf("exit %d, %q", got, out)
		}
		r, err := record.ReadRun(filepath.Join(away, "task-"+code), "5")
		if err != nil || !r.Ended || fmt.Sprint(r.Code) != code {
			t.Errorf("journal %+v, %v", r, err)
		}
	}
}

// A job that is asked to end right before its command begins does not begin it: the command
// would not hear of it.
func TestAJobThatIsAskedToEndBeforeItsCommand(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"cp", "sync"} { // before and after the journal says that it begins
		j := newJobDir(t, count...)
		real, err := exec.LookPath(step)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("#!/bin/bash\nif ! [ -e %[1]s ]; then touch %[1]s; kill -TERM $PPID; fi\nexec %[2]s \"$@\"\n", filepath.Join(j.bin, "asked"), real)
		executable.Write(t, filepath.Join(j.bin, step), text)
		if code, out := j.run("5", 0); code != 143 || j.runs() != 0 {
			t.Errorf("%s: exit %d, %d runs, %q", step, code, j.runs(), out)
		}
		if r := j.journal("5"); r.Ended || r.Begun != r.Cut {
			t.Errorf("%s: journal %+v", step, r)
		}
		if code, out := j.run("5", 1); code != 7 || j.runs() != 1 {
			t.Errorf("%s: begun again: exit %d, %d runs, %q", step, code, j.runs(), out)
		}
	}
}

// A start of which the controller knows nothing any more was killed, or still runs: the
// next one under the same count waits for its end and takes that.
func TestAStartThatWasForgotten(t *testing.T) {
	t.Parallel()
	j := newJobDir(t, count...)
	j.write(record.Journal("5", 0), "\nbegun "+hostname(t)+" 999999 1;\n") // no such process
	if code, out := j.run("5", 0); code != 7 || j.runs() != 1 {
		t.Errorf("exit %d, %d runs, %q", code, j.runs(), out)
	}
	running := newJobDir(t, "sh", "-c", `echo run >>"$RUNS"; sleep 3; exit 7`)
	done := make(chan int)
	go func() {
		code, _ := running.run("5", 0)
		done <- code
	}()
	for !running.journal("5").Begun || running.runs() == 0 {
		select {
		case code := <-done:
			t.Fatalf("the first start ended with %d", code)
		case <-time.After(5 * time.Millisecond):
		}
	}
	code, out := running.run("5", 0)
	if first := <-done; first != 7 || code != 7 || running.runs() != 1 {
		t.Errorf("exits %d and %d, %d runs, %q", first, code, running.runs(), out)
	}
}

func hostname(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("/proc/sys/kernel/hostname")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
