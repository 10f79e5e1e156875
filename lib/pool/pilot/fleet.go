package pilot

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Fleet decides on the jobs of a pool, for the scheduler that has the run. It has no effects: what is announced, how
// the pool stands, what Slurm shows and the time go in, [Orders] come out. Orders may be lost, or carried out late: what
// still holds is ordered again.
//
//	Come    the nodes that pilots have announced  ─► nodes to add and remove
//	Stand   how the pool stands                   ─► jobs that leave, hosts to exclude, whether to ask Slurm
//	Listed  what Slurm shows                      ─► how many jobs to submit
//	Next    the scheduler ends                    ─► whether another job continues, and which
//
// A job has one state:
//
//	asked ──► waits ──► starts ──► serves ◄───────────► idle
//	            ▲                   ▲ │                   │ for long enough, or no waiting task would end there
//	            │                   │ │ useless           ▼
//	            │         all nodes │ └────────────────► leaves
//	            │   are quarantined ▼                     │ ▲
//	            │                 unfit ──────────────────┼─┘ no task runs there
//	            │ requeued                                ▼
//	            └─────────────────────────────────────── left, from any of the four: all its pilots have ended
//
// Some of the steps may not be seen: a pilot may come before Slurm was asked. A job that is requeued begins again, also
// where it was to leave. In any state Slurm may show that the job ends, which it does not explain yet, or was cancelled.
// A job that Slurm does not show any more has gone, when no node of it is announced; that one was cancelled stays known.
type Fleet struct {
	Own   string // the job of the scheduler, which does not leave; "": it is in none
	Run   string // the run directory
	Serve bool   // tasks come from programs: the pool stays open

	jobs    map[string]*job
	status  *core.Status
	widest  int           // nodes of a job, the most that were seen
	life    float64       // seconds of a job; 0: not known, or no end
	waited  time.Duration // of its jobs in the queue, the longest
	counted time.Time     // when Slurm was asked
	pause   time.Duration // until it is asked again, if there seem to be fewer jobs than the backlog justifies
	emptied bool          // the jobs that waited when nothing more was to be started are cancelled
	failed  int           // jobs in a row that have ended and never came
	unfit   int           // jobs all of whose nodes were quarantined
}

// State is what is known of a job.
type State int

// The states of a job.
const (
	Asked     State = iota // submitted here: Slurm has not shown it yet
	Waits                  // in the queue
	Starts                 // it runs, and none of its pilots has come; or all had ended before they were looked for
	Serves                 // its nodes have tasks, or may get some
	Idle                   // its nodes have no tasks, and none waits for them
	Unfit                  // all its nodes were quarantined
	Leaves                 // its nodes get no more tasks, and its pilots end when the last one has
	Left                   // all its pilots have ended, or Slurm shows it no more
	Ends                   // Slurm ends it
	Cancelled              // its user, or an administrator, has cancelled it: it keeps its place
)

func (s State) String() string {
	return [...]string{"asked", "waits", "starts", "serves", "idle", "unfit", "leaves", "left", "ends", "cancelled"}[s]
}

// job is a job of the pool.
type job struct {
	State
	nodes map[string]Node // that are announced, by their names in the pool
	start int             // see Node.Start
	since time.Time       // when it became idle
	fresh bool            // submitted here, and no pilot of it has come
}

// end returns when a job ends, zero if it is not known or never, and how many seconds it had.
func (j *job) end() (end time.Time, life float64) {
	for _, n := range j.nodes {
		if life = max(life, n.Life); n.End.After(end) {
			end = n.End
		}
	}
	return end, life
}

// Orders are what is to be done, in this order.
type Orders struct {
	Add      []Node     // nodes of the pool, or what has changed of them
	Remove   []string   // nodes, at once
	Empty    bool       // cancel the jobs that wait
	Exclude  []Excluded // hosts, from the next jobs
	Release  []string   // nodes, once what runs there has ended
	Leave    []string   // jobs whose pilots are to end
	Ask      bool       // Slurm, for its list of jobs: see Listed
	HandOver bool       // the job of the scheduler has nothing to do: another one takes over, if one is there

	Withdraw []Node // the announcements of nodes whose jobs are gone
	Submit   int    // jobs
	Say      []string
}

