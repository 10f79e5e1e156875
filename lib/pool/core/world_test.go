package core

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// world is all that is around a core: machines with worker processes, connections
// that can be cut, a journal, and a clock. It does one thing at a time, and which is
// chosen from outside. It knows what really runs.
type world struct {
	cfg     Config
	needs   []pool.Need // of the tasks 1, 2, ...
	ways    []pool.Variants
	now     time.Time
	core    *Core
	session int
	nodes   []*box
	asked   []*Worker // connections that the core waits for
	read    int       // tasks that this core has read
	chunk   int       // how many are read at a time; 0: all

	// The run directory.
	past    map[int64]*record
	known   []*process // workers of the journal that are not gone
	lease   time.Time
	ended   map[int64]int
	outcome map[int64]wire.Outcome

	begun    map[int64]int // how often it really began
	losses   int           // of workers, and restarts
	restarts int
	pids     int
	broken   string // what should never happen
}

type record struct {
	state   PastState
	seconds float64
	attempt int32
	variant int
	worker  *process
}

// box is a machine.
type box struct {
	name      string
	cpus      int
	processes []*process
	remnants  map[wire.Key]int // CPUs of what tasks of other nodes have started here
	down      bool
}

// process is a worker.
type process struct {
	id       int
	box      *box
	identity wire.Identity
	worker   *Worker // as the core has it; nil: of a core before
	linked   bool    // the connection is there, as it sees it
	alive    bool
	inbox    []*wire.Message
	outbox   []wire.Message
	queue    []*wire.Run
	running  map[wire.Key]*wire.Run
	lease    time.Time
	await    []*process
}

const leaseTime = 100 * time.Second

func newWorld(cfg Config, needs []pool.Need, cpus ...int) *world {
	w := &world{
		cfg: cfg, needs: needs, now: time.Unix(1e9, 0), past: map[int64]*record{}, ended: map[int64]int{}, outcome: map[int64]wire.Outcome{},
		begun: map[int64]int{},
	}
	w.cfg.Lease, w.cfg.NodeTimeout, w.cfg.ConnectTimeout = leaseTime, 80*time.Second, time.Minute
	w.cfg.MinNodes, w.cfg.ReadAhead = 1, 1000
	for i, n := range cpus {
		w.nodes = append(w.nodes, &box{name: fmt.Sprint("n", i+1), cpus: n, remnants: map[wire.Key]int{}})
		w.cfg.Nodes = append(w.cfg.Nodes, NodeSpec{Name: fmt.Sprint("n", i+1), Slots: n})
	}
	w.boot()
	return w
}

// boot starts a scheduler.
func (w *world) boot() {
	w.session++
	w.cfg.Session = fmt.Sprint("s", w.session)
	w.cfg.Past = nil
	w.asked, w.read = nil, 0
	for _, b := range w.nodes {
		for _, p := range b.processes {
			p.worker = nil
		}
	}
	for _, p := range w.known {
		if w.now.Before(w.lease) {
			w.cfg.Past = append(w.cfg.Past, PastWorker{Key: uint16(p.id), Identity: p.identity, Until: w.lease})
		}
	}
	w.core = New(w.cfg, w.now)
	w.handle(Tick{})
}

// readMore hands over the input, or its next part.
func (w *world) readMore() {
	var in []Input
	for i, need := range w.needs {
		if i < w.read || w.chunk > 0 && i >= w.read+w.chunk {
			continue
		}
		seq := int64(i + 1)
		t := &pool.Task{Seq: seq, Text: "x", Spec: &pool.Spec{Need: need}}
		if i < len(w.ways) {
			t.Spec.Variants = w.ways[i]
		}
		var past Past
		if r := w.past[seq]; r != nil {
			past.State, past.Seconds, past.Variant, t.Attempt = r.state, r.seconds, r.variant, r.attempt
			if r.worker != nil {
				past.Worker = uint16(r.worker.id)
			}
		}
		in = append(in, Input{Task: t, Past: past})
	}
	w.read += len(in)
	w.handle(Tasks{in})
	if w.read == len(w.needs) {
		w.handle(InputEnded{})
	}
}

