package jobpool

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// pilots is a pool that gets its own nodes.
func pilots(t *testing.T, args ...string) *pool {
	p := inSlurm(t, nil, append([]string{"--run", "run", "--alloc-sbatch=--partition=cpu", "--alloc-sbatch=--cpus-per-task=2", "--jobs", "2"}, args...)...)
	t.Cleanup(func() {
		for _, id := range p.jobs() {
			_ = p.quietly("scancel", id)
		}
		await(p, "its jobs end", func() bool { return len(p.jobs()) == 0 })
	})
	return p
}

func (p *pool) quietly(name string, args ...string) string {
	c := exec.Command(name, args...)
	c.Dir, c.Env = p.dir, append(os.Environ(), p.env...)
	out, _ := c.Output()
	return strings.TrimSpace(string(out))
}

// jobs are those of the pool that have not ended.
func (p *pool) jobs() []string { return p.jobsIn("PENDING,RUNNING,SUSPENDED,COMPLETING") }

func (p *pool) jobsIn(states string) (ids []string) {
	for line := range strings.Lines(p.quietly("squeue", "--noheader", "--states="+states, "--format=%i %k %Z %o")) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[1], "jobpool:") && strings.Contains(line, p.dir) {
			ids = append(ids, f[0])
		}
	}
	return ids
}

// over is the status with which the run has ended, -1 if it has not.
func (p *pool) over() int {
	b, err := os.ReadFile(filepath.Join(p.dir, "run/pilots/over"))
	if err != nil {
		return -1
	}
	status, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		p.Fatal(err)
	}
	return status
}

// said is what the jobs have printed.
func (p *pool) said() string {
	names, _ := filepath.Glob(filepath.Join(p.dir, "run/pilots/*.log"))
	var b strings.Builder
	for _, name := range names {
		text, _ := os.ReadFile(name)
		fmt.Fprintf(&b, "%s: %s\n", filepath.Base(name), text)
	}
	return b.String()
}

// await waits until something is so.
func await(p *pool, what string, is func() bool) {
	p.Helper()
	if !harness.Wait(is) {
		p.Fatalf("not in time: %s\n%s\n%s", what, p.quietly("squeue"), p.said())
	}
}

// counted counts the pending and running jobs again and again, until it is asked for the most that there
// were at a time.
func (p *pool) counted() (most func() int) {
	stop, out := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for {
			n = max(n, len(p.jobsIn("PENDING,RUNNING")))
			select {
			case <-stop:
				out <- max(n, len(p.jobsIn("PENDING,RUNNING")))
				return
			case <-time.After(300 * time.Millisecond):
			}
		}
	}()
	return func() int {
		close(stop)
		return <-out
	}
}

// submitted is how many jobs the pool has had.
func (p *pool) submitted() int {
	logs, _ := filepath.Glob(filepath.Join(p.dir, "run/pilots/*.log"))
	return len(logs)
}

