package pilot

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool/core"
)

// drawn are the transitions that the drawing of [Fleet] has, beside those that Slurm orders in any state, and rare are
// those of them that a few hundred walks need not meet.
var (
	drawn = map[State][]State{
		Asked:  {Waits, Starts, Serves},
		Waits:  {Starts, Serves},
		Starts: {Waits, Serves},
		Serves: {Idle, Unfit, Leaves, Left},
		Idle:   {Serves, Unfit, Leaves, Left},
		Unfit:  {Serves, Leaves, Left},
		Leaves: {Left, Serves},
		Left:   {Waits, Serves},
		Ends:   {Waits, Starts, Serves, Left},
	}
	rare = [][2]State{{Starts, Waits}, {Idle, Unfit}, {Unfit, Left}, {Leaves, Serves}}
)

// world is a Slurm with hosts of which some are broken, the pilots of a run, its files, its pool and its user. Each
// step is a second.
type world struct {
	*testing.T
	*rand.Rand
	now   time.Time
	calm  bool // nothing fails any more
	hosts []string
	sick  map[string]bool
	jobs  []*slurmJob
	call  int
	conf  Pool
	files map[string]Node // announced, by job and host
	over  bool
	tasks int // that wait
	done  int
	own   *scheduler
	seen  map[[2]State]bool
	lists int
	acts  int // after which Slurm may be asked again soon
	// blocked: until then, tasks wait for others.
	blocked time.Time
	twins   int // jobs more than there may be, for a moment
	begun   int // steps since a scheduler was last there
}

type slurmJob struct {
	id, host string
	state    string
	call     int
	exclude  []string
	start    int
	since    time.Time // of its state
	life     time.Duration
	came     bool
	leave    bool
	runs     []time.Time // the ends of its tasks
}

func (j *slurmJob) live() bool { return j.state == "PENDING" || j.state == "RUNNING" }

// scheduler is that of the run, with the nodes of its pool.
type scheduler struct {
	Fleet
	job    *slurmJob
	nodes  map[string]*poolNode
	before []core.Status
	stops  bool // its job was cancelled, which it does not know yet
	ended  int  // tasks
}

type poolNode struct {
	Node
	since    time.Time
	released bool
}

func (w *world) chance(percent int) bool { return w.IntN(100) < percent }

// fails reports whether something fails now.
func (w *world) fails(percent int) bool { return !w.calm && w.chance(percent) }

func (w *world) find(id string) *slurmJob {
	i := slices.IndexFunc(w.jobs, func(j *slurmJob) bool { return j.id == id })
	if i < 0 {
		return nil
	}
	return w.jobs[i]
}

func (w *world) live() (n int) {
	for _, j := range w.jobs {
		if j.live() {
			n++
		}
	}
	return n
}

func (w *world) become(j *slurmJob, state string) { j.state, j.since = state, w.now }

// stop ends a job, and what runs in it: the tasks wait again.
func (w *world) stop(j *slurmJob, state string) {
	w.tasks += len(j.runs)
	j.runs, j.came = nil, false
	if w.become(j, state); w.own != nil && w.own.job == j {
		w.own = nil
	}
}

// slurm has jobs start and end. The broken host is always the free one.
func (w *world) slurm() {
	for _, j := range w.jobs {
		age := w.now.Sub(j.since)
		switch j.state {
		case "PENDING":
			if !w.calm && w.chance(60) {
				continue
			}
			free := slices.DeleteFunc(slices.Clone(w.hosts), func(h string) bool {
				return slices.Contains(j.exclude, h) || slices.ContainsFunc(w.jobs, func(o *slurmJob) bool { return o.state == "RUNNING" && o.host == h })
			})
			slices.SortStableFunc(free, func(a, b string) int { return map[bool]int{true: -1, false: 1}[w.sick[a]] })
			if len(free) > 0 {
				j.host = free[0]
				w.become(j, "RUNNING")
			}
		case "RUNNING":
			if age >= j.life+2*time.Second { // Slurm is late
				w.stop(j, "COMPLETING")
			} else if age >= j.life && j.came { // its pilot is not
				w.stop(j, "RUNNING")
				j.since = j.since.Add(-j.life)
				delete(w.files, j.id+"@"+j.host)
			}
		case "REQUEUEING":
			if age > 2*time.Second {
				j.start++
				w.become(j, "PENDING")
			}
		case "COMPLETING":
			if age > 2*time.Second {
				w.become(j, "TIMEOUT")
			}
		case "CANCELLING":
			if age > 2*time.Second {
				w.become(j, "CANCELLED")
			}
		}
	}
	// What has ended is forgotten after a while.
	w.jobs = slices.DeleteFunc(w.jobs, func(j *slurmJob) bool {
		return !j.live() && !strings.HasSuffix(j.state, "ING") && w.now.Sub(j.since) > 20*time.Second
	})
}

