package core

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Nodes that come and go while the pool runs: those that a user adds and removes, and those of
// pilots, which are jobs that each give their nodes to the pool for a limited time.
//
// A node whose job has an end gets no task that would not end before it, and what still runs there
// shortly before the end is ended and runs again elsewhere. When the scheduler's own job is near its
// end, the scheduler ends what runs in it and hands over: the other workers let their tasks end, as
// [Config.Finish] says, and the next scheduler reads their results from their files.

// addNodes adds nodes, or updates the end of their jobs and where their pilots listen.
func (c *Core) addNodes(specs []NodeSpec) {
	for _, spec := range specs {
		i := slices.IndexFunc(c.nodes, func(n *Node) bool { return n.Spec.Name == spec.Name })
		if i >= 0 && !c.nodes[i].away() {
			c.nodes[i].Spec.End, c.nodes[i].Spec.Socket = spec.End, spec.Socket
			continue
		}
		n := &Node{Spec: spec, unswept: map[wire.Key]bool{}, trust: trust{limit: unproven}}
		if i >= 0 {
			c.nodes[i] = n
		} else {
			c.nodes = append(c.nodes, n)
		}
		if c.ending.phase >= Draining {
			n.dropped, n.why = true, "the pool is "+c.ending.phase.String()
			continue
		}
		n.margin = c.EndMargin
		if n.margin == 0 && !spec.End.IsZero() {
			n.margin = marginOf(spec.End.Sub(c.now))
		}
		c.plan(n, c.now, c.ConnectTimeout)
		if spec.Life > 0 {
			c.longest = max(c.longest, spec.Life-n.margin)
		}
		c.widest = max(c.widest, spec.JobNodes)
	}
	c.forgetNodes()
	c.group()
	c.refuseMisfits()
	var long []int64
	c.pool.Each(func(t *pool.Task) bool {
		if c.tooLong(t) != "" {
			long = append(long, t.Seq)
		}
		return true
	})
	for _, seq := range long {
		t := c.pool.Remove(seq)
		c.refuse(t, c.tooLong(t))
	}
}

// group sets how many nodes a task can have of one job: of those that are there, with the nodes that
// are still to come, and without those that are lost for good. Tasks wait for the nodes of one job if
// that has enough, so that srun can start their processes as a step of it.
func (c *Core) group() {
	if !c.Elastic {
		return
	}
	nodes, lost := map[string]int{}, map[string]int{}
	for _, n := range c.nodes {
		if job := n.Spec.Job; n.released || n.dropped || n.quarantine {
			lost[job]++
		} else {
			nodes[job] = max(nodes[job], n.Spec.JobNodes)
		}
	}
	most := 0
	for job, n := range nodes {
		most = max(most, n-lost[job])
	}
	c.pool.Group(most)
}

// mostAway is how many nodes of jobs that have ended are remembered: a pool may have new jobs for years.
const mostAway = 100

// forgetNodes forgets the nodes that left an elastic pool first.
func (c *Core) forgetNodes() {
	left := func(n *Node) bool { return n.away() && len(n.held) == 0 && len(n.unswept) == 0 && !c.orphans.mayRun(n) }
	more := -mostAway
	for _, n := range c.nodes {
		if c.Elastic && left(n) {
			more++
		}
	}
	if more > 0 {
		c.nodes = slices.DeleteFunc(c.nodes, func(n *Node) bool {
			if more == 0 || !left(n) {
				return false
			}
			more--
			return true
		})
	}
}

// away reports whether a node has left the pool for good.
func (n *Node) away() bool { return (n.released || n.dropped) && n.Worker == nil }

// removeNodes removes nodes once what runs there has ended, and returns how many. Now: it is ended.
func (c *Core) removeNodes(e RemoveNodes) (count int) {
	for _, n := range c.nodes {
		if !slices.Contains(e.Names, n.Spec.Name) {
			continue
		}
		switch w := n.Worker; {
		case !n.released:
			count++
			c.removeNode(n, e.Now)
		case e.Now && w != nil && w.connected(): // now it is to be at once
			count++
			c.end(w, false)
		}
	}
	return count
}

func (c *Core) removeNode(n *Node, now bool) {
	n.released = true
	w := n.Worker
	switch {
	case w == nil:
	case w.State == Planned:
		n.Worker = nil
		w.State = Gone
	case w.connected():
		c.leaves(w)
		for _, q := range w.backlog {
			for _, a := range slices.Clone(q) {
				c.recall(a)
			}
		}
		if now {
			c.end(w, false)
		}
	}
	c.nodeEvent(n, "released", n.why)
}

// end has a worker end what it runs.
func (c *Core) end(w *Worker, immediately bool) {
	for _, a := range sorted(w.attempts) {
		c.kill(a, wire.Stopped, immediately)
	}
	for _, a := range sorted(w.shared) {
		c.loseNode(a, w, "it is taken away")
		if immediately {
			c.kill(a, wire.Lost, true)
		}
	}
}

// endOf returns when the job of a node ends, and how long before that what runs there is ended; zero:
// never, as far as is known.
func (c *Core) endOf(n *Node) (time.Time, time.Duration) {
	if !n.Spec.End.IsZero() {
		return n.Spec.End, n.margin
	}
	return c.ending.ofJob, c.ending.margin
}

// checkNodeEnds removes nodes whose jobs are about to end.
func (c *Core) checkNodeEnds() {
	for _, n := range c.nodes {
		if n.Spec.End.IsZero() || n.dropped || c.now.Before(n.Spec.End.Add(-n.margin)) || c.ending.phase >= Stopping {
			continue
		}
		if !n.released {
			n.why = "its job is about to end"
			runs := 0
			if n.Worker != nil {
				runs = len(n.Worker.attempts) - n.Worker.queued
			}
			c.say("node %s: %s: ending %s", n.Spec.Name, n.why, plural(int64(runs), "task"))
			c.removeNode(n, true)
		}
		if n.Spec.Own {
			c.handOver("the scheduler's job is about to end", ExitLeft, jobOver)
		}
	}
}

// lateAt reports that a task would not end before the node's job does.
func (c *Core) lateAt(t *pool.Task, n *pool.Node) bool {
	end, margin := c.endOf(n.Data.(*Worker).Node)
	return !end.IsZero() && c.now.Add(c.expected(t)).After(end.Add(-margin))
}

// tooLong returns why no pilot could ever run a task to its end, or "".
func (c *Core) tooLong(t *pool.Task) string {
	if d := cmp.Or(t.Spec.Time, c.TimePerTask); c.longest > 0 && d > c.longest {
		return fmt.Sprintf("no job of the pool is long enough: it takes %v, a job has %v for it", d, c.longest)
	}
	return ""
}