func TestPilotsOverSlurm(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--time=10", "--max-jobs", "2", "--linger", "2s")
	var b strings.Builder
	for range 60 {
		b.WriteString("echo $JOBPOOL_SEQ >>ran; touch job.$SLURM_JOB_ID; until [ -e go ]; do sleep 0.1; done; echo $SLURM_JOB_ID $SLURM_JOB_NUM_NODES\n")
	}
	b.WriteString("exit 3\n")
	most := p.counted()
	status, stdout, stderr := p.run(b.String())
	ids := strings.Fields(stdout)
	if status != 0 || len(ids) != 2 || !strings.Contains(stderr, "jobpool: submitted 2 jobs: "+ids[0]+" "+ids[1]) {
		t.Fatalf("status %d, %q, %q", status, stdout, stderr)
	}
	// The same call again submits nothing more, while the run goes on.
	await(p, "a scheduler runs", func() bool { return p.quietly("grep", "-c", `"k":"send"`, "run/journal.ndjson") > "0" })
	status, stdout, stderr = p.run(b.String(), "--resume")
	if status != 0 || stdout != "" || !strings.Contains(stderr, "is still running") {
		t.Errorf("again: status %d, %q, %q", status, stdout, stderr)
	}
	await(p, "tasks run in both jobs", func() bool {
		begun, _ := filepath.Glob(filepath.Join(p.dir, "job.*"))
		return len(begun) == 2
	})
	if n := most(); n != 2 {
		t.Errorf("%d jobs were pending or running at a time, with --max-jobs 2", n)
	}
	most = p.counted()
	ids = p.enlarged(b.String(), ids)
	if n := most(); n != 3 {
		t.Errorf("%d jobs were pending or running at a time, with --max-jobs 3", n)
	}
	p.touch("go")
	await(p, "the run is over", func() bool { return p.over() >= 0 })
	if p.over() != 1 {
		t.Errorf("status %d, and one task failed\n%s", p.over(), p.said())
	}
	await(p, "all jobs end", func() bool { return len(p.jobs()) == 0 })
	if n := p.submitted(); n != 3 {
		t.Errorf("%d jobs were submitted", n)
	}
	used := map[string]int{}
	for _, r := range p.journal() {
		if r.Kind == "end" {
			_, job, _ := strings.Cut(r.Node, "@")
			used[job]++
		}
	}
	if used[ids[0]] == 0 || used[ids[1]] == 0 || used[ids[2]] == 0 || used[ids[0]]+used[ids[1]]+used[ids[2]] != 61 {
		t.Errorf("tasks ran in the jobs %v", used)
	}
	c := exec.Command(filepath.Join(harness.Bin, "jobpool"), "log", "--run", "run", "1")
	c.Dir = p.dir
	if out, err := c.Output(); err != nil || !slices.Contains(ids, strings.Fields(string(out))[0]) {
		t.Errorf("the log of a task: %q, %v", out, err)
	}
	p.noneLeft()
	// What has failed runs again, in a job of its own.
	if status, stdout, stderr = p.run(b.String(), "--resume", "--retry-failed"); status != 0 || len(strings.Fields(stdout)) == 0 {
		t.Errorf("to run again what failed: status %d, %q, %q", status, stdout, stderr)
	}
	await(p, "the failed task has run again", func() bool { return p.over() == 1 })
	p.runsExplained()
}