// Slurm is asked, which costs requests to slurmctld, when there seem to be too few jobs for the waiting tasks: after a
// second, then at growing intervals up to often. If there seem to be enough, it is asked now and then.
const (
	often      = 15 * time.Second
	nowAndThen = 2 * time.Minute
)

// mostFailures is how many jobs may fail for the next to be submitted.
const mostFailures = 5

// get returns a job, which may be new.
func (f *Fleet) get(id string, state State) *job {
	if f.jobs[id] == nil {
		if f.jobs == nil {
			f.jobs = map[string]*job{}
		}
		f.jobs[id] = &job{State: state, nodes: map[string]Node{}}
	}
	return f.jobs[id]
}

// Come takes the nodes that are announced now.
func (f *Fleet) Come(announced []Node) (o Orders) {
	seen := map[string]bool{}
	for _, n := range announced {
		name := n.Label()
		seen[name] = true
		j := f.get(n.Job, Starts)
		before, known := j.nodes[name]
		j.nodes[name] = n
		if known && before.End.Equal(n.End) && before.Socket == n.Socket {
			continue
		}
		f.life, f.widest = max(f.life, n.Life), max(f.widest, n.Nodes)
		o.Add = append(o.Add, n)
		if known {
			continue
		}
		if j.State < Serves || j.State >= Left || n.Start > j.start {
			j.State = Serves
		}
		if j.start = max(j.start, n.Start); j.fresh {
			j.fresh, f.failed = false, 0
		}
	}
	for _, id := range f.ids() {
		j := f.jobs[id]
		had := len(j.nodes)
		for _, name := range slices.Sorted(maps.Keys(j.nodes)) {
			if !seen[name] {
				o.Remove = append(o.Remove, name)
				delete(j.nodes, name)
			}
		}
		if had > 0 && len(j.nodes) == 0 && j.State < Left {
			j.State = Left
		}
	}
	return o
}

func (f *Fleet) ids() []string { return slices.Sorted(maps.Keys(f.jobs)) }

// in counts the jobs in a state.
func (f *Fleet) in(states ...State) (n int) {
	for _, j := range f.jobs {
		if slices.Contains(states, j.State) {
			n++
		}
	}
	return n
}

// Stand takes how the pool stands.
func (f *Fleet) Stand(now time.Time, s *core.Status, p *Pool) (o Orders) {
	f.status = s
	if s.HandingOver {
		return o // its jobs, also those that wait, are the next scheduler's
	}
	open := s.Phase == core.Running.String()
	if !open && !f.emptied {
		f.emptied, o.Empty = true, true
	}
	o.Exclude = f.faults(now, p)
	for _, id := range f.ids() {
		f.look(now, id, p, &o)
	}
	if own := f.jobs[f.Own]; f.Serve && open && own != nil && own.State == Idle && now.Sub(own.since) >= linger(p) {
		o.HandOver = true
		return o
	}
	if open && (s.InputRead || f.Serve) && f.due(now, p) {
		f.counted, o.Ask = now, true
	}
	return o
}

// faults are the hosts that are to be kept out of the next jobs: a broken one is always free.
func (f *Fleet) faults(now time.Time, p *Pool) (out []Excluded) {
	known := p.Excludes(now)
	for _, s := range f.status.Nodes {
		n, ok := f.node(s.Name)
		if ok && s.Fault != "" && !slices.ContainsFunc(known, func(x Excluded) bool { return x.Host == n.Name }) {
			x := Excluded{n.Name, s.Fault, now.Add(Exclusion)}
			known, out = append(known, x), append(out, x)
		}
	}
	return out
}

func (f *Fleet) node(name string) (Node, bool) {
	for _, j := range f.jobs {
		if n, ok := j.nodes[name]; ok {
			return n, true
		}
	}
	return Node{}, false
}

