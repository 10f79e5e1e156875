package core

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

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

// nodes are the nodes of a pool, with what is known of how tasks fare there. They decide which of them may have tasks, and whether a task
// fits any.
type nodes struct {
	*base
	ending  *ending
	orphans *orphans

	all     []*Node
	workers []*Worker       // that are connected
	trials  map[int64]*Node // tasks that failed at a node on trial, and are tried elsewhere
	longest time.Duration   // that a task can take at a node of a job that begins; 0: unknown
	largest pool.Need       // what the largest job of a node has; zero: unknown
	widest  int             // the most nodes that a job of the pool has; 0: unknown
	gone    float64         // CPU seconds of workers that have gone

	releaseAt time.Time
	suspended bool      // the job is
	asked     time.Time // about that
}

// add adds a node, or returns the one of that name that is there: it is known when its job ends and where its pilot listens.
func (ns *nodes) add(spec NodeSpec) (n *Node, isNew bool) {
	i := slices.IndexFunc(ns.all, func(n *Node) bool { return n.Spec.Name == spec.Name })
	if i >= 0 && !ns.all[i].away() {
		ns.all[i].Spec.End, ns.all[i].Spec.Socket = spec.End, spec.Socket
		return ns.all[i], false
	}
	n = &Node{Spec: spec, unswept: map[wire.Key]bool{}, trust: trust{limit: unproven}}
	if i >= 0 {
		ns.all[i] = n
	} else {
		ns.all = append(ns.all, n)
	}
	if ns.ending.phase >= Draining {
		n.dropped, n.why = true, "the pool is "+ns.ending.phase.String()
		return n, true
	}
	n.margin = ns.EndMargin
	if n.margin == 0 && !spec.End.IsZero() {
		n.margin = marginOf(spec.End.Sub(ns.now))
	}
	ns.plan(n, ns.now, ns.ConnectTimeout)
	if spec.Life > 0 {
		ns.longest = max(ns.longest, spec.Life-n.margin)
	}
	ns.widest = max(ns.widest, spec.JobNodes)
	return n, true
}

// plan schedules a connection to a node, with a time limit for its answer.
func (ns *nodes) plan(n *Node, at time.Time, limit time.Duration) {
	n.Worker = &Worker{
		Node: n, State: Planned, until: at, deadline: at.Add(limit),
		attempts: map[int64]*attempt{}, shared: map[int64]*attempt{}, backlog: map[pool.Need][]*attempt{},
	}
}

// opening reports whether workers are not ready yet that may be.
func (ns *nodes) opening() bool {
	return slices.ContainsFunc(ns.all, func(n *Node) bool { return n.Worker != nil && n.Worker.State <= Waiting })
}

// few reports whether fewer nodes are connected than a run needs to begin.
func (ns *nodes) few() bool { return len(ns.workers) < ns.MinNodes }

// inOwnJob reports whether the scheduler is in one of several jobs that give the pool its nodes: a
// signal that ends it concerns that job only.
func (ns *nodes) inOwnJob() bool {
	return slices.ContainsFunc(ns.all, func(n *Node) bool { return n.Spec.Own })
}

