package core

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/executor/outside"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// read handles a task that was read, unless it was done in an earlier run.
func (c *Core) read(in Input) {
	t := in.Task
	c.lastSeq = max(c.lastSeq, t.Seq)
	c.stats.seen++
	if s := in.Past.State; s == Succeeded || (s == Failed || s == Cancelled) && !c.RetryFailed {
		if in.Past.Seconds > 0 {
			c.measure(t.Need(), in.Past.Seconds)
		}
		c.skip(t, s)
		return
	}
	if in.Bad != "" {
		c.refuseSaying(t, in.Bad, in.Said)
		return
	}
	if !c.deps.add(t) {
		c.refuseTwin(t)
		return
	}
	t.Losses = int16(min(in.Past.Deaths, math.MaxInt16))
	switch {
	case c.ofOrphan(t, in.Past):
	case in.Cancelled:
		c.cancelTask(t, "by request")
	default:
		c.readyAgain(t)
	}
}

// readyAgain queues a task of an earlier run, unless the scheduler has died too often when it was handed
// out: it may be what kills it. The last time, it runs alone, so that no other is suspected with it.
func (c *Core) readyAgain(t *pool.Task) {
	n := int(t.Losses)
	if n > c.LostRetries {
		c.leftFor(t, fmt.Sprintf("the scheduler died the last %s that it was handed out; --lost-retries %d runs it again", times(n), n))
		return
	}
	if n > 0 && n == c.LostRetries {
		t.Company = 1
	}
	c.ready(t)
}

// skip leaves out a task that has ended in an earlier run.
func (c *Core) skip(t *pool.Task, state PastState) {
	switch c.stats.skipped++; state {
	case Failed:
		c.stats.failedBefore++
	case Cancelled:
		c.stats.cancelledBefore++
	}
	c.do(Skipped{t})
	_ = c.deps.add(t)
	c.release(t, state == Succeeded)
}

// submit adds a task, or returns why it does not.
func (c *Core) submit(t *pool.Task) (refused string) {
	if c.ending.Phase() != Running {
		return "the pool is " + c.ending.Phase().String()
	}
	if !c.stays {
		return "the pool takes no more tasks"
	}
	if why := c.nodes.misfit(t.Need()); why != "" {
		return why
	}
	c.lastSeq = max(c.lastSeq, t.Seq)
	c.stats.seen++
	if !c.deps.add(t) {
		c.refuseTwin(t)
	} else {
		c.ready(t)
	}
	return ""
}

// LastSeq is the highest number of a task so far.
func (c *Core) LastSeq() int64 { return c.lastSeq }

// ready queues a task if nothing keeps it from running.
func (c *Core) ready(t *pool.Task) {
	switch c.deps.state(t) {
	case depsFailed:
		c.cancelDependent(t)
	case depsWait:
		c.deps.wait(t)
	case depsMet:
		c.push(t)
	}
}

// push queues a task, unless no node of the pool could ever run it.
func (c *Core) push(t *pool.Task) {
	if why := c.nodes.misfit(t.Need()); why != "" {
		c.refuse(t, why)
		return
	}
	if why := c.nodes.tooLong(t); why != "" {
		c.refuse(t, why)
		return
	}
	c.pool.Push(t)
}

// schedule starts all tasks that can start.
func (c *Core) schedule() {
	if c.ending.Phase() != Running || c.ending.paused() || c.ending.choked || len(c.nodes.workers) < c.MinNodes && c.stats.attempts == 0 {
		return
	}
	c.pool.Hold = c.Shared != (pool.Named{}) && c.orphans.unclaimed()
	for !c.tooSoon() {
		s := c.pool.Next()
		if s == nil {
			break
		}
		c.start(s.Task, s, s.Node.Data.(*Worker))
	}
	if c.pool.Waiting() == 0 {
		c.evenOut()
		return
	}
	for _, w := range c.nodes.workers {
		c.fill(w)
	}
}