// enlarged repeats the call for a run with two jobs, so that it gets a third one.
func (p *pool) enlarged(input string, ids []string) []string {
	p.Helper()
	status, _, stderr := p.run(input, "--resume", "--max-jobs", "3")
	if status != 0 || !strings.Contains(stderr, "now has at most 3 jobs, and ends those that are idle for 2s") {
		p.Errorf("with more jobs: status %d, %q", status, stderr)
	}
	await(p, "a third job runs tasks", func() bool {
		begun, _ := filepath.Glob(filepath.Join(p.dir, "job.*"))
		return len(begun) == 3
	})
	status, _, stderr = p.run(input, "--resume", "--max-jobs", "3", "--retry-failed")
	if status != 0 || strings.Contains(stderr, "now has") || !strings.Contains(stderr, "--retry-failed has no effect while the run continues") {
		p.Errorf("failed tasks again: status %d, %q", status, stderr)
	}
	c := exec.Command(filepath.Join(harness.Bin, "jobpool"), "ctl", "nodes", "add", "--run", "run", "cpu2")
	c.Dir, c.Env = p.dir, append(os.Environ(), p.env...)
	if out, _ := c.CombinedOutput(); !strings.Contains(string(out), "jobpool: hint: to have more jobs, repeat the command of the run with --resume and a larger --max-jobs\n") {
		p.Errorf("ctl nodes add: %q", out)
	}
	for _, id := range p.jobs() {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	if len(ids) != 3 {
		p.Fatalf("the run has had the jobs %q", ids)
	}
	return ids
}

// processes are those of the pool whose arguments have that text.
func (p *pool) processes(text string) (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil && strings.Contains(string(args), text) && strings.HasPrefix(string(args), p.dir+"/run/bin/jobpool") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Calls at the same time submit the jobs of one, no call replaces the tasks of another, and one that has
// nothing to do submits nothing.
func TestRepeatedCallsOverSlurm(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--time=10", "--max-jobs", "2", "--linger", "2s")
	input := strings.Repeat("echo $JOBPOOL_SEQ >>ran; [ $JOBPOOL_SEQ -lt 4 ] || [ -e ok ]\n", 4)
	later := "--alloc-sbatch=--begin=now+1hour"
	var calls sync.WaitGroup
	for range 6 {
		calls.Go(func() {
			if status, _, stderr := p.run(strings.Repeat(input, 2), "--resume", later); status != 0 || !strings.Contains(stderr, "submitted") {
				t.Errorf("status %d, %q", status, stderr)
			}
		})
	}
	calls.Wait()
	ids := p.jobs()
	if len(ids) != 2 {
		t.Errorf("6 calls with --max-jobs 2 have submitted the jobs %q", ids)
	}
	if status, stdout, stderr := p.run(input); status != 2 || stdout != "" || !strings.Contains(stderr, "already contains a run") {
		t.Errorf("other tasks while jobs are pending: status %d, %q, %q", status, stdout, stderr)
	}
	p.slurm("scancel", ids...)
	await(p, "the jobs are cancelled", func() bool { return len(p.jobs()) == 0 })
	if status, _, stderr := p.run(input); status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	await(p, "the run is over", func() bool { return p.over() == 1 && len(p.jobs()) == 0 })
	for _, c := range []struct {
		input  string
		status int
		want   string
	}{
		{input, 0, "have ended: 3 succeeded, 1 failed\njobpool: hint: --retry-failed runs those that failed again\n"},
		{"true\n" + input, 2, `jobpool: task 1 is now "true", which is not what was run as task 1`},
	} {
		if status, stdout, stderr := p.run(c.input, "--resume"); status != c.status || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("again: status %d, %q, %q, want %d, %q", status, stdout, stderr, c.status, c.want)
		}
	}
	p.touch("ok")
	if status, stdout, stderr := p.run(input, "--retry-failed"); status != 0 || len(strings.Fields(stdout)) != 1 {
		t.Errorf("the failed task: status %d, %q, %q", status, stdout, stderr)
	}
	await(p, "the failed task has run again", func() bool { return p.over() == 0 })
	if n := p.ran(); n != 5 {
		t.Errorf("%d tasks were started, want 5", n)
	}
	await(p, "the jobs end", func() bool { return len(p.jobs()) == 0 })
	p.noneLeft()
}

// The scheduler may be where the pool is called: the jobs are nodes and nothing else.
func TestPilotsHereOverSlurm(t *testing.T) {
	p := pilots(t, "--alloc", "cpu(cores=2) & duration=10m", "--max-jobs", "2", "--scheduler", "here", "-k")
	status, stdout, stderr := p.run("a\nb\nc\nd\n", "echo {} $SLURM_JOB_ID; sleep 0.5")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if status != 0 || len(lines) != 6 {
		t.Fatalf("status %d, %q, %q\n%s", status, stdout, stderr, p.said())
	}
	for i, line := range lines[2:] {
		if f := strings.Fields(line); len(f) != 2 || f[0] != string("abcd"[i]) || !slices.Contains(lines[:2], f[1]) {
			t.Errorf("line %d: %q, want %c and a job of %q", i, line, "abcd"[i], lines[:2])
		}
	}
	await(p, "the jobs end with their scheduler", func() bool { return len(p.jobs()) == 0 })
	p.endsOnce(4)
	p.noneLeft()
}

// A program in Python has nodes of jobs of its own: its pool submits one when there is something to do, and
// no job outlives it.
func TestPythonAllocatesOverSlurm(t *testing.T) {
	p := pilots(t)
	all := pythons(t)
	module, err := filepath.Abs("../../lib/python")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*harness.Patience)
	defer cancel()
	c := exec.CommandContext(ctx, all[len(all)-1], "-B", "-c", `if True:
		import jobpool, os, subprocess, time
		options = ["--alloc-sbatch=--partition=cpu --cpus-per-task=2", "--jobs", "2", "--linger", "1s"]
		with jobpool.Pool(alloc="cpu(cores=2) & duration=10m", options=options) as pool:
			first = pool.submit(os.getenv, "SLURM_JOB_ID").result()
			listed = ["squeue", "-h", "-j", first, "-t", "RUNNING,COMPLETING"]
			while subprocess.run(listed, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout:
				time.sleep(0.1)
			second = pool.run("echo $SLURM_JOB_ID").result().stdout.strip()
			print(first.isdigit(), second.isdigit(), first != second)
		try:
			jobpool.Pool(alloc="cpu(cores=x)")
		except jobpool.PoolError as e:
			print(e)`)
	c.Dir, c.Env = p.dir, append(append(os.Environ(), p.env...), "PYTHONPATH="+module)
	out, err := c.CombinedOutput()
	if text := string(out); err != nil || !strings.Contains(text, "True True True\n") || !strings.Contains(text, "exit status 2: jobpool: --alloc: ") {
		t.Errorf("%v\n%s", err, text)
	}
	await(p, "the jobs end with the program", func() bool { return len(p.jobs()) == 0 })
}

