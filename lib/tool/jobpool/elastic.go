package jobpool

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
)

// elastic gives a scheduler the nodes of pilots, and submits more of these, as its backlog
// justifies.
type elastic struct {
	run     string
	runner  *runner
	jobs    *pilot.Jobs
	own     string // the job of this scheduler
	changes chan core.Event
	states  chan *scheduler.Status
	done    chan struct{} // closed when watch has ended

	nodes   map[string]pilot.Node // by their names in the pool
	perJob  int                   // CPUs
	status  *scheduler.Status
	idle    map[string]time.Time // jobs, since when
	counted time.Time            // when the jobs were
	pending map[string]bool      // jobs that were submitted here and have not come
	failed  int                  // jobs in a row that have ended and never came
}

func newElastic(run string, r *runner) (*elastic, error) {
	pool, err := pilot.Load(run)
	if err != nil {
		return nil, err
	}
	return &elastic{
		run: run, runner: r, jobs: jobsOf(run, pool), own: os.Getenv("SLURM_JOB_ID"), changes: make(chan core.Event), states: make(chan *scheduler.Status, 1), done: make(chan struct{}),
		nodes: map[string]pilot.Node{}, idle: map[string]time.Time{}, pending: map[string]bool{},
	}, nil
}

// observe takes how things stand, from the scheduler.
func (e *elastic) observe(s *scheduler.Status) {
	select {
	case e.states <- s:
	default:
	}
}

// count is how often jobs are counted while tasks wait.
const count = 15 * time.Second

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
			e.lingered(ctx)
			if now := clock.Now(); now.Sub(e.counted).Abs() >= count && e.status.InputRead {
				e.counted = now
				e.fill(ctx)
			}
		case <-ticker.C:
		}
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
		if _, known := e.nodes[name]; known {
			continue
		}
		e.nodes[name] = n
		if e.pending[n.Job] {
			delete(e.pending, n.Job)
			e.failed = 0
		}
		e.perJob = max(e.perJob, n.CPUs)
		specs = append(specs, scheduler.NodeSpec{
			Name: name, Host: n.Name, Job: n.Job, Socket: n.Socket, End: n.End, Life: time.Duration(n.Life * float64(time.Second)), Own: n.Job == e.own, Most: n.CPUs,
			Slots: e.runner.place.fixed, Jobs: e.runner.place.jobs, Group: -1,
		})
	}
	if len(specs) > 0 {
		e.send(ctx, core.AddNodes{Specs: specs})
	}
	var gone []string
	for name := range e.nodes {
		if !seen[name] {
			gone = append(gone, name)
			delete(e.nodes, name)
		}
	}
	if len(gone) > 0 {
		e.send(ctx, &core.RemoveNodes{Names: gone, Now: true})
	}
}

// lingered lets jobs end that have had nothing to do for long enough.
func (e *elastic) lingered(ctx context.Context) {
	busy := map[string]bool{}
	for _, n := range e.status.Nodes {
		if p, ok := e.nodes[n.Name]; ok && (n.Running+n.Queued > 0 || n.State == "connecting") {
			busy[p.Job] = true
		}
	}
	jobs := map[string][]string{}
	for name, n := range e.nodes {
		jobs[n.Job] = append(jobs[n.Job], name)
	}
	now := clock.Now()
	for job, names := range jobs {
		if busy[job] || e.status.Waiting > 0 || job == e.own {
			delete(e.idle, job)
			continue
		}
		if e.idle[job].IsZero() {
			e.idle[job] = now
		}
		if now.Sub(e.idle[job]).Seconds() >= e.jobs.Pool.Linger {
			e.send(ctx, &core.RemoveNodes{Names: names})
			if err := pilot.Dismiss(e.run, job); err != nil {
				e.runner.console.message("job %s, which is idle, cannot be ended: %v", job, err)
			}
		}
	}
}

