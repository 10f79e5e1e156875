package jobpool

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// elastic gives a scheduler the nodes of pilots, and submits more of these, as its backlog
// justifies.
type elastic struct {
	run     string
	runner  *runner
	jobs    *pilot.Jobs
	own     string // the job of this scheduler
	closed  *core.Closing
	changes chan core.Event
	states  chan *scheduler.Status
	done    chan struct{} // closed when watch has ended

	nodes   map[string]pilot.Node // by their names in the pool
	widest  int                   // nodes of a job, the most that were seen
	life    float64               // seconds of a job; 0: not known, or no end
	waited  time.Duration         // of its jobs in the queue, the longest
	status  *scheduler.Status
	idle    map[string]time.Time // jobs, since when
	counted time.Time            // when the jobs were
	pause   time.Duration        // until they are counted again, if there seem to be fewer than the backlog justifies
	listed  map[string]bool      // jobs that were counted and have not gone since
	left    map[string]bool      // jobs whose pilots have ended, though Slurm may not have ended them yet
	unseen  map[string]bool      // jobs that ran when they were counted, and whose pilots had not come or had ended
	pending map[string]bool      // jobs that were submitted here and have not come
	// cancelled are jobs of this call that were cancelled, also when Slurm has forgotten them.
	cancelled map[string]bool
	emptied   bool            // the jobs that were pending when nothing more was to be started are cancelled
	refused   string          // why no jobs are submitted for now, as was said
	failed    int             // jobs in a row that have ended and never came
	unfit     map[string]bool // jobs all of whose nodes were quarantined
	requeues  bool            // the own job is to be requeued, as was said
}

func newElastic(run string, r *runner) (*elastic, error) {
	pool, err := pilot.Load(run)
	if err != nil {
		return nil, err
	}
	var closed *core.Closing
	if found, err := pilot.Closed(run, &closed); err != nil {
		return nil, err
	} else if found {
		r.console.message("%s: nothing new is started", closed.Why)
	}
	return &elastic{
		run: run, runner: r, closed: closed, jobs: jobsOf(run, pool), own: os.Getenv("SLURM_JOB_ID"),
		changes: make(chan core.Event), states: make(chan *scheduler.Status, 1), done: make(chan struct{}),
		nodes: map[string]pilot.Node{}, idle: map[string]time.Time{}, listed: map[string]bool{}, pending: map[string]bool{},
		left: map[string]bool{}, unseen: map[string]bool{}, unfit: map[string]bool{}, cancelled: map[string]bool{}, pause: time.Second,
	}, nil
}

// observe takes how things stand, from the scheduler. While watch waits for Slurm, only the latest
// status is kept.
func (e *elastic) observe(s *scheduler.Status) {
	select {
	case <-e.states:
	default:
	}
	e.states <- s
}

// retries is called when the journal has that failed tasks run again.
func (e *elastic) retries() {
	if err := pilot.TakeRetry(e.run); err != nil {
		e.runner.console.message("failed tasks may run again more than once: %w", err)
	}
}

// closeRun is called when nothing more is to be started.
func (e *elastic) closeRun(c core.Closing) {
	if err := pilot.SetClosed(e.run, c); err != nil {
		e.runner.console.message("if another scheduler takes over, it may start tasks again: %w", err)
	}
}

// Jobs are counted, which costs requests to slurmctld, when there seem to be too few for the waiting
// tasks: after a second, then at growing intervals up to count. If there seem to be enough, they are
// counted every recount.
const (
	count   = 15 * time.Second
	recount = 2 * time.Minute
)

// watch follows pilots and backlog until the context ends.
func (e *elastic) watch(ctx context.Context) {
	defer close(e.done)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		e.follow(ctx)
		select {
		case <-ctx.Done():
			return
		case e.status = <-e.states:
			before := e.jobs.Pool.MaxJobs
			if e.jobs.Reload(); e.jobs.Pool.MaxJobs != before {
				e.send(ctx, core.JobLimit{Jobs: e.jobs.Pool.MaxJobs})
			}
			if e.status.HandingOver {
				continue // its jobs, also those that are pending, are the next scheduler's
			}
			if e.status.Phase != core.Running.String() && !e.emptied {
				e.emptied = true
				e.cancelPending(ctx)
			}
			e.exclude(ctx)
			e.lingered(ctx)
			if now := clock.Now(); (e.status.InputRead || e.runner.policy.Serve) && e.due(now) {
				e.counted = now
				e.fill(ctx)
			}
		case <-ticker.C:
		}
	}
}