// A job that has been idle for --linger ends, while another one works.
func TestIdlePilotEndsOverSlurm(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--time=10", "--max-jobs", "3", "--linger", "2s")
	task := "touch job.$SLURM_JOB_ID; [ $JOBPOOL_SEQ = 1 ] && echo $SLURM_JOB_ID >long; until [ -e short ] && [ $JOBPOOL_SEQ != 1 ] || [ -e go ]; do sleep 0.1; done\n"
	status, stdout, stderr := p.run(strings.Repeat(task, 6))
	ids := strings.Fields(stdout)
	if status != 0 || len(ids) != 3 {
		t.Fatalf("status %d, %q, %q", status, stdout, stderr)
	}
	await(p, "tasks run in all jobs", func() bool {
		begun, _ := filepath.Glob(filepath.Join(p.dir, "job.*"))
		return len(begun) == 3
	})
	p.touch("short")
	await(p, "an idle job ends", func() bool { return len(p.jobs()) < 3 })
	long, err := os.ReadFile(filepath.Join(p.dir, "long"))
	if left := p.jobs(); err != nil || p.over() >= 0 || !slices.Contains(left, strings.TrimSpace(string(long))) {
		t.Errorf("the jobs %q are left, and a task runs in job %q; the run is over: %d\n%s", left, long, p.over(), p.said())
	}
	p.touch("go")
	await(p, "the run is over", func() bool { return p.over() == 0 })
	if n := p.submitted(); n != 3 {
		t.Errorf("%d jobs were submitted", n)
	}
	p.endsOnce(6)
	p.noneLeft()
}

// Of two partitions, the jobs go where they start first, though the search prefers the other one.
func TestPilotsInAFreePartitionOverSlurm(t *testing.T) {
	p := pilots(t)
	p.args = []string{"--run", "run", "--alloc", "cpu(cores=2) & duration=10m | cuda() & duration=10m", "--scheduler", "here"}
	full := p.batch("sleep 1000\n", "--partition=cpu", "--nodes=2", "--exclusive", "--time=60")
	t.Cleanup(func() { _ = p.quietly("scancel", full) })
	await(p, "a partition is full", func() bool { return p.state(full) == "RUNNING" })
	status, stdout, stderr := p.run("a\nb\n", "echo {} $SLURM_JOB_PARTITION")
	if status != 0 || !strings.Contains(stdout, "a gpu") || !strings.Contains(stdout, "b gpu") || !strings.Contains(stderr, " is expected to start ") {
		t.Errorf("status %d, %q, %q\n%s", status, stdout, stderr, p.said())
	}
	await(p, "the job ends with its scheduler", func() bool { return len(p.jobs()) == 0 })
	_ = p.quietly("scancel", full)
	p.noneLeft()
}

