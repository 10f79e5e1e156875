package jobpool

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/machine"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
)

// As in cmd/jobpool: see Main.
func init() { runtime.LockOSThread() }

// TestMain makes this binary the jobpool that runs start as their workers.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"worker", "serve", "call"}, os.Args[1]) {
		os.Exit(Main())
	}
	code := make(chan int)
	go func() { code <- m.Run() }()
	os.Exit(<-code)
}

// step is a command line in the directory of a test, and what it does.
type step struct {
	args   string // words, between which are blanks; a word in quotes has blanks
	stdin  string
	code   int
	stdout string
	stderr []string // what is among it; nil: nothing is printed
}

func (s *step) run(t *testing.T) {
	t.Helper()
	var words []string
	for i, part := range strings.Split(s.args, "'") { // every other part is in quotes
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	code, out, errs := runTool(t, s.stdin, words...)
	if code != s.code || out != s.stdout || (errs == "") != (s.stderr == nil) {
		t.Errorf("jobpool %s: exit status %d, want %d\n%s, want\n%s--\n%s", s.args, code, s.code, out, s.stdout, errs)
	}
	for _, want := range s.stderr {
		if !strings.Contains(errs, "jobpool: "+want+"\n") {
			t.Errorf("jobpool %s: %q is not in\n%s", s.args, want, errs)
		}
	}
}

// A run, and those that continue it.
func TestRunAndResume(t *testing.T) {
	alone(t)
	const tasks = " -k -j2 --run d 'echo {}; exit {}' ::: 0 1 2"
	failed := []string{"failed:", "  task 2 on " + machine.Hostname() + " failed with exit status 1: echo 1; exit 1", "  task 3 on " + machine.Hostname() + " failed with exit status 2: echo 2; exit 2"}
	for _, s := range []step{
		{args: "-j1 --run d --dry-run 'echo {}; exit {}' ::: 0 1 2", stdout: "echo 0; exit 0\necho 1; exit 1\necho 2; exit 2\n"},
		{args: "--resume -q --run new 'echo {}' ::: 1", stdout: "1\n"},
		{args: tasks, code: 1, stdout: "0\n1\n2\n", stderr: append(failed, "1 task succeeded, 2 failed")},
		{args: tasks, code: 2, stderr: []string{`run directory "` + mustGetwd(t) + `/d" already contains a run`, "hint: resume it with --resume, or choose another with --run"}},
		{args: "--resume" + tasks, code: 1, stderr: []string{"0 tasks succeeded, 1 done before, 2 failed before"}},
		{args: "--retry-failed" + tasks, code: 1, stdout: "1\n2\n", stderr: append(failed, "0 tasks succeeded, 2 failed, 1 done before")},
		{args: "--resume --run d -k 'echo now {}' ::: 0 1 2", code: 2, stderr: []string{
			`task 1 is now "echo now 0", which is not what was run as task 1`, "hint: the list has changed: resume it with the list that it had, or with --force-resume if the change is intended"}},
		{args: "--retry-failed --force-resume -q -k --run d 'echo now {}' ::: 0 1 2", stdout: "now 1\nnow 2\n"},
		{args: "--resume -q --run d 'echo {}; exit {}' ::: 0 1 2", code: 2, stderr: []string{`task 2 is now "echo 1; exit 1", which is not what was run as task 2`}},
		{args: "--run words -q -j1 --quote echo {} | > ; x& ::: 'a b'", stdout: "a b | > ; x&\n"},
		{args: "--run parallel -q --bar --max-procs 1 --wd / 'pwd; : {}' ::: a", stdout: "/\n"},
		{args: "-q -r gzip", stdin: "\n \n"},
		{args: "--run f 'true' ::: 1", code: 2, stderr: []string{`run directory "` + mustGetwd(t) + `/f": it holds "a" and is not the directory of a run`}},
		{args: "--run / true ::: 1", code: 2, stderr: []string{`run directory "/": it is the root directory`, "hint: choose a directory that is new, empty, or that of a run"}},
		{args: "--run '' true ::: 1", code: 2, stderr: []string{"--run: the directory is not named"}},
	} {
		if strings.HasPrefix(s.args, "--run f") {
			write(t, "f/a", "")
		}
		s.run(t)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Where output and records go.
func TestOutput(t *testing.T) {
	alone(t)
	for _, s := range []step{
		{args: "--run tag -q -k -j1 --tag 'echo {}; echo err >&2' ::: a b", stdout: "a\ta\nb\tb\n", stderr: []string{}},
		{args: "-q -j1 -o files --run files 'echo {}' ::: a b"},
		{args: "log --run files 2 1", stdout: "a\nb\n"},
		{args: "log --run files 3", code: 1, stderr: []string{"no output of task 3 is kept"}},
		{args: "log --run files x", code: 2, stderr: []string{`unknown task "x"`}},
		{args: "-q -j1 -o merged --run merged echo ::: a b"},
		{args: "log --run merged", stdout: "a\nb\n"},
		{args: "-q -j1 -o none --run none echo ::: a b"},
		{args: "log --run none", code: 1, stderr: []string{`the run in "none" has kept no output`, "hint: the ends of the output of failed tasks are kept, and that of all tasks with --output files"}},
		{args: "--run results -q -j1 --results res 'echo {}' ::: a b"},
		{args: "-q -j1 --joblog log.tsv --run joblog 'exit {}' ::: 0 3", code: 1},
		{args: "--run status -q -j1 --status st.json true ::: a b"},
		{args: "-q -j2 --joblog log.tsv --run joblog2 'exit {}' ::: 0 3", code: 2, stderr: []string{`job log "log.tsv" already contains a run`, "hint: resume it with --resume, or choose another"}},
	} {
		s.run(t)
	}
	for name, want := range map[string]string{"res/1/a/stdout": "a\n", "res/1/b/stdout": "b\n", "res/1/b/stderr": "", "res/1/b/seq": "2"} {
		if got := read(t, name); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	rows := strings.Split(read(t, "log.tsv"), "\n")
	if len(rows) != 4 || !strings.HasPrefix(rows[0], "Seq\tHost\t") || !strings.HasSuffix(rows[1], "\t0\t0\texit 0") || !strings.HasSuffix(rows[2], "\t3\t0\texit 3") {
		t.Errorf("the job log has %q", rows)
	}
	var st struct {
		Phase string `json:"phase"`
		Done  int    `json:"done"`
	}
	if err := json.Unmarshal([]byte(read(t, "st.json")), &st); err != nil || st.Phase != "ended" || st.Done != 2 {
		t.Errorf("%v, %+v", err, st)
	}
}

// How tasks run, and when they do not.
func TestTasks(t *testing.T) {
	alone(t)
	t.Setenv("COLOUR", "red")
	for _, s := range []step{
		{args: "-q -j1", stdin: "echo one\necho $COLOUR\n", stdout: "one\nred\n"},
		{args: "-q -j1 --jsonl", stdin: `{"argv": ["echo", "a  b"]}` + "\n" + `{"cmd": "cat", "stdin": "in"}` + "\n" + `{"cmd": "echo $V", "env": {"V": "v"}}` + "\n", stdout: "a  b\ninv\n"},
		{args: "--jsonl", stdin: "{\n", code: 1, stderr: []string{"standard input:1: not a task: it ends too early", "  task 1 refused: not a task: it ends too early: {"}},
		{args: "-q -j1 --pipe -N1 wc -l", stdin: "a\nb\n", stdout: "1\n1\n"},
		{args: "-q -j1 --cwd sub 'pwd; : {}' ::: a", stdout: mustGetwd(t) + "/sub\n"},
		{args: "-q -j1 --timeout 0.2 'exec sleep {}' ::: 1000", code: 1},
		{args: "-q -j1 --retries 1 'echo $JOBPOOL_ATTEMPT; test $JOBPOOL_ATTEMPT = 2 # {}' ::: a", stdout: "2\n"},
		{args: "-q -j1 --halt now,fail=1 'echo {}; exit {}' ::: 0 1 0", code: 1, stdout: "0\n1\n"},
		{args: "-j1 no-such-program ::: a", code: 1, stderr: []string{"  task 1 on " + machine.Hostname() + ` could not be started: "no-such-program": program not found: no-such-program a`}},
		{args: "-j1 --cpus 16000 echo ::: a", code: 1, stderr: []string{"task 1: no node of the pool has what the task needs: 16000 CPUs", "  task 1 refused: no node of the pool has what the task needs: 16000 CPUs: echo a"}},
		{args: "-q -j1 --mem 1G --gpus 1600 echo ::: a", code: 1, stderr: []string{"task 1: no node of the pool has what the task needs: 1 CPU, 1600 GPUs, 1G"}},
		{args: "-q -j1 --node-setup 'echo set >>log' --node-teardown 'echo clear >>log' 'cat log; : {}' ::: a", stdout: "set\n"},
		{args: "-j1 --node-setup 'exit 5' echo ::: 1", code: 3, stderr: []string{"  task 1: not started: all nodes were quarantined"}},
		{args: "-j1 --probe false echo ::: 1", code: 3, stderr: []string{"node " + machine.Hostname() + ": quarantined: its probe failed with exit status 1", "no node can be used"}},
		{args: "-q -j1 --resource licence=1 --need licence=1 'echo $JOBPOOL_RESOURCE_LICENCE; : {}' ::: a", stdout: "1\n"},
		{args: "--resource licence=1 --need licence=2 echo ::: a", code: 1, stderr: []string{"task 1: the pool has 1 licence in all, and the task needs 2"}},
		{args: "-q -j1 --nodes 1/n[1-2] --via-cmd 'env SLURMD_NODENAME={host} {worker}' --keep-order 'echo {}' ::: 1 2", stdout: "1\n2\n"},
		{args: "--nodes x --via-cmd 'false {host} {worker}' --connect-timeout 5 echo ::: 1", code: 3, stderr: []string{"node x: not used: connection ended without a greeting (/bin/sh: exit status 1)", "  task 1: not started: no node was available"}},
	} {
		if err := os.MkdirAll("sub", 0o777); err != nil {
			t.Fatal(err)
		}
		s.args = "--run run" + strconv.Itoa(runs()) + " " + s.args
		s.run(t)
	}
	if got := read(t, "log"); got != "set\nclear\n" {
		t.Errorf("setup and teardown: %q", got)
	}
}

// runs numbers directories of runs.
var runs = func() func() int {
	n := 0
	return func() int { n++; return n }
}()

// Commands for a run, where there is none.
func TestControlWithoutARun(t *testing.T) {
	alone(t)
	ended := step{args: "-q -j1 --run d true ::: a"}
	ended.run(t)
	if err := pilot.Save("between", &pilot.Pool{ID: "x", MaxJobs: 1}); err != nil {
		t.Fatal(err)
	}
	killed, err := journal.Create("killed", "")
	if err != nil {
		t.Fatal(err)
	}
	killed.Sent("n1", 1, 1)
	if err := killed.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", t.TempDir()) // without Slurm
	for _, command := range []string{"ctl status", "ctl list", "ctl explain 1"} {
		for dir, want := range map[string][]string{
			"none":    {`no run in "none"`, "hint: name its directory with --run, or call this where it was started"},
			"between": {`no scheduler answers in "between"`, "hint: no job of the run has the scheduler at this time: try again; if squeue shows none, repeat the command with --resume"},
		} {
			words := strings.SplitN(command, " ", 3)
			s := step{args: strings.Join(append(words[:2:2], append([]string{"--run", dir}, words[2:]...)...), " "), code: 3, stderr: want}
			s.run(t)
		}
	}
	for _, command := range []string{"ctl status --watch 1s", "ctl drain", "ctl nodes", "ctl nodes add n1", "ctl nodes remove n1"} {
		words := strings.SplitN(command, " ", 3)
		rest := strings.Join(words[2:], " ")
		for dir, want := range map[string][]string{
			"none":    {`no run in "none"`, "hint: name its directory with --run, or call this where it was started"},
			"d":       {`no scheduler answers in "d"`, "hint: its run has ended: 1 done, 0 failed, 0 cancelled"},
			"killed":  {`no scheduler answers in "killed"`, "hint: its run has ended: 0 done, 0 failed, 0 cancelled, 1 left: repeat its command with --resume"},
			"between": {`no scheduler answers in "between"`, "hint: no job of the run has the scheduler at this time: try again; if squeue shows none, repeat the command with --resume"},
		} {
			line := strings.TrimSpace(words[0] + " " + words[1] + " --run " + dir + " " + rest)
			if words[1] == "nodes" && rest != "" {
				verb, host, _ := strings.Cut(rest, " ")
				line = "ctl nodes " + verb + " --run " + dir + " " + host
			}
			s := step{args: line, code: 3, stderr: want}
			s.run(t)
		}
	}
	if err := errors.Join(input.Begin("killed"), input.Begin("between")); err != nil {
		t.Fatal(err)
	}
	resume := "the run has no scheduler for now: repeat its command with --resume"
	for _, s := range []step{
		{args: "ctl add --run none true", code: 3, stderr: []string{`no run in "none"`, "hint: name its directory with --run, or call this where it was started"}},
		{args: "ctl close --run none", code: 3, stderr: []string{`no run in "none"`, "hint: name its directory with --run, or call this where it was started"}},
		{args: "ctl add --run d true", code: 3, stderr: []string{`the run in "d" takes no more tasks`, "hint: its run has ended: 1 done, 0 failed, 0 cancelled"}},
		{args: "ctl close --run d", code: 3, stderr: []string{`the run in "d" takes no more tasks`, "hint: its run has ended: 1 done, 0 failed, 0 cancelled"}},
		{args: "ctl add --run killed", stdin: "one\ntwo\n", stdout: "added 2 tasks\n", stderr: []string{resume}},
		{args: "ctl cancel --run none 1", code: 3, stderr: []string{`no run in "none"`, "hint: name its directory with --run, or call this where it was started"}},
		{args: "ctl cancel --run d 1", code: 3, stderr: []string{`the run in "d" has ended`, "hint: its run has ended: 1 done, 0 failed, 0 cancelled"}},
		{args: "ctl cancel --run killed 1 x", stderr: []string{resume}},
		{args: "ctl add --run killed", stdin: "# none\n", code: 1, stderr: []string{"add: standard input has no task"}},
		{args: "ctl close --run killed", stderr: []string{resume}},
		{args: "ctl cancel --run killed all", stderr: []string{resume}},
		{args: "ctl close --run killed", code: 3, stderr: []string{`the run in "killed" takes no more tasks`}},
		{args: "ctl add --run between true", stdout: "added 1 task\n", stderr: []string{"no job of the run has the scheduler at this time: the next one takes it; if squeue shows none, repeat the command with --resume"}},
	} {
		s.run(t)
	}
	for _, s := range []step{
		{args: "ctl", code: 2, stderr: []string{"a command is missing", "hint: the commands are status, list, explain, add, retry, cancel, close, open, drain, nodes, usage"}},
		{args: "ctl stauts", code: 2, stderr: []string{`unknown command "stauts"`}},
		{args: "ctl cancel --run d", code: 2, stderr: []string{`cancel: expected tasks, or "all"`}},
		{args: "ctl explain --run d", code: 2, stderr: []string{"explain: name one task"}},
		{args: "ctl explain --run d 1 2", code: 2, stderr: []string{`unexpected argument "2"`}},
		{args: "call --run none true", code: 3, stderr: []string{`no run in "none"`}},
		{args: "log --run none", code: 3, stderr: []string{`no run in "none"`}},
		{args: "log --run d --failed 1", code: 2, stderr: []string{"--failed takes no task"}},
		{args: "ctl retry --run d all", code: 1, stderr: []string{"retry: no task has failed, or was cancelled"}},
		{args: "ctl retry --run d 1", code: 1, stderr: []string{"retry: task 1 has not failed, and was not cancelled"}},
		{args: "ctl retry --run none all", code: 3, stderr: []string{`no run in "none"`}},
	} {
		s.run(t)
	}
}

// start starts the tool as a process of its own, and returns how it ends: the exit code, and what it
// says. Two tools in one process would share the flags of the library of the command line.
func start(t *testing.T, args ...string) <-chan string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var errs bytes.Buffer
	c := exec.Command(self, args...)
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended, over := make(chan string, 1), make(chan bool)
	go func() {
		_ = c.Wait() // the exit code tells it
		ended <- strconv.Itoa(c.ProcessState.ExitCode()) + " " + errs.String()
		close(over)
	}()
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		<-over
	})
	return ended
}

// A pool for programs that submit tasks, and what can be asked of it.
func TestServe(t *testing.T) {
	alone(t)
	ended := start(t, "serve", "-j2", "--run", "pool", "-q")
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if code, _, errs := runTool(t, "", "call", "--run", "pool", "true"); code == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the pool does not answer: %s", errs)
		}
	}
	for _, s := range []step{
		{args: "call --run pool 'echo out; exit 7'", code: 7, stdout: "out\n"},
		{args: "call --run pool --stdin sort -r", stdin: "a\nb\n", stdout: "b\na\n"},
		{args: "call --run pool 'kill -9 $$'", code: 137},
		{args: "call --run pool --timeout 0.2 'exec sleep 100'", code: 124, stderr: []string{"task 5 took too long"}},
		{args: "call --run pool no-such-program x", code: 127, stderr: []string{`task 6 could not be started: "no-such-program": program not found`}},
		{args: "call --run pool -c 99 true", code: 1, stderr: []string{"run: no node of the pool has what the task needs: 99 CPUs"}},
		{args: "call --run pool", code: 2, stderr: []string{"the command is missing"}},
		{args: "ctl explain --run pool 1000", code: 1, stderr: []string{"explain: task 1000 is not waiting: it has ended, or was not read yet"}},
		{args: "ctl cancel --run pool 1000"},
		{args: "ctl retry --run pool 8", code: 1, stderr: []string{"retry: only 0 of the tasks were found"}},
	} {
		s.run(t)
	}
	called := start(t, "call", "--run", "pool", "exec sleep 1000")
	var st struct {
		Phase   string `json:"phase"`
		Done    int    `json:"done"`
		Failed  int    `json:"failed"`
		Running int    `json:"running"`
		Nodes   []struct {
			CPUs int `json:"cpus"`
		} `json:"nodes"`
	}
	for end := time.Now().Add(time.Minute); st.Running != 1; time.Sleep(20 * time.Millisecond) {
		code, out, errs := runTool(t, "", "ctl", "status", "--run", "pool", "--json")
		if err := json.Unmarshal([]byte(out), &st); err != nil || code != 0 || time.Now().After(end) {
			t.Fatalf("%d, %v, %s%s", code, err, out, errs)
		}
	}
	if st.Done != 2 || st.Failed != 4 || len(st.Nodes) != 1 || st.Nodes[0].CPUs != 2 {
		t.Errorf("%+v", st)
	}
	for command, want := range map[string]string{
		"list":   `(?m)^ +7 +running +` + machine.Hostname() + ` .* exec sleep 1000$`,
		"status": `^running for .*: 2 done, 4 failed, 0 cancelled, 0 skipped, 1 running, 0 waiting, 0 on hold\n`,
		"nodes":  `(?m)^` + machine.Hostname() + ` +up +2 +1 +0 +1 +0 +2 +0$`,
	} {
		if code, out, errs := runTool(t, "", "ctl", command, "--run", "pool"); code != 0 || errs != "" || !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("ctl %s: %d, %s%s, want %s", command, code, out, errs, want)
		}
	}
	for _, s := range []step{
		{args: "ctl cancel --run pool all", stdout: ""},
		{args: "ctl drain --run pool", stdout: ""},
	} {
		s.run(t)
	}
	for what, c := range map[string]struct {
		ended <-chan string
		want  string
	}{"the call": {called, "125 jobpool: task 7 was cancelled\n"}, "the pool": {ended, "0 "}} {
		select {
		case got := <-c.ended:
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("%s has ended: %s, want %s", what, got, c.want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s does not end", what)
		}
	}
}