func (w *world) record(seq int64) *record {
	if w.past[seq] == nil {
		w.past[seq] = &record{}
	}
	return w.past[seq]
}

// handle passes an event on and does what follows.
func (w *world) handle(e Event) {
	for _, effect := range slices.Clone(w.core.Handle(e, w.now)) {
		switch e := effect.(type) {
		case Connect:
			w.asked = append(w.asked, e.Worker)
		case Setup:
			w.lease = e.Until
			p := w.process(e.Worker)
			for _, o := range e.Orphans {
				for _, q := range p.box.processes {
					if q.identity.Session == o.Session && q.identity.Processes[0] == o.Processes[0] {
						p.await = append(p.await, q)
					}
				}
			}
		case Lease:
			w.lease = e.Until
			w.process(e.Worker).lease = w.now.Add(leaseTime)
		case Start:
			r := w.record(e.Run.Seq)
			r.state, r.attempt, r.variant, r.worker = Started, e.Run.Attempt, max(0, e.Run.Variant-1), w.process(e.Worker)
			w.toWorker(e.Worker, &wire.Message{Run: e.Run})
		case Send:
			w.toWorker(e.Worker, e.Message)
		case Close:
			if p := w.process(e.Worker); p != nil {
				p.linked = false
			}
		case NodeEvent:
			switch p := w.byIdentity(e.Worker); e.What {
			case "up":
				w.known = append(w.known, p)
			case "gone":
				w.known = slices.DeleteFunc(w.known, func(q *process) bool { return q == p })
			}
		case Tried:
			if r := w.record(e.Task.Seq); r.state == Started {
				r.state = Unrun
			}
		case Ended:
			w.ended[e.Task.Seq]++
			w.outcome[e.Task.Seq] = e.Result.What
			if w.record(e.Task.Seq).state = Failed; e.Result.What == wire.OK {
				w.record(e.Task.Seq).state = Succeeded
			}
		}
	}
	w.check()
}

func (w *world) process(x *Worker) *process {
	for _, b := range w.nodes {
		for _, p := range b.processes {
			if p.worker == x && x != nil {
				return p
			}
		}
	}
	return nil
}

func (w *world) byIdentity(id *wire.Identity) *process {
	if id == nil {
		return nil
	}
	for _, b := range w.nodes {
		for _, p := range b.processes {
			if p.identity.Session == id.Session && len(id.Processes) > 0 && p.identity.Processes[0] == id.Processes[0] {
				return p
			}
		}
	}
	return nil
}

func (w *world) toWorker(x *Worker, m *wire.Message) {
	if p := w.process(x); p != nil && p.linked {
		p.inbox = append(p.inbox, m)
	}
}

// action is something that may happen next.
type action struct {
	format string
	args   []any
	do     func()
}

func (a action) name() string { return fmt.Sprintf(a.format, a.args...) }

