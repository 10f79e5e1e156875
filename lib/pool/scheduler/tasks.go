package scheduler

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/pool"
	reader "github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// heldTask has failed and waits for the user.
type heldTask struct {
	task   *pool.Task
	record *journal.Record
}

func sorted(m map[int64]*attempt) []*attempt {
	out := make([]*attempt, 0, len(m))
	for _, a := range m {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *attempt) int { return cmp.Compare(a.task.Seq, b.task.Seq) })
	return out
}

// take puts what was read into the queue.
func (h *head) take(batch []entry) {
	for _, in := range batch {
		var bad *reader.BadTask
		switch {
		case in.err == nil:
			h.add(in.task)
		case errors.As(in.err, &bad):
			h.bad++
			if h.bad <= 10 {
				h.Message("%v", bad)
			} else if h.bad == 11 {
				h.Message("there are more bad tasks, which the journal has")
			}
			h.lastSeq = bad.Seq
			t := &pool.Task{Seq: bad.Seq, Text: bad.Text, Spec: &pool.Spec{}}
			if h.History.Get(t.Seq).State == journal.OK {
				h.skip(t)
				continue
			}
			h.refuse(t, bad.Err.Error())
		case errors.Is(in.err, io.EOF):
			h.eof = true
		default:
			h.eof = true
			h.inputErr = fault.Wrap(fault.Usage, in.err)
			h.stop(draining, "the input cannot be read", 2)
		}
	}
}

// add takes a task in, unless it was done before.
func (h *head) add(t *pool.Task) {
	h.lastSeq = max(h.lastSeq, t.Seq)
	h.stats.seen++
	if h.resumed(t) {
		return
	}
	if !h.deps.add(t) {
		h.refuseTwin(t)
		return
	}
	h.ready(t)
}

// resumed looks a task up in what runs before have done.
func (h *head) resumed(t *pool.Task) bool {
	if h.History == nil {
		return false
	}
	e := h.History.Get(t.Seq)
	hash := h.History.HashOf(t)
	if h.ResumeByText {
		if h.History.TakeText(hash, !h.RetryFailed) {
			h.skip(t)
			return true
		}
		return false
	}
	t.Attempt = e.Attempt
	if e.Hash != 0 && e.Hash != hash && !h.ForceResume {
		h.inputErr = fault.Hint(fault.Errorf(fault.Usage, "task %d is now %.200q, which is not what was run as task %d", t.Seq, journal.Command(t), t.Seq),
			"the list has changed: use --resume-by text, or --force-resume if that is meant")
		h.stop(draining, "the input is not that of the run before", 2)
		return true
	}
	switch {
	case e.State == journal.OK, e.State == journal.Ended && !h.RetryFailed:
		h.skip(t)
		if e.State == journal.Ended {
			h.stats.failedBefore++
		}
		return true
	case h.foreign.has(t.Seq), e.State == journal.Started && h.prior[e.Worker] != nil:
		if !h.deps.add(t) {
			h.refuseTwin(t)
		} else if !h.foreign.claim(t) {
			f := h.prior[e.Worker]
			f.tasks = append(f.tasks, lostTask{task: t})
		}
		return true
	}
	return false
}

// skip leaves out what is done.
func (h *head) skip(t *pool.Task) {
	h.stats.skipped++
	h.printer.skip(t.Seq)
	state := h.History.Get(t.Seq).State
	_ = h.deps.add(t)
	h.release(t, state != journal.Ended)
}

// ready queues a task if nothing keeps it from running.
func (h *head) ready(t *pool.Task) {
	switch h.deps.state(t) {
	case depsFailed:
		h.cancelTask(t, "what it depends on has not succeeded")
	case depsWait:
		h.deps.wait(t)
	case depsMet:
		h.pool.Push(t)
	}
}

// schedule starts what can start.
func (h *head) schedule() {
	if h.phase != running || h.paused || h.printer.choked() || h.ResumeByText && len(h.prior) > 0 || len(h.conns) < h.MinNodes && h.stats.attempts == 0 {
		return
	}
	for !h.tooSoon() {
		s := h.pool.Next()
		if s == nil {
			break
		}
		h.start(s.Task, s, s.Node.Data.(*conn))
	}
	if h.pool.Waiting() == 0 {
		h.evenOut()
		return
	}
	if h.opening == 0 {
		for _, t := range h.pool.Misfits() {
			h.refuse(t, "it fits no node: it wants "+needs(t.Spec.Need))
		}
	}
	for _, c := range h.conns {
		h.fill(c)
	}
}