// refuseMisfits refuses waiting tasks that are now known to be too large for every node.
func (c *Core) refuseMisfits() {
	for _, t := range c.pool.Misfits(func(s *pool.Spec) bool { return c.nodes.misfit(s.Need) == "" }) {
		c.refuse(t, c.nodes.misfit(t.Need()))
	}
}

// fill sends a worker a few tasks more than it has room for, so that it need not wait for the
// scheduler when one ends. Long tasks do not need that.
func (c *Core) fill(w *Worker) {
	window := w.window()
	if c.Halt != (Halt{}) || c.Delay > 0 || c.LostRetries == 0 || w.Node.row > 0 {
		// A task that is queued at a worker may begin before the scheduler can prevent it, or learns
		// of it.
		window = 0
	}
	if w.State != Ready || w.queued >= window {
		return
	}
	needs := map[pool.Need]bool{}
	for _, a := range w.attempts {
		if a.slot != nil {
			needs[a.slot.Need()] = true
		}
	}
	for need := range needs {
		for w.queued < window {
			t := c.pool.Follower(w.n, need)
			if t == nil {
				break
			}
			c.start(t, nil, w)
		}
	}
}

// window is how many tasks may be queued at a worker: as many as it ends in a few round trips.
func (w *Worker) window() int {
	running := len(w.attempts) - w.queued
	if !w.measured || w.duration > 2 || running == 0 {
		return 0
	}
	n := int(float64(running) / max(w.duration, 1e-5) * 0.03)
	return min(max(n, 2, running/4), 512)
}

// tooSoon reports whether the next task has to wait for --delay, and then asks to be
// woken in time.
func (c *Core) tooSoon() bool {
	if c.Delay == 0 || c.lastStart.IsZero() {
		return false
	}
	left := c.lastStart.Add(c.Delay).Sub(c.now)
	if left > 0 && !c.woken {
		c.woken = true
		c.do(WakeAt{left})
	}
	return left > 0
}

// start sends a task to a worker; without a slot, it is to follow another one.
func (c *Core) start(t *pool.Task, s *pool.Slot, w *Worker) {
	t.Attempt++
	c.lastStart = c.now
	a := &attempt{task: t, worker: w, slot: s, sent: c.now}
	c.attempts[t.Seq], w.attempts[t.Seq] = a, a
	c.stats.attempts++
	if c.stats.first.IsZero() {
		c.stats.first = c.now
	}
	if s == nil {
		need := t.Need()
		w.backlog[need] = append(w.backlog[need], a)
		w.queued++
	} else if d := lasts(t); d > 0 {
		s.SetEnd(c.now.Add(d).UnixMicro())
	}
	w.Node.given(c.now)
	run := Start{Worker: w, Run: message(a)}
	if a.wide() {
		c.join(a)
		run.Others = a.others()
	}
	c.do(run)
	if w.Node.trial {
		c.pool.Close(w.n) // one at a time
	}
}

// lasts returns how long a task takes by its own estimate; 0: it has none.
func lasts(t *pool.Task) time.Duration { return cmp.Or(t.Spec.Time, t.Spec.Timeout) }

func message(a *attempt) *wire.Run {
	t := a.task
	r := &wire.Run{
		Key: a.key(), Text: wire.Text(t.Text), Argv: t.Spec.Argv, Mark: t.Spec.SlotMark, Dir: wire.Text(t.Spec.Dir),
		Env: wire.Texts(t.Spec.Env), Need: t.Need(), Timeout: t.Spec.Timeout.Seconds(), Follow: a.slot == nil,
	}
	if a.slot != nil {
		r.CPUs, r.GPUs, r.Slot, r.Nodes = a.slot.CPUs, a.slot.GPUs, a.slot.Number, nodesOf(a.slot)
	}
	if x := t.Extra; x != nil {
		r.ID, r.Stdin, r.Capture = wire.Text(x.ID), wire.Text(x.Stdin), x.Capture
		r.Files = wire.Texts(x.Files)
	}
	return r
}

