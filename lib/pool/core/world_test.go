package core

import (
	"fmt"
	"maps"
	"slices"
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
	closed  *Closing
	counted int // the last answer to RemoveNodes

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
		var past Past
		if r := w.past[seq]; r != nil {
			past.State, past.Seconds, t.Attempt = r.state, r.seconds, r.attempt
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
			r.state, r.attempt, r.worker = Started, e.Run.Attempt, w.process(e.Worker)
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
		case Counted:
			w.counted = e.Count
		case CloseRun:
			w.closed = &e.Closing
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
	delivers, waits, alone := false, false, len(w.core.orphans.all) > 0
	for _, n := range w.core.nodes.all {
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
