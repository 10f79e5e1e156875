package core

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Status is what --status writes and jobpool ctl status shows.
type Status struct {
	Time  time.Time `json:"time"`
	Phase string    `json:"phase"`
	Why   string    `json:"why,omitempty"`
	// HandingOver: only this scheduler ends, and the next one continues the run.
	HandingOver bool `json:"handing_over,omitempty"`

	Done      int64      `json:"done"`
	Failed    int64      `json:"failed"`
	Cancelled int64      `json:"cancelled"`
	Skipped   int64      `json:"skipped"`
	Running   int        `json:"running"`
	Waiting   int        `json:"waiting"`
	Depends   int        `json:"depends,omitempty"` // of the waiting: for other tasks
	Orphaned  int        `json:"-"`                 // of the waiting: they may still run
	Held      int        `json:"held"`
	Lost      int64      `json:"lost"`
	InputRead bool       `json:"input_read"`     // to its end
	Rate      float64    `json:"rate"`           // tasks a second
	Mean      float64    `json:"mean,omitempty"` // seconds of a task
	ETA       float64    `json:"eta,omitempty"`
	Elapsed   float64    `json:"elapsed"`
	EndOfJob  *time.Time `json:"end_of_job,omitempty"`
	CPUs      int        `json:"cpus"`
	CPUsUsed  int        `json:"cpus_used"`
	// Jobs is how many jobs as large as the largest so far the other waiting tasks fill at once, in a pool
	// that gets its own jobs; 0: none, or no job has come.
	Jobs float64 `json:"jobs,omitempty"`
	// Resources are those that the tasks of all nodes share.
	Resources []ResourceStatus `json:"resources,omitempty"`
	Nodes     []NodeStatus     `json:"nodes"`
	// Width is the most nodes that a waiting task needs; 0: none waits.
	Width int `json:"-"`
}

// NodeStatus is a node in a Status.
type NodeStatus struct {
	Name   string `json:"name"`
	State  string `json:"state"` // up, closed, trial, quarantined, lost, released, unreachable, connecting
	Reason string `json:"reason,omitempty"`
	// Fault is why the host is to be avoided: it was quarantined, or its workers have died again and again.
	Fault   string `json:"fault,omitempty"`
	CPUs    int    `json:"cpus"`
	Free    int    `json:"free"`
	GPUs    int    `json:"gpus"`
	Running int    `json:"running"`
	Queued  int    `json:"queued"`
	Done    int64  `json:"done"`
	Lost    int64  `json:"lost"`
	PID     int    `json:"pid,omitempty"` // of the worker
	// Closes is until when a waiting task may start there to end before the job does; nil: no task
	// waits, or the job has no end.
	Closes *time.Time `json:"closes,omitempty"`
	// MemLimit says how the memory of tasks is limited there; empty: not at all, or not known yet.
	MemLimit wire.MemLimit `json:"mem_limit,omitempty"`

	Resources []ResourceStatus `json:"resources,omitempty"`
}

// ResourceStatus is a named resource. Amounts are numbers, with up to three decimals.
type ResourceStatus struct {
	Name  string `json:"name"`
	Total string `json:"total"`
	Free  string `json:"free"`
}

func resourceStatus(total, free pool.Named) (out []ResourceStatus) {
	for _, name := range total.Names() {
		out = append(out, ResourceStatus{name, total.Get(name).Number(), free.Get(name).Number()})
	}
	return out
}

// Status returns the present state.
func (c *Core) Status(now time.Time) *Status {
	c.now = now
	s, orphaned := &c.tasks.stats, c.orphans.attempts()
	st := &Status{
		Time: now, Phase: c.ending.Phase().String(), Why: c.ending.why(), HandingOver: c.ending.hand != keeps && c.ending.closed == nil,
		Done: s.done - s.outputLost, Failed: s.failed + s.outputLost,
		Cancelled: s.cancelled, Skipped: s.skipped, Held: len(c.tasks.onHold), Lost: s.lost,
		Waiting: c.pool.Waiting() + c.tasks.deps.waiting() + orphaned + len(c.tasks.undecided) + len(c.tasks.sweeps),
		Depends: c.tasks.deps.waiting(), Orphaned: orphaned, Width: c.pool.Width(),
		InputRead: c.tasks.eof, Rate: s.rate(now), Elapsed: now.Sub(c.began).Seconds(),
	}
	if c.Shared != (pool.Named{}) {
		st.Resources = resourceStatus(c.Shared, c.pool.SharedFree())
	}
	if !c.ending.ofJob.IsZero() {
		st.EndOfJob = &c.ending.ofJob
	}
	if c.tasks.measured > 0 {
		st.Mean = c.tasks.took / float64(c.tasks.measured)
	}
	soonest, waits := c.tasks.soonest()
	for _, n := range c.nodes.all {
		st.Waiting += len(n.held)
		ns := NodeStatus{Name: n.Spec.Name, State: "connecting", Done: n.done, Lost: n.lost, MemLimit: n.enforce, Fault: n.fault}
		if end, margin := c.nodes.endOf(n); waits && !end.IsZero() {
			closes := end.Add(-margin - soonest)
			ns.Closes = &closes
		}
		switch w := n.Worker; {
		case w != nil && w.connected():
			ns.State = "up"
			switch {
			case n.quarantine:
				ns.State, ns.Reason = "quarantined", n.why
			case n.trial:
				ns.State = "trial"
			case w.State != Ready:
				ns.State = "closed"
			}
			ns.CPUs, ns.Free, ns.GPUs = w.n.Total().CPUs, w.n.Free().CPUs, w.n.Total().GPUs
			ns.Queued, ns.Running, ns.PID = w.queued, len(w.attempts)+len(w.shared)-w.queued, w.hello.PID
			ns.Resources = resourceStatus(w.n.Total().Named, w.n.Free().Named)
			st.CPUs += ns.CPUs
			st.CPUsUsed += ns.CPUs - ns.Free
			st.Running += len(w.attempts) - w.queued
			st.Waiting += ns.Queued
		case n.released && !c.orphans.mayRun(n):
			ns.State = "released"
		case n.dropped && n.up.IsZero():
			ns.State, ns.Reason = "unreachable", n.why
		case n.dropped || n.lost > 0:
			ns.State, ns.Reason = "lost", n.why
		}
		st.Nodes = append(st.Nodes, ns)
	}
	if c.Elastic {
		st.Jobs = c.justified()
	}
	if rate := s.average(now); c.tasks.eof && rate > 0 {
		st.ETA = float64(st.Running+st.Waiting) / rate
	}
	return st
}