// look gives a job that has nodes its state. It leaves if it has had nothing to do for long enough, or gets nothing:
// its successor has to wait for its end.
func (f *Fleet) look(now time.Time, id string, p *Pool, o *Orders) {
	j := f.jobs[id]
	if j.State < Serves || j.State > Leaves {
		return
	}
	v, was := f.view(j, now), j.State
	if j.State == Unfit && !v.useless() {
		j.State = Serves
	} else if v.quarantined && v.useless() && j.State < Unfit {
		j.State = Unfit
		if f.unfit++; f.unfit == mostFailures+1 {
			o.Say = append(o.Say, fmt.Sprintf("the nodes of %d jobs were quarantined: fewer jobs are submitted", f.unfit))
		}
	}
	linger := linger(p)
	if f.status.Phase != core.Running.String() { // nothing more starts
		linger = 0
	}
	switch {
	case j.State == Leaves:
	case id == f.Own && !v.busy:
		if was == Serves {
			j.State, j.since = Idle, now
		}
		return
	case v.busy && j.State == Idle:
		j.State = Serves
	case v.busy:
	case v.useless(), v.late && !v.away:
		j.State = Leaves
	default:
		if j.State == Serves {
			j.State, j.since = Idle, now
		}
		if now.Sub(j.since) >= linger {
			j.State = Leaves
		}
	}
	if j.State == Leaves && v.free {
		o.Leave = append(o.Leave, id)
	} else if j.State == Leaves { // a task may have started meanwhile
		o.Release = append(o.Release, slices.Sorted(maps.Keys(j.nodes))...)
	}
}

func linger(p *Pool) time.Duration { return time.Duration(p.Linger * float64(time.Second)) }

// view is how the nodes of a job stand.
type view struct {
	busy        bool // one has tasks, is about to be reached, or gets tasks that wait
	away        bool // one is not reached: tasks may run there
	reached     bool // one is reached, or not known to the pool yet
	tried       bool // one was reached, or given up
	serving     bool // one gets tasks, now or when it is reached
	coming      bool // one has not come yet
	quarantined bool // one is
	late        bool // waiting tasks can soon no longer start at any, and what is left of the job's time is short
	free        bool // all have left the pool
}

// lastPart is the part of its time at the end of a job in which another may take its place.
const lastPart = 0.25

// launch is what a job takes from its start until its first task starts.
const launch = 2 * time.Second

// view looks at the nodes of a job. A job is late when another one should be submitted in its place, so that it waits
// in the queue, as long as others did, and starts while the last tasks of this one end.
func (f *Fleet) view(j *job, now time.Time) (v view) {
	s := f.status
	waits := s.Waiting > s.Depends
	if s.Phase != core.Running.String() {
		waits = s.Orphaned > 0
	}
	closed := func(n *core.NodeStatus, after time.Duration) bool {
		return n.Closes != nil && now.Add(after).After(*n.Closes)
	}
	there, all := 0, 1
	v.late, v.free, v.reached = true, true, true
	for i := range s.Nodes {
		at := &s.Nodes[i]
		n, ok := j.nodes[at.Name]
		if !ok {
			continue
		}
		serves := at.State != "released" && at.State != "quarantined"
		reached := at.State != "lost" && at.State != "unreachable"
		busy := at.Running+at.Queued > 0 || at.State == "connecting" || waits && serves && !closed(at, 0)
		v.busy = v.busy || busy
		v.away = v.away || !busy && !reached
		v.serving = v.serving || serves
		v.quarantined = v.quarantined || at.State == "quarantined"
		v.free = v.free && at.State == "released"
		v.late = v.late && closed(at, f.waited+launch) && n.End.Sub(now).Seconds() <= n.Life*lastPart
		v.tried = v.tried || at.State != "connecting"
		v.reached = reached || there > 0 && v.reached
		there, all = there+1, max(all, n.Nodes)
	}
	v.coming = there < all
	v.late, v.free = v.late && there > 0, v.free && there == len(j.nodes)
	v.reached = v.reached || there < len(j.nodes)
	return v
}

// useless reports whether a job has no node that gets tasks, and none is to come.
func (v view) useless() bool { return !v.serving && !v.coming }

// due reports whether Slurm is to be asked.
func (f *Fleet) due(now time.Time, p *Pool) bool {
	if f.counted.IsZero() {
		return true
	}
	since := now.Sub(f.counted).Abs()
	present, lasting := 0, 0
	for _, j := range f.jobs {
		v := f.view(j, now)
		if len(j.nodes) > 0 && v.reached || len(j.nodes) == 0 && (j.State == Asked || j.State == Waits) {
			if present++; f.lasts(j, v) {
				lasting++
			}
		}
	}
	if f.missing(now, p, Places{Present: present, Lasting: lasting, Kept: f.in(Cancelled)}) <= 0 {
		f.pause = time.Second
		return since >= nowAndThen
	}
	f.pause = max(f.pause, time.Second)
	if since < f.pause {
		return false
	}
	f.pause = min(2*f.pause, often)
	return true
}