// unqueue takes an attempt out of its worker's backlog.
func (w *Worker) unqueue(a *attempt) {
	need := a.task.Need()
	q := w.backlog[need]
	if i := slices.Index(q, a); i >= 0 {
		w.queued--
		if len(q) == 1 {
			delete(w.backlog, need)
		} else {
			w.backlog[need] = slices.Delete(q, i, i+1)
		}
	}
}

// forget removes an attempt from the lists, and releases its slot.
func (c *Core) forget(a *attempt) {
	delete(a.worker.attempts, a.task.Seq)
	delete(c.attempts, a.task.Seq)
	if a.slot == nil {
		a.worker.unqueue(a)
	} else {
		c.part(a)
		c.pool.Release(a.slot)
	}
}

// done handles the end of a task at its worker.
func (c *Core) done(w *Worker, d *wire.Done) {
	if d.Seq == 0 {
		c.probed(w, d)
		return
	}
	a := w.attempts[d.Seq]
	if a == nil || a.task.Attempt != d.Attempt {
		return
	}
	delete(w.attempts, d.Seq)
	delete(c.attempts, d.Seq)
	if !a.wide() {
		c.passSlot(w, a, d.Next)
	}
	w.average(d.Seconds)
	r := c.newResult(w.Name(), d)
	if r.What == wire.Stopped && a.why == "" {
		c.ends(w)
	}
	if r.What == wire.OK {
		c.measure(a.task.Need(), d.Seconds)
	}
	out := Output{Bytes: [2][]byte{d.Out, d.Err}}
	if d.OutSize+d.ErrSize > 0 {
		out.Worker, out.Size, out.From = w, [2]int64{d.OutSize, d.ErrSize}, [2]int64{d.OutFrom, d.ErrFrom}
		copy(out.Near[:], wire.Strings(d.Files))
	}
	if a.wide() {
		c.endWide(a, w, r, out, c.open(d))
		return
	}
	if open := c.open(d); open > 0 {
		c.leaveOpen(&undecided{pending: pending{a.task, r, out}, worker: w}, open)
		return
	}
	c.settle(a.task, w, r, out)
}

// open returns for how long it stays open whether a task was ended because the job is being ended or a
// node drained.
func (c *Core) open(d *wire.Done) time.Duration {
	switch {
	case !c.Batch && len(c.nodes.all) < 2:
		return 0
	case d.What == "" && byDrain(d.Exit, d.Signal):
		return outside.Notice
	}
	return d.Open()
}

// leaveOpen decides later what an end means.
func (c *Core) leaveOpen(l *undecided, open time.Duration) {
	l.arrived, l.until = c.now, c.now.Add(open)
	i, _ := slices.BinarySearchFunc(c.undecided, l, func(o, l *undecided) int {
		return cmp.Or(o.until.Compare(l.until), -1)
	})
	c.undecided = slices.Insert(c.undecided, i, l)
	l.worker.open++
	c.wakeUndecided()
}

// wakeUndecided asks to be woken when the next open end is to be decided.
func (c *Core) wakeUndecided() {
	if len(c.undecided) > 0 && !c.woken {
		c.woken = true
		c.do(WakeAt{c.undecided[0].until.Sub(c.now)})
	}
}

// cutOff reports whether a task has ended by a signal from outside: that has ended its worker, and the
// task had not ended a moment before.
func (c *Core) cutOff(l *undecided) bool {
	w := l.worker
	ended := time.UnixMicro(int64((l.result.Start + l.result.Seconds) * 1e6)) // by the clock of the node
	switch {
	case c.ending.phase >= Stopping || c.ending.hand != keeps && !c.ending.hands(w):
		return !l.arrived.Add(outside.Moment).Before(c.ending.endedAt)
	case w.signals != (outside.Heard{}):
		return w.signals.Cuts(ended)
	}
	return !w.connected()
}

// byDrain reports whether a command was ended by the signal that drains nodes: Slurm sends the signals
// of a step to the tasks as well.
func byDrain(exit, signal int) bool {
	const s = int(syscall.SIGUSR1)
	return signal == s || exit == 128+s
}