func needs(n pool.Need) string {
	s := fmt.Sprintf("%d CPUs", n.CPUs)
	if n.GPUs > 0 {
		s += fmt.Sprintf(", %d GPUs", n.GPUs)
	}
	if n.Mem > 0 {
		s += ", " + reader.FormatSize(n.Mem)
	}
	return s
}

// fill gives a node a few tasks more than it has room for, so that it need not
// wait for the head when one ends. Long tasks do not need that.
func (h *head) fill(c *conn) {
	window := c.window()
	if h.Halt != (Halt{}) || h.Delay > 0 {
		window = 0 // what is queued at a node may start before the head can stop it
	}
	if c.queued >= window {
		return
	}
	needs := map[pool.Need]bool{}
	for _, s := range c.n.Slots() {
		needs[s.Need()] = true
	}
	for need := range needs {
		for c.queued < window {
			t := h.pool.Follower(c.n, need)
			if t == nil {
				break
			}
			h.start(t, nil, c)
		}
	}
}

// window is how many tasks may be queued at a node: what it ends in the time of
// a few journeys there and back.
func (c *conn) window() int {
	running := len(c.attempts) - c.queued
	if !c.measured || c.duration > 2 || running == 0 {
		return 0
	}
	n := int(float64(running) / max(c.duration, 1e-5) * 0.03)
	return min(max(n, 2, running/4), 512)
}

// tooSoon reports whether the next task has to wait for --delay, and then wakes the
// loop in time.
func (h *head) tooSoon() bool {
	if h.Delay == 0 || h.lastStart.IsZero() {
		return false
	}
	left := time.Until(h.lastStart.Add(h.Delay))
	if left > 0 && !h.woken {
		h.woken = true
		time.AfterFunc(left, func() { h.send(func(h *head) { h.woken = false }) })
	}
	return left > 0
}

// start hands a task to a node; without a slot it is to follow another.
func (h *head) start(t *pool.Task, s *pool.Slot, c *conn) {
	t.Attempt++
	h.lastStart = time.Now()
	a := &attempt{task: t, conn: c, slot: s, sent: time.Now()}
	h.active[t.Seq], c.attempts[t.Seq] = a, a
	h.stats.attempts++
	if h.stats.attempts == 1 {
		h.stats.first = time.Now()
	}
	h.Journal.Sent(c.name(), t.Attempt, t.Seq)
	need := t.Spec.Need
	if s == nil {
		c.backlog[need] = append(c.backlog[need], a)
		c.queued++
	} else if d := cmp.Or(t.Spec.Time, t.Spec.Timeout); d > 0 {
		s.End = time.Now().Add(d).UnixMicro()
	}
	a.unsent = &wire.Message{Run: h.message(a)}
	c.runs = append(c.runs, a.unsent)
}

func (h *head) message(a *attempt) *wire.Run {
	t := a.task
	r := &wire.Run{
		Key: a.key(), Text: wire.Text(t.Text), Argv: t.Spec.Argv, Mark: t.Spec.SlotMark, Dir: wire.Text(t.Spec.Dir),
		Env: wire.Texts(t.Spec.Env), Need: t.Spec.Need, Timeout: t.Spec.Timeout.Seconds(), Follow: a.slot == nil,
	}
	if a.slot != nil {
		r.CPUs, r.GPUs, r.Slot = a.slot.CPUs, a.slot.GPUs, a.slot.Number
	}
	if x := t.Extra; x != nil {
		r.ID, r.Stdin, r.Capture = wire.Text(x.ID), wire.Text(x.Stdin), x.Capture
		r.Files = wire.Texts(x.Files)
	}
	return r
}

// unqueue takes an attempt out of its node's backlog.
func (c *conn) unqueue(a *attempt) {
	need := a.task.Spec.Need
	q := c.backlog[need]
	if i := slices.Index(q, a); i >= 0 {
		c.queued--
		if len(q) == 1 {
			delete(c.backlog, need)
		} else {
			c.backlog[need] = slices.Delete(q, i, i+1)
		}
	}
}

