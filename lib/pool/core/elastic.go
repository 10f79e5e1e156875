package core

import (
	"slices"

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
		c.nodes.add(spec)
	}
	c.nodes.forget()
	c.nodes.group()
	c.tasks.refuseMisfits()
	var long []int64
	c.pool.Each(func(t *pool.Task) bool {
		if c.nodes.tooLong(t) != "" {
			long = append(long, t.Seq)
		}
		return true
	})
	for _, seq := range long {
		t := c.pool.Remove(seq)
		c.tasks.refuse(t, c.nodes.tooLong(t))
	}
}

// removeNodes removes nodes once what runs there has ended, and returns how many. Now: it is ended.
func (c *Core) removeNodes(e RemoveNodes) (count int) {
	for _, n := range c.nodes.all {
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
		c.nodes.leaves(w)
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
		c.tasks.loseNode(a, w, "it is taken away")
		if immediately {
			c.kill(a, wire.Lost, true)
		}
	}
}

// checkNodeEnds removes nodes whose jobs are about to end.
func (c *Core) checkNodeEnds() {
	for _, n := range c.nodes.all {
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
func (ts *tasks) lateAt(t *pool.Task, n *pool.Node) bool {
	end, margin := ts.nodes.endOf(n.Data.(*Worker).Node)
	return !end.IsZero() && ts.now.Add(ts.expected(t)).After(end.Add(-margin))
}
