package core

import (
	"fmt"
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

// Node is a machine of the pool, whatever worker it has at present.
type Node struct {
	Spec   NodeSpec
	Worker *Worker // that is planned, being reached or connected; nil: none

	size       pool.Need // what it has, once known
	known      bool
	reconnects int
	deaths     int    // of workers with tasks, since one succeeded
	dropped    bool   // is not reached any more
	why        string // for that, or for the quarantine
	fault      string // of its host: see NodeStatus
	released   bool
	margin     time.Duration // how long before Spec.End tasks are ended
	quarantine bool
	up         time.Time
	done, lost int64
	unswept    map[wire.Key]bool // attempts of several nodes that may have left something there
	enforce    wire.MemLimit     // how its worker limits memory, or the last one did
	trust
}

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
	if c.suspended {
		c.jobState(false)
	}
	for i := range messages {
		m := &messages[i]
		switch {
		case m.Done != nil:
			c.done(w, m.Done)
		case m.Started != nil:
			for _, s := range m.Started {
				if a := w.attempts[s.Seq]; a != nil && a.task.Attempt == s.Attempt {
					a.pid, a.started = s.PID, s.At
				}
			}
		case m.Back != nil:
			c.back(w, *m.Back)
		case m.Data != nil && m.Data.Live:
			if a := w.attempts[m.Data.Seq]; a != nil && a.task.Attempt == m.Data.Attempt {
				c.do(Live{w, a.task, m.Data})
			}
		case m.Data != nil:
			c.do(Fetched{m.Data})
		case m.Swept != nil:
			c.swept(w, *m.Swept)
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
		c.ends(w)
	}
}

// leaves is called when a worker ends by itself: it ends tasks, or gives them back, without a
// request.
func (c *Core) leaves(w *Worker) {
	if !w.ending {
		w.leaving = c.now
	}
	w.ending = true
	c.close(w)
}

// dismiss lets workers that end by themselves go, once their tasks have ended and their output was
// fetched: they wait for that. Another worker may take the place of each. In a Slurm job, SIGTERM
// mostly means that everything is killed a little later, as by preemption; nothing begins there until
// it is clear that this is not so.
func (c *Core) dismiss(needed map[*Worker]bool) {
	for _, w := range c.workers {
		if c.Batch && c.now.Sub(w.leaving) < c.NodeTimeout && !w.Node.released {
			continue
		}
		if w.ending && !w.bye && w.unused() && !needed[w] {
			w.bye = true
			c.send(w, &wire.Message{Bye: true})
		}
	}
}

// close gives a worker no new tasks.
func (c *Core) close(w *Worker) {
	c.pool.Close(w.n)
	w.State = Closed
}

// cpus returns which CPUs of a node tasks get, and whether they are bound to them.
func (c *Core) cpus(spec NodeSpec, hello *wire.Hello) (cpus []pool.CPU, pin bool, warning string) {
	seen := len(hello.CPUs)
	want := spec.Slots
	if want == 0 {
		want = seen
		if spec.Most > 0 && spec.Most < seen {
			want = spec.Most
			warning = fmt.Sprintf("%d CPUs are visible, the job has %d: using %d, and not binding tasks to them", seen, want, want)
		}
	}
	if spec.Jobs != nil {
		want = max(1, spec.Jobs(want))
	}
	switch c.Pin {
	case PinCores:
		pin = want <= seen
		if !pin {
			warning = fmt.Sprintf("tasks are not bound to CPUs: %d are required, %d visible", want, seen)
		}
	case PinAuto:
		pin = spec.Most > 0 && seen <= spec.Most && want <= seen
	case PinNone:
	}
	if want <= seen && (pin || spec.Most == 0 || seen <= spec.Most) {
		return hello.CPUs[:want], pin, warning
	}
	return pool.Numbered(want), false, warning
}

// mem is the memory of a node that tasks may use, in bytes.
func (s *NodeSpec) mem(hello *wire.Hello) int64 {
	mem := hello.Mem
	if s.Mem > 0 {
		mem = min(mem, s.Mem)
	}
	if s.MemPerGPU > 0 {
		mem = min(mem, s.MemPerGPU*int64(len(hello.GPUs)))
	}
	return mem
}

// misfit returns why the pool could never run a task with that need, even with all of its nodes, or "". A node is
// taken as declared until its worker has reported its size.
func (c *Core) misfit(need pool.Need) string {
	local := need
	for _, name := range need.Named.Names() {
		switch shared := c.Shared.Get(name); {
		case shared > 0 && need.Named.Get(name) > shared:
			return fmt.Sprintf("the pool has %v %s in all, and the task needs %v", shared, name, need.Named.Get(name))
		case shared > 0:
			local.Named = local.Named.With(name, 0)
		case !slices.ContainsFunc(c.Resources, func(r Resources) bool { return r.Named.Get(name) > 0 }):
			return fmt.Sprintf("the pool has no resource %q", name)
		}
	}
	if most := c.MaxJobs * c.widest; c.Elastic && most > 0 && need.Width() > most {
		return fmt.Sprintf("the pool never has what the task needs: %s; it has %s of at most %s each",
			need, plural(int64(c.MaxJobs), "job"), plural(int64(c.widest), "node"))
	}
	if len(c.nodes) == 0 {
		return ""
	}
	left := need.Width()
	for _, n := range c.nodes {
		if !c.holds(n, local) {
			continue
		}
		if left--; left == 0 || c.Elastic {
			return ""
		}
	}
	if need.Nodes > 1 {
		return "too few nodes of the pool have what the task needs: " + need.String()
	}
	return "no node of the pool has what the task needs: " + need.String()
}

// holds reports whether a node is large enough, as far as is known.
func (c *Core) holds(n *Node, need pool.Need) bool {
	switch {
	case n.known:
		return need.Fits(n.size)
	case !need.Named.Fits(c.resources(n.Spec.Name, n.Spec.Host)):
		return false
	case n.Spec.Jobs != nil:
		return true
	}
	return (n.Spec.Slots == 0 || need.CPUs <= n.Spec.Slots) && (n.Spec.Slots > 0 || n.Spec.Most == 0 || need.CPUs <= n.Spec.Most)
}

// resources returns those of a node: its own entry, or else that of all nodes.
func (c *Core) resources(node, host string) pool.Named {
	var own, all pool.Named
	for _, r := range c.Resources {
		for _, name := range r.Named.Names() {
			switch {
			case r.Nodes == nil:
				all = all.With(name, r.Named.Get(name))
			case slices.Contains(r.Nodes, node) || host != "" && slices.Contains(r.Nodes, host):
				own = own.With(name, r.Named.Get(name))
			}
		}
	}
	for _, name := range own.Names() {
		all = all.With(name, own.Get(name))
	}
	return all
}

// idleBefore is how long a node must have been idle to be given back.
const idleBefore = 5 * time.Second

// releaseIdle gives back nodes that will not be needed any more: nothing waits, and nothing runs
// there. The node of the scheduler stays, as the job ends with it.
func (c *Core) releaseIdle(needed map[*Worker]bool) {
	if !c.ReleaseIdle || !c.eof || c.stays || c.opening() || c.pool.Waiting() > 0 || c.deps.waiting() > 0 ||
		len(c.onHold)+c.orphans.attempts()+len(c.trials) > 0 || c.now.Before(c.releaseAt) {
		return
	}
	var idle []*Worker
	keep := []string{}
	for _, n := range c.nodes {
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
	c.releaseAt = c.now.Add(30 * time.Second)
	for _, w := range idle {
		w.Node.released = true
		c.send(w, &wire.Message{Bye: true})
		c.leave(w)
		w.State = Gone
		c.nodeEvent(w.Node, "released", "")
	}
	c.do(Release{idle, keep})
}

// leave removes a worker from those that are connected.
func (c *Core) leave(w *Worker) {
	c.workers = slices.DeleteFunc(c.workers, func(o *Worker) bool { return o == w })
	c.gone += c.now.Sub(w.Node.up).Seconds() * float64(w.n.Total().CPUs)
	c.pool.RemoveNode(w.n)
	if w.Node.Worker == w {
		w.Node.Worker = nil
	}
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