// justified returns how many jobs the tasks fill that wait for nothing but room.
func (c *Core) justified() float64 {
	jobs := map[string]pool.Need{}
	for _, w := range c.nodes.workers {
		if w.connected() {
			job := cmp.Or(w.Node.Spec.Job, w.Node.Spec.Name)
			jobs[job] = jobs[job].And(w.n.Total())
			c.nodes.largest = c.nodes.largest.Largest(jobs[job])
		}
	}
	if c.nodes.largest.CPUs == 0 {
		return 0
	}
	d := c.pool.Demand()
	for _, a := range c.tasks.attempts {
		if a.slot == nil {
			d.Add(a.task.Spec, 1)
		}
	}
	return d.Jobs(c.nodes.largest, c.Shared, c.pool.SharedFree())
}

// TaskInfo is a task that has not ended.
type TaskInfo struct {
	Task    *pool.Task
	State   string // running, ending, queued, judging, lost, held, depends, waiting
	Node    string
	PID     int
	Seconds float64
	Reason  string
}

// List returns the tasks that have not ended; of pending ones, at most that many.
func (c *Core) List(most int) []TaskInfo { return c.tasks.list(most) }

func (ts *tasks) list(most int) []TaskInfo {
	var out []TaskInfo
	for _, a := range sorted(ts.attempts) {
		i := TaskInfo{Task: a.task, State: "running", Node: a.nodeNames(), PID: a.pid, Seconds: ts.now.Sub(a.sent).Seconds()}
		if a.slot == nil {
			i.State = "queued"
		}
		out = append(out, i)
	}
	for _, s := range ts.sweeps {
		out = append(out, TaskInfo{
			Task: s.attempt.task, State: "ending", Node: s.attempt.nodeNames(),
			Reason: "its command has ended; its remaining processes on other nodes are being ended",
		})
	}
	for _, p := range ts.onHold {
		out = append(out, TaskInfo{Task: p.task, State: "held", Node: p.result.Node, Reason: "it " + p.result.Describe()})
	}
	for _, n := range ts.nodes.all {
		for _, p := range n.held {
			reason := "it " + p.result.Describe() + ", as did the last tasks there"
			out = append(out, TaskInfo{Task: p.task, State: "judging", Node: n.Spec.Name, Reason: reason})
		}
	}
	for _, w := range ts.orphans.all {
		for _, a := range sorted(w.attempts) {
			out = append(out, TaskInfo{Task: a.task, State: "lost", Node: w.Name(), Reason: "it may still run there"})
		}
	}
	for _, t := range ts.deps.all() {
		name, _ := ts.deps.unmet(t)
		out = append(out, TaskInfo{Task: t, State: "depends", Reason: fmt.Sprintf("waits for %q", name)})
	}
	slices.SortFunc(out, func(a, b TaskInfo) int { return cmp.Compare(a.Task.Seq, b.Task.Seq) })
	if most > 0 {
		ts.pool.Each(func(t *pool.Task) bool {
			out = append(out, TaskInfo{Task: t, State: "waiting"})
			most--
			return most > 0
		})
	}
	return out
}