const drainedToo = "it was ended by SIGUSR1, which has drained its node"

// checkUndecided settles such tasks.
func (c *Core) checkUndecided() {
	for len(c.undecided) > 0 && !c.now.Before(c.undecided[0].until) {
		l := c.undecided[0]
		c.undecided = c.undecided[1:]
		l.worker.open--
		if c.cutOff(l) {
			l.result.What = wire.Stopped
		}
		if r := l.result; r.What == wire.Failed && !l.worker.signals.Drained.IsZero() && byDrain(r.Exit, r.Signal) {
			r.What, r.Error = wire.Lost, drainedToo
			if l.wide != nil && l.wide.lost == "" {
				l.wide.lost = drainedToo
			}
		}
		if l.wide != nil {
			c.settleWide(l.wide, l.others, l.result, l.output)
			continue
		}
		c.settle(l.task, l.worker, l.result, l.output)
	}
	c.wakeUndecided()
}

// passSlot gives the slot of a task that has ended to the next one.
func (c *Core) passSlot(w *Worker, a *attempt, next *wire.Key) {
	if a.slot == nil {
		w.unqueue(a) // ended before it began
		return
	}
	if next != nil {
		if b := w.attempts[next.Seq]; b != nil && b.task.Attempt == next.Attempt {
			w.unqueue(b)
			if b.slot != nil { // was given another slot before it was known to have begun
				c.pool.Release(b.slot)
			}
			b.slot = c.pool.Follow(a.slot, b.task)
			return
		}
	}
	if q := w.backlog[a.task.Need()]; len(q) > 0 && next == nil {
		// It was on its way when this one ended.
		b := q[0]
		w.unqueue(b)
		b.slot = c.pool.Follow(a.slot, b.task)
		again := message(b)
		again.Again = true
		c.send(w, &wire.Message{Run: again})
		return
	}
	c.pool.Release(a.slot)
}

func (w *Worker) average(seconds float64) {
	if !w.measured {
		w.duration, w.measured = seconds, true
		return
	}
	w.duration += (seconds - w.duration) / 16
}

// evenOut takes back tasks that wait at a worker while another one has room.
func (c *Core) evenOut() {
	for _, w := range c.nodes.workers {
		for need, q := range w.backlog {
			if len(q) > 0 && c.roomElsewhere(w, need) {
				c.recall(q[len(q)-1])
			}
		}
	}
}

// recall requests a task back, if it has not begun.
func (c *Core) recall(a *attempt) {
	if !a.recalled {
		a.recalled = true
		k := a.key()
		c.send(a.worker, &wire.Message{Unrun: &k})
	}
}

func (c *Core) roomElsewhere(w *Worker, need pool.Need) bool {
	for _, o := range c.nodes.workers {
		if o != w && !o.n.Closed() && o.n.HasRoom(need) {
			return true
		}
	}
	return false
}

// back requeues a task that a worker has not begun.
func (c *Core) back(w *Worker, k wire.Key) {
	if a := w.attempts[k.Seq]; a != nil && a.task.Attempt == k.Attempt {
		if !a.recalled {
			c.ends(w)
		}
		c.takeBack(a)
	}
}

func (c *Core) takeBack(a *attempt) {
	c.forget(a)
	c.do(Tried{Task: a.task, Result: &Result{Key: a.key(), Node: a.worker.Name(), What: "unrun"}})
	a.task.Attempt--
	c.stats.attempts--
	c.push(a.task)
}

// retry lets tasks on hold run again, and returns how many.
func (c *Core) retry(e Retry) (count int) {
	seqs := e.Seqs
	if e.All {
		seqs = c.holdList()
	}
	for _, seq := range seqs {
		if p := c.onHold[seq]; p != nil {
			delete(c.onHold, seq)
			p.task.Fails, p.task.Losses, p.task.Avoid = 0, 0, nil
			c.push(p.task)
			count++
		}
	}
	return count
}