// Two jobs on one node set it up once, and the last one clears it.
func TestPilotsOnOneNodeOverSlurm(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--time=10", "--alloc-sbatch=--nodelist=cpu1", "--max-jobs", "2", "--linger", "2s",
		"--node-setup", "echo set up >>node.log", "--node-teardown", "echo cleared >>node.log")
	task := "touch job.$SLURM_JOB_ID; until [ -e go ]; do sleep 0.1; done; echo task >>node.log\n"
	if status, stdout, stderr := p.run(strings.Repeat(task, 4)); status != 0 {
		t.Fatalf("status %d, %q, %q", status, stdout, stderr)
	}
	await(p, "tasks run in both jobs", func() bool {
		begun, _ := filepath.Glob(filepath.Join(p.dir, "job.*"))
		return len(begun) == 2
	})
	p.touch("go")
	await(p, "the run is over", func() bool { return p.over() >= 0 && len(p.jobs()) == 0 })
	if log := p.quietly("cat", "node.log"); log != "set up\ntask\ntask\ntask\ntask\ncleared" {
		t.Errorf("%q\n%s", log, p.said())
	}
	p.noneLeft()
}

// limited makes a QOS in which one job may be pending or run.
func (p *pool) limited(qos string) {
	p.quietly("sacctmgr", "-iQ", "add", "qos", qos, "MaxSubmitJobsPerUser=1")
	p.quietly("sacctmgr", "-iQ", "modify", "user", "root", "set", "qos+="+qos)
	await(p, "Slurm knows the QOS", func() bool {
		return exec.Command("env", append(p.env, "sbatch", "--test-only", "--qos="+qos, "--wrap=true")...).Run() == nil
	})
}

// Where a limit allows fewer jobs than --max-jobs, those that there are run all tasks.
func TestPilotsAtLimitOverSlurm(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--time=10", "--alloc-sbatch=--qos=few", "--max-jobs", "3", "--scheduler", "here")
	p.limited("few")
	status, stdout, stderr := p.run("a\nb\nc\nd\n", "echo {}; sleep 1")
	if status != 0 || len(strings.Fields(stdout)) != 5 || strings.Contains(stderr, "QOSMax") {
		t.Errorf("status %d, %q, %q\n%s", status, stdout, stderr, p.said())
	}
	await(p, "the job ends with its scheduler", func() bool { return len(p.jobs()) == 0 })
	p.endsOnce(4)
	p.noneLeft()
}

// Where a limit allows no other job beside the last one, that is requeued when it ends.
func TestLastJobAtLimitOverSlurm(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--time=10", "--alloc-sbatch=--qos=single", "--term-grace", "2s")
	p.limited("single")
	status, stdout, stderr := p.run(strings.Repeat("echo $JOBPOOL_SEQ >>ran; [ $JOBPOOL_SEQ = 1 ] || until [ -e go ]; do sleep 0.1; done\n", 6))
	if status != 0 {
		t.Fatalf("status %d, %q, %q", status, stdout, stderr)
	}
	await(p, "a task has ended and others run", func() bool { return p.ran() >= 3 })
	job := strings.TrimSpace(stdout)
	p.slurm("scancel", "--batch", "--signal=TERM", job)
	await(p, "the job waits again", func() bool { return strings.TrimSpace(p.quietly("squeue", "-h", "-o", "%i %T")) == job+" PENDING" })
	p.touch("go")
	await(p, "the run has ended", func() bool { return p.over() >= 0 })
	if p.over() != 0 || p.submitted() != 1 || !strings.Contains(p.said(), "a limit of Slurm allows no other job beside this one: requeueing it\n") {
		t.Errorf("status %d, %d jobs\n%s", p.over(), p.submitted(), p.said())
	}
	p.endsOnce(6)
	p.runsExplained()
	await(p, "the job ends", func() bool { return len(p.jobs()) == 0 })
	p.noneLeft()
}

