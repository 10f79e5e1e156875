package pilot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool/core"
)

// noon is when tests begin.
var noon = time.Date(2030, 1, 2, 12, 0, 0, 0, time.UTC)

// trial is a fleet whose orders are counted.
type trial struct {
	*testing.T
	Fleet
	pool      Pool
	status    core.Status
	announced []Node
	list      Listing
	now       time.Time
	lists     int // that Slurm was asked for
	submitted int
	release   []string
	leave     []string
	still     bool // the ends of jobs stay as far away as they are
}

// newTrial is a fleet of the scheduler in job 16, of whose pool 1,000 tasks of a second wait.
func newTrial(t *testing.T, most int) *trial {
	return &trial{
		T: t, Fleet: Fleet{Own: "16", Run: "run"}, pool: Pool{MaxJobs: most, Linger: 300}, now: noon,
		status: core.Status{Phase: core.Running.String(), InputRead: true, Waiting: 1000, Jobs: 500, Mean: 1},
	}
}

// announce has the pilots of jobs come, with the state of their nodes in the pool.
func (r *trial) announce(state string, nodes ...Node) {
	for _, n := range nodes {
		n.Name, n.CPUs, n.Nodes = cmp.Or(n.Name, "cpu1"), 2, max(n.Nodes, 1)
		r.announced = append(r.announced, n)
		r.status.Nodes = append(r.status.Nodes, core.NodeStatus{Name: n.Label(), State: state})
	}
	r.Come(r.announced)
}

// shows sets what Slurm shows: "16R 17P" are a job that runs and one that waits, C one that was cancelled, E one that ends.
func (r *trial) shows(text string) {
	r.list = Listing{}
	for _, word := range strings.Fields(text) {
		id, state := word[:len(word)-1], word[len(word)-1]
		switch state {
		case 'R':
			r.list.Have = append(r.list.Have, Job{ID: id, State: "RUNNING"})
		case 'P':
			r.list.Have = append(r.list.Have, Job{ID: id, State: "PENDING"})
		case 'C':
			r.list.Cancelled = append(r.list.Cancelled, id)
		case 'E':
			r.list.Ending = append(r.list.Ending, id)
		}
	}
}

// turns has so many seconds go by.
func (r *trial) turns(seconds int) {
	for range seconds {
		o := r.Stand(r.now, &r.status, &r.pool)
		r.release, r.leave = o.Release, o.Leave
		if o.Ask {
			r.ask()
		}
		r.now = r.now.Add(time.Second)
		if !r.still {
			continue
		}
		for i := range r.announced {
			r.announced[i].End = r.announced[i].End.Add(time.Second)
			if at := &r.status.Nodes[i]; at.Closes != nil {
				*at.Closes = at.Closes.Add(time.Second)
			}
		}
		r.Come(r.announced)
	}
}

// ask has Slurm asked, and the jobs submitted that are ordered.
func (r *trial) ask() {
	r.lists++
	for range r.Listed(r.now, r.list, &r.pool).Submit {
		r.submitted++
		id := fmt.Sprint(100 + r.submitted)
		r.list.Have = append(r.list.Have, Job{ID: id, State: "PENDING"})
		r.Submitted([]string{id})
	}
}

// expect checks how many jobs were submitted, and how often Slurm was asked, in all.
func (r *trial) expect(what string, submitted, lists int) {
	r.Helper()
	if r.submitted != submitted || r.lists != lists {
		r.Errorf("%s: %d jobs were submitted and %d lists requested, want %d and %d", what, r.submitted, r.lists, submitted, lists)
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
		others     int // jobs that wait besides
		submitted  int
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
			r := newTrial(t, 3)
			r.pool.Here = tt.here
			r.status.Waiting, r.status.Jobs = tt.waiting, float64(tt.waiting)/2
			listed := ""
			for i, job := range []string{"16", "17", "18"} {
				n := Node{Job: job, End: r.now.Add(tt.left), Life: tt.life.Seconds()}
				closes := r.now.Add(launch - time.Second)
				if !tt.late || i < tt.lasting {
					n.End, closes = n.End.Add(time.Minute), closes.Add(time.Minute)
				}
				r.announce(cmp.Or(tt.state, "up"), n)
				r.status.Nodes[i].Closes = &closes
				listed += job + "R "
			}
			for i := range tt.others {
				listed += fmt.Sprintf("%dP ", 30+i)
			}
			r.shows(listed)
			r.still = true
			r.turns(100)
			r.expect("after 100 s", tt.submitted, tt.lists)
		})
	}
}