func (c *Core) holdList() []int64 {
	seqs := make([]int64, 0, len(c.onHold))
	for seq := range c.onHold {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	return seqs
}

// cancel ends tasks, in whatever state they are, and returns how many.
func (c *Core) cancel(e Cancel) (count int) {
	seqs := e.Seqs
	if e.All {
		for _, t := range c.pool.TakeAll() { // one by one is slow for many tasks
			c.cancelTask(t, "by request")
			count++
		}
		for _, t := range c.List(0) {
			seqs = append(seqs, t.Task.Seq)
		}
	}
	for _, name := range e.Names {
		seqs = append(seqs, c.deps.seq(name))
	}
	for _, seq := range seqs {
		if a := c.attempts[seq]; a != nil {
			if a.why != wire.Cancelled {
				c.kill(a, wire.Cancelled, false)
			}
			count++
			continue
		}
		t := c.pool.Remove(seq)
		if p := c.onHold[seq]; t == nil && p != nil {
			delete(c.onHold, seq)
			t = p.task
		}
		if t == nil {
			t = c.deps.remove(seq)
		}
		if t == nil {
			t = c.orphans.give(seq)
		}
		if t != nil {
			c.cancelTask(t, "by request")
			count++
		}
	}
	return count
}

// Has reports whether a task, named by its id or number, is still to end.
func (c *Core) Has(name string) bool { return c.Knows(c.deps.seq(name)) }

// Knows reports whether a task is still to end.
func (c *Core) Knows(seq int64) bool {
	if c.attempts[seq] != nil || c.onHold[seq] != nil || c.deps.find(seq) != nil || c.orphans.has(seq) {
		return true
	}
	for _, n := range c.nodes.all {
		if slices.ContainsFunc(n.held, func(p *pending) bool { return p.task.Seq == seq }) {
			return true
		}
	}
	return slices.ContainsFunc(c.sweeps, func(s *sweeping) bool { return s.attempt.task.Seq == seq }) ||
		slices.ContainsFunc(c.undecided, func(l *undecided) bool { return l.task.Seq == seq }) ||
		c.pool.Find(seq) != nil
}

func (c *Core) newResult(node string, d *wire.Done) *Result {
	r := &Result{
		Key: d.Key, Node: node, What: d.What, Exit: d.Exit, Signal: d.Signal, Start: d.Start, Seconds: d.Seconds,
		User: d.User, System: d.System, MaxRSS: d.MaxRSS, Error: d.Error, Tails: d.Tails, NoFile: d.NoFile,
	}
	if r.What == "" {
		if r.What = wire.OK; d.Exit != 0 || d.Signal != 0 {
			r.What = wire.Failed
		}
	}
	if d.Lost != "" && (r.What == wire.OK || r.What == wire.Failed) {
		r.What, r.Error = wire.OutputLost, d.Lost
	}
	return r
}

// notFound is the status of a shell that does not find a program.
const notFound = 127

// Describe returns how an attempt has ended, as the predicate of a sentence.
func (r *Result) Describe() string {
	switch r.What {
	case wire.OK:
		return "succeeded"
	case wire.NoStart:
		return "could not be started: " + string(r.Error)
	case wire.Timeout:
		return "took too long"
	case wire.OutOfMemory:
		return "ran out of memory: " + string(r.Error)
	case wire.Lost:
		return "was lost: " + string(r.Error)
	case wire.OutputLost:
		return "lost output: " + string(r.Error)
	case wire.Refused, wire.Cancelled, wire.Stopped:
		if r.Error != "" {
			return string(r.What) + ": " + string(r.Error)
		}
		return "was " + string(r.What)
	}
	if r.Signal != 0 {
		return fmt.Sprintf("was ended by signal %d", r.Signal)
	}
	if r.Exit == notFound {
		return fmt.Sprintf("failed with exit status %d: program not found", r.Exit)
	}
	return fmt.Sprintf("failed with exit status %d", r.Exit)
}