// From another host, a run is looked at by a step beside its scheduler.
func TestCtlFromAnotherHostOverSlurm(t *testing.T) {
	p := inSlurm(t, nil)
	if err := os.WriteFile(filepath.Join(p.dir, "tasks"), []byte(strings.Repeat("until [ -e go ]; do sleep 0.1; done\n", 2)), 0o600); err != nil {
		t.Fatal(err)
	}
	// The host of the scheduler has another name than this one.
	job := p.batch("exec unshare --uts sh -c 'hostname elsewhere && exec jobpool --run run --hold -j2 <tasks'\n", "--cpus-per-task=2", "--time=10")
	t.Cleanup(func() { _ = p.quietly("scancel", job) })
	// Here, nobody listens at the scheduler's socket.
	away := func(words ...string) (int, string) {
		c := exec.Command("unshare", "--mount", "sh", "-c", `if [ -e run/ctl.sock ]; then mount --bind /dev/null run/ctl.sock; fi; exec "$@"`, "sh", filepath.Join(harness.Bin, "jobpool"))
		c.Args = append(c.Args, words...)
		c.Dir, c.Env = p.dir, append(os.Environ(), p.env...)
		out, _ := c.CombinedOutput()
		return c.ProcessState.ExitCode(), string(out)
	}
	shows := func(text string) func() bool {
		return func() bool {
			_, err := os.Stat(filepath.Join(p.dir, "run/ctl.sock"))
			return err == nil && strings.Contains(p.quietly(filepath.Join(harness.Bin, "jobpool"), "ctl", "status", "--run", "run"), text)
		}
	}
	await(p, "both tasks run", shows(" 2 running"))
	status, out := away("ctl", "status", "--run", "run")
	if status != 0 || !strings.Contains(out, " 2 running, 0 waiting") || !strings.HasPrefix(out, "running for ") {
		t.Errorf("status %d: %q", status, out)
	}
	if status, out = away("ctl", "explain", "--run", "run", "9"); status != 1 || out != "jobpool: explain: task 9 is not waiting: it has ended, or was not read yet\n" {
		t.Errorf("of a task that is not there: status %d: %q", status, out)
	}
	if status, out = away("ctl", "list", "--run", "run"); status != 0 || strings.Count(out, " running ") != 2 {
		t.Errorf("list: status %d: %q", status, out)
	}
	for _, command := range []string{"test -e good", "until [ -e never ]; do sleep 0.1; done"} {
		if status, out = away("ctl", "add", "--run", "run", command); status != 0 || out != "added 1 task\n" {
			t.Errorf("add: status %d: %q", status, out)
		}
	}
	p.touch("go")
	await(p, "an added task is held", shows(" 1 running, 0 waiting, 1 on hold"))
	p.touch("good")
	if status, out = away("ctl", "retry", "--run", "run", "3"); status != 0 || out != "" {
		t.Errorf("retry: status %d: %q", status, out)
	}
	await(p, "the held task has run again", shows(": 3 done, "))
	if status, out = away("ctl", "drain", "--run", "run"); status != 0 || out != "" || !shows("draining")() {
		t.Errorf("drain: status %d: %q", status, out)
	}
	if status, out = away("ctl", "cancel", "--run", "run", "all"); status != 0 || out != "" {
		t.Errorf("cancel: status %d: %q", status, out)
	}
	await(p, "the job ends", func() bool { return !slices.Contains([]string{"RUNNING", "COMPLETING"}, p.state(job)) })
	if status, out = away("ctl", "status", "--run", "run"); status != 0 || !strings.HasPrefix(out, "ended at ") || !strings.Contains(out, ": 3 done, 0 failed, 1 cancelled, 0 left\n") {
		t.Errorf("of a run that is over: status %d: %q", status, out)
	}
}

func TestPilotsRefuse(t *testing.T) {
	p := newPool(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--alloc", ""}, "jobpool: --alloc: the request is empty\n"},
		{[]string{"--alloc-sbatch=-n1", "--nodes", "a"}, "jobpool: --alloc: the nodes are those of its jobs: --nodes, --via and --via-cmd cannot be combined with it\n"},
		{[]string{"--alloc-sbatch=-n1", "--max-jobs", "0"}, "jobpool: --max-jobs: invalid number \"0\": expected a whole number from 1 on\n"},
		{[]string{"--alloc-sbatch=cpu"}, "jobpool: --alloc-sbatch: \"cpu\" is not an option of sbatch\njobpool: hint: write it as in --alloc-sbatch=--partition=gpu\n"},
		{[]string{"--max-jobs", "2"}, "jobpool: --max-jobs requires --alloc or --alloc-sbatch\n"},
		{[]string{"--alloc-sbatch=-n1", "--scheduler", "there"}, "jobpool: --scheduler: invalid value \"there\": expected one of job, here\n"},
	} {
		status, stdout, stderr := p.run("true\n", c.args...)
		if status != 2 || stdout != "" || !strings.HasPrefix(stderr, c.want) {
			t.Errorf("%q: status %d, %q, %q, want %q", c.args, status, stdout, stderr, c.want)
		}
	}
}