// group sets how many nodes a task can have of one job: of those that are there, with the nodes that
// are still to come, and without those that are lost for good. Tasks wait for the nodes of one job if
// that has enough, so that srun can start their processes as a step of it.
func (ns *nodes) group() {
	if !ns.Elastic {
		return
	}
	nodes, lost := map[string]int{}, map[string]int{}
	for _, n := range ns.all {
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
	ns.pool.Group(most)
}

// mostAway is how many nodes of jobs that have ended are remembered: a pool may have new jobs for years.
const mostAway = 100

// forget forgets the nodes that left an elastic pool first.
func (ns *nodes) forget() {
	left := func(n *Node) bool {
		return n.away() && len(n.held) == 0 && len(n.unswept) == 0 && !ns.orphans.mayRun(n)
	}
	more := -mostAway
	for _, n := range ns.all {
		if ns.Elastic && left(n) {
			more++
		}
	}
	if more > 0 {
		ns.all = slices.DeleteFunc(ns.all, func(n *Node) bool {
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

// endOf returns when the job of a node ends, and how long before that what runs there is ended; zero:
// never, as far as is known.
func (ns *nodes) endOf(n *Node) (time.Time, time.Duration) {
	if !n.Spec.End.IsZero() {
		return n.Spec.End, n.margin
	}
	return ns.ending.ofJob, ns.ending.margin
}

// close gives a worker no new tasks.
func (ns *nodes) close(w *Worker) {
	ns.pool.Close(w.n)
	w.State = Closed
}

// leave removes a worker from those that are connected.
func (ns *nodes) leave(w *Worker) {
	ns.workers = slices.DeleteFunc(ns.workers, func(o *Worker) bool { return o == w })
	ns.gone += ns.now.Sub(w.Node.up).Seconds() * float64(w.n.Total().CPUs)
	ns.pool.RemoveNode(w.n)
	if w.Node.Worker == w {
		w.Node.Worker = nil
	}
}

// allocated returns the CPU seconds for which the nodes were available.
func (ns *nodes) allocated() float64 {
	sum := ns.gone
	for _, w := range ns.workers {
		sum += ns.now.Sub(w.Node.up).Seconds() * float64(w.n.Total().CPUs)
	}
	return max(sum, 1e-9)
}

// cpus returns which CPUs of a node tasks get, and whether they are bound to them.
func (ns *nodes) cpus(spec NodeSpec, hello *wire.Hello) (cpus []pool.CPU, pin bool, warning string) {
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
	switch ns.Pin {
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
func (ns *nodes) misfit(need pool.Need) string {
	local := need
	for _, name := range need.Named.Names() {
		switch shared := ns.Shared.Get(name); {
		case shared > 0 && need.Named.Get(name) > shared:
			return fmt.Sprintf("the pool has %v %s in all, and the task needs %v", shared, name, need.Named.Get(name))
		case shared > 0:
			local.Named = local.Named.With(name, 0)
		case !slices.ContainsFunc(ns.Resources, func(r Resources) bool { return r.Named.Get(name) > 0 }):
			return fmt.Sprintf("the pool has no resource %q", name)
		}
	}
	if most := ns.MaxJobs * ns.widest; ns.Elastic && most > 0 && need.Width() > most {
		return fmt.Sprintf("the pool never has what the task needs: %s; it has %s of at most %s each",
			need, plural(int64(ns.MaxJobs), "job"), plural(int64(ns.widest), "node"))
	}
	if len(ns.all) == 0 {
		return ""
	}
	left := need.Width()
	for _, n := range ns.all {
		if !ns.holds(n, local) {
			continue
		}
		if left--; left == 0 || ns.Elastic {
			return ""
		}
	}
	if need.Nodes > 1 {
		return "too few nodes of the pool have what the task needs: " + need.String()
	}
	return "no node of the pool has what the task needs: " + need.String()
}

// holds reports whether a node is large enough, as far as is known.
func (ns *nodes) holds(n *Node, need pool.Need) bool {
	switch {
	case n.known:
		return need.Fits(n.size)
	case !need.Named.Fits(ns.resources(n.Spec.Name, n.Spec.Host)):
		return false
	case n.Spec.Jobs != nil:
		return true
	}
	return (n.Spec.Slots == 0 || need.CPUs <= n.Spec.Slots) && (n.Spec.Slots > 0 || n.Spec.Most == 0 || need.CPUs <= n.Spec.Most)
}

// resources returns those of a node: its own entry, or else that of all nodes.
func (ns *nodes) resources(node, host string) pool.Named {
	var own, all pool.Named
	for _, r := range ns.Resources {
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

// tooLong returns why no pilot could ever run a task to its end, or "".
func (ns *nodes) tooLong(t *pool.Task) string {
	if d := cmp.Or(t.Spec.Time, ns.TimePerTask); ns.longest > 0 && d > ns.longest {
		return fmt.Sprintf("no job of the pool is long enough: it takes %v, a job has %v for it", d, ns.longest)
	}
	return ""
}

// recallAll has the workers give back what they have not started.
func (ns *nodes) recallAll() {
	for _, w := range ns.workers {
		for _, q := range w.backlog {
			for _, a := range q {
				ns.recall(a)
			}
		}
	}
}

// leaves is called when a worker ends by itself: it ends tasks, or gives them back, without a
// request.
func (ns *nodes) leaves(w *Worker) {
	if !w.ending {
		w.leaving = ns.now
	}
	w.ending = true
	ns.close(w)
}
