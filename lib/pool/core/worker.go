package core

import (
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/executor/outside"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// State is the state of a worker between the first try to reach it and its end. Loss.go has the
// transitions.
type State uint8

// The states.
const (
	Planned    State = iota // to be reached, at its time
	Connecting              // being reached
	Waiting                 // connected; has nothing yet, as an orphan has the CPUs, or for the probe
	Ready                   // has tasks, or can have some
	Closed                  // connected; gets no new tasks: its node is quarantined, or it was asked to end
	Orphaned                // its connection has ended; its tasks may run on, until its lease ends
	Detached                // an orphan that lets its tasks end, and leaves the results in a file
	Gone                    // nothing is left of it
)

var states = [...]string{"planned", "connecting", "waiting", "ready", "closed", "orphaned", "detached", "gone"}

func (s State) String() string { return states[s] }

// Worker is a process that runs tasks at a node.
type Worker struct {
	Node  *Node
	State State
	// Identity tells it apart from any other worker of any run; empty until it is
	// connected.
	Identity wire.Identity

	n        *pool.Node
	hello    *wire.Hello
	attempts map[int64]*attempt
	backlog  map[pool.Need][]*attempt // sent ahead, by need
	queued   int                      // in all of it
	shared   map[int64]*attempt       // of other workers, which have a part of the node
	until    time.Time                // Planned: when to try; orphans: when its leases end
	deadline time.Time                // for reaching it
	answer   time.Duration            // how long it may take to answer, even if that is after the deadline
	tries    int
	heard    time.Time
	granted  time.Time // the last lease
	since    time.Time // it became an orphan
	await    []*Worker // orphans of its machine
	check    check
	ending   bool          // it ends by itself, as after SIGTERM
	signals  outside.Heard // by its clock; its tasks may have got them, too
	open     int           // ends of tasks there of which it is not clear what they mean
	leaving  time.Time     // since when it ends by itself
	bye      bool          // it was dismissed: nothing of it is needed any more
	duration float64       // of tasks, in seconds, averaged
	measured bool
	idle     time.Time
	spool    spool
	// cancelled are attempts at an orphan whose tasks have ended; they may still run.
	cancelled []*attempt
	told      bool
	died      bool // it has ended, not only its connection
	fatal     bool // another try would fail as well
}

// Name is that of its node.
func (w *Worker) Name() string {
	if w.Node == nil {
		return w.Identity.Node
	}
	return w.Node.Spec.Name
}

func (w *Worker) connected() bool { return w.State >= Waiting && w.State <= Closed }

// receive handles the messages of a worker.
func (c *Core) receive(w *Worker, messages []wire.Message) {
	if !w.connected() {
		return
	}
	w.heard = c.now
	if c.nodes.suspended {
		c.jobState(false)
	}
	for i := range messages {
		m := &messages[i]
		switch {
		case m.Done != nil && m.Done.Seq == 0:
			c.probed(w, m.Done)
		case m.Done != nil:
			c.tasks.done(w, m.Done)
			c.checkHalt()
		case m.Started != nil:
			for _, s := range m.Started {
				if a := w.attempts[s.Seq]; a != nil && a.task.Attempt == s.Attempt {
					a.pid, a.started = s.PID, s.At
				}
			}
		case m.Back != nil:
			c.tasks.back(w, *m.Back)
		case m.Data != nil && m.Data.Live:
			if a := w.attempts[m.Data.Seq]; a != nil && a.task.Attempt == m.Data.Attempt {
				c.do(Live{w, a.task, m.Data})
			}
		case m.Data != nil:
			c.do(Fetched{m.Data})
		case m.Swept != nil:
			c.tasks.swept(w, *m.Swept)
		case m.Signal != "":
			c.workerSignal(w, m.Signal, time.UnixMicro(int64(m.At*1e6)))
		case m.Enforce != "":
			w.Node.enforce = m.Enforce
		case m.Renew != 0:
			c.grant(w, m.Renew)
		case m.Clear:
			for _, o := range slices.Clone(w.await) {
				c.workerGone(o)
			}
		case m.Note != "":
			c.say("node %s: %s", w.Name(), m.Note)
		case m.Fatal != "":
			w.fatal = true
			c.do(Close{w})
			c.connectionLost(w, string(m.Fatal), Unknown)
			return
		}
	}
}

// workerSignal handles a signal that a worker got: under srun, Slurm sends the signals of steps to
// the workers.
func (c *Core) workerSignal(w *Worker, name string, at time.Time) {
	switch name {
	case "USR1":
		w.signals.Drained = at
		if c.Elastic {
			if n := w.Node; !n.released {
				n.why = "drained by SIGUSR1"
				c.say("node %s: %s", n.Spec.Name, n.why)
				c.removeNode(n, false)
			}
			return
		}
		c.drain("drained by SIGUSR1 at node " + w.Name())
	case "TERM":
		w.signals.Asked = at
		c.nodeEvent(w.Node, "term", "the worker got SIGTERM")
		c.tasks.ends(w)
	}
}

// dismiss lets workers that end by themselves go, once their tasks have ended and their output was
// fetched: they wait for that. Another worker may take the place of each. In a Slurm job, SIGTERM
// mostly means that everything is killed a little later, as by preemption; nothing begins there until
// it is clear that this is not so.
func (c *Core) dismiss(needed map[*Worker]bool) {
	for _, w := range c.nodes.workers {
		if c.Batch && c.now.Sub(w.leaving) < c.NodeTimeout && !w.Node.released {
			continue
		}
		if w.ending && !w.bye && w.unused() && !needed[w] {
			w.bye = true
			c.send(w, &wire.Message{Bye: true})
		}
	}
}

// idleBefore is how long a node must have been idle to be given back.
const idleBefore = 5 * time.Second

// releaseIdle gives back nodes that will not be needed any more: nothing waits, and nothing runs
// there. The node of the scheduler stays, as the job ends with it.
func (c *Core) releaseIdle(needed map[*Worker]bool) {
	if !c.ReleaseIdle || !c.tasks.eof || c.tasks.stays || c.nodes.opening() || c.pool.Waiting() > 0 || c.tasks.deps.waiting() > 0 ||
		len(c.tasks.onHold)+c.orphans.attempts()+len(c.nodes.trials) > 0 || c.now.Before(c.nodes.releaseAt) {
		return
	}
	var idle []*Worker
	keep := []string{}
	for _, n := range c.nodes.all {
		w := n.Worker
		if w != nil && w.connected() && w.unused() && len(n.held) == 0 && !n.Spec.Local && !needed[w] {
			if w.idle.IsZero() {
				w.idle = c.now
			}
			if c.now.Sub(w.idle) >= idleBefore {
				idle = append(idle, w)
				continue
			}
		} else if w != nil {
			w.idle = time.Time{}
		}
		if !n.released {
			keep = append(keep, n.Spec.Name)
		}
	}
	if len(idle) == 0 || len(keep) == 0 {
		return
	}
	c.nodes.releaseAt = c.now.Add(30 * time.Second)
	for _, w := range idle {
		w.Node.released = true
		c.send(w, &wire.Message{Bye: true})
		c.nodes.leave(w)
		w.State = Gone
		c.nodeEvent(w.Node, "released", "")
	}
	c.do(Release{idle, keep})
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