// No more jobs are submitted than the waiting tasks fill, however long these take, beside the jobs that
// run. Jobs that are pending, or have not been reached, will run some.
func TestLongTasksGetNoMoreJobsThanTheyFill(t *testing.T) {
	for name, tt := range map[string]struct {
		filled    float64 // jobs, by the waiting tasks
		reached   int     // jobs, of 2 that run
		listed    string
		submitted int
	}{
		"no room":            {filled: 1.5, reached: 2, listed: "16R 17R", submitted: 2},
		"one is pending":     {filled: 1.5, reached: 2, listed: "16R 17R 30P", submitted: 1},
		"all are there":      {filled: 1.5, reached: 2, listed: "16R 17R 30P 31P"},
		"one is not reached": {filled: 1.5, reached: 1, listed: "16R 17R", submitted: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTrial(t, 8)
			r.status.Waiting, r.status.Jobs, r.status.Mean = 6, tt.filled, 3600
			for i, id := range []string{"16", "17"} {
				r.announce(map[bool]string{true: "up", false: "connecting"}[i < tt.reached], Node{Job: id})
			}
			r.shows(tt.listed)
			r.turns(1)
			r.expect("at once", tt.submitted, 1)
		})
	}
}

// When jobs end together, one successor is submitted before. Another one follows only when so many have
// ended that the limit allows it, as Slurm has it, which may be later than their pilots.
func TestOneJobMoreNearTheEnd(t *testing.T) {
	r := newTrial(t, 3)
	closes := r.now
	for _, job := range []string{"16", "17", "18"} {
		r.announce("up", Node{Job: job, End: r.now.Add(10 * time.Second), Life: 60})
		r.status.Nodes[len(r.status.Nodes)-1].Closes = &closes
	}
	for _, step := range []struct {
		ended     string // its pilot
		listed    string
		submitted int // in all, soon after
	}{
		{listed: "16R 17R 18R", submitted: 1},
		{ended: "17", listed: "16R 17R 18R 101P", submitted: 1},
		{listed: "16R 18R 101P", submitted: 1},
		{ended: "18", listed: "16R 18R 101P", submitted: 1},
		{listed: "16R 101P", submitted: 2},
		{listed: "16R 101P 102P", submitted: 2},
	} {
		r.shows(step.listed)
		r.announced = slices.DeleteFunc(r.announced, func(n Node) bool { return n.Job == step.ended })
		r.Come(r.announced)
		r.turns(5)
		if r.submitted != step.submitted {
			t.Errorf("Slurm has %s: %d jobs were submitted, want %d", step.listed, r.submitted, step.submitted)
		}
	}
}

// A scheduler that takes over finds jobs whose pilots have already ended. It looks again soon whether they
// are gone.
func TestJobsThatEndAtATakeover(t *testing.T) {
	r := newTrial(t, 2)
	r.announce("up", Node{Job: "16"})
	r.shows("16R 17R")
	r.turns(2)
	r.expect("one has ended, and is shown", 0, 2)
	r.shows("16R")
	r.turns(5)
	r.expect("it is gone", 1, 3)
	r.turns(100)
	r.expect("another one waits", 1, 3)
}

// A scheduler does not replace jobs that were cancelled, as its own may be the next, also when Slurm has forgotten
// them. One that ended by itself, or was of an earlier call, is replaced, and so is the last one that lasts.
func TestCancelledJobsAreNotReplaced(t *testing.T) {
	for name, tt := range map[string]struct {
		lists     []string // what Slurm shows, one after the other
		here      bool
		submitted int
	}{
		"ends":                                   {lists: []string{"16R 17E"}},
		"cancelled":                              {lists: []string{"16R 17C"}},
		"cancelled while it waits and forgotten": {lists: []string{"16R 17P", "16R 17C", "16R"}},
		"ends, and was not cancelled":            {lists: []string{"16R 17E", "16R"}, submitted: 1},
		"ends, and was cancelled":                {lists: []string{"16R 17E", "16R 17C", "16R"}},
		"ended":                                  {lists: []string{"16R"}, submitted: 1},
		"scheduler is in no job":                 {lists: []string{"16R 17C"}, here: true, submitted: 1},
		"requeued after all":                     {lists: []string{"16R 17C", "16R 17P", "16R"}, submitted: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTrial(t, 2)
			r.pool.Here = tt.here
			r.announce("up", Node{Job: "16"})
			r.Stand(r.now, &r.status, &r.pool)
			for _, list := range tt.lists {
				r.shows(list)
				r.ask()
			}
			r.expect("in the end", tt.submitted, len(tt.lists))
		})
	}
}

