package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// A host has a runner whose workers the test runs itself.
type host struct {
	*Runner
	t     *testing.T
	tasks string
}

func newHost(t *testing.T) host {
	dir := t.TempDir()
	m := host{&Runner{Dir: filepath.Join(dir, "local"), MaxJobs: 1, StopWait: 30 * time.Second, Worker: []string{"true"}}, t, dir}
	if err := m.prepare(); err != nil {
		t.Fatal(err)
	}
	return m
}

// start adds a job with a script.
func (m host) start(id task.ID, script string) runner.Ref {
	m.t.Helper()
	dir := filepath.Join(m.tasks, string(id))
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "job.sh"), []byte(script), 0o600)); err != nil {
		m.t.Fatal(err)
	}
	job, err := m.Start(m.t.Context(), runner.Submission{Task: id, Dir: dir, Attempt: 1})
	if err != nil || job.Shows() != task.Pending || job.ID == "" {
		m.t.Fatalf("%+v, %v", job, err)
	}
	return runner.Ref{Task: id, Job: job.ID, Dir: dir}
}

func (m host) work() {
	m.t.Helper()
	if err := Work(m.Dir, m.MaxJobs); err != nil {
		m.t.Error(err)
	}
}

// check compares what is seen of a job.
func (m host) check(ref runner.Ref, want string) {
	m.t.Helper()
	job := m.observe(ref)
	state := string(job.Shows())
	if !job.Sight.Sure() {
		state = "unknown"
	}
	if got := strings.TrimSpace(fmt.Sprintf("%s %d %s", state, job.ExitCode, job.Reason)); got != want {
		m.t.Errorf("%s: %s; want %s", ref.Task, got, want)
	}
}

// end is how a job script of the agent records the end of its command.
const end = `printf '\nbegun here 1 1;\n\nended %s;\n' "$1" >"run.$PONOS_JOB.0"; exit "$1"` + "\n"

// A worker runs what waits in the order of submission, and only that.
func TestWork(t *testing.T) {
	m := newHost(t)
	const waits = "pending 0 waiting for room on this machine (local.max_jobs: 1)"
	first := m.start("a", "echo a >>../order; set -- 0\n"+end)
	second := m.start("b", "echo b >>../order; echo says; set -- 3\n"+end)
	cancelled := m.start("c", "echo c >>../order\n")
	killed := m.start("d", "echo d >>../order; kill -9 $$\n")
	asked := m.start("e", `printf '\nbegun here 1 1;\n\ncut 0;\n' >"run.$PONOS_JOB.0"`+"\n")
	again, err := m.Start(t.Context(), runner.Submission{Task: "b", Dir: second.Dir, Attempt: 1})
	if err != nil || again.ID != second.Job || again.Claim != runner.Found {
		t.Errorf("started twice: %+v, %v", again, err)
	}
	for _, ref := range []runner.Ref{first, second, cancelled, killed, asked} {
		m.check(ref, waits)
	}
	if err := m.Stop(t.Context(), cancelled); err != nil {
		t.Error(err)
	}
	m.check(cancelled, "error 0 the job was cancelled")
	m.work()
	m.check(first, "completed 0")
	m.check(second, "failed 3 exit code 3")
	m.check(cancelled, "error 0 the job was cancelled")
	m.check(killed, "failed 137 ended by signal 9")
	m.check(asked, "error 0 "+record.Interrupted)
	m.work()
	if order, err := os.ReadFile(filepath.Join(m.tasks, "order")); err != nil || string(order) != "a\nb\nd\n" {
		t.Errorf("ran %q, %v", order, err)
	}
	if out, err := os.ReadFile(filepath.Join(second.Dir, runner.Output)); err != nil || string(out) != "says\n" {
		t.Errorf("output %q, %v", out, err)
	}
	// Of what ran before, no other attempt is made, even if its ticket is there again.
	if err := os.WriteFile(filepath.Join(m.Dir, waitingDir, "0-again"), []byte(second.Dir), 0o600); err != nil {
		t.Fatal(err)
	}
	m.work()
	jobs, err := m.Jobs(t.Context(), func() ([]runner.Ref, error) { return []runner.Ref{first, second}, nil })
	if err != nil || len(jobs) != 2 || jobs[0].Shows() != task.Completed || jobs[1].Shows() != task.Failed {
		t.Errorf("%+v, %v", jobs, err)
	}
}

