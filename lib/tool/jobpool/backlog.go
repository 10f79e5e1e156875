package jobpool

import (
	"maps"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
)

// due reports whether jobs are to be counted.
func (e *elastic) due(now time.Time) bool {
	if e.counted.IsZero() {
		return true
	}
	since := now.Sub(e.counted).Abs()
	if e.missing(e.present(), len(e.cancelled)) <= 0 {
		e.pause = time.Second
		return since >= recount
	}
	if since < e.pause {
		return false
	}
	e.pause = min(2*e.pause, count)
	return true
}

// missing is how many more jobs the waiting tasks justify beside those. Jobs that end soon do not count
// for that, but they do for the limit of the pool. One job more than that is there only where the pool
// would stop, as nothing submits the next job when the last one has ended, or where the job of the
// scheduler, which does not end for that, is useless. Kept are the places of jobs that were cancelled or end: a
// scheduler that is in no job is ended itself by who wants no more of them.
func (e *elastic) missing(jobs map[string]bool, kept int) int {
	useless, _ := e.useless(e.own)
	p := pilot.Places{
		Most: e.jobs.Pool.MaxJobs, Wanted: min(e.wanted(), e.most()), Present: len(jobs), Lasting: len(e.lasts(jobs)), Kept: kept,
	}
	if e.jobs.Pool.Here {
		p.Kept = 0
	}
	if useless {
		p.Most++
	} else {
		p.Last = p.Lasting == 0 && !e.jobs.Pool.Here
	}
	return p.Missing()
}

// present returns the jobs that are pending or run, as far as is known without a request to Slurm.
func (e *elastic) present() map[string]bool {
	jobs := map[string]bool{}
	maps.Copy(jobs, e.listed)
	maps.Copy(jobs, e.pending)
	maps.DeleteFunc(jobs, func(job string, _ bool) bool { return e.left[job] || e.unseen[job] })
	for name, n := range e.nodes {
		i := slices.IndexFunc(e.status.Nodes, func(s core.NodeStatus) bool { return s.Name == name })
		if i >= 0 && !reached(&e.status.Nodes[i]) {
			delete(jobs, n.Job) // it may have been killed
		} else {
			jobs[n.Job] = true
		}
	}
	return jobs
}

// running returns the jobs that have a node which was reached.
func (e *elastic) running() map[string]bool {
	jobs := map[string]bool{}
	for _, s := range e.status.Nodes {
		if n, ok := e.nodes[s.Name]; ok && s.State != "connecting" {
			jobs[n.Job] = true
		}
	}
	return jobs
}

// lasts leaves out the jobs that are late or useless, or whose pilots have ended.
func (e *elastic) lasts(jobs map[string]bool) map[string]bool {
	out := map[string]bool{}
	for job := range jobs {
		if useless, _ := e.useless(job); !useless && !e.left[job] && !e.late(job) {
			out[job] = true
		}
	}
	return out
}

// lastPart is the part of its time at the end of a job in which another may take its place.
const lastPart = 0.25

// closed reports whether no waiting task can start at a node after that time, as none would end before
// the job does.
func closed(n *core.NodeStatus, after time.Duration) bool {
	return n.Closes != nil && clock.Now().Add(after).After(*n.Closes)
}

// launch is what a job takes from its start until its first task starts.
const launch = 2 * time.Second

// late reports whether waiting tasks can soon no longer start in a job, and what is left of its time is
// short. Another job is submitted in its place then, so that it waits in the queue, as long as others
// did, and starts while the last tasks of this one end.
func (e *elastic) late(job string) bool {
	late := false
	for _, s := range e.status.Nodes {
		n, ok := e.nodes[s.Name]
		if !ok || n.Job != job {
			continue
		}
		if !closed(&s, e.waited+launch) || clock.Until(n.End).Seconds() > n.Life*lastPart {
			return false
		}
		late = true
	}
	return late
}

// wanted is how many jobs the backlog justifies. Tasks that wait for others need none yet, but one job
// must be there for what they wait for.
func (e *elastic) wanted() int {
	s := e.status
	return max(min(1, s.Waiting), pilot.Wanted(pilot.Backlog{
		Waiting: s.Waiting - s.Depends, Jobs: s.Jobs, Running: len(e.lasts(e.running())),
		Mean: s.Mean, Life: e.life, Width: s.Width, Nodes: e.widest,
	}))
}