// exclude keeps hosts that are at fault out of the next jobs: a broken one is always free.
func (e *elastic) exclude(ctx context.Context) {
	now := clock.Now()
	for _, s := range e.status.Nodes {
		n, ok := e.nodes[s.Name]
		if !ok || s.Fault == "" || slices.ContainsFunc(e.jobs.Pool.Excludes(now), func(x pilot.Excluded) bool { return x.Host == n.Name }) {
			continue
		}
		if err := e.jobs.Change(ctx, func(p *pilot.Pool) { p.Exclude(n.Name, s.Fault, now) }); err != nil {
			continue // with the next status
		}
		e.runner.console.message("host %s is excluded from the next jobs for %s: %s", n.Name, unit.FormatDuration(pilot.Exclusion), s.Fault)
	}
}

func (e *elastic) send(ctx context.Context, ev core.Event) {
	select {
	case e.changes <- ev:
	case <-ctx.Done():
	}
}

// follow adds the nodes of pilots that have come, and takes away those that have gone.
func (e *elastic) follow(ctx context.Context) {
	announced, err := pilot.Nodes(e.run)
	if err != nil {
		return
	}
	seen := map[string]bool{}
	var specs []scheduler.NodeSpec
	for _, n := range announced {
		name := n.Label()
		seen[name] = true
		if before, known := e.nodes[name]; known && before.End.Equal(n.End) && before.Socket == n.Socket {
			continue
		}
		e.nodes[name] = n
		delete(e.left, n.Job)
		if e.pending[n.Job] {
			delete(e.pending, n.Job)
			e.failed = 0
		}
		e.life, e.widest = max(e.life, n.Life), max(e.widest, n.Nodes)
		specs = append(specs, scheduler.NodeSpec{
			Name: name, Host: n.Name, Job: n.Job, Socket: n.Socket, JobNodes: n.Nodes, Own: n.Job == e.own,
			Most: n.CPUs, Mem: n.Mem, MemPerGPU: n.MemPerGPU, Group: -1,
			End: n.End, Life: time.Duration(n.Life * float64(time.Second)),
			Slots: e.runner.place.fixed, Jobs: e.runner.place.jobs,
		})
	}
	if len(specs) > 0 {
		e.send(ctx, core.AddNodes{Specs: specs})
	}
	var gone []string
	for name, n := range e.nodes {
		if !seen[name] {
			gone = append(gone, name)
			delete(e.listed, n.Job)
			delete(e.nodes, name)
			e.left[n.Job] = true
		}
	}
	for _, n := range e.nodes {
		delete(e.left, n.Job)
	}
	if len(gone) > 0 {
		e.send(ctx, core.RemoveNodes{Names: gone, Now: true})
	}
}

// serves reports whether a node gets tasks, now or when it is reached.
func serves(n *core.NodeStatus) bool { return n.State != "released" && n.State != "quarantined" }

// reached reports whether the scheduler has a connection to a node, as far as is known.
func reached(n *core.NodeStatus) bool { return n.State != "lost" && n.State != "unreachable" }

// useless reports whether no node of a job serves: all were removed or quarantined. Unfit: not all of
// them were removed.
func (e *elastic) useless(job string) (useless, unfit bool) {
	there, all := 0, 1
	for _, s := range e.status.Nodes {
		n, ok := e.nodes[s.Name]
		if !ok || n.Job != job {
			continue
		}
		if serves(&s) {
			return false, false
		}
		unfit = unfit || s.State == "quarantined"
		there++
		all = max(all, n.Nodes)
	}
	return there >= all, unfit && there >= all
}

// most is how many jobs there may be that do not end soon. A job that is useless is replaced. Where one
// after the other is unfit, another one would hardly be better.
func (e *elastic) most() int {
	return max(0, e.jobs.Pool.MaxJobs-max(0, len(e.unfit)-mostFailures))
}

// judge notes whether a job is unfit.
func (e *elastic) judge(job string, unfit bool) {
	if !unfit || e.unfit[job] {
		return
	}
	if e.unfit[job] = true; len(e.unfit) == mostFailures+1 {
		e.runner.console.message("the nodes of %d jobs were quarantined: fewer jobs are submitted", len(e.unfit))
	}
}

