package jobpool

import (
	"context"
	"os"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// elastic gives a scheduler the nodes of pilots, and carries out what is decided on their jobs.
type elastic struct {
	run     string
	runner  *runner
	jobs    *pilot.Jobs
	fleet   *pilot.Fleet
	closed  *core.Closing
	changes chan core.Event
	states  chan *scheduler.Status
	done    chan struct{} // closed when watch has ended
	refused string        // why no jobs are submitted for now, as was said
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
		run: run, runner: r, closed: closed, jobs: jobsOf(run, pool),
		fleet:   &pilot.Fleet{Own: os.Getenv("SLURM_JOB_ID"), Run: run, Serve: r.policy.Serve},
		changes: make(chan core.Event), states: make(chan *scheduler.Status, 1), done: make(chan struct{}),
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

// watch follows pilots and backlog until the context ends.
func (e *elastic) watch(ctx context.Context) {
	defer close(e.done)
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		e.do(ctx, e.follow())
		select {
		case <-ctx.Done():
			return
		case s := <-e.states:
			before := e.jobs.Pool.MaxJobs
			if e.jobs.Reload(); e.jobs.Pool.MaxJobs != before {
				e.send(ctx, core.JobLimit{Jobs: e.jobs.Pool.MaxJobs})
			}
			e.do(ctx, e.fleet.Stand(clock.Now(), s, e.jobs.Pool))
		case <-ticker.C:
		}
	}
}

// follow looks which nodes are announced.
func (e *elastic) follow() (o pilot.Orders) {
	if announced, err := pilot.Nodes(e.run); err == nil { // else it is not known which are gone
		o = e.fleet.Come(announced)
	}
	return o
}

func (e *elastic) send(ctx context.Context, ev core.Event) {
	select {
	case e.changes <- ev:
	case <-ctx.Done():
	}
}

// do carries out orders. What fails is ordered again, with the next status.
func (e *elastic) do(ctx context.Context, o pilot.Orders) {
	for _, line := range o.Say {
		e.runner.console.message("%s", line)
	}
	if len(o.Add) > 0 {
		e.send(ctx, core.AddNodes{Specs: e.specs(o.Add)})
	}
	if len(o.Remove) > 0 {
		e.send(ctx, core.RemoveNodes{Names: o.Remove, Now: true})
	}
	if o.Empty {
		e.cancelPending(ctx)
	}
	if len(o.Exclude) > 0 {
		e.exclude(ctx, o.Exclude)
	}
	if len(o.Release) > 0 {
		e.send(ctx, core.RemoveNodes{Names: o.Release})
	}
	for _, job := range o.Leave {
		if err := pilot.Dismiss(e.run, job); err != nil {
			e.runner.console.message("job %s, which is idle, cannot be ended: %w", job, err)
		}
	}
	for _, n := range o.Withdraw {
		pilot.Withdraw(e.run, n)
	}
	if o.HandOver {
		e.send(ctx, core.Rest{})
	}
	if o.Ask {
		e.fill(ctx)
	}
}

// specs describes nodes to the scheduler.
func (e *elastic) specs(nodes []pilot.Node) (specs []scheduler.NodeSpec) {
	for _, n := range nodes {
		specs = append(specs, scheduler.NodeSpec{
			Name: n.Label(), Host: n.Name, Job: n.Job, Socket: n.Socket, JobNodes: n.Nodes, Own: n.Job == e.fleet.Own,
			Most: n.CPUs, Mem: n.Mem, MemPerGPU: n.MemPerGPU, Group: -1,
			End: n.End, Life: time.Duration(n.Life * float64(time.Second)),
			Slots: e.runner.place.fixed, Jobs: e.runner.place.jobs,
		})
	}
	return specs
}

// exclude keeps hosts that are at fault out of the next jobs.
func (e *elastic) exclude(ctx context.Context, hosts []pilot.Excluded) {
	err := e.jobs.Change(ctx, func(p *pilot.Pool) {
		for _, x := range hosts {
			p.Exclude(x, clock.Now())
		}
	})
	if err != nil {
		return
	}
	for _, x := range hosts {
		e.runner.console.message("host %s is excluded from the next jobs for %s: %s", x.Host, unit.FormatDuration(pilot.Exclusion), x.Why)
	}
}

// fill submits jobs as the backlog justifies, and takes nodes away whose jobs are gone.
func (e *elastic) fill(ctx context.Context) {
	var o pilot.Orders
	_, _ = e.submit(ctx, func(l pilot.Listing) int {
		o = e.fleet.Listed(clock.Now(), l, e.jobs.Pool)
		return o.Submit
	})
	e.do(ctx, o)
}

// submit submits as many jobs as more returns for those that there are, and returns how many. It
// succeeds if a limit of Slurm allows fewer.
func (e *elastic) submit(ctx context.Context, more func(pilot.Listing) int) (int, error) {
	ids, err := e.jobs.Fill(ctx, more)
	e.fleet.Submitted(ids)
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

// end carries out what is decided on the run when this scheduler has ended, as soon as Slurm answers.
func (e *elastic) end(s *core.Summary) {
	ctx, cancel := context.WithTimeout(context.Background(), persistence)
	defer cancel()
	<-e.done
	say := e.runner.console.message
	next, _ := e.fleet.Next(clock.Now(), s, e.jobs.Pool, nil)
	var err error
	requeues := false
	for pause := time.Second; next == pilot.Unknown; pause = min(2*pause, 5*time.Second) {
		_ = e.follow()
		n := 0
		n, err = e.submit(ctx, func(l pilot.Listing) (jobs int) {
			next, jobs = e.fleet.Next(clock.Now(), s, e.jobs.Pool, &l)
			return jobs
		})
		if err == nil && n == 0 && next == pilot.Followed {
			if !requeues {
				requeues = true
				say("a limit of Slurm allows no other job beside this one: requeueing it")
			}
			err = e.jobs.Client.Requeue(ctx, e.fleet.Own) // Slurm ends this process then
		}
		if !slurm.Unreachable(err) && !slurm.Unavailable(err) {
			break
		}
		next = pilot.Unknown // an earlier submission may have succeeded though it was not answered
		if _ = e.follow(); e.fleet.Continues(clock.Now(), s.Early) {
			break
		}
		select {
		case <-ctx.Done():
			next = pilot.Continued // perhaps
		case <-time.After(pause):
		}
	}
	switch {
	case next == pilot.Finished:
		e.setOver(ctx, s.Exit)
	case next == pilot.Rests:
		e.cancelPending(ctx)
	case next == pilot.Stalled:
		say("no task has ended during the job: no other job is submitted")
	case err != nil && requeues:
		say("when this job has ended, repeat the command of the run with --resume: %w", err)
	}
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
