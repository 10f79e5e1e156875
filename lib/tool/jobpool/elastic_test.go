package jobpool

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/testscripts/executable"
)

// A scheduler whose job ends submits the jobs that go on, unless one is there that lasts: jobs
// that began together end together.
func TestLastSchedulerSubmitsTheNextJobs(t *testing.T) {
	fakes, err := filepath.Abs("../../../testscripts/fakeslurm")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", fakes+":"+os.Getenv("PATH"))
	for name, tt := range map[string]struct {
		ends      map[string]time.Duration // of jobs that run, from now on
		own       string                   // state of the scheduler's job, if it does not run
		pending   bool                     // one more job waits
		done      int64
		elapsed   time.Duration
		early     bool // long before the end of its job
		cancelled bool
		room      int // for so many jobs by a limit of Slurm; 0: no limit
		norequeue bool
		down      bool // Slurm does not answer at first
		unheard   bool // nor does sbatch, which submits a job
		silent    bool // nor does scontrol at first
		submitted int  // or refused
		says      string
	}{
		"alone":                       {ends: map[string]time.Duration{"16": 20 * time.Second}, done: 5, elapsed: time.Hour, submitted: 2},
		"beside one that lasts":       {ends: map[string]time.Duration{"16": 20 * time.Second, "17": time.Minute}, done: 5, elapsed: time.Hour},
		"beside one that waits":       {ends: map[string]time.Duration{"16": 20 * time.Second}, pending: true, done: 5, elapsed: time.Hour},
		"all end together":            {ends: map[string]time.Duration{"16": 20 * time.Second, "17": 21 * time.Second, "18": 20 * time.Second}, done: 5, elapsed: time.Hour, submitted: 1},
		"early":                       {ends: map[string]time.Duration{"16": time.Hour}, done: 5, elapsed: time.Minute, early: true, submitted: 2},
		"early, all end together":     {ends: map[string]time.Duration{"16": time.Hour, "17": time.Hour}, done: 5, elapsed: time.Minute, early: true},
		"early, another ends now":     {ends: map[string]time.Duration{"16": time.Hour, "17": time.Second}, done: 5, elapsed: time.Minute, early: true, submitted: 1},
		"cancelled":                   {ends: map[string]time.Duration{"16": time.Hour}, done: 5, elapsed: time.Minute, early: true, cancelled: true},
		"its job ends":                {ends: map[string]time.Duration{"16": time.Hour}, own: "COMPLETING", done: 5, elapsed: time.Minute, early: true},
		"its job ends, not the other": {ends: map[string]time.Duration{"16": time.Hour, "17": time.Hour}, own: "COMPLETING", done: 5, elapsed: time.Minute, early: true},
		"its job is requeued":         {ends: map[string]time.Duration{"16": time.Hour}, own: "PENDING", done: 5, elapsed: time.Minute, early: true},
		"a limit":                     {ends: map[string]time.Duration{"16": 20 * time.Second}, done: 5, elapsed: time.Hour, room: 1, submitted: 1, says: "a limit of Slurm allows no other job beside this one: requeueing it\n"},
		"a limit, and no requeue":     {ends: map[string]time.Duration{"16": 20 * time.Second}, done: 5, elapsed: time.Hour, room: 1, norequeue: true, submitted: 1, says: "repeat the command of the run with --resume: scontrol: Requested operation is presently disabled"},
		"a limit for fewer":           {ends: map[string]time.Duration{"16": 20 * time.Second}, done: 5, elapsed: time.Hour, room: 2, submitted: 2},
		"no answer":                   {ends: map[string]time.Duration{"16": 20 * time.Second}, done: 5, elapsed: time.Hour, down: true, submitted: 2, says: "no more jobs are submitted for now: squeue: slurm_load_jobs error: Unable to contact slurm controller (connect failure)\njobpool: submitted 2 jobs"},
		"no answer, one lasts":        {ends: map[string]time.Duration{"16": 20 * time.Second, "17": time.Minute}, done: 5, elapsed: time.Hour, down: true, says: "no more jobs are submitted for now"},
		"an answer is lost":           {ends: map[string]time.Duration{"16": 20 * time.Second}, done: 5, elapsed: time.Hour, unheard: true, submitted: 2, says: "submitted 2 jobs"},
		"a limit, and no answer":      {ends: map[string]time.Duration{"16": 20 * time.Second}, done: 5, elapsed: time.Hour, room: 1, silent: true, submitted: 2, says: "requeueing it\n"},
		"nothing ended":               {ends: map[string]time.Duration{"16": 20 * time.Second}, elapsed: time.Hour, says: "no task has ended during the job"},
		"nothing ended in its moment": {ends: map[string]time.Duration{"16": 20 * time.Second, "17": 20 * time.Second}, elapsed: time.Second, submitted: 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			run := filepath.Join(dir, "run")
			t.Setenv("SLURM_CONF", filepath.Join(dir, "slurm.conf"))
			t.Setenv("SLURM_JOB_ID", "16")
			if err := pilot.Save(run, &pilot.Pool{ID: "x", MaxJobs: 3, Options: []string{"--partition=cpu"}}); err != nil {
				t.Fatal(err)
			}
			var queue strings.Builder
			for job, left := range tt.ends {
				state := "RUNNING"
				if job == "16" && tt.own != "" {
					state = tt.own
				}
				queue.WriteString(job + " " + state + " jobpool:x:\n")
				if err := pilot.Announce(run, pilot.Node{Job: job, Name: "cpu1", CPUs: 2, End: clock.Now().Add(left), Life: 3600}); err != nil {
					t.Fatal(err)
				}
			}
			if tt.pending {
				queue.WriteString("19 PENDING jobpool:x:\n")
			}
			if err := os.WriteFile(filepath.Join(dir, "queue"), []byte(queue.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.room > 0 {
				if err := os.WriteFile(filepath.Join(dir, "sbatch.mode"), []byte("room-"+strconv.Itoa(tt.room)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for file, mode := range map[string]string{
				"sbatch.mode":  map[bool]string{true: "unheard"}[tt.unheard],
				"requeue.mode": map[bool]string{true: "refuse"}[tt.norequeue] + map[bool]string{true: "silent"}[tt.silent],
			} {
				if mode == "" {
					continue
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(mode), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if mode := filepath.Join(dir, "squeue.mode"); tt.down {
				if err := os.WriteFile(mode, []byte("down"), 0o600); err != nil {
					t.Fatal(err)
				}
				go func() {
					for range 1000 {
						if asked, _ := os.ReadFile(filepath.Join(dir, "asked")); strings.Count(string(asked), "squeue --noheader") > 1 {
							break
						}
						time.Sleep(10 * time.Millisecond)
					}
					_ = os.Remove(mode)
				}()
			}
			ended := make(chan os.Signal, 1) // as Slurm does with a job that is requeued
			signal.Notify(ended, syscall.SIGTERM)
			defer signal.Stop(ended)
			var said strings.Builder
			e, err := newElastic(run, &runner{console: &console{w: &said}, base: pool.Spec{Need: pool.Need{CPUs: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			e.fleet.Stand(clock.Now(), &scheduler.Status{Waiting: 1000, Jobs: 500}, e.jobs.Pool)
			close(e.done)
			e.end(&core.Summary{HandedOver: true, Early: tt.early, Terminated: tt.cancelled, Done: tt.done, Elapsed: tt.elapsed, Exit: core.ExitLeft})
			asked, _ := os.ReadFile(filepath.Join(dir, "asked"))
			want := map[bool]int{true: 1}[tt.room == 1] + map[bool]int{true: 1}[tt.silent]
			if n := strings.Count(string(asked), "\nscontrol requeue 16\n"); n != want {
				t.Errorf("requeued %d times, want %d\n%s", n, want, asked)
			} else if want > 0 && !tt.norequeue {
				<-ended
			}
			if n := strings.Count(string(asked), "squeue --noheader"); tt.down && tt.submitted == 0 && n != 1 {
				t.Errorf("Slurm was asked %d times though another job goes on", n)
			}
			if n := strings.Count(string(asked), "\nsbatch --parsable"); n != tt.submitted || !strings.Contains(said.String(), tt.says) || (tt.submitted == 0) != (!strings.Contains(said.String(), "submitted")) && tt.says == "" {
				t.Errorf("%d jobs were submitted, want %d\n%s\n%s", n, tt.submitted, said.String(), asked)
			}
		})
	}
}

// A job whose submission was not answered is known when it is in the queue.
func TestSubmissionWithoutAnswer(t *testing.T) {
	withSlurm(t)
	run := t.TempDir()
	p := &pilot.Pool{ID: "x", MaxJobs: 3}
	if err := pilot.Save(run, p); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"sbatch.mode": "killed", "queue": "16 RUNNING jobpool:x:\n17 RUNNING jobpool:y:\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	jobs := jobsOf(run, p)
	ids, err := jobs.Fill(t.Context(), jobs.UpTo(5))
	if err != nil || !slices.Equal(ids, []string{"101", "102"}) {
		t.Errorf("%v, %v", ids, err)
	}
	if ids, err := jobs.Fill(t.Context(), jobs.UpTo(5)); err != nil || len(ids) != 0 {
		t.Errorf("again: %v, %v", ids, err)
	}
}

// What a later call changes holds for the scheduler that runs.
func TestChangedLimitsAreTaken(t *testing.T) {
	withSlurm(t)
	run := t.TempDir()
	if err := pilot.Save(run, &pilot.Pool{ID: "x", MaxJobs: 1, Linger: 300}); err != nil {
		t.Fatal(err)
	}
	e, err := newElastic(run, &runner{console: &console{w: io.Discard}, base: pool.Spec{Need: pool.Need{CPUs: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	now := clock.Now()
	fill := func(want int) {
		t.Helper()
		now = now.Add(time.Minute)
		e.jobs.Reload()
		e.do(t.Context(), e.fleet.Stand(now, &scheduler.Status{Phase: core.Running.String(), InputRead: true, Waiting: 1000, Jobs: 500}, e.jobs.Pool))
		asked, _ := os.ReadFile("asked")
		if n := strings.Count(string(asked), "\nsbatch --parsable"); n != want {
			t.Errorf("%d jobs were submitted, want %d", n, want)
		}
	}
	fill(1)
	fill(1)
	other, err := pilot.Load(run)
	if err != nil {
		t.Fatal(err)
	}
	if err := jobsOf(run, other).Change(t.Context(), func(p *pilot.Pool) { p.MaxJobs, p.Linger = 3, 2 }); err != nil {
		t.Fatal(err)
	}
	if fill(3); e.jobs.Pool.Linger != 2 {
		t.Errorf("jobs linger for %v s", e.jobs.Pool.Linger)
	}
}

// What is decided on jobs is carried out: one that is idle is let go when its node is free, the announcement of one
// that Slurm does not have is withdrawn, and the next job does not get a host that is at fault.
func TestOrdersAreCarriedOut(t *testing.T) {
	withSlurm(t)
	run := t.TempDir()
	t.Setenv("SLURM_JOB_ID", "16")
	if err := pilot.Save(run, &pilot.Pool{ID: "x", Call: "c", MaxJobs: 3}); err != nil {
		t.Fatal(err)
	}
	for _, n := range []pilot.Node{{Job: "16", Name: "cpu1"}, {Job: "17", Name: "cpu2"}, {Job: "18", Name: "cpu3"}} {
		if err := pilot.Announce(run, n); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile("queue", []byte("16 RUNNING jobpool:x:c\n17 RUNNING jobpool:x:c\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	e, err := newElastic(run, &runner{console: &console{w: &said}, place: &place{}, base: pool.Spec{Need: pool.Need{CPUs: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	e.changes = make(chan core.Event, 10)
	e.do(t.Context(), e.follow())
	s := &scheduler.Status{Phase: core.Running.String(), InputRead: true, Waiting: 1000, Jobs: 500, Mean: 1, Nodes: []core.NodeStatus{
		{Name: "cpu1@16", State: "up"}, {Name: "cpu2@17", State: "quarantined", Fault: "its setup failed"}, {Name: "cpu3@18", State: "up"},
	}}
	e.do(t.Context(), e.fleet.Stand(clock.Now(), s, e.jobs.Pool))
	if pilot.Dismissed(run, "17") {
		t.Error("a job is let go before its node is free")
	}
	s.Nodes[1].State = "released"
	e.do(t.Context(), e.fleet.Stand(clock.Now(), s, e.jobs.Pool))
	var released []string
	for range len(e.changes) {
		if ev, ok := (<-e.changes).(core.RemoveNodes); ok && !ev.Now {
			released = append(released, ev.Names...)
		}
	}
	nodes, err := pilot.Nodes(run)
	asked, _ := os.ReadFile("asked")
	if !slices.Equal(released, []string{"cpu2@17"}) || !pilot.Dismissed(run, "17") || pilot.Dismissed(run, "16") || err != nil || len(nodes) != 2 ||
		!strings.Contains(string(asked), "--exclude=cpu2 ") {
		t.Errorf("%q were released, %v are announced: %v\n%s", released, nodes, err, asked)
	}
	if want := "jobpool: host cpu2 is excluded from the next jobs for 1h: its setup failed\njobpool: submitted job 101\n"; said.String() != want {
		t.Errorf("said %q, want %q", said.String(), want)
	}
}

// A status that was not taken in time is replaced by the next one: jobs would be ended by what was.
func TestLatestStatusIsTaken(t *testing.T) {
	e := &elastic{states: make(chan *scheduler.Status, 1)}
	for n := range 3 {
		e.observe(&scheduler.Status{Running: n})
	}
	if s := <-e.states; s.Running != 2 || len(e.states) > 0 {
		t.Errorf("%d tasks run, and %d statuses are left", s.Running, len(e.states))
	}
}

// answer is a Slurm that says the same to everything.
type answer string

func (a answer) Run(context.Context, command.Cmd) (command.Result, error) {
	return command.Result{Stdout: []byte(a)}, nil
}

// When the end of a job changes, the scheduler learns it from the pilot, and all nodes of the job have
// the new end.
func TestEndOfJobIsRenewed(t *testing.T) {
	run := t.TempDir()
	if err := pilot.Save(run, &pilot.Pool{ID: "x", MaxJobs: 1}); err != nil {
		t.Fatal(err)
	}
	before := clock.Now().Add(-time.Second).Truncate(time.Second)
	head, own := pilot.Node{Job: "16", First: true, Name: "cpu1", End: before}, pilot.Node{Job: "16", Name: "cpu2", End: before}
	for _, n := range []pilot.Node{head, own, {Job: "17", First: true, Name: "cpu1", End: before}} {
		if err := pilot.Announce(run, n); err != nil {
			t.Fatal(err)
		}
	}
	e, err := newElastic(run, &runner{console: &console{w: io.Discard}, place: &place{}})
	if err != nil {
		t.Fatal(err)
	}
	follow := func() map[string]time.Time {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			e.do(ctx, e.follow())
			cancel()
		}()
		ends := map[string]time.Time{}
		for {
			select {
			case ev := <-e.changes:
				for _, s := range ev.(core.AddNodes).Specs {
					ends[s.Name] = s.End
				}
			case <-ctx.Done():
				return ends
			}
		}
	}
	if n := len(follow()); n != 3 {
		t.Fatalf("%d nodes have come", n)
	}
	first, other := &pilotJob{run: run, job: "16", end: before}, &pilotJob{run: run, job: "16", end: before}
	if !other.ended(&own, true) {
		t.Error("the pilot at the other node continues after the end")
	}
	after := before.Add(time.Hour)
	client := &slurm.Client{Run: answer(after.Local().Format("2006-01-02T15:04:05") + "|RUNNING|N/A|\n")}
	first.renew(t.Context(), client, &head)
	if ends := follow(); len(ends) != 2 || !ends["cpu1@16"].Equal(after) || !ends["cpu2@16"].Equal(after) {
		t.Errorf("the scheduler knows the ends %v, want %v of both nodes of job 16", ends, after)
	}
	if other.ended(&own, true) {
		t.Error("the pilot at the other node does not know the new end")
	}
	first.renew(t.Context(), client, &head)
	if ends := follow(); len(ends) != 0 {
		t.Errorf("nothing has changed, and the scheduler gets %v", ends)
	}
}

// A pilot starts no schedulers while the run directory cannot be written, and continues when it can.
func TestPilotWaitsForItsRunDirectory(t *testing.T) {
	run := t.TempDir()
	program := filepath.Join(run, "program")
	executable.Write(t, program, "#!/bin/sh\nexit 3\n")
	pool := &pilot.Pool{ID: "x"}
	if err := pilot.Save(run, pool); err != nil {
		t.Fatal(err)
	}
	full := filepath.Join(run, pilot.Dir, "16.probe")
	if err := os.Symlink("/dev/full", full); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	p := &pilotJob{run: run, job: "16", program: program, pool: pool, out: io.Discard, complaints: &said}
	// turn starts a scheduler, or waits for the end of the one that it has started.
	turn := func() (bool, error) {
		p.notBefore = time.Time{}
		if p.scheduler != nil {
			<-p.scheduler.Done()
		}
		return p.schedule(t.Context())
	}
	for range 3 * mostFailures {
		if ended, err := turn(); ended {
			t.Fatalf("after %d failures the pilot ends: %v", p.failures, err)
		}
	}
	if p.failures != 1 || p.scheduler != nil {
		t.Errorf("%d schedulers have failed", p.failures)
	}
	p.stuck = clock.Now().Add(-patience)
	if ended, err := turn(); !ended || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(fault.HintOf(err), "--resume") {
		t.Errorf("ended %v: %v", ended, err)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if ended, err := turn(); ended || err != nil || p.scheduler == nil || !strings.Contains(said.String(), "could not be written for 10m") {
		t.Errorf("ended %v: %v, %q", ended, err, said.String())
	}
	_, _ = turn()
}

// A pilot says why it does nothing where the clock is ahead by more than the time of its job.
func TestPilotWithAClockThatIsAhead(t *testing.T) {
	run := t.TempDir()
	pool := &pilot.Pool{ID: "x"}
	if err := pilot.Save(run, pool); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("SLURM_JOB_END_TIME", strconv.FormatInt(clock.Now().Add(-time.Minute).Unix(), 10))
	p := &pilotJob{run: run, job: "16", pool: pool, out: io.Discard, complaints: io.Discard}
	if err := p.work(t.Context(), false); err == nil || !strings.Contains(err.Error(), "by the clock of ") {
		t.Errorf("%v", err)
	}
}

// What Go's library says does not reach a person.
func TestMessage(t *testing.T) {
	var said strings.Builder
	(&console{w: &said}).message("job %s cannot be ended: %w", "7", context.DeadlineExceeded)
	if said.String() != "jobpool: job 7 cannot be ended: no answer in time\n" {
		t.Error(said.String())
	}
}