// actions are those that may happen now, in a fixed order.
func (w *world) actions(mayLose, mayRestart bool) []action {
	var out []action
	add := func(do func(), format string, args ...any) {
		out = append(out, action{format, args, do})
	}
	if w.read < len(w.needs) {
		add(w.readMore, "read the input")
	}
	for i, x := range w.asked {
		add(func() { w.connect(i) }, "connect %s", x.Name())
	}
	delivers, waits, alone := false, false, len(w.core.orphans) > 0
	for _, n := range w.core.nodes {
		waits = waits || n.Worker != nil && n.Worker.State == Planned
	}
	for _, b := range w.nodes {
		for _, p := range b.processes {
			if !p.alive {
				if p.worker != nil && p.linked {
					add(func() { w.lost(p, Died) }, "hear of the death of %d", p.id)
				}
				continue
			}
			alone = alone || !p.linked || p.worker == nil
			if len(p.inbox) > 0 && !delivers {
				delivers = true // which of two is the first makes no difference
				add(func() { w.deliver(p) }, "deliver to %d", p.id)
			}
			if len(p.outbox) > 0 && p.linked && p.worker != nil {
				add(func() { w.hear(p) }, "hear from %d", p.id)
			}
			for _, k := range slices.SortedFunc(maps.Keys(p.running), func(a, b wire.Key) int { return int(a.Seq - b.Seq) }) {
				add(func() { w.end(p, k, 0) }, "end %d at %d", k.Seq, p.id)
			}
			if len(p.await) > 0 && !slices.ContainsFunc(p.await, func(q *process) bool { return q.alive }) {
				add(func() { p.await = nil; clear(p.box.remnants); p.outbox = append(p.outbox, wire.Message{Clear: true}) }, "%d sees that orphans are gone", p.id)
			}
			if !p.linked || p.worker == nil {
				add(func() { p.stopAlone() }, "%d sees that it is alone", p.id)
			} else if mayLose {
				add(func() { w.losses++; w.lost(p, Unknown) }, "cut off %d", p.id)
				add(func() { w.losses++; p.stop() }, "kill %d", p.id)
			}
		}
	}
	if mayRestart {
		add(func() { w.restarts++; w.kill(); w.boot() }, "restart the scheduler")
	}
	if waits {
		add(func() { w.advance(time.Second) }, "wait a second")
	}
	if alone {
		add(func() { w.advance(leaseTime + 3*time.Second) }, "wait for leases")
	}
	return out
}

func (w *world) connect(i int) {
	x := w.asked[i]
	w.asked = slices.Delete(w.asked, i, i+1)
	b := w.nodes[slices.IndexFunc(w.nodes, func(b *box) bool { return b.name == x.Name() })]
	if b.down {
		w.handle(NotConnected{Worker: x, Why: "no route to host"})
		return
	}
	w.pids++
	p := &process{id: w.pids, box: b, worker: x, linked: true, alive: true, running: map[wire.Key]*wire.Run{}, lease: w.now.Add(leaseTime)}
	p.identity = wire.Identity{Session: w.cfg.Session, Node: b.name, Kernel: b.name, Processes: []wire.Process{{PID: p.id}}}
	b.processes = append(b.processes, p)
	hello := &wire.Hello{Mem: 1 << 30, GPUs: []pool.GPU{{ID: "g", NUMA: -1}}, Kernel: b.name, Processes: p.identity.Processes}
	for id := range b.cpus {
		hello.CPUs = append(hello.CPUs, pool.CPU{ID: id, Core: id})
	}
	w.handle(Connected{x, hello})
}

// lost ends a connection as the core sees it.
func (w *world) lost(p *process, end End) {
	p.linked, p.outbox = false, nil
	w.handle(ConnectionLost{p.worker, "lost", end})
}

// stop is the end of a worker and of its tasks.
func (p *process) stop() {
	p.alive = false
	clear(p.running)
	p.queue, p.inbox, p.outbox = nil, nil, nil
}

// stopAlone is the end of a worker that has lost its scheduler. If that is gone as well, nobody
// knows what tasks of other nodes have started here: that ends with their commands.
func (p *process) stopAlone() {
	p.stop()
	if p.worker == nil && !slices.ContainsFunc(p.box.processes, func(q *process) bool { return q.alive }) {
		clear(p.box.remnants)
	}
}