// Explain returns what a task waits for, one reason per line. It is empty if the task is unknown or
// has ended.
func (c *Core) Explain(seq int64, now time.Time) []string {
	c.now = now
	for _, i := range c.tasks.list(0) {
		if i.Task.Seq != seq {
			continue
		}
		switch i.State {
		case "running":
			return []string{fmt.Sprintf("it runs on %s, attempt %d", i.Node, i.Task.Attempt)}
		case "queued":
			return []string{"it is queued on " + i.Node + ", and begins when a task of the same kind ends there"}
		case "ending":
			return []string{i.Reason}
		case "held":
			return []string{i.Reason + "; it is on hold until \"jobpool ctl retry\" or \"cancel\""}
		case "judging":
			return []string{i.Reason + ": it is tried elsewhere unless the next task succeeds there"}
		case "lost":
			return []string{"its connection to " + i.Node + " was lost: it runs again when it is known to have ended there"}
		}
		return c.explainDependent(i.Task)
	}
	if t := c.pool.Find(seq); t != nil {
		return c.explainWaiting(t)
	}
	for _, l := range c.tasks.undecided {
		if l.task.Seq == seq {
			return []string{"it was ended by a signal: whether its node is being ended will be known in a moment"}
		}
	}
	return nil
}

func (c *Core) explainDependent(t *pool.Task) []string {
	var names []string
	more := 0
	for _, name := range t.Extra.After {
		if c.tasks.deps.of(name) != depsWait {
			continue
		}
		if len(names) < 10 {
			names = append(names, name)
		} else {
			more++
		}
	}
	line := "it depends on tasks that have not ended: " + strings.Join(names, ", ")
	if more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return []string{line}
}

// explainWide returns how many of its nodes a task of several can have.
func (c *Core) explainWide(need pool.Need) string {
	n, line := c.pool.WithRoom(need), "%d of %d nodes have room at the moment"
	if there := c.pool.There(need); there < need.Width() {
		n, line = there, "%d of %d nodes are there"
	}
	line = fmt.Sprintf(line, n, need.Width())
	switch {
	case !c.Elastic:
	case need.Width() <= c.pool.Together():
		line += ": all are to be of one job"
	default:
		line += ": they are to be different hosts"
	}
	return line
}

func (c *Core) explainWaiting(t *pool.Task) []string {
	need := t.Need()
	out := []string{"it needs " + need.String()}
	before := 0
	c.pool.Each(func(o *pool.Task) bool {
		if o.Spec.Priority > t.Spec.Priority || o.Spec.Priority == t.Spec.Priority && o.Seq < t.Seq {
			before++
		}
		return true
	})
	switch {
	case c.ending.Phase() != Running:
		out = append(out, "nothing new is started: "+c.ending.why())
	case c.ending.paused():
		out = append(out, "nothing new is started: the journal cannot be written")
	case c.ending.choked:
		out = append(out, "nothing new is started: too much output waits to be printed")
	case c.nodes.few() && c.tasks.stats.attempts == 0:
		out = append(out, fmt.Sprintf("nothing is started before %d nodes are connected", c.MinNodes))
	case c.tasks.late(t):
		took := c.tasks.expected(t).Round(time.Second)
		out = append(out, fmt.Sprintf("it is expected to take %v, and would not end before the job does", took))
	case before > 0:
		out = append(out, plural(int64(before), "task")+" before it")
	}
	free := c.pool.SharedFree()
	if need.Nodes > 1 {
		out = append(out, c.explainWide(need))
	}
	for _, name := range need.Named.Names() {
		if all := c.Shared.Get(name); all > 0 && free.Get(name) < need.Named.Get(name) {
			out = append(out, fmt.Sprintf("resource %s: %v of %v are free", name, free.Get(name), all))
		}
	}
	if c.pool.Hold && slices.ContainsFunc(need.Named.Names(), func(name string) bool { return c.Shared.Get(name) > 0 }) {
		out = append(out, "workers of the previous run may have tasks running that use what all nodes share")
	}
	kept, keptNodes := c.pool.Kept()
	for _, n := range c.nodes.all {
		var why string
		switch w := n.Worker; {
		case n.quarantine:
			why = "quarantined: " + n.why
		case n.released:
			why = "given back"
		case n.dropped:
			why = "not used: " + n.why
		case w == nil || !w.connected():
			why = "not connected"
		case w.ending:
			why = "its worker is being ended"
		case w.State == Waiting && w.check != checked:
			why = w.check.String() + " runs"
		case w.State == Waiting:
			why = "tasks of the previous worker may still run there"
		case !w.n.FitsNode(need):
			why = "too small: it has " + w.n.Total().String()
		case n.trial:
			why = fmt.Sprintf("on trial after %s in a row: gets one task at a time", plural(int64(n.row), "failure"))
		case !w.n.HasRoom(need):
			why = "busy: free are " + w.n.Free().String()
		case kept != nil && kept != t && slices.Contains(keptNodes, w.n):
			why = fmt.Sprintf("kept free for task %d, which is before it", kept.Seq)
		case t.Company > 0 && w.n.Running() >= int(t.Company):
			why = fmt.Sprintf("has others running: a worker or the scheduler died when it ran, so at most %d run beside it", t.Company-1)
		case t.Avoid != nil && t.Avoid.Name == w.n.Name:
			why = "it failed there"
		default:
			why = "has room"
		}
		out = append(out, "node "+n.Spec.Name+": "+why)
	}
	return out
}