// lasts reports whether a job goes on to give its nodes.
func (f *Fleet) lasts(j *job, v view) bool { return j.State != Left && !v.useless() && !v.late }

// missing is how many more jobs the waiting tasks justify beside those. Jobs that end soon do not count
// for that, but they do for the limit of the pool. One job more than that is there only where the pool
// would stop, as nothing submits the next job when the last one has ended, or where the job of the
// scheduler, which does not end for that, is useless. Where one job after the other is unfit, another one would
// hardly be better. A scheduler that is in no job is ended itself by who wants no more of them: it keeps no places.
func (f *Fleet) missing(now time.Time, p *Pool, at Places) int {
	at.Most = p.MaxJobs
	at.Wanted = min(f.wanted(now), max(0, p.MaxJobs-max(0, f.unfit-mostFailures)))
	if p.Here {
		at.Kept = 0
	}
	if own := f.jobs[f.Own]; own != nil && len(own.nodes) > 0 && f.view(own, now).useless() {
		at.Most++
	} else {
		at.Last = at.Lasting == 0 && !p.Here
	}
	return at.Missing()
}

// wanted is how many jobs the backlog justifies. Tasks that wait for others need none yet, but one job
// must be there for what they wait for.
func (f *Fleet) wanted(now time.Time) int {
	s, running := f.status, 0
	for _, j := range f.jobs {
		if v := f.view(j, now); v.tried && f.lasts(j, v) {
			running++
		}
	}
	return max(min(1, s.Waiting), Wanted(Backlog{
		Waiting: s.Waiting - s.Depends, Jobs: s.Jobs, Running: running,
		Mean: s.Mean, Life: f.life, Width: s.Width, Nodes: f.widest,
	}))
}

// Listed takes what Slurm shows, after the nodes that were announced before, and decides how many jobs are to be
// submitted.
func (f *Fleet) Listed(now time.Time, l Listing, p *Pool) (o Orders) {
	if f.status == nil || f.status.Phase != core.Running.String() {
		return o
	}
	f.take(l, &o)
	if f.failed >= mostFailures {
		return o
	}
	lasting := 0
	for _, have := range l.Have {
		if j := f.jobs[have.ID]; f.lasts(j, f.view(j, now)) {
			lasting++
		}
	}
	kept := f.in(Cancelled, Ends)
	o.Submit = max(0, f.missing(now, p, Places{Present: len(l.Have), Lasting: lasting, Kept: kept}))
	return o
}

// take gives each job the state that Slurm shows.
func (f *Fleet) take(l Listing, o *Orders) {
	shown := map[string]bool{}
	for _, have := range l.Have {
		shown[have.ID] = true
		runs := slurm.Runs(have.State)
		j := f.get(have.ID, Waits)
		switch {
		case len(j.nodes) > 0 && j.State >= Left: // of what it was taken for, nothing is true
			j.State = Serves
		case len(j.nodes) > 0, runs && j.State == Left:
		case runs:
			j.State = Starts
		default:
			j.State = Waits
		}
		f.waited = max(f.waited, have.Waited)
	}
	for _, id := range l.Ending {
		shown[id] = true
		f.get(id, Ends).State = Ends
	}
	for _, id := range l.Cancelled {
		shown[id] = true
		f.get(id, Cancelled).State = Cancelled
		f.jobs[id].fresh = false // it was not at fault
	}
	for _, id := range f.ids() {
		j := f.jobs[id]
		if !shown[id] && j.State != Cancelled {
			f.gone(id, j, o)
		}
		if id != f.Own && j.State >= Left {
			for _, name := range slices.Sorted(maps.Keys(j.nodes)) {
				o.Withdraw = append(o.Withdraw, j.nodes[name])
			}
		}
	}
}