// deliver lets a worker have the next message.
func (w *world) deliver(p *process) {
	m := p.inbox[0]
	p.inbox = p.inbox[1:]
	switch {
	case m.Run != nil && m.Run.Again:
		if i := slices.IndexFunc(p.queue, func(r *wire.Run) bool { return r.Key == m.Run.Key }); i >= 0 {
			p.queue = slices.Delete(p.queue, i, i+1)
			w.begin(p, m.Run)
		}
	case m.Run != nil && m.Run.Follow:
		p.queue = append(p.queue, m.Run)
	case m.Run != nil:
		w.begin(p, m.Run)
	case m.Unrun != nil:
		if i := slices.IndexFunc(p.queue, func(r *wire.Run) bool { return r.Key == *m.Unrun }); i >= 0 {
			p.queue = slices.Delete(p.queue, i, i+1)
			p.outbox = append(p.outbox, wire.Message{Back: m.Unrun})
		}
	case m.Sweep != nil:
		delete(p.box.remnants, *m.Sweep)
		p.outbox = append(p.outbox, wire.Message{Swept: m.Sweep})
	case m.Kill != nil && m.Kill.Why == wire.Lost: // of a task of several nodes
		if p.running[m.Kill.Key] != nil {
			delete(p.running, m.Kill.Key)
			p.outbox = append(p.outbox, wire.Message{Done: &wire.Done{Key: m.Kill.Key, What: wire.Lost}})
		}
	case m.Bye:
		p.stop()
		if w.core.Finished() {
			p.linked = false
		} else {
			w.lost(p, Left)
		}
	}
	w.check()
}

func (w *world) begin(p *process, r *wire.Run) {
	p.running[r.Key] = r
	w.begun[r.Seq]++
	if len(r.Nodes) != r.Need.Width() && (r.Nodes != nil || r.Need.Nodes > 1) {
		w.broken = fmt.Sprintf("task %d needs %v, and has %v", r.Seq, r.Need, r.Nodes)
	}
	for _, b := range w.nodes {
		for i, part := range r.Nodes {
			if i > 0 && part.Node == b.name {
				b.remnants[r.Key] = r.Need.CPUs
			}
		}
	}
}

// end lets a task end.
func (w *world) end(p *process, k wire.Key, exit int) {
	r := p.running[k]
	delete(p.running, k)
	d := &wire.Done{Key: k, Exit: exit, Seconds: 0.001}
	if i := slices.IndexFunc(p.queue, func(q *wire.Run) bool { return q.Need == r.Need }); i >= 0 {
		next := p.queue[i]
		p.queue = slices.Delete(p.queue, i, i+1)
		d.Next = &next.Key
		w.begin(p, next)
	}
	p.outbox = append(p.outbox, wire.Message{Done: d})
	w.check()
}

// hear lets the core have the next message of a worker.
func (w *world) hear(p *process) {
	m := p.outbox[0]
	p.outbox = p.outbox[1:]
	w.handle(Received{p.worker, []wire.Message{m}})
}

// kill ends the scheduler: its workers are alone. Where the worker is dead as well, nobody
// knows what tasks of other nodes have started: that ends with their commands.
func (w *world) kill() {
	for _, b := range w.nodes {
		if !slices.ContainsFunc(b.processes, func(p *process) bool { return p.alive }) {
			clear(b.remnants)
		}
		for _, p := range b.processes {
			p.linked, p.worker, p.inbox, p.outbox = false, nil, nil, nil
		}
	}
}

// advance lets time pass. Workers ask for leases in time; one that gets none has
// ended its tasks when it is over.
func (w *world) advance(d time.Duration) {
	for left := d; left > 0; {
		step := min(left, 30*time.Second)
		left -= step
		w.now = w.now.Add(step)
		for _, b := range w.nodes {
			for _, p := range b.processes {
				if p.alive && p.linked && p.worker != nil {
					w.handle(Received{p.worker, []wire.Message{{Renew: 1}}})
				} else if p.alive && !w.now.Before(p.lease) {
					p.stopAlone()
				}
			}
		}
		w.handle(Tick{})
	}
}

