package scheduler

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// nodeState is a node, connected or not.
type nodeState struct {
	spec       NodeSpec
	conn       *conn
	up         time.Time // of the connection that was last
	reconnect  int       // tries since then
	dropped    bool
	released   bool
	ok         int64 // tasks that ended well there
	lost       int64
	quarantine bool
}

// conn is a connection to a worker.
type conn struct {
	h        *head
	node     *nodeState
	n        *pool.Node
	link     Link
	w        *wire.Writer
	hello    *wire.Hello
	runs     []*wire.Message // tasks, sent when the journal has them
	out      []*wire.Message // the rest
	attempts map[int64]*attempt
	backlog  map[pool.Need][]*attempt
	queued   int
	heard    time.Time
	granted  time.Time // the last lease
	await    []*former // until they are gone, the node
	shut     bool      // gets nothing
	duration float64   // of tasks, in seconds, averaged
	measured bool
	nostarts int // in a row
	quick    int // failures in less than a second, in a row
	idle     time.Time
	gone     bool
	term     bool // its worker is told to end
}

func (c *conn) name() string { return c.node.spec.Name }

func (c *conn) send(m *wire.Message) { c.out = append(c.out, m) }

// flush sends what is queued; tasks only if the journal has them.
func (c *conn) flush(written bool) {
	if written {
		for _, m := range c.runs {
			if a := c.attempts[m.Run.Seq]; a != nil {
				a.unsent = nil
			}
			c.w.SendSoon(m)
		}
		clear(c.runs)
		c.runs = c.runs[:0]
	}
	for _, m := range c.out {
		c.w.SendSoon(m)
	}
	clear(c.out)
	c.out = c.out[:0]
	c.w.Flush()
}

func (h *head) record(n *nodeState, what, why string) {
	h.Journal.Add(&journal.Record{Kind: journal.Node, Time: now(), Node: n.spec.Name, What: wire.Outcome(what), Error: wire.Text(why)})
}

// nodeUp takes a connected node into the pool.
func (h *head) nodeUp(n *nodeState, link Link, in *wire.Reader, hello *wire.Hello) {
	h.opening--
	t := time.Now()
	if h.phase >= draining || n.released || !h.noteLease(t) {
		go link.Close()
		return
	}
	if hello.Version != h.Version {
		h.Message("node %s: its worker is version %q, this is %q", n.spec.Name, hello.Version, h.Version)
	}
	cpus, pin, warning := h.cpus(n.spec, hello)
	if warning != "" {
		h.Message("node %s: %s", n.spec.Name, warning)
	}
	c := &conn{
		h: h, node: n, link: link, hello: hello, heard: t, granted: t, w: wire.NewWriter(link),
		attempts: map[int64]*attempt{}, backlog: map[pool.Need][]*attempt{},
	}
	c.n = pool.NewNode(n.spec.Name, cpus, hello.GPUs, hello.Mem)
	c.n.Data = c
	setup := h.Setup
	setup.Node, setup.Pin = n.spec.Name, pin
	setup.Threads = min(16, max(2, len(hello.CPUs)))
	setup.HideGPUs, setup.GPUVar = len(hello.GPUs) > 0, hello.GPUVar
	if n.spec.Local {
		setup.Env = nil
	}
	for _, f := range h.formers {
		if f.Kernel != "" && f.Kernel == hello.Kernel && !f.Finish {
			setup.Former = append(setup.Former, f.Former)
			c.await = append(c.await, f)
			c.shut = c.shut || f.Node == n.spec.Name
		}
	}
	c.w.Send(&wire.Message{Setup: &setup})
	n.conn, n.up = c, t
	h.conns = append(h.conns, c)
	h.pool.AddNode(c.n)
	if c.shut { // what ran there before has the CPUs
		h.opening++
		h.pool.Close(c.n)
	}
	identity := c.identity()
	h.Journal.Add(&journal.Record{Kind: journal.Node, Time: now(), Node: n.spec.Name, What: journal.Up, Worker: &identity, Error: wire.Text(fmt.Sprintf("%d CPUs, %d GPUs, %d bytes, worker %s is process %d of %s", len(cpus), len(hello.GPUs), hello.Mem, hello.Version, hello.PID, hello.Host))})
	if h.opening == 0 {
		h.allTried()
	}
	go c.read(in)
}