// The ticket that a killed worker has left is removed when its job has ended, and not before.
func TestTicketOfAKilledWorker(t *testing.T) {
	m := newHost(t)
	ref := m.start("a", "set -- 0\n"+end)
	waiting, err := filepath.Glob(filepath.Join(m.Dir, waitingDir, "*"))
	if err != nil || len(waiting) != 1 {
		t.Fatalf("%v, %v", waiting, err)
	}
	taken := filepath.Join(m.Dir, takenDir, filepath.Base(waiting[0]))
	m.work()
	for _, ended := range []bool{true, false} {
		if !ended {
			if err := os.Remove(filepath.Join(ref.Dir, record.Journal(ref.Job, 0))); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(taken, []byte(ref.Dir), 0o600); err != nil {
			t.Fatal(err)
		}
		jobs, err := m.Jobs(t.Context(), func() ([]runner.Ref, error) { return []runner.Ref{ref}, nil })
		if _, stat := os.Stat(taken); err != nil || len(jobs) != 1 || os.IsNotExist(stat) != ended {
			t.Errorf("ended %v: %+v, %v; %v", ended, jobs, err, stat)
		}
	}
}

// While another worker has all slots, a worker leaves what waits to it, and none is started.
func TestNoFreeSlot(t *testing.T) {
	m := newHost(t)
	slot, err := lock.Try(filepath.Join(m.Dir, slotsDir, "0"))
	if err != nil {
		t.Fatal(err)
	}
	m.Worker = []string{"a-worker-that-cannot-be-started"}
	ref := m.start("a", end)
	m.work()
	m.check(ref, "pending 0 waiting for room on this machine (local.max_jobs: 1)")
	if err := slot.Close(); err != nil {
		t.Fatal(err)
	}
	known := func() ([]runner.Ref, error) { return nil, nil }
	if jobs, err := m.Jobs(t.Context(), known); err == nil || len(jobs) != 1 || jobs[0].Task != "a" {
		t.Errorf("%+v, %v", jobs, err)
	}
}

// A job that ignores SIGTERM is killed after a third of the time.
func TestStopKills(t *testing.T) {
	t.Parallel() // it mostly waits
	m := newHost(t)
	ref := m.start("a", "trap '' TERM; echo on; sleep 600; exit 0\n")
	done := make(chan error, 1)
	go func() { done <- Work(m.Dir, m.MaxJobs) }()
	output := filepath.Join(ref.Dir, runner.Output)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile(output)
		if string(b) == "on\n" {
			break
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
			t.Fatalf("%q, %v", b, err)
		}
	}
	m.check(ref, "running 0")
	began := time.Now()
	if err := m.Stop(t.Context(), ref); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < m.StopWait/3 {
		t.Errorf("killed after %v, without time to end by itself", took)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	m.check(ref, "failed 137 ended by signal 9")
}

// Why a worker failed is the reason of its job, and of those that wait for it.
func TestProblems(t *testing.T) {
	m := newHost(t)
	bad, next := m.start("a", end), m.start("b", "set -- 0\n"+end)
	ticket := filepath.Join(bad.Dir, ticketFile)
	was, err := os.ReadFile(ticket)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ticket, []byte("\x1b damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Work(m.Dir, m.MaxJobs); err == nil || !strings.Contains(err.Error(), "not a job") {
		t.Errorf("%v", err)
	}
	why := ticket + ": not a job"
	m.check(next, "pending 0 the worker failed: "+why)
	m.check(bad, "unknown 0 no trace of the job")
	bad.Missing = task.Absence{Misses: 5}
	m.check(bad, "error 0 the worker could not run the job: "+why)
	if err := os.WriteFile(ticket, was, 0o600); err != nil {
		t.Fatal(err)
	}
	m.work()
	m.check(next, "completed 0")
	if left, err := filepath.Glob(filepath.Join(m.Dir, "*.err")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// The record of an earlier job, whose worker was killed, may be longer.
func TestRecordOfAnEarlierJob(t *testing.T) {
	m := newHost(t)
	dir := filepath.Join(m.tasks, "a")
	for job, process := range map[string]string{"first": "3999999 288888888\n", "second": ""} {
		record, err := goLive(m.Dir, dir, ticket{Job: job, Attempt: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(record.write(process), record.Close()); err != nil {
			t.Fatal(err)
		}
	}
	record, err := goLive(m.Dir, dir, ticket{Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	if err := record.has(os.Getpid()); err != nil {
		t.Error(err)
	}
	if has, pid, runs, err := running(m.Dir, dir); has.Job != "j" || pid != os.Getpid() || !runs || err != nil {
		t.Errorf("%+v, process %d, %v, %v", has, pid, runs, err)
	}
	if err := record.Close(); err != nil {
		t.Fatal(err)
	}
	if err := sweep(m.Dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(filepath.Join(m.Dir, runningDir)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// The next attempt of a task may be started while the record of the last one, whose script has ended, is held: by its
// worker, or by who looks whether it is. It is run, however long that takes.
func TestNextAttemptWhileTheRecordIsHeld(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, written := range []bool{true, false} {
		m := newHost(t)
		first := m.start("a", "set -- 3\n"+end)
		ticket, err := readTicket(first.Dir)
		if err != nil {
			t.Fatal(err)
		}
		m.work()
		m.check(first, "failed 3 exit code 3")
		held, err := goLive(m.Dir, first.Dir, ticket)
		if err == nil && !written {
			err = held.File().Truncate(0)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(first.Dir, "job.sh"), []byte("set -- 0\n"+end), 0o600); err != nil {
			t.Fatal(err)
		}
		job, err := m.Start(t.Context(), runner.Submission{Task: "a", Dir: first.Dir, Attempt: 2})
		if err != nil {
			t.Fatal(err)
		}
		second := runner.Ref{Task: "a", Job: job.ID, Dir: first.Dir}
		if err := Work(m.Dir, m.MaxJobs); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("a worker that cannot run it yet: %v", err)
		}
		if written {
			m.check(second, "pending 0 the worker failed: locked by another process")
		}
		if err := held.end(); err != nil {
			t.Fatal(err)
		}
		m.work()
		m.check(second, "completed 0")
	}
}