// SIGUSR1 at the batch script of a job drains all of its nodes, and reaches no task there.
func TestDrainedJobOfTwoNodesOverSlurm(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--time=10", "--alloc-sbatch=--nodes=2", "--linger", "2s")
	status, stdout, stderr := p.run(strings.Repeat("echo $JOBPOOL_SEQ >>ran; until [ -e go ]; do sleep 0.1; done\n", 4))
	if status != 0 {
		t.Fatalf("status %d, %q, %q", status, stdout, stderr)
	}
	await(p, "all tasks run", func() bool { return p.ran() == 4 })
	p.slurm("scancel", "--batch", "--signal=USR1", strings.TrimSpace(stdout))
	await(p, "both nodes are drained", func() bool { return strings.Count(p.said(), ": drained by SIGUSR1") == 2 })
	time.Sleep(2 * time.Second) // an end within a moment after a signal counts as cut off
	p.touch("go")
	await(p, "the run is over", func() bool { return p.over() >= 0 })
	if p.over() != 0 || p.ran() != 4 {
		t.Errorf("status %d, %d tasks were started\n%s", p.over(), p.ran(), p.said())
	}
	p.endsOnce(4)
	await(p, "the job ends", func() bool { return len(p.jobs()) == 0 })
	p.noneLeft()
}

// A job that is pending while the scheduler hands over keeps its place in the queue: the scheduler neither
// cancels it nor submits another one in its place, even if its own tasks take long to end.
func TestPendingJobOutlivesAHandOver(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--time=10", "--alloc-sbatch=--nodes=2", "--alloc-sbatch=--exclusive", "--max-jobs", "2", "--term-grace", "4s")
	status, stdout, stderr := p.run(strings.Repeat("trap '' TERM; echo $JOBPOOL_SEQ >>ran; until [ -e go ]; do sleep 0.1; done\n", 16))
	ids := strings.Fields(stdout)
	if status != 0 || len(ids) != 2 {
		t.Fatalf("status %d, %q, %q", status, stdout, stderr)
	}
	await(p, "the first job runs tasks", func() bool { return p.ran() == 4 })
	if pending := p.jobsIn("PENDING"); !slices.Equal(pending, ids[1:]) {
		t.Fatalf("the jobs %q are pending, want %q", pending, ids[1:])
	}
	p.slurm("scancel", "--batch", "--signal=TERM", ids[0])
	await(p, "the first job ends", func() bool { return !slices.Contains(p.jobs(), ids[0]) })
	p.touch("go")
	await(p, "the run is over", func() bool { return p.over() >= 0 })
	if log, err := os.ReadFile(filepath.Join(p.dir, "run/pilots", ids[1]+".log")); err != nil || strings.Contains(p.said(), "submitted") {
		t.Errorf("job %s, which was pending, has not continued the run: %v %s\n%s", ids[1], err, log, p.said())
	}
	p.endsOnce(16)
}