// listing is what Slurm shows to this call.
func (w *world) listing() (l Listing) {
	for _, j := range w.jobs {
		job := Job{ID: j.id, State: j.state}
		if j.state == "CANCELLING" || j.state == "REQUEUEING" {
			job.State = "COMPLETING"
		}
		l.add(job, j.call == w.call)
	}
	return l
}

// pilots announce their nodes, and end.
func (w *world) pilots() {
	for _, j := range w.jobs {
		name := j.id + "@" + j.host
		switch {
		case j.state != "RUNNING":
		case w.over, j.leave && (w.own == nil || w.own.job != j):
			if w.stop(j, "COMPLETED"); !w.fails(5) {
				delete(w.files, name)
			}
		case !j.came && w.now.Sub(j.since) > 0 && w.now.Sub(j.since) < j.life && w.chance(50):
			j.came, j.leave = true, false
			w.files[name] = Node{
				Job: j.id, Start: j.start, First: true, Name: j.host, Nodes: 1, Socket: "s", End: j.since.Add(j.life), Life: j.life.Seconds(),
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.files)) {
		if j := w.find(w.files[name].Job); j == nil && w.chance(10) { // of a run whose files were removed
			delete(w.files, name)
		}
	}
	if w.own != nil {
		w.begun = 0
		return
	}
	if w.begun++; w.begun < 2 || w.over {
		return
	}
	for _, j := range w.jobs {
		if j.came && !j.leave && j.state == "RUNNING" {
			w.own = &scheduler{Fleet: Fleet{Own: j.id, Run: "run"}, job: j, nodes: map[string]*poolNode{}}
			w.acts++
			return
		}
	}
	if w.live() == 0 { // its user repeats the call
		w.call++
		w.submit()
	}
}

func (w *world) submit() string {
	id := fmt.Sprint(100 + w.acts)
	w.acts++
	var exclude []string
	for _, x := range w.conf.Excludes(w.now) {
		exclude = append(exclude, x.Host)
	}
	w.jobs = append(w.jobs, &slurmJob{id: id, state: "PENDING", call: w.call, since: w.now, life: 40 * time.Second, exclude: exclude})
	if n := w.live(); n > w.conf.MaxJobs+1+w.twins {
		w.Fatalf("%d jobs wait or run, with at most %d", n, w.conf.MaxJobs)
	}
	return id
}

// state is how a node stands in the pool.
func (w *world) state(n *poolNode) string {
	j := w.find(n.Job)
	alive := j != nil && j.state == "RUNNING" && j.came && j.start == n.Start
	switch age := w.now.Sub(n.since); {
	case n.released && (!alive || len(j.runs) == 0):
		return "released"
	case !alive && age < 3*time.Second, alive && age < time.Second:
		return "connecting"
	case !alive:
		return "lost"
	case w.sick[n.Name]:
		return "quarantined"
	case n.released:
		return "closed"
	}
	return "up"
}

// run has tasks start and end, as far as there is a scheduler, and returns how the pool stands.
func (w *world) run() core.Status {
	for _, j := range w.jobs {
		left := slices.DeleteFunc(slices.Clone(j.runs), func(end time.Time) bool { return !end.After(w.now) })
		w.done += len(j.runs) - len(left)
		if w.own.ended += len(j.runs) - len(left); j.leave && len(j.runs) > 0 {
			w.Fatalf("job %s is let go while tasks run there", j.id)
		}
		j.runs = left
	}
	s := core.Status{Phase: core.Running.String(), InputRead: true, Mean: 2}
	for _, name := range slices.Sorted(maps.Keys(w.own.nodes)) {
		n := w.own.nodes[name]
		at := core.NodeStatus{Name: name, State: w.state(n)}
		closes := n.End.Add(-4 * time.Second)
		if j := w.find(n.Job); at.State == "up" {
			for len(j.runs) < 2 && w.tasks > 0 && !w.now.Before(w.blocked) && w.now.Before(closes) {
				w.tasks--
				j.runs = append(j.runs, w.now.Add(time.Duration(1+w.IntN(3))*time.Second))
			}
			at.Running = len(j.runs)
		} else if at.State == "closed" {
			at.Running = len(j.runs)
		} else if at.State == "quarantined" { // what runs there ends
			at.Running, at.Fault = len(j.runs), "its setup failed"
		}
		if w.tasks > 0 {
			at.Closes = &closes
		}
		s.Nodes = append(s.Nodes, at)
	}
	s.Waiting, s.Jobs = w.tasks, float64(w.tasks)/2
	if w.now.Before(w.blocked) {
		s.Depends, s.Jobs = w.tasks, 0
	}
	return s
}

// check compares the states of jobs with those before.
func (w *world) check(what string, before map[string]State) {
	for id, j := range w.own.jobs {
		was, known := before[id]
		if known && was != j.State {
			w.seen[[2]State{was, j.State}] = true
			if j.State != Ends && j.State != Cancelled && !slices.Contains(drawn[was], j.State) && was != Cancelled {
				w.Fatalf("%s: job %s, which %v, %v", what, id, was, j.State)
			}
		}
		before[id] = j.State
	}
}

// schedule has the scheduler look at everything once.
func (w *world) schedule() {
	s, before := w.own, map[string]State{}
	for id, j := range s.jobs {
		before[id] = j.State
	}
	if !w.fails(10) {
		var announced []Node
		for _, name := range slices.Sorted(maps.Keys(w.files)) {
			announced = append(announced, w.files[name])
		}
		w.do(s.Come(announced))
		w.check("come", before)
	}
	s.before = append(s.before, w.run())
	if len(s.before) > 3 {
		s.before = s.before[1:]
	}
	status := s.before[len(s.before)-1]
	if w.fails(20) { // it is taken late
		status = s.before[w.IntN(len(s.before))]
	}
	switch summary := (&core.Summary{HandedOver: true, Exit: core.ExitLeft, Done: int64(s.ended), Elapsed: time.Minute}); {
	case s.stops && w.chance(40):
		summary.Early, summary.Terminated = true, true
		w.end(summary)
		return
	case w.tasks == 0 && !slices.ContainsFunc(w.jobs, func(j *slurmJob) bool { return len(j.runs) > 0 }):
		w.end(&core.Summary{})
		return
	case w.now.Add(2 * time.Second).After(s.job.since.Add(s.job.life)):
		w.end(summary)
		return
	}
	o := s.Stand(w.now, &status, &w.conf)
	w.check("stand", before)
	if w.do(o); !o.Ask {
		return
	}
	if w.lists++; w.fails(20) {
		return
	}
	o = s.Listed(w.now, w.listing(), &w.conf)
	w.check("listed", before)
	w.fill(o.Submit)
	w.check("submitted", before)
	w.do(o)
}

// fill submits jobs, of which Slurm may refuse some, or not say that it has taken them.
func (w *world) fill(n int) {
	for range n {
		switch {
		case w.fails(10):
			return
		case w.fails(10):
			if id := w.submit(); w.chance(50) { // it is found in the list
				w.own.Submitted([]string{id})
				continue
			}
			return
		}
		w.own.Submitted([]string{w.submit()})
	}
}

// do carries out orders, of which some fail.
func (w *world) do(o Orders) {
	s := w.own
	for _, n := range o.Add {
		if at := s.nodes[n.Label()]; at == nil || w.state(at) == "released" {
			s.nodes[n.Label()] = &poolNode{Node: n, since: w.now}
		}
	}
	for _, name := range o.Remove {
		delete(s.nodes, name)
	}
	for _, x := range o.Exclude {
		if !w.fails(30) {
			w.conf.Exclude(x, w.now)
		}
	}
	for _, name := range o.Release {
		if n := s.nodes[name]; n != nil {
			n.released = true
		}
	}
	for _, id := range o.Leave {
		if id == s.Own {
			w.Fatal("the job of the scheduler is let go")
		}
		if j := w.find(id); j != nil && !w.fails(20) {
			j.leave = true
		}
	}
	for _, n := range o.Withdraw {
		if j := w.find(n.Job); j != nil && j.state == "RUNNING" && j.came && j.start == n.Start {
			w.Fatalf("the node of job %s, which runs, is withdrawn", n.Job)
		}
		if !w.fails(20) {
			delete(w.files, n.Job+"@"+n.Name)
		}
	}
}

// end has the scheduler end, and what was decided done.
func (w *world) end(summary *core.Summary) {
	s := w.own
	next, n := s.Next(w.now, summary, &w.conf, nil)
	if next == Unknown {
		l := w.listing()
		next, n = s.Next(w.now, summary, &w.conf, &l)
	}
	switch next {
	case Finished:
		w.over = true
		for _, j := range w.jobs {
			if j.state == "PENDING" {
				w.stop(j, "CANCELLED")
			}
		}
	case Followed:
		// Of jobs that end at the same time, none can leave it to another one to submit the next.
		for _, j := range w.jobs {
			if end := j.since.Add(j.life); j != s.job && j.state == "RUNNING" && (j.start > 0 || !end.After(s.job.since.Add(s.job.life+launch))) {
				w.twins = 1
			}
		}
		w.fill(n)
		w.twins = 0
	}
	if summary.Terminated && next != Continued {
		w.Fatalf("its user has cancelled the jobs of a scheduler: %v, %d", next, n)
	}
	if w.own = nil; summary.HandedOver {
		w.stop(s.job, "COMPLETING")
		if w.fails(30) {
			return
		}
		delete(w.files, s.job.id+"@"+s.job.host)
	}
}

// strike has something go wrong.
func (w *world) strike() {
	if len(w.jobs) == 0 || !w.fails(8) {
		return
	}
	w.acts++
	j := w.jobs[w.IntN(len(w.jobs))]
	if !j.live() {
		return
	}
	own := w.own != nil && w.own.job == j
	switch w.IntN(8) {
	case 0, 1: // a job is cancelled
		if own {
			w.own.stops = true
		} else {
			w.stop(j, map[string]string{"PENDING": "CANCELLED", "RUNNING": "CANCELLING"}[j.state])
		}
	case 2: // all are, that of the scheduler at last
		for _, o := range w.jobs {
			if o.live() && (w.own == nil || w.own.job != o) {
				w.stop(o, map[string]string{"PENDING": "CANCELLED", "RUNNING": "CANCELLING"}[o.state])
			}
		}
		if w.own != nil {
			w.own.stops = true
		}
	case 3: // its node fails
		if j.state == "RUNNING" {
			w.stop(j, "NODE_FAIL")
		}
	case 4: // it is requeued
		if j.state == "RUNNING" {
			if w.stop(j, []string{"PENDING", "REQUEUEING"}[w.IntN(2)]); j.state == "PENDING" {
				j.start++
			}
			if w.chance(50) { // its pilot has seen it
				delete(w.files, j.id+"@"+j.host)
			}
		}
	case 5: // the scheduler is killed
		w.own = nil
	case 6: // tasks wait for others for a while
		w.blocked = w.now.Add(15 * time.Second)
	case 7: // another host is broken
		w.sick = map[string]bool{w.hosts[w.IntN(2)]: true} // else no host may be left
	}
}

// However jobs, hosts, answers and orders fail, a run has no more jobs than it may have, no task is cut off by its
// own pool, jobs go through the states that are drawn, and all tasks end when nothing fails any more.
func TestFleetInAWorldThatFails(t *testing.T) {
	seen := map[[2]State]bool{}
	for seed := range uint64(400) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := &world{
				T: t, Rand: rand.New(rand.NewPCG(seed, 35)), now: noon, files: map[string]Node{}, seen: seen,
				hosts: []string{"n1", "n2", "n3", "n4"}, sick: map[string]bool{"n1": true}, tasks: 150,
			}
			w.conf = Pool{MaxJobs: 1 + w.IntN(3), Linger: 5}
			w.submit()
			const storm, most = 150, 1500
			for step := range most {
				w.now = w.now.Add(time.Second)
				if step == storm {
					w.calm, w.sick = true, map[string]bool{"n1": true}
					w.acts += 10
				}
				w.slurm()
				w.pilots()
				w.strike()
				if w.own != nil {
					w.schedule()
				}
				if w.over && w.live() == 0 {
					break
				}
			}
			if !w.over || w.done != 150 || w.live() > 0 {
				t.Fatalf("over: %v, %d of 150 tasks have ended, %d jobs are left", w.over, w.done, w.live())
			}
			if limit := int(w.now.Sub(noon).Seconds())/10 + 10*w.acts; w.lists > limit {
				t.Errorf("Slurm was asked %d times in %v, with %d changes", w.lists, w.now.Sub(noon), w.acts)
			}
		})
	}
	for from, all := range drawn {
		for _, to := range all {
			if step := [2]State{from, to}; !seen[step] && !slices.Contains(rare, step) {
				t.Errorf("no job that %v has come to be one that %v", from, to)
			}
		}
	}
}