// lingered lets jobs end that have had nothing to do for long enough, or get nothing: their successors
// have to wait for their ends.
func (e *elastic) lingered(ctx context.Context) {
	busy, away := map[string]bool{}, map[string]bool{}
	linger := e.jobs.Pool.Linger
	waits := e.status.Waiting > e.status.Depends
	if e.status.Phase != core.Running.String() { // nothing more starts
		linger, waits = 0, e.status.Orphaned > 0
	}
	for _, n := range e.status.Nodes {
		waits := waits && serves(&n) && !closed(&n, 0)
		if p, ok := e.nodes[n.Name]; ok && (n.Running+n.Queued > 0 || n.State == "connecting" || waits) {
			busy[p.Job] = true
		} else if ok && !reached(&n) {
			away[p.Job] = true // tasks may run there
		}
	}
	jobs := map[string][]string{}
	for name, n := range e.nodes {
		jobs[n.Job] = append(jobs[n.Job], name)
	}
	now := clock.Now()
	for job, names := range jobs {
		useless, unfit := e.useless(job)
		e.judge(job, unfit)
		if busy[job] || job == e.own {
			delete(e.idle, job)
			continue
		}
		if e.idle[job].IsZero() {
			e.idle[job] = now
		}
		if useless || !away[job] && e.late(job) || now.Sub(e.idle[job]).Seconds() >= linger {
			e.send(ctx, core.RemoveNodes{Names: names})
			if !e.released(names) {
				continue // a task may have started meanwhile
			}
			if err := pilot.Dismiss(e.run, job); err != nil {
				e.runner.console.message("job %s, which is idle, cannot be ended: %w", job, err)
			}
		}
	}
}

// released reports whether nodes are free of tasks and get no more.
func (e *elastic) released(names []string) bool {
	free := map[string]bool{}
	for _, n := range e.status.Nodes {
		free[n.Name] = n.State == "released"
	}
	return !slices.ContainsFunc(names, func(name string) bool { return !free[name] })
}

// fill submits jobs as the backlog justifies, and takes nodes away whose jobs are gone.
func (e *elastic) fill(ctx context.Context) {
	if e.status.Phase != core.Running.String() {
		return
	}
	_, _ = e.submit(ctx, func(l pilot.Listing) int {
		e.count(l)
		if e.failed >= mostFailures {
			return 0
		}
		return e.missing(e.listed, len(e.cancelled)+len(l.Ending))
	})
}

// count compares the jobs that Slurm has with those that are known.
func (e *elastic) count(l pilot.Listing) {
	clear(e.listed)
	clear(e.unseen)
	seen := map[string]bool{}
	for _, n := range e.nodes {
		seen[n.Job] = true
	}
	for _, id := range l.Cancelled {
		e.cancelled[id] = true
		delete(e.pending, id) // it was not at fault
	}
	for _, j := range l.Have {
		delete(e.cancelled, j.ID)
		e.listed[j.ID] = true
		e.unseen[j.ID] = slurm.Runs(j.State) && !seen[j.ID]
		if !slurm.Runs(j.State) {
			delete(e.left, j.ID) // it was requeued
		}
		e.waited = max(e.waited, j.Waited)
	}
	for _, n := range e.nodes {
		if n.Job != e.own && !e.listed[n.Job] {
			pilot.Withdraw(e.run, n)
		}
	}
	for id := range e.pending {
		if !e.listed[id] {
			delete(e.pending, id)
			if e.failed++; e.failed == mostFailures {
				e.runner.console.message("the last %d jobs ended without a message, see %s: no more jobs are submitted",
					e.failed, filepath.Join(e.run, pilot.Dir, id+".log"))
			}
		}
	}
}

// submit submits as many jobs as more returns for those that there are, and returns how many. It
// succeeds if a limit of Slurm allows fewer.
func (e *elastic) submit(ctx context.Context, more func(pilot.Listing) int) (int, error) {
	ids, err := e.jobs.Fill(ctx, more)
	for _, id := range ids {
		e.pending[id] = true
	}
	if len(ids) > 0 {
		e.runner.console.message("submitted %s", describe(ids))
	}
	if err == nil {
		e.refused = ""
	} else if words := err.Error(); words != e.refused && ctx.Err() == nil {
		e.refused = words
		e.runner.console.message("no more jobs are submitted for now: %w", err)
	}
	return len(ids), err
}

// persistence is how long the last scheduler of a run tries to submit the next job while Slurm does not
// answer: its job goes on meanwhile, as slurmctld does not end it.
const persistence = 10 * time.Minute