// check looks for what should never be.
func (w *world) check() {
	if w.broken != "" {
		return
	}
	at := map[int64]string{}
	licences := pool.Amount(0)
	for _, b := range w.nodes {
		used, shares, scratch := 0, int32(0), pool.Amount(0)
		for _, cpus := range b.remnants {
			used += cpus
		}
		for _, p := range b.processes {
			for k, r := range p.running {
				used += r.Need.CPUs
				shares += r.Need.Share + int32(r.Need.GPUs)*pool.WholeGPU
				scratch += r.Need.Named.Get("scratch")
				licences += r.Need.Named.Get("licence")
				if other := at[k.Seq]; other != "" {
					w.broken = fmt.Sprintf("task %d runs at %s and %s.%d", k.Seq, other, b.name, p.id)
				}
				at[k.Seq] = fmt.Sprint(b.name, ".", p.id)
			}
		}
		if used > b.cpus {
			w.broken = fmt.Sprintf("node %s has %d CPUs, and gave %d", b.name, b.cpus, used)
		}
		if has := w.core.resources(b.name, "").Get("scratch"); scratch > has || shares > pool.WholeGPU {
			w.broken = fmt.Sprintf("node %s has %v scratch and a GPU, and gave %v and %d", b.name, has, scratch, shares)
		}
	}
	if has := w.cfg.Shared.Get("licence"); licences > has {
		w.broken = fmt.Sprintf("there are %v licences, %v are used", has, licences)
	}
	for seq, n := range w.ended {
		if n > 1 {
			w.broken = fmt.Sprintf("task %d ended %d times", seq, n)
		}
	}
	c := w.core
	given := pool.Amount(0)
	note := func(a *attempt) {
		if a.slot != nil || a.claim != nil {
			given += a.task.Need().Named.Get("licence")
		}
	}
	for _, a := range c.attempts {
		note(a)
	}
	for _, s := range c.sweeps {
		note(s.attempt)
	}
	for _, o := range c.orphans {
		for _, a := range append(sorted(o.attempts), o.cancelled...) {
			note(a)
			if a.task.Need().Named.Get("licence") > 0 && a.slot == nil && a.claim == nil {
				w.broken = fmt.Sprintf("task %d may run without its licence", a.task.Seq)
			}
		}
	}
	if free := c.pool.SharedFree().Get("licence"); free+given != c.Shared.Get("licence") {
		w.broken = fmt.Sprintf("%v licences are free, and %v given", free, given)
	}
	opening, orphaned := 0, 0
	for _, n := range c.nodes {
		if n.Worker != nil && n.Worker.State <= Waiting {
			opening++
		}
	}
	for _, o := range c.orphans {
		orphaned += len(o.attempts)
	}
	if opening != c.opening || orphaned != c.orphaned {
		w.broken = fmt.Sprintf("counted %d opening, %d doubts; there are %d, %d", c.opening, c.orphaned, opening, orphaned)
	}
}