// fill submits jobs as the backlog justifies, and takes nodes away whose jobs are gone.
func (e *elastic) fill(ctx context.Context) {
	if e.status.Phase != core.Running.String() {
		return
	}
	jobs, err := e.jobs.List(ctx)
	if err != nil {
		return // they are counted again
	}
	for _, n := range e.nodes {
		if n.Job != e.own && !slices.ContainsFunc(jobs, func(j pilot.Job) bool { return j.ID == n.Job }) {
			pilot.Withdraw(e.run, n)
		}
	}
	for id := range e.pending {
		if !slices.ContainsFunc(jobs, func(j pilot.Job) bool { return j.ID == id }) {
			delete(e.pending, id)
			if e.failed++; e.failed == mostFailures {
				e.runner.console.message("the last %d jobs ended without a message, see %s: no more jobs are submitted", e.failed, filepath.Join(e.run, pilot.Dir, id+".log"))
			}
		}
	}
	if e.failed >= mostFailures {
		return
	}
	e.submit(ctx, e.wanted())
}

// wanted is how many jobs the backlog justifies.
func (e *elastic) wanted() int {
	b := pilot.Backlog{Waiting: e.status.Waiting, PerTask: e.runner.base.Need.CPUs * e.runner.base.Need.Width(), PerJob: cmp.Or(e.perJob, e.jobs.Pool.PerJob)}
	if s := e.status; s.Rate > 0 {
		b.Mean = float64(max(1, s.CPUsUsed)) / float64(max(1, b.PerTask)) / s.Rate
	}
	return pilot.Wanted(b)
}

func (e *elastic) submit(ctx context.Context, want int) {
	ids, err := e.jobs.Fill(ctx, want)
	for _, id := range ids {
		e.pending[id] = true
	}
	if len(ids) > 0 {
		e.runner.console.message("submitted %s", describe(ids))
	}
	if err != nil {
		e.runner.console.message("no more jobs are submitted for now: %v", err)
	}
}

// end tells the pilots that the run has ended, or, if the scheduler has handed over,
// submits the job that continues where no other will.
func (e *elastic) end(s *core.Summary) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	<-e.done
	if !s.HandedOver {
		if s.Exit <= 2 || s.Exit == core.ExitLeft || e.jobs.Pool.Here {
			err := pilot.SetOver(e.run, s.Exit)
			if err = errors.Join(err, e.jobs.Cancel(ctx, false)); err != nil {
				e.runner.console.message("jobs that are pending cannot be cancelled: %v", err)
			}
		}
		return
	}
	jobs, err := e.jobs.List(ctx)
	if err != nil {
		e.runner.console.message("jobs cannot be counted: %v", err)
		return
	}
	life, lasting := e.lasting(jobs)
	if lasting {
		return
	}
	// A scheduler that was there for a part of its job's time proves nothing.
	if s.Done+s.Failed+s.Cancelled == 0 && s.Elapsed >= life/2 {
		e.runner.console.message("no task has ended during the job: no other job is submitted")
		return
	}
	// The jobs that end now still run, and count.
	next := 1
	if e.status != nil {
		next = min(max(1, e.wanted()), e.jobs.Pool.MaxJobs)
	}
	e.jobs.Pool.MaxJobs += len(jobs)
	e.submit(ctx, len(jobs)+next)
}

// takeover is how much longer than that of this scheduler a job must last to continue for it.
const takeover = 15 * time.Second

// lasting reports whether a job is there, or will be, that can continue when the own one ends,
// and how long the own one is in all. Jobs that began together end together.
func (e *elastic) lasting(jobs []pilot.Job) (life time.Duration, found bool) {
	nodes, err := pilot.Nodes(e.run)
	if err != nil {
		e.runner.console.message("%v", err)
	}
	ends := map[string]time.Time{}
	for _, n := range nodes {
		ends[n.Job] = n.End
		if n.Job == e.own {
			life = time.Duration(n.Life * float64(time.Second))
		}
	}
	for _, j := range jobs {
		end, known := ends[j.ID]
		if j.ID != e.own && (!known || end.IsZero() || end.After(ends[e.own].Add(takeover))) {
			return life, true
		}
	}
	return life, false
}