// Jobs that end before one of their pilots has come are not replaced again and again. One that was cancelled is not
// at fault, nor is one whose submission another scheduler has ordered.
func TestJobsThatNeverComeEndTheSubmissions(t *testing.T) {
	for name, tt := range map[string]struct {
		listed    string // when the job is gone; "": nothing of it
		comes     bool   // every other job
		submitted int
	}{
		"all fail":         {submitted: mostFailures},
		"after a while":    {listed: "E", submitted: mostFailures},
		"some come":        {comes: true, submitted: 20},
		"they are stopped": {listed: "C", submitted: 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTrial(t, 2)
			r.announce("up", Node{Job: "16"})
			r.Stand(r.now, &r.status, &r.pool)
			said := ""
			for range 20 {
				r.shows("16R")
				r.ask()
				last := fmt.Sprint(100 + r.submitted)
				if tt.comes && r.submitted%2 == 1 {
					r.announce("up", Node{Job: last})
					r.announced, r.status.Nodes = r.announced[:1], r.status.Nodes[:1]
					r.Come(r.announced)
				}
				if tt.listed != "" {
					r.shows("16R " + last + tt.listed)
					r.Listed(r.now, r.list, &r.pool)
				}
				r.shows("16R")
				said += strings.Join(r.Listed(r.now, r.list, &r.pool).Say, "\n")
			}
			r.expect("after 20 lists", tt.submitted, 20)
			if want := "jobs ended without a message, see run/pilots/"; strings.Contains(said, want) != (tt.submitted == mostFailures) {
				t.Errorf("it says %q", said)
			}
		})
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
		"quarantined, busy":               {waiting: 5, state: "quarantined", linger: 300, running: 1},
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
			r := newTrial(t, 2)
			r.pool.Linger = tt.linger
			r.status = core.Status{Phase: tt.phase.String(), Waiting: tt.waiting, Depends: tt.depends, Orphaned: tt.orphaned}
			for _, job := range []string{"16", "17"} { // the first is that of the scheduler
				n := Node{Job: job}
				if tt.left > 0 {
					n.Life, n.End = 3600, r.now.Add(tt.left)
				}
				r.announce("up", n)
				s := &r.status.Nodes[len(r.status.Nodes)-1]
				if closes := r.now.Add(-time.Second); tt.left > 0 && tt.waiting > 0 {
					s.Closes = &closes
				}
				if tt.state != "" && job != "16" {
					s.State, s.Running = tt.state, tt.running
				}
			}
			other := &r.status.Nodes[1]
			r.turns(1)
			ends := len(r.release)+len(r.leave) > 0
			if ends && other.State != "released" {
				if !slices.Equal(r.release, []string{"cpu1@17"}) || len(r.leave) > 0 {
					t.Errorf("%q are released and %q leave", r.release, r.leave)
				}
				other.State, other.Running = "closed", 1 // a task was faster
				if r.turns(1); len(r.leave) > 0 {
					t.Error("a job ends while a task runs there")
				}
				other.State, other.Running = "released", 0
				r.turns(1)
			}
			if left := slices.Equal(r.leave, []string{"17"}); ends != tt.ends || left != tt.ends {
				t.Errorf("a job ends: %v, these leave: %q, want %v", ends, r.leave, tt.ends)
			}
		})
	}
}

// A host that is at fault is excluded once, for a time.
func TestHostsAtFaultAreExcluded(t *testing.T) {
	r := newTrial(t, 3)
	r.announce("up", Node{Job: "16"}, Node{Job: "17", Name: "cpu2"}, Node{Job: "18", Name: "cpu2"})
	for i := range 2 {
		r.status.Nodes[i+1].Fault = "its setup failed"
	}
	for _, want := range []int{1, 0} {
		o := r.Stand(r.now, &r.status, &r.pool)
		if len(o.Exclude) != want {
			t.Errorf("%v is excluded", o.Exclude)
		}
		for _, x := range o.Exclude {
			r.pool.Exclude(x, r.now)
		}
	}
	if got := r.pool.Excludes(r.now.Add(Exclusion - time.Second)); len(got) != 1 || got[0].Host != "cpu2" || got[0].Why != "its setup failed" {
		t.Errorf("%v", got)
	}
	r.now = r.now.Add(Exclusion)
	if o := r.Stand(r.now, &r.status, &r.pool); len(o.Exclude) != 1 {
		t.Errorf("after a while, %v is excluded", o.Exclude)
	}
}

// A job that was requeued has a new start, and does not leave as it was to in the one before.
func TestRequeuedJobsBeginAgain(t *testing.T) {
	r := newTrial(t, 2)
	r.announce("up", Node{Job: "16"}, Node{Job: "17"})
	r.status.Waiting, r.pool.Linger = 0, 0
	r.turns(1)
	if !slices.Equal(r.release, []string{"cpu1@17"}) {
		t.Fatalf("%q are released", r.release)
	}
	r.announced = r.announced[:1]
	r.status.Waiting, r.pool.Linger = 1000, 300
	r.announce("up", Node{Job: "17", Start: 1})
	if r.turns(1); len(r.release)+len(r.leave) > 0 {
		t.Errorf("%q are released and %q leave", r.release, r.leave)
	}
}