// end tells the pilots that the run has ended, or, if the scheduler has handed over,
// submits the job that continues where no other will.
func (e *elastic) end(s *core.Summary) {
	ctx, cancel := context.WithTimeout(context.Background(), persistence)
	defer cancel()
	<-e.done
	if !s.HandedOver {
		if s.Exit <= 2 || s.Exit == core.ExitLeft || e.jobs.Pool.Here {
			e.setOver(ctx, s.Exit)
		}
		return
	}
	if s.Terminated && !s.Closed {
		return // as the user has cancelled the job, perhaps with all others
	}
	over, last := false, false
	more := func(l pilot.Listing) int {
		jobs := l.Have
		life, lasting := e.lasting(jobs, s.Early)
		switch {
		case lasting:
			return 0
		case s.Closed: // results of what still runs are kept for a run that resumes
			over = true
			return 0
		// scancel signals the pilot, which signals the scheduler, as other signals at the pilot do. But
		// the job does not run any more then, and perhaps all others were cancelled with it.
		case s.Early && !slices.ContainsFunc(jobs, func(j pilot.Job) bool { return j.ID == e.own }):
			return 0
		case s.Done+s.Failed+s.Cancelled == 0 && s.Elapsed >= life/2: // less than that proves nothing
			e.runner.console.message("no task has ended during the job: no other job is submitted")
			return 0
		}
		last = true
		if e.status == nil {
			return 1
		}
		for _, id := range l.Cancelled {
			e.cancelled[id] = true
		}
		return max(1, pilot.Places{
			Most: e.jobs.Pool.MaxJobs, Wanted: e.wanted(), Present: len(jobs), Kept: len(e.cancelled) + len(l.Ending),
		}.Missing())
	}
	try := func() error {
		last = false // an earlier submission may have succeeded though it was not answered
		n, err := e.submit(ctx, more)
		if err != nil || n > 0 || !last {
			return err
		}
		return e.requeue(ctx)
	}
	err := try()
	for pause := time.Second; slurm.Unreachable(err) || slurm.Unavailable(err); pause = min(2*pause, 5*time.Second) {
		if _, lasting := e.lasting(e.announced(), s.Early); lasting || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			err = try()
		}
	}
	if err != nil && e.requeues {
		e.runner.console.message("when this job has ended, repeat the command of the run with --resume: %w", err)
	}
	if over {
		e.setOver(ctx, s.Exit)
	}
}

// requeue has the own job continue in its own place, where a limit of Slurm allows no other one beside it.
// Slurm ends this process then.
func (e *elastic) requeue(ctx context.Context) error {
	if !e.requeues {
		e.requeues = true
		e.runner.console.message("a limit of Slurm allows no other job beside this one: requeueing it")
	}
	return e.jobs.Client.Requeue(ctx, e.own)
}

// setOver ends the pilots, and leaves no job in the queue.
func (e *elastic) setOver(ctx context.Context, exit int) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := pilot.SetOver(e.run, exit); err != nil {
		e.runner.console.message("%w", err)
	}
	e.cancelPending(ctx)
}

func (e *elastic) cancelPending(ctx context.Context) {
	if err := e.jobs.Cancel(ctx, false); err != nil {
		e.runner.console.message("jobs that are pending cannot be cancelled: %w", err)
	}
}

// announced returns the jobs whose nodes are announced.
func (e *elastic) announced() (jobs []pilot.Job) {
	nodes, _ := pilot.Nodes(e.run)
	for _, n := range nodes {
		jobs = append(jobs, pilot.Job{ID: n.Job, State: "RUNNING"})
	}
	return jobs
}

// takeover is how much longer than that of this scheduler a job must last to continue for it.
const takeover = 15 * time.Second

// lasting reports whether a job is there, or will be, that can continue when the own one ends,
// and how long the own one is in all. Jobs that began together end together, unless this one ends early.
func (e *elastic) lasting(jobs []pilot.Job, early bool) (life time.Duration, found bool) {
	nodes, err := pilot.Nodes(e.run)
	if err != nil {
		e.runner.console.message("%w", err)
	}
	ends := map[string]time.Time{}
	for _, n := range nodes {
		ends[n.Job] = n.End
		if n.Job == e.own {
			life = time.Duration(n.Life * float64(time.Second))
		}
	}
	own := ends[e.own]
	if early {
		own = clock.Now()
	}
	for _, j := range jobs {
		end, known := ends[j.ID]
		if j.ID == e.own && !slurm.Runs(j.State) { // it was requeued
			return life, true
		}
		if j.ID != e.own && (!known || end.IsZero() || end.After(own.Add(takeover))) {
			return life, true
		}
	}
	return life, false
}