// fingerprint is the same for worlds from which the same can happen.
func (w *world) fingerprint() string {
	var b strings.Builder
	rel := func(t time.Time) int64 {
		if t.IsZero() {
			return -1
		}
		return int64(t.Sub(w.now) / time.Second)
	}
	fmt.Fprintf(&b, "%d %d %d %d ", w.losses, w.restarts, w.read, rel(w.lease))
	for _, x := range w.asked {
		fmt.Fprintf(&b, "ask %s ", x.Name())
	}
	for _, n := range w.nodes {
		fmt.Fprintf(&b, "%s %d ", n.name, len(n.remnants))
		for _, p := range n.processes {
			fmt.Fprintf(&b, "| %v %v %v %d %d %d ", p.alive, p.linked, p.worker != nil, rel(p.lease), len(p.await), slices.Index(w.known, p))
			if p.worker != nil {
				fmt.Fprintf(&b, "%v ", p.worker.State)
			}
			for _, m := range p.inbox {
				b.WriteString(mark(m))
			}
			for _, m := range p.outbox {
				b.WriteString(mark(&m))
			}
			for _, r := range p.queue {
				fmt.Fprintf(&b, "q%v ", r.Key)
			}
			for _, k := range slices.SortedFunc(maps.Keys(p.running), func(a, b wire.Key) int { return int(a.Seq - b.Seq) }) {
				fmt.Fprintf(&b, "r%v ", k)
			}
		}
	}
	c := w.core
	fmt.Fprintf(&b, "# %v %v %d ", c.phase, c.finished, c.pool.Waiting())
	for _, n := range c.nodes {
		fmt.Fprintf(&b, "n%d.%d %v ", n.reconnects, n.deaths, n.dropped)
		if x := n.Worker; x != nil {
			fmt.Fprintf(&b, "%v %d %d %d %d %d ", x.State, rel(x.until), rel(x.deadline), rel(x.heard), rel(x.granted), x.queued)
		}
	}
	for _, o := range c.orphans {
		fmt.Fprintf(&b, "x%s %v %v %d %d ", o.Name(), o.State, o.died, rel(o.until), len(o.attempts))
	}
	for _, s := range c.sweeps {
		fmt.Fprintf(&b, "s%v%d ", s.attempt.key(), len(s.left))
	}
	for i := range w.needs {
		seq := int64(i + 1)
		fmt.Fprintf(&b, "t%d ", w.ended[seq])
		if r := w.past[seq]; r != nil {
			fmt.Fprintf(&b, "%d %d %d ", r.state, r.attempt, r.variant)
		}
		if a := c.attempts[seq]; a != nil {
			fmt.Fprintf(&b, "a%v%v%v ", a.key(), a.slot != nil, a.recalled)
		}
		if t := c.pool.Find(seq); t != nil {
			fmt.Fprintf(&b, "w%d.%d.%d ", t.Attempt, t.Losses, t.Company)
		}
		for _, o := range c.orphans {
			if a := o.attempts[seq]; a != nil {
				fmt.Fprintf(&b, "o%v%d ", a.key(), rel(o.until))
			}
		}
	}
	return b.String()
}

// mark tells a message apart from others that make a difference.
func mark(m *wire.Message) string {
	switch {
	case m.Run != nil:
		return fmt.Sprintf("run%v%v%v ", m.Run.Key, m.Run.Follow, m.Run.Again)
	case m.Unrun != nil:
		return fmt.Sprintf("unrun%v ", *m.Unrun)
	case m.Kill != nil:
		return fmt.Sprintf("kill%v%v ", m.Kill.Key, m.Kill.Now)
	case m.Done != nil && m.Done.Next != nil:
		return fmt.Sprintf("done%v%d%v ", m.Done.Key, m.Done.Exit, *m.Done.Next)
	case m.Done != nil:
		return fmt.Sprintf("done%v%d ", m.Done.Key, m.Done.Exit)
	case m.Back != nil:
		return fmt.Sprintf("back%v ", *m.Back)
	case m.Sweep != nil:
		return fmt.Sprintf("sweep%v ", *m.Sweep)
	case m.Swept != nil:
		return fmt.Sprintf("swept%v ", *m.Swept)
	}
	return fmt.Sprintf("bye%v clear%v ", m.Bye, m.Clear)
}

// finish lets all that is under way end, without further losses, and goes on with
// another scheduler if this one has left something. It reports whether all tasks
// have ended well.
func (w *world) finish() bool {
	for range 40 * len(w.needs) {
		if w.broken != "" {
			return false
		}
		ok := 0
		for _, what := range w.outcome {
			if what == wire.OK {
				ok++
			}
		}
		if ok == len(w.needs) {
			return true
		}
		if w.core.Finished() && w.read == len(w.needs) {
			w.kill()
			w.boot()
		}
		all := w.actions(false, false)
		if len(all) == 0 || strings.HasPrefix(all[0].format, "wait") {
			w.advance(leaseTime + 3*time.Second)
			continue
		}
		all[0].do()
	}
	return false
}