// gone is called for a job that Slurm does not show. That of the scheduler runs, as its scheduler does.
func (f *Fleet) gone(id string, j *job, o *Orders) {
	if id == f.Own {
		return
	}
	if j.fresh {
		j.fresh = false
		if f.failed++; f.failed == mostFailures {
			o.Say = append(o.Say, fmt.Sprintf("the last %d jobs ended without a message, see %s: no more jobs are submitted",
				f.failed, path(f.Run, id+".log")))
		}
	}
	if j.State = Left; len(j.nodes) == 0 {
		delete(f.jobs, id)
	}
}

// Submitted takes the jobs that were submitted as Listed has ordered.
func (f *Fleet) Submitted(ids []string) {
	for _, id := range ids {
		f.get(id, Asked).fresh = true
	}
}

// Takeover is how much longer than that of a scheduler a job must last to continue for it.
const Takeover = 15 * time.Second

// Succession is how a run continues whose scheduler ends.
type Succession int

const (
	// Unknown: Slurm is to be asked.
	Unknown Succession = iota
	// Continued: another job goes on, or nobody wants one.
	Continued
	// Finished: the pilots are to end, and no job is to wait.
	Finished
	// Stalled: no task has ended in the job, and the next one would hardly do more.
	Stalled
	// Rests: nothing is to be done in a pool that stays open, and no job is to wait.
	Rests
	// Followed: by other jobs, or, where a limit of Slurm allows none, by this one again.
	Followed
)

// Next decides on what follows a scheduler that ends, and how many jobs are to be submitted for that. The list is nil
// as long as Slurm was not asked.
func (f *Fleet) Next(now time.Time, s *core.Summary, p *Pool, l *Listing) (Succession, int) {
	switch {
	case !s.HandedOver && (s.Exit <= 2 || s.Exit == core.ExitLeft || p.Here):
		return Finished, 0
	case !s.HandedOver, s.Terminated && !s.Closed: // its user has cancelled the job, perhaps with all others
		return Continued, 0
	case l == nil:
		return Unknown, 0
	}
	longer := Takeover
	if len(l.Have) > p.MaxJobs { // as its own job was useless: there is to be one more, never two
		longer = launch
	}
	life, lasting := f.lasting(now, l.Have, s.Early, longer)
	switch {
	case lasting:
		return Continued, 0
	case f.Serve && f.status != nil && f.status.Waiting+f.status.Running == 0:
		return Rests, 0
	case s.Closed: // results of what still runs are kept for a run that resumes
		return Finished, 0
	// scancel signals the pilot, which signals the scheduler, as other signals at the pilot do. But
	// the job does not run any more then, and perhaps all others were cancelled with it.
	case s.Early && !slices.ContainsFunc(l.Have, func(j Job) bool { return j.ID == f.Own }):
		return Continued, 0
	case s.Done+s.Failed+s.Cancelled == 0 && s.Elapsed >= life/2: // less than that proves nothing
		return Stalled, 0
	case f.status == nil:
		return Followed, 1
	}
	f.take(*l, &Orders{})
	return Followed, max(1, Places{Most: p.MaxJobs, Wanted: f.wanted(now), Present: len(l.Have), Kept: f.in(Cancelled, Ends)}.Missing())
}

// Continues reports whether a job whose nodes are announced can continue when the own one ends.
func (f *Fleet) Continues(now time.Time, early bool) bool {
	var have []Job
	for _, id := range f.ids() {
		if len(f.jobs[id].nodes) > 0 {
			have = append(have, Job{ID: id, State: "RUNNING"})
		}
	}
	_, found := f.lasting(now, have, early, Takeover)
	return found
}

// lasting reports whether a job is there, or will be, that can continue when the own one ends, as it lasts so much longer,
// and how long the own one is in all. Jobs that began together end together, unless this one ends early.
func (f *Fleet) lasting(now time.Time, have []Job, early bool, longer time.Duration) (life time.Duration, found bool) {
	var own time.Time
	if j := f.jobs[f.Own]; j != nil {
		end, seconds := j.end()
		own, life = end, time.Duration(seconds*float64(time.Second))
	}
	if early {
		own = now
	}
	for _, h := range have {
		if !slurm.Runs(h.State) { // the own one was requeued
			return life, true
		}
		if h.ID == f.Own {
			continue
		}
		var end time.Time
		if j := f.jobs[h.ID]; j != nil {
			end, _ = j.end()
		}
		if end.IsZero() || end.After(own.Add(longer)) {
			return life, true
		}
	}
	return life, false
}