// done handles the end of a task at its node.
func (h *head) done(c *conn, d *wire.Done) {
	a := c.attempts[d.Seq]
	if a == nil || a.task.Attempt != d.Attempt {
		return
	}
	delete(c.attempts, d.Seq)
	delete(h.active, d.Seq)
	h.passSlot(c, a, d.Next)
	if d.What == "" {
		if d.What = wire.OK; d.Exit != 0 || d.Signal != 0 {
			d.What = wire.Failed
		}
	}
	c.average(d.Seconds)
	r := newRecord(a.task, c.name(), d)
	if d.What == wire.OK {
		h.measure(a.task.Spec.Need, d.Seconds)
	}
	h.judge(c, r)
	out := output{bytes: [2][]byte{d.Out, d.Err}}
	if d.OutSize+d.ErrSize > 0 {
		out.conn, out.size, out.from = c, [2]int64{d.OutSize, d.ErrSize}, [2]int64{d.OutFrom, d.ErrFrom}
	}
	if h.mayBeStopped(d) {
		h.limbo++
		time.AfterFunc(doubt, func() { h.send(func(h *head) { h.judgeLate(c, a.task, r, out) }) })
		return
	}
	h.settle(a.task, c.n, r, out)
}

// doubt is how long it may take to learn that the node or the job is being ended,
// after a task was.
const doubt = 1500 * time.Millisecond

// mayBeStopped reports whether a task may have been ended by whoever ends the job:
// Slurm signals all processes at once, and tasks end sooner than the head hears of
// it.
func (h *head) mayBeStopped(d *wire.Done) bool {
	killed := d.Signal == 15 || d.Signal == 9 || d.Exit == 128+15 || d.Exit == 128+9
	return d.What == wire.Failed && killed && (h.Batch || len(h.nodes) > 1)
}

// judgeLate settles such a task.
func (h *head) judgeLate(c *conn, t *pool.Task, r *journal.Record, out output) {
	h.limbo--
	if h.phase >= stopping || c.gone || c.term {
		r.What = wire.Stopped
	}
	h.settle(t, c.n, r, out)
}

// passSlot gives the slot of a task that has ended to the next one.
func (h *head) passSlot(c *conn, a *attempt, next *wire.Key) {
	if a.slot == nil {
		c.unqueue(a) // ended before it started
		return
	}
	if next != nil {
		if b := c.attempts[next.Seq]; b != nil && b.task.Attempt == next.Attempt {
			c.unqueue(b)
			if b.slot != nil { // was given another when it was not yet known to have one
				h.pool.Release(b.slot)
			}
			b.slot = h.pool.Follow(a.slot, b.task)
			return
		}
	}
	if q := c.backlog[a.task.Spec.Need]; len(q) > 0 && next == nil {
		// It was on its way when this one ended.
		b := q[0]
		c.unqueue(b)
		b.slot = h.pool.Follow(a.slot, b.task)
		if b.unsent != nil {
			b.unsent.Run = h.message(b)
		} else {
			again := h.message(b)
			again.Again = true
			c.send(&wire.Message{Run: again})
		}
		return
	}
	h.pool.Release(a.slot)
}

func (c *conn) average(seconds float64) {
	if !c.measured {
		c.duration, c.measured = seconds, true
		return
	}
	c.duration += (seconds - c.duration) / 16
}

// evenOut takes tasks back that wait at a node while another has room.
func (h *head) evenOut() {
	for _, c := range h.conns {
		for need, q := range c.backlog {
			if len(q) == 0 || !h.roomElsewhere(c, need) {
				continue
			}
			a := q[len(q)-1]
			c.recall(a)
		}
	}
}

// recall asks for a task back, if it has not started.
func (c *conn) recall(a *attempt) {
	if !a.recalled {
		a.recalled = true
		k := a.key()
		c.send(&wire.Message{Unrun: &k})
	}
}

func (h *head) roomElsewhere(c *conn, need pool.Need) bool {
	for _, o := range h.conns {
		if o != c && !o.n.Closed() && o.n.HasRoom(need) {
			return true
		}
	}
	return false
}

// back requeues a task that a node has not started.
func (h *head) back(c *conn, k wire.Key) {
	a := c.attempts[k.Seq]
	if a == nil || a.task.Attempt != k.Attempt {
		return
	}
	delete(c.attempts, k.Seq)
	delete(h.active, k.Seq)
	if a.slot == nil {
		c.unqueue(a)
	} else {
		h.pool.Release(a.slot)
	}
	h.Journal.Add(&journal.Record{Kind: journal.Try, Time: now(), Seq: k.Seq, Attempt: k.Attempt, Node: c.name(), What: "unrun", Hash: journal.FormatHash(journal.Hash(a.task))})
	a.task.Attempt--
	h.stats.attempts--
	h.pool.Push(a.task)
}