// cpus says which CPUs of a node tasks get, and whether they are bound to them.
func (h *head) cpus(spec NodeSpec, hello *wire.Hello) (cpus []pool.CPU, pin bool, warning string) {
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
	switch h.Pin {
	case PinCores:
		pin = want <= seen
		if !pin {
			warning = fmt.Sprintf("tasks are not bound to CPUs: %d are wanted, %d visible", want, seen)
		}
	case PinAuto:
		pin = spec.Most > 0 && seen <= spec.Most && want <= seen
	case PinNone:
	}
	if want <= seen && (pin || spec.Most == 0 || seen <= spec.Most) {
		return hello.CPUs[:want], pin, warning
	}
	for id := range want {
		cpus = append(cpus, pool.CPU{ID: id, Core: id})
	}
	return cpus, false, warning
}

// nodeFailed gives a node up.
func (h *head) nodeFailed(n *nodeState, err error) {
	h.opening--
	if h.phase >= draining {
		return
	}
	n.dropped = true
	h.Message("node %s: not used: %v", n.spec.Name, oneLine(err))
	h.record(n, "unreachable", err.Error())
	if h.opening == 0 {
		h.allTried()
	}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// allTried is called when no node is to come any more.
func (h *head) allTried() {
	if len(h.conns) == 0 {
		h.stop(draining, "no node can be used", 3)
		return
	}
	if len(h.conns) < h.MinNodes {
		h.stop(draining, fmt.Sprintf("%d nodes can be used, want %d", len(h.conns), h.MinNodes), 3)
	}
}

// read passes on what comes from the worker.
func (c *conn) read(in *wire.Reader) {
	for {
		var batch []wire.Message
		var err error
		for len(batch) == 0 || len(batch) < 256 && in.Buffered() {
			var m wire.Message
			if err = in.Next(&m); err != nil {
				break
			}
			batch = append(batch, m)
		}
		if len(batch) > 0 {
			c.h.send(func(h *head) { c.receive(batch) })
		}
		if err != nil {
			c.h.send(func(h *head) { h.nodeLost(c, "the connection ended") })
			return
		}
		if c.h.ctx.Err() != nil {
			return
		}
	}
}

func (c *conn) receive(batch []wire.Message) {
	if c.gone {
		return
	}
	c.heard = time.Now()
	for i := range batch {
		m := &batch[i]
		switch {
		case m.Done != nil:
			c.h.done(c, m.Done)
		case m.Started != nil:
			for _, s := range m.Started {
				if a := c.attempts[s.Seq]; a != nil && a.task.Attempt == s.Attempt {
					a.pid, a.started = s.PID, s.At
				}
			}
		case m.Back != nil:
			c.h.back(c, *m.Back)
		case m.Data != nil && m.Data.Live:
			c.h.printer.liveData(c, m.Data)
		case m.Data != nil:
			c.h.printer.data(m.Data)
		case m.Signal != "":
			c.h.nodeSignal(c, m.Signal)
		case m.Renew != 0:
			c.grant(m.Renew)
		case m.Clear:
			for _, f := range slices.Clone(c.await) {
				c.h.clear(f)
			}
		case m.Note != "":
			c.h.Message("node %s: %s", c.name(), m.Note)
		case m.Fatal != "":
			c.node.reconnect = c.h.Reconnects // it would be the same again
			c.h.nodeLost(c, string(m.Fatal))
			return
		}
	}
}

// nodeSignal handles a signal that a worker got; under srun, the workers get what
// Slurm sends to the steps.
func (h *head) nodeSignal(c *conn, name string) {
	switch name {
	case "USR1":
		h.drain("drained by SIGUSR1 at node " + c.name())
	case "TERM":
		c.term = true
		h.record(c.node, "term", "the worker got SIGTERM")
		h.pool.Close(c.n)
	}
}

// nodeLost takes a node out, and its tasks back.
func (h *head) nodeLost(c *conn, why string) {
	if c.gone {
		return
	}
	c.gone = true
	closed := make(chan struct{})
	var how error
	go func() {
		how = c.link.Close()
		close(closed)
		_ = c.w.Close()
	}()
	ended := false
	select { // most often it has ended already, and says how
	case <-closed:
		if ended = c.link.Ended(); how != nil {
			why += ": " + how.Error()
		}
	case <-time.After(200 * time.Millisecond):
	}
	n := c.node
	n.conn = nil
	h.drop(c)
	h.gone += time.Since(n.up).Seconds() * float64(c.n.Total().CPUs)
	h.pool.RemoveNode(c.n)
	h.printer.lost(c)
	if h.phase < stopping && !n.released {
		h.Message("node %s: lost with %s: %s", c.name(), plural(int64(len(c.attempts)), "task"), oneLine(errors.New(why)))
	}
	h.record(n, "lost", why)
	n.lost++
	if c.shut {
		h.opening--
	}
	if h.Setup.Finish && len(c.attempts) > 0 && h.phase < stopping {
		h.foreign.adopt(c)
	}
	var lost []lostTask
	for _, a := range sorted(c.attempts) {
		delete(h.active, a.task.Seq)
		if !h.foreign.has(a.task.Seq) {
			r := newRecord(a.task, c.name(), &wire.Done{Key: a.key(), What: wire.Lost, Start: a.started, Error: wire.Text(why)})
			lost = append(lost, lostTask{a.task, r})
		}
	}
	f := h.suspect(c, lost)
	switch {
	case ended:
		h.foreign.over(f.Former)
		h.clear(f)
	case h.phase >= draining:
		h.leaveDoubts()
		fallthrough
	default:
		go func() {
			<-closed
			if c.link.Ended() {
				h.send(func(h *head) { h.foreign.over(f.Former); h.clear(f) })
			}
		}()
	}
	h.reconnect(n)
}

// reconnect plans another try; a node that goes away again and again is left.
func (h *head) reconnect(n *nodeState) {
	if h.phase >= draining || n.released || n.dropped {
		return
	}
	if time.Since(n.up) > 5*time.Minute {
		n.reconnect = 0
	}
	if n.reconnect >= h.Reconnects {
		n.dropped = true
		return
	}
	n.reconnect++
	pause := []time.Duration{time.Second, 10 * time.Second, time.Minute}[min(n.reconnect-1, 2)]
	h.opening++
	go func() {
		select {
		case <-time.After(pause):
			h.connect(n, make(chan struct{}, 1), time.Second)
		case <-h.ctx.Done():
		}
	}()
}

// checkNodes looks after silent nodes.
func (h *head) checkNodes(t time.Time) {
	for _, c := range h.conns {
		if silent := t.Sub(c.heard); silent > h.NodeTimeout {
			h.nodeLost(c, fmt.Sprintf("nothing was heard for %v", silent.Round(time.Second)))
			return // the list has changed
		}
	}
}

// judge watches for nodes where everything fails: as they are always free, they
// would get everything.
func (h *head) judge(c *conn, r *journal.Record) {
	switch {
	case r.What == wire.OK:
		c.node.ok++
		c.nostarts, c.quick = 0, 0
		return
	case r.What == wire.NoStart:
		c.nostarts++
	case r.What == wire.Failed && r.Seconds < 1:
		c.quick++
	default:
		return
	}
	if c.nostarts < 5 && c.quick < 20 || c.n.Closed() {
		return
	}
	for _, other := range h.conns {
		if other != c && !other.n.Closed() && other.node.ok > 0 {
			h.pool.Close(c.n)
			c.node.quarantine = true
			why := fmt.Sprintf("%d tasks in a row could not be started", c.nostarts)
			if c.nostarts < 5 {
				why = fmt.Sprintf("%d tasks in a row failed within a second, elsewhere they do not", c.quick)
			}
			h.Message("node %s: gets nothing more: %s", c.name(), why)
			h.record(c.node, "quarantine", why)
			return
		}
	}
}

// closeLinks ends all connections, at once.
func (h *head) closeLinks() {
	done := make(chan struct{}, len(h.conns))
	for _, c := range h.conns {
		go func() {
			c.w.Close()
			c.link.Close()
			done <- struct{}{}
		}()
	}
	for range h.conns {
		<-done
	}
}