// A copy of a run directory is a run of its own: it gets its own jobs, and neither counts, cancels nor uses
// those of the original. A directory that was moved is the same run.
func TestCopyOfARunHasItsOwnJobs(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--time=10", "--max-jobs", "1", "--resume")
	tasks := strings.Repeat("echo $JOBPOOL_SEQ $SLURM_JOB_ID >>$JOBPOOL_RUN/ran; until [ -e $JOBPOOL_RUN/go ]; do sleep 0.1; done\n", 4)
	status, original, stderr := p.run(tasks)
	if status != 0 {
		t.Fatalf("status %d, %q, %q", status, original, stderr)
	}
	await(p, "tasks run", func() bool {
		b, _ := os.ReadFile(filepath.Join(p.dir, "run/ran"))
		return strings.Count(string(b), "\n") == 2
	})
	p.slurm("cp", "-a", "run", "copy")
	status, copied, stderr := p.run(tasks, "--run", "copy")
	if status != 0 || copied == "" || !strings.Contains(stderr, "/copy is a copy of "+p.dir+"/run") {
		t.Fatalf("status %d, %q, %q", status, copied, stderr)
	}
	await(p, "tasks of the copy run in its own job", func() bool {
		b, _ := os.ReadFile(filepath.Join(p.dir, "copy/ran"))
		return strings.Contains(string(b), " "+copied)
	})
	status, _, stderr = p.run("", "ctl", "drain", "--run", "run")
	if status != 0 {
		t.Fatalf("status %d, %q", status, stderr)
	}
	p.touch("run/go")
	await(p, "the job of the original ends", func() bool { return !slices.Contains(p.jobs(), strings.TrimSpace(original)) })
	if jobs := p.jobs(); !slices.Equal(jobs, strings.Fields(copied)) || p.over() != 75 {
		t.Errorf("the original has ended with %d, and there are the jobs %q, want %q\n%s", p.over(), jobs, copied, p.said())
	}
	p.slurm("mv", "run", "moved")
	if status, _, stderr = p.run(tasks, "--run", "moved"); status != 0 || strings.Contains(stderr, "copy") {
		t.Errorf("status %d, %q", status, stderr)
	}
}

// While no job has started, ctl shows what they wait for, and that there are none when they were cancelled.
func TestControlBeforeTheFirstJobStarts(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--begin=now+1hour", "--max-jobs", "1")
	status, stdout, stderr := p.run("true\n")
	if status != 0 {
		t.Fatalf("status %d, %q, %q", status, stdout, stderr)
	}
	job := strings.TrimSpace(stdout)
	await(p, "Slurm gives the reason", func() bool { return p.quietly("squeue", "--noheader", "--jobs="+job, "--format=%r") == "BeginTime" })
	for _, args := range [][]string{{"ctl", "status", "--run", "run"}, {"ctl", "explain", "--run", "run", "1"}, {"ctl", "status", "--run", "run", "--watch", "1s"}} {
		status, _, stderr := p.run("", args...)
		if want := "jobpool: the jobs of the run in \"run\" have not started: " + job + " (BeginTime)\n"; status != 3 || stderr != want {
			t.Errorf("%q: status %d, %q, want %q", args, status, stderr, want)
		}
	}
	p.slurm("scancel", job)
	await(p, "the job is gone", func() bool { return len(p.jobs()) == 0 })
	want := "jobpool: the run in \"run\" has no jobs\njobpool: hint: repeat its command with --resume\n"
	if status, _, stderr := p.run("", "ctl", "status", "--run", "run"); status != 3 || stderr != want {
		t.Errorf("status %d, %q, want %q", status, stderr, want)
	}
}

// A call that waits for its input, as from a terminal, ends when it is interrupted, and leaves nothing.
func TestPilotsInterruptedBeforeTheirInput(t *testing.T) {
	p := newPool(t)
	temp := filepath.Join(p.dir, "temp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		t.Fatal(err)
	}
	p.env = append(p.env, "TMPDIR="+temp)
	c := p.command("--run", "run", "--alloc-sbatch=-n1")
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	inputs := func() []string {
		names, _ := filepath.Glob(filepath.Join(p.dir, "temp/.input*"))
		more, _ := filepath.Glob(filepath.Join(p.dir, "run/pilots/.input*"))
		return append(names, more...)
	}
	await(p, "the input is stored", func() bool { return len(inputs()) > 0 })
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait()
	if _, err := os.Stat(filepath.Join(p.dir, "run")); err == nil || c.ProcessState.ExitCode() != 130 || len(inputs()) > 0 {
		t.Errorf("status %v, left %q, the run directory: %v", c.ProcessState, inputs(), err)
	}
}
