package jobpool

import (
	"cmp"
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
			e.status = &scheduler.Status{}
			e.status.Waiting, e.status.Jobs = 1000, 500
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

// Jobs in which no waiting task would end are replaced before they end, once, and Slurm is asked only
// when that may change something.
func TestJobsNearTheirEndAreReplaced(t *testing.T) {
	for name, tt := range map[string]struct {
		left, life time.Duration // of each job
		late       bool          // no waiting task would end there
		lasting    int           // of 3 jobs, so many are far from their end
		here       bool          // the scheduler is in none of them
		state      string        // of the nodes, if they are not up
		waiting    int
		others     int // jobs that wait or run besides
		submitted  int // at first; never more later
		lists      int // requests for the list of jobs in 100 s
	}{
		"near the end":              {left: 10 * time.Second, life: time.Minute, late: true, waiting: 1000, submitted: 1, lists: 1},
		"one goes on":               {left: 10 * time.Second, life: time.Minute, late: true, lasting: 1, waiting: 1000, lists: 1},
		"a scheduler of its own":    {left: 10 * time.Second, life: time.Minute, late: true, here: true, waiting: 1000, lists: 1},
		"near the end, little left": {left: 10 * time.Second, life: time.Minute, late: true, waiting: 4, submitted: 1, lists: 1},
		"in the middle":             {left: 30 * time.Second, life: time.Minute, waiting: 1000, lists: 1},
		"tasks that are too long":   {left: 30 * time.Second, life: time.Minute, late: true, waiting: 1000, lists: 1},
		"replaced before":           {left: 10 * time.Second, life: time.Minute, late: true, waiting: 1000, others: 3, lists: 1},
		"no answer":                 {left: 30 * time.Second, life: time.Minute, state: "lost", waiting: 1000, lists: 10},
		"removed":                   {left: 30 * time.Second, life: time.Minute, state: "released", waiting: 1000, submitted: 1, lists: 1},
		"quarantined":               {left: 30 * time.Second, life: time.Minute, state: "quarantined", waiting: 1000, submitted: 1, lists: 1},
	} {
		t.Run(name, func(t *testing.T) {
			fakes, err := filepath.Abs("../../../testscripts/fakeslurm")
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			run := filepath.Join(dir, "run")
			t.Setenv("PATH", fakes+":"+os.Getenv("PATH"))
			t.Setenv("SLURM_CONF", filepath.Join(dir, "slurm.conf"))
			t.Setenv("SLURM_JOB_ID", "16")
			if err := pilot.Save(run, &pilot.Pool{ID: "x", MaxJobs: 3, Options: []string{"--partition=cpu"}, Here: tt.here}); err != nil {
				t.Fatal(err)
			}
			e, err := newElastic(run, &runner{console: &console{w: io.Discard}, base: pool.Spec{Need: pool.Need{CPUs: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			e.status = &scheduler.Status{Phase: core.Running.String(), Waiting: tt.waiting, Jobs: float64(tt.waiting) / 2, Mean: 1}
			queue := ""
			for i, job := range []string{"16", "17", "18"} {
				queue += job + " RUNNING jobpool:x:\n"
				n := pilot.Node{Job: job, Name: "cpu1", CPUs: 2, Nodes: 1, End: clock.Now().Add(tt.left), Life: tt.life.Seconds()}
				closes := clock.Now().Add(launch - time.Second)
				if !tt.late || i < tt.lasting {
					n.End, closes = n.End.Add(time.Minute), closes.Add(time.Minute)
				}
				e.nodes[n.Label()] = n
				s := core.NodeStatus{Name: n.Label(), State: "up", CPUs: 2, Closes: &closes}
				s.State = cmp.Or(tt.state, s.State)
				e.status.Nodes = append(e.status.Nodes, s)
				e.life = n.Life
			}
			for i := range tt.others {
				queue += strconv.Itoa(30+i) + " PENDING jobpool:x:\n"
			}
			if err := os.WriteFile(filepath.Join(dir, "queue"), []byte(queue), 0o600); err != nil {
				t.Fatal(err)
			}
			e.changes = make(chan core.Event, 3)
			e.lingered(t.Context())
			began := clock.Now()
			for second := range 100 {
				if now := began.Add(time.Duration(second) * time.Second); e.due(now) {
					e.counted = now
					e.fill(t.Context())
				}
			}
			asked, _ := os.ReadFile(filepath.Join(dir, "asked"))
			if n := strings.Count(string(asked), "\nsbatch --parsable"); n != tt.submitted {
				t.Errorf("%d jobs were submitted, want %d", n, tt.submitted)
			}
			if n := strings.Count("\n"+string(asked), "\nsqueue --noheader"); n != tt.lists {
				t.Errorf("the list of jobs was requested %d times, want %d", n, tt.lists)
			}
		})
	}
}

// No more jobs are submitted than the waiting tasks fill, however long these take, beside the jobs that
// run. Jobs that are pending, or have not been reached, will run some.
func TestLongTasksGetNoMoreJobsThanTheyFill(t *testing.T) {
	for name, tt := range map[string]struct {
		filled    float64 // jobs, by the waiting tasks
		reached   int     // jobs, of 2 that run
		pending   int
		submitted int
	}{
		"no room":            {filled: 1.5, reached: 2, submitted: 2},
		"one is pending":     {filled: 1.5, reached: 2, pending: 1, submitted: 1},
		"all are there":      {filled: 1.5, reached: 2, pending: 2},
		"one is not reached": {filled: 1.5, reached: 1, submitted: 1},
	} {
		t.Run(name, func(t *testing.T) {
			withSlurm(t)
			run := t.TempDir()
			if err := pilot.Save(run, &pilot.Pool{ID: "x", MaxJobs: 8}); err != nil {
				t.Fatal(err)
			}
			e, err := newElastic(run, &runner{console: &console{w: io.Discard}, base: pool.Spec{Need: pool.Need{CPUs: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			e.status = &scheduler.Status{Phase: core.Running.String(), Waiting: 6, Jobs: tt.filled, Mean: 3600}
			queue := ""
			for i := range 2 {
				n := pilot.Node{Job: strconv.Itoa(16 + i), Name: "cpu1", CPUs: 4, Nodes: 1}
				e.nodes[n.Label()] = n
				queue += n.Job + " RUNNING jobpool:x:\n"
				s := core.NodeStatus{Name: n.Label(), State: "up"}
				if i >= tt.reached {
					s.State = "connecting"
				}
				e.status.Nodes = append(e.status.Nodes, s)
			}
			for i := range tt.pending {
				queue += strconv.Itoa(30+i) + " PENDING jobpool:x:\n"
			}
			if err := os.WriteFile("queue", []byte(queue), 0o600); err != nil {
				t.Fatal(err)
			}
			e.fill(t.Context())
			asked, _ := os.ReadFile("asked")
			if n := strings.Count(string(asked), "\nsbatch --parsable"); n != tt.submitted {
				t.Errorf("%d jobs were submitted, want %d", n, tt.submitted)
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

// When jobs end together, one successor is submitted before. Another one follows only when so many have
// ended that the limit allows it, as Slurm has it, which may be later than their pilots.
func TestOneJobMoreNearTheEnd(t *testing.T) {
	withSlurm(t)
	run := t.TempDir()
	t.Setenv("SLURM_JOB_ID", "16")
	if err := pilot.Save(run, &pilot.Pool{ID: "x", MaxJobs: 3}); err != nil {
		t.Fatal(err)
	}
	e, err := newElastic(run, &runner{console: &console{w: io.Discard}, place: &place{}, base: pool.Spec{Need: pool.Need{CPUs: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	e.changes = make(chan core.Event, 10)
	e.status = &scheduler.Status{Phase: core.Running.String(), Waiting: 1000, Jobs: 500, Mean: 1}
	now, closes := clock.Now(), clock.Now()
	nodes := map[string]pilot.Node{}
	for _, job := range []string{"16", "17", "18"} {
		n := pilot.Node{Job: job, Name: "cpu1", CPUs: 2, Nodes: 1, End: now.Add(10 * time.Second), Life: 60}
		if err := pilot.Announce(run, n); err != nil {
			t.Fatal(err)
		}
		nodes[job] = n
		e.status.Nodes = append(e.status.Nodes, core.NodeStatus{Name: n.Label(), State: "up", CPUs: 2, Closes: &closes})
	}
	for _, step := range []struct {
		ended     string // its pilot
		listed    string // by Slurm: the job that ran and those that wait
		submitted int    // in all, soon after
	}{
		{listed: "16R 17R 18R", submitted: 1},
		{ended: "17", listed: "16R 17R 18R 19P", submitted: 1},
		{listed: "16R 18R 19P", submitted: 1},
		{ended: "18", listed: "16R 18R 19P", submitted: 1},
		{listed: "16R 19P", submitted: 2},
		{listed: "16R 19P 20P", submitted: 2},
	} {
		var queue strings.Builder
		for _, job := range strings.Fields(step.listed) {
			state := map[byte]string{'R': "RUNNING", 'P': "PENDING"}[job[2]]
			queue.WriteString(job[:2] + " " + state + " jobpool:x:\n")
		}
		if err := os.WriteFile("queue", []byte(queue.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		if step.ended != "" {
			pilot.Withdraw(run, nodes[step.ended])
		}
		e.follow(t.Context())
		for range 5 {
			if now = now.Add(time.Second); e.due(now) {
				e.counted = now
				e.fill(t.Context())
			}
		}
		asked, _ := os.ReadFile("asked")
		if n := strings.Count(string(asked), "\nsbatch --parsable"); n != step.submitted {
			t.Errorf("Slurm has %s: %d jobs were submitted, want %d", step.listed, n, step.submitted)
		}
	}
}

// A scheduler that takes over finds jobs whose pilots have already ended. It looks again soon whether they
// are gone.
func TestJobsThatEndAtATakeover(t *testing.T) {
	withSlurm(t)
	run := t.TempDir()
	t.Setenv("SLURM_JOB_ID", "16")
	if err := pilot.Save(run, &pilot.Pool{ID: "x", MaxJobs: 2}); err != nil {
		t.Fatal(err)
	}
	e, err := newElastic(run, &runner{console: &console{w: io.Discard}, base: pool.Spec{Need: pool.Need{CPUs: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	e.status = &scheduler.Status{Phase: core.Running.String(), Waiting: 1000, Jobs: 500, Mean: 1}
	n := pilot.Node{Job: "16", Name: "cpu1", CPUs: 2, Nodes: 1}
	e.nodes[n.Label()] = n
	e.status.Nodes = append(e.status.Nodes, core.NodeStatus{Name: n.Label(), State: "up", CPUs: 2})
	now := clock.Now()
	asked := func(seconds int) string {
		for range seconds {
			if now = now.Add(time.Second); e.due(now) {
				e.counted = now
				e.fill(t.Context())
			}
		}
		b, _ := os.ReadFile("asked")
		return "\n" + string(b)
	}
	for _, step := range []struct {
		queue            string
		seconds          int
		submitted, lists int // in all
	}{
		{"16 RUNNING jobpool:x:\n17 RUNNING jobpool:x:\n", 2, 0, 2},
		{"16 RUNNING jobpool:x:\n", 5, 1, 3},
		{"16 RUNNING jobpool:x:\n18 PENDING jobpool:x:\n", 100, 1, 3},
	} {
		if err := os.WriteFile("queue", []byte(step.queue), 0o600); err != nil {
			t.Fatal(err)
		}
		said := asked(step.seconds)
		if n, l := strings.Count(said, "\nsbatch --parsable"), strings.Count(said, "\nsqueue --noheader"); n != step.submitted || l != step.lists {
			t.Errorf("Slurm has %q: %d jobs were submitted and %d lists requested, want %d and %d", step.queue, n, l, step.submitted, step.lists)
		}
	}
}

// A scheduler does not replace jobs that were cancelled, as its own may be the next, also when Slurm has forgotten
// them. One that ended by itself, or was of an earlier call, is replaced, and so is the last one that lasts.
func TestCancelledJobsAreNotReplaced(t *testing.T) {
	for name, tt := range map[string]struct {
		queues    []string // that Slurm shows, one after the other
		here      bool
		submitted int
	}{
		"ends":      {queues: []string{"16 RUNNING jobpool:x:c\n17 COMPLETING jobpool:x:c\n"}},
		"cancelled": {queues: []string{"16 RUNNING jobpool:x:c\n17 CANCELLED jobpool:x:c\n"}},
		"cancelled while it waits and forgotten": {queues: []string{
			"16 RUNNING jobpool:x:c\n17 PENDING jobpool:x:c\n", "16 RUNNING jobpool:x:c\n17 CANCELLED jobpool:x:c\n", "16 RUNNING jobpool:x:c\n",
		}},
		"ends, and was not cancelled": {queues: []string{
			"16 RUNNING jobpool:x:c\n17 COMPLETING jobpool:x:c\n", "16 RUNNING jobpool:x:c\n17 NODE_FAIL jobpool:x:c\n",
		}, submitted: 1},
		"ended":                  {queues: []string{"16 RUNNING jobpool:x:c\n17 COMPLETED jobpool:x:c\n"}, submitted: 1},
		"preempted":              {queues: []string{"16 RUNNING jobpool:x:c\n17 PREEMPTED jobpool:x:c\n"}, submitted: 1},
		"earlier call":           {queues: []string{"16 RUNNING jobpool:x:b\n17 CANCELLED jobpool:x:b\n"}, submitted: 1},
		"another pool":           {queues: []string{"16 RUNNING jobpool:x:c\n17 CANCELLED jobpool:y:c\n"}, submitted: 1},
		"scheduler is in no job": {queues: []string{"16 RUNNING jobpool:x:c\n17 CANCELLED jobpool:x:c\n"}, here: true, submitted: 1},
	} {
		t.Run(name, func(t *testing.T) {
			withSlurm(t)
			run := t.TempDir()
			t.Setenv("SLURM_JOB_ID", "16")
			if err := pilot.Save(run, &pilot.Pool{ID: "x", Call: "c", MaxJobs: 2, Here: tt.here}); err != nil {
				t.Fatal(err)
			}
			e, err := newElastic(run, &runner{console: &console{w: io.Discard}, base: pool.Spec{Need: pool.Need{CPUs: 1}}})
			if err != nil {
				t.Fatal(err)
			}
			e.status = &scheduler.Status{Phase: core.Running.String(), Waiting: 1000, Jobs: 500, Mean: 1}
			n := pilot.Node{Job: "16", Name: "cpu1", CPUs: 2, Nodes: 1}
			e.nodes[n.Label()] = n
			e.status.Nodes = append(e.status.Nodes, core.NodeStatus{Name: n.Label(), State: "up", CPUs: 2})
			for _, queue := range tt.queues {
				if err := os.WriteFile("queue", []byte(queue), 0o600); err != nil {
					t.Fatal(err)
				}
				e.fill(t.Context())
			}
			asked, _ := os.ReadFile("asked")
			if n := strings.Count("\n"+string(asked), "\nsbatch --parsable"); n != tt.submitted {
				t.Errorf("%d jobs were submitted, want %d", n, tt.submitted)
			}
		})
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
	e.status = &scheduler.Status{Phase: core.Running.String(), Waiting: 1000, Jobs: 500}
	now := clock.Now()
	fill := func(want int) {
		t.Helper()
		now = now.Add(time.Minute)
		if e.due(now) {
			e.counted = now
			e.fill(t.Context())
		}
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
	e.jobs.Reload()
	if fill(3); e.jobs.Pool.Linger != 2 {
		t.Errorf("jobs linger for %v s", e.jobs.Pool.Linger)
	}
}

// A job is idle also while tasks wait that cannot start, as they wait for others.
func TestIdleJobsEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		waiting, depends, orphaned int
		phase                      core.Phase
		state                      string // of the node of the other job
		linger                     float64
		running                    int           // tasks there
		left                       time.Duration // of the time of both jobs, which is an hour; 0: no end
		ends                       bool
	}{
		"nothing waits": {ends: true}, "one can start": {waiting: 5, depends: 4}, "all wait for others": {waiting: 5, depends: 5, ends: true},
		"idle for less":                   {linger: 300},
		"removed":                         {waiting: 5, state: "released", linger: 300, ends: true},
		"removed, busy":                   {waiting: 5, state: "released", linger: 300, running: 1},
		"quarantined":                     {waiting: 5, state: "quarantined", linger: 300, ends: true},
		"not reached":                     {waiting: 5, state: "lost", linger: 300},
		"reached at last":                 {waiting: 5, state: "connecting", linger: 300},
		"one is on trial":                 {waiting: 5, state: "trial", linger: 300},
		"about to be full":                {waiting: 1, state: "up", linger: 300, running: 1},
		"nothing more fits":               {waiting: 5, linger: 300, left: time.Minute, ends: true},
		"nothing more fits in most of it": {waiting: 5, linger: 300, left: 40 * time.Minute},
		"nothing more fits, busy":         {waiting: 5, state: "up", linger: 300, left: time.Minute, running: 1},
		"nothing more fits, not reached":  {waiting: 5, state: "lost", linger: 300, left: time.Minute},
		"nothing waits near the end":      {linger: 300, left: time.Minute},
		"nothing is started":              {waiting: 5, linger: 300, phase: core.Draining, ends: true},
		"what was started may still run":  {waiting: 5, orphaned: 1, phase: core.Draining},
	} {
		t.Run(name, func(t *testing.T) {
			run := t.TempDir()
			t.Setenv("SLURM_JOB_ID", "16")
			if err := pilot.Save(run, &pilot.Pool{ID: "x", MaxJobs: 2, Linger: tt.linger}); err != nil {
				t.Fatal(err)
			}
			e, err := newElastic(run, &runner{console: &console{w: io.Discard}})
			if err != nil {
				t.Fatal(err)
			}
			e.changes = make(chan core.Event, 3)
			e.status = &scheduler.Status{Phase: tt.phase.String(), Waiting: tt.waiting, Depends: tt.depends, Orphaned: tt.orphaned}
			for _, job := range []string{"16", "17"} { // the first is that of the scheduler
				n := pilot.Node{Job: job, Name: "cpu1", Nodes: 1}
				e.nodes[n.Label()] = n
				s := core.NodeStatus{Name: n.Label(), State: "up"}
				if tt.left > 0 {
					n.Life, n.End = 3600, clock.Now().Add(tt.left)
					e.nodes[n.Label()] = n
				}
				if closes := clock.Now().Add(-time.Second); tt.left > 0 && tt.waiting > 0 {
					s.Closes = &closes
				}
				if tt.state != "" && job != "16" {
					s.State, s.Running = tt.state, tt.running
				}
				e.status.Nodes = append(e.status.Nodes, s)
			}
			e.lingered(t.Context())
			ends := len(e.changes) > 0
			other := &e.status.Nodes[1]
			if ends && other.State != "released" {
				other.State, other.Running = "closed", 1 // a task was faster
				if e.lingered(t.Context()); pilot.Dismissed(run, "17") {
					t.Error("a job ends while a task runs there")
				}
				other.State, other.Running = "released", 0
				e.lingered(t.Context())
			}
			if own, other := pilot.Dismissed(run, "16"), pilot.Dismissed(run, "17"); own || other != tt.ends || ends != tt.ends {
				t.Errorf("the job of the scheduler ends: %v, the other one: %v, want %v", own, other, tt.ends)
			}
		})
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
			e.follow(ctx)
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
