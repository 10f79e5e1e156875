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

// tasks are the tasks of a run: those that wait, run, or have ended and are not settled. They are started at nodes as these have room.
// Below are the parts that they ask: [nodes], [orphans] and [ending]; what follows for the run from their ends is decided above.
type tasks struct {
	*base
	ending  *ending
	orphans *orphans
	nodes   *nodes

	attempts  map[int64]*attempt // at workers that are connected
	wides     map[int64]*attempt // those of several nodes
	sweeps    []*sweeping
	undecided []*undecided
	onHold    map[int64]*pending
	deps      dependencies
	hist      map[pool.Need]*histogram
	took      float64 // seconds of all tasks that were measured
	measured  int64
	stats     stats

	eof       bool // the input was read to its end
	stays     bool // open: more tasks may come after that
	lastSeq   int64
	noFile    string    // why a task could not have its files
	refusals  int       // that were reported
	lastStart time.Time // of a task
	woken     bool      // the shell will wake the core when the next task may start
}

// read handles a task that was read, unless it was done in an earlier run.
func (ts *tasks) read(in Input) {
	t := in.Task
	ts.lastSeq = max(ts.lastSeq, t.Seq)
	ts.stats.seen++
	if s := in.Past.State; s == Succeeded || (s == Failed || s == Cancelled) && !ts.RetryFailed {
		if in.Past.Seconds > 0 {
			ts.measure(t.Need(), in.Past.Seconds)
		}
		ts.skip(t, s)
		return
	}
	if in.Bad != "" {
		ts.refuseSaying(t, in.Bad, in.Said)
		return
	}
	if !ts.deps.add(t) {
		ts.refuseTwin(t)
		return
	}
	t.Losses = int16(min(in.Past.Deaths, math.MaxInt16))
	switch {
	case ts.ofOrphan(t, in.Past):
	case in.Cancelled:
		ts.cancelTask(t, "by request")
	default:
		ts.readyAgain(t)
	}
}

// readyAgain queues a task of an earlier run, unless the scheduler has died too often when it was handed
// out: it may be what kills it. The last time, it runs alone, so that no other is suspected with it.
func (ts *tasks) readyAgain(t *pool.Task) {
	n := int(t.Losses)
	if n > ts.LostRetries {
		ts.leftFor(t, fmt.Sprintf("the scheduler died the last %s that it was handed out; --lost-retries %d runs it again", times(n), n))
		return
	}
	if n > 0 && n == ts.LostRetries {
		t.Company = 1
	}
	ts.ready(t)
}

// skip leaves out a task that has ended in an earlier run.
func (ts *tasks) skip(t *pool.Task, state PastState) {
	switch ts.stats.skipped++; state {
	case Failed:
		ts.stats.failedBefore++
	case Cancelled:
		ts.stats.cancelledBefore++
	}
	ts.do(Skipped{t})
	_ = ts.deps.add(t)
	ts.release(t, state == Succeeded)
}

// submit adds a task, or returns why it does not.
func (ts *tasks) submit(t *pool.Task) (refused string) {
	if ts.ending.Phase() != Running {
		return "the pool is " + ts.ending.Phase().String()
	}
	if !ts.stays {
		return "the pool takes no more tasks"
	}
	if why := ts.nodes.misfit(t.Need()); why != "" {
		return why
	}
	ts.lastSeq = max(ts.lastSeq, t.Seq)
	ts.stats.seen++
	if !ts.deps.add(t) {
		ts.refuseTwin(t)
	} else {
		ts.ready(t)
	}
	return ""
}

// LastSeq is the highest number of a task so far.
func (c *Core) LastSeq() int64 { return c.tasks.lastSeq }

// ready queues a task if nothing keeps it from running.
func (ts *tasks) ready(t *pool.Task) {
	switch ts.deps.state(t) {
	case depsFailed:
		ts.cancelDependent(t)
	case depsWait:
		ts.deps.wait(t)
	case depsMet:
		ts.push(t)
	}
}

// push queues a task, unless no node of the pool could ever run it.
func (ts *tasks) push(t *pool.Task) {
	if why := ts.nodes.misfit(t.Need()); why != "" {
		ts.refuse(t, why)
		return
	}
	if why := ts.nodes.tooLong(t); why != "" {
		ts.refuse(t, why)
		return
	}
	ts.pool.Push(t)
}

// schedule starts all tasks that can start.
func (ts *tasks) schedule() {
	if !ts.ending.starts() || ts.nodes.few() && ts.stats.attempts == 0 {
		return
	}
	ts.pool.Hold = ts.Shared != (pool.Named{}) && ts.orphans.unclaimed()
	for !ts.tooSoon() {
		s := ts.pool.Next()
		if s == nil {
			break
		}
		ts.start(s.Task, s, s.Node.Data.(*Worker))
	}
	if ts.pool.Waiting() == 0 {
		ts.evenOut()
		return
	}
	for _, w := range ts.nodes.workers {
		ts.fill(w)
	}
}

// refuseMisfits refuses waiting tasks that are now known to be too large for every node.
func (ts *tasks) refuseMisfits() {
	for _, t := range ts.pool.Misfits(func(s *pool.Spec) bool { return ts.nodes.misfit(s.Need) == "" }) {
		ts.refuse(t, ts.nodes.misfit(t.Need()))
	}
}

// fill sends a worker a few tasks more than it has room for, so that it need not wait for the
// scheduler when one ends. Long tasks do not need that.
func (ts *tasks) fill(w *Worker) {
	window := w.window()
	if ts.Halt != (Halt{}) || ts.Delay > 0 || ts.LostRetries == 0 || w.Node.row > 0 {
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
			t := ts.pool.Follower(w.n, need)
			if t == nil {
				break
			}
			ts.start(t, nil, w)
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
func (ts *tasks) tooSoon() bool {
	if ts.Delay == 0 || ts.lastStart.IsZero() {
		return false
	}
	left := ts.lastStart.Add(ts.Delay).Sub(ts.now)
	if left > 0 && !ts.woken {
		ts.woken = true
		ts.do(WakeAt{left})
	}
	return left > 0
}

// start sends a task to a worker; without a slot, it is to follow another one.
func (ts *tasks) start(t *pool.Task, s *pool.Slot, w *Worker) {
	t.Attempt++
	ts.lastStart = ts.now
	a := &attempt{task: t, worker: w, slot: s, sent: ts.now}
	ts.attempts[t.Seq], w.attempts[t.Seq] = a, a
	ts.stats.attempts++
	if ts.stats.first.IsZero() {
		ts.stats.first = ts.now
	}
	if s == nil {
		need := t.Need()
		w.backlog[need] = append(w.backlog[need], a)
		w.queued++
	} else if d := lasts(t); d > 0 {
		s.SetEnd(ts.now.Add(d).UnixMicro())
	}
	w.Node.given(ts.now)
	run := Start{Worker: w, Run: message(a)}
	if a.wide() {
		ts.join(a)
		run.Others = a.others()
	}
	ts.do(run)
	if w.Node.trial {
		ts.pool.Close(w.n) // one at a time
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
func (ts *tasks) forget(a *attempt) {
	delete(a.worker.attempts, a.task.Seq)
	delete(ts.attempts, a.task.Seq)
	if a.slot == nil {
		a.worker.unqueue(a)
	} else {
		ts.part(a)
		ts.pool.Release(a.slot)
	}
}

// done handles the end of a task at its worker.
func (ts *tasks) done(w *Worker, d *wire.Done) {
	a := w.attempts[d.Seq]
	if a == nil || a.task.Attempt != d.Attempt {
		return
	}
	delete(w.attempts, d.Seq)
	delete(ts.attempts, d.Seq)
	if !a.wide() {
		ts.passSlot(w, a, d.Next)
	}
	w.average(d.Seconds)
	r := ts.newResult(w.Name(), d)
	if r.What == wire.Stopped && a.why == "" {
		ts.ends(w)
	}
	if r.What == wire.OK {
		ts.measure(a.task.Need(), d.Seconds)
	}
	out := Output{Bytes: [2][]byte{d.Out, d.Err}}
	if d.OutSize+d.ErrSize > 0 {
		out.Worker, out.Size, out.From = w, [2]int64{d.OutSize, d.ErrSize}, [2]int64{d.OutFrom, d.ErrFrom}
		copy(out.Near[:], wire.Strings(d.Files))
	}
	if a.wide() {
		ts.endWide(a, w, r, out, ts.open(d))
		return
	}
	if open := ts.open(d); open > 0 {
		ts.leaveOpen(&undecided{pending: pending{a.task, r, out}, worker: w}, open)
		return
	}
	ts.settle(a.task, w, r, out)
}

// open returns for how long it stays open whether a task was ended because the job is being ended or a
// node drained.
func (ts *tasks) open(d *wire.Done) time.Duration {
	switch {
	case !ts.Batch && len(ts.nodes.all) < 2:
		return 0
	case d.What == "" && byDrain(d.Exit, d.Signal):
		return outside.Notice
	}
	return d.Open()
}

// leaveOpen decides later what an end means.
func (ts *tasks) leaveOpen(l *undecided, open time.Duration) {
	l.arrived, l.until = ts.now, ts.now.Add(open)
	i, _ := slices.BinarySearchFunc(ts.undecided, l, func(o, l *undecided) int {
		return cmp.Or(o.until.Compare(l.until), -1)
	})
	ts.undecided = slices.Insert(ts.undecided, i, l)
	l.worker.open++
	ts.wakeUndecided()
}

// wakeUndecided asks to be woken when the next open end is to be decided.
func (ts *tasks) wakeUndecided() {
	if len(ts.undecided) > 0 && !ts.woken {
		ts.woken = true
		ts.do(WakeAt{ts.undecided[0].until.Sub(ts.now)})
	}
}

// cutOff reports whether a task has ended by a signal from outside: that has ended its worker, and the
// task had not ended a moment before.
func (ts *tasks) cutOff(l *undecided) bool {
	w := l.worker
	ended := time.UnixMicro(int64((l.result.Start + l.result.Seconds) * 1e6)) // by the clock of the node
	switch {
	case ts.ending.phase >= Stopping || ts.ending.hand != keeps && !ts.ending.hands(w):
		return !l.arrived.Add(outside.Moment).Before(ts.ending.endedAt)
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
func (ts *tasks) checkUndecided() {
	for len(ts.undecided) > 0 && !ts.now.Before(ts.undecided[0].until) {
		l := ts.undecided[0]
		ts.undecided = ts.undecided[1:]
		l.worker.open--
		if ts.cutOff(l) {
			l.result.What = wire.Stopped
		}
		if r := l.result; r.What == wire.Failed && !l.worker.signals.Drained.IsZero() && byDrain(r.Exit, r.Signal) {
			r.What, r.Error = wire.Lost, drainedToo
			if l.wide != nil && l.wide.lost == "" {
				l.wide.lost = drainedToo
			}
		}
		if l.wide != nil {
			ts.settleWide(l.wide, l.others, l.result, l.output)
			continue
		}
		ts.settle(l.task, l.worker, l.result, l.output)
	}
	ts.wakeUndecided()
}

// passSlot gives the slot of a task that has ended to the next one.
func (ts *tasks) passSlot(w *Worker, a *attempt, next *wire.Key) {
	if a.slot == nil {
		w.unqueue(a) // ended before it began
		return
	}
	if next != nil {
		if b := w.attempts[next.Seq]; b != nil && b.task.Attempt == next.Attempt {
			w.unqueue(b)
			if b.slot != nil { // was given another slot before it was known to have begun
				ts.pool.Release(b.slot)
			}
			b.slot = ts.pool.Follow(a.slot, b.task)
			return
		}
	}
	if q := w.backlog[a.task.Need()]; len(q) > 0 && next == nil {
		// It was on its way when this one ended.
		b := q[0]
		w.unqueue(b)
		b.slot = ts.pool.Follow(a.slot, b.task)
		again := message(b)
		again.Again = true
		ts.send(w, &wire.Message{Run: again})
		return
	}
	ts.pool.Release(a.slot)
}

func (w *Worker) average(seconds float64) {
	if !w.measured {
		w.duration, w.measured = seconds, true
		return
	}
	w.duration += (seconds - w.duration) / 16
}

// evenOut takes back tasks that wait at a worker while another one has room.
func (ts *tasks) evenOut() {
	for _, w := range ts.nodes.workers {
		for need, q := range w.backlog {
			if len(q) > 0 && ts.roomElsewhere(w, need) {
				ts.recall(q[len(q)-1])
			}
		}
	}
}

func (ts *tasks) roomElsewhere(w *Worker, need pool.Need) bool {
	for _, o := range ts.nodes.workers {
		if o != w && !o.n.Closed() && o.n.HasRoom(need) {
			return true
		}
	}
	return false
}

// back requeues a task that a worker has not begun.
func (ts *tasks) back(w *Worker, k wire.Key) {
	if a := w.attempts[k.Seq]; a != nil && a.task.Attempt == k.Attempt {
		if !a.recalled {
			ts.ends(w)
		}
		ts.takeBack(a)
	}
}

func (ts *tasks) takeBack(a *attempt) {
	ts.forget(a)
	ts.do(Tried{Task: a.task, Result: &Result{Key: a.key(), Node: a.worker.Name(), What: "unrun"}})
	a.task.Attempt--
	ts.stats.attempts--
	ts.push(a.task)
}

// retry lets tasks on hold run again, and returns how many.
func (ts *tasks) retry(e Retry) (count int) {
	seqs := e.Seqs
	if e.All {
		seqs = ts.holdList()
	}
	for _, seq := range seqs {
		if p := ts.onHold[seq]; p != nil {
			delete(ts.onHold, seq)
			p.task.Fails, p.task.Losses, p.task.Avoid = 0, 0, nil
			ts.push(p.task)
			count++
		}
	}
	return count
}

func (ts *tasks) holdList() []int64 {
	seqs := make([]int64, 0, len(ts.onHold))
	for seq := range ts.onHold {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	return seqs
}

// cancel ends tasks, in whatever state they are, and returns how many.
func (ts *tasks) cancel(e Cancel) (count int) {
	seqs := e.Seqs
	if e.All {
		for _, t := range ts.pool.TakeAll() { // one by one is slow for many tasks
			ts.cancelTask(t, "by request")
			count++
		}
		for _, t := range ts.list(0) {
			seqs = append(seqs, t.Task.Seq)
		}
	}
	for _, name := range e.Names {
		seqs = append(seqs, ts.deps.seq(name))
	}
	for _, seq := range seqs {
		if a := ts.attempts[seq]; a != nil {
			if a.why != wire.Cancelled {
				ts.kill(a, wire.Cancelled, false)
			}
			count++
			continue
		}
		t := ts.pool.Remove(seq)
		if p := ts.onHold[seq]; t == nil && p != nil {
			delete(ts.onHold, seq)
			t = p.task
		}
		if t == nil {
			t = ts.deps.remove(seq)
		}
		if t == nil {
			t = ts.orphans.give(seq)
		}
		if t != nil {
			ts.cancelTask(t, "by request")
			count++
		}
	}
	return count
}

// Has reports whether a task, named by its id or number, is still to end.
func (c *Core) Has(name string) bool { return c.Knows(c.tasks.deps.seq(name)) }

// Knows reports whether a task is still to end.
func (c *Core) Knows(seq int64) bool {
	if c.tasks.attempts[seq] != nil || c.tasks.onHold[seq] != nil || c.tasks.deps.find(seq) != nil || c.orphans.has(seq) {
		return true
	}
	for _, n := range c.nodes.all {
		if slices.ContainsFunc(n.held, func(p *pending) bool { return p.task.Seq == seq }) {
			return true
		}
	}
	return slices.ContainsFunc(c.tasks.sweeps, func(s *sweeping) bool { return s.attempt.task.Seq == seq }) ||
		slices.ContainsFunc(c.tasks.undecided, func(l *undecided) bool { return l.task.Seq == seq }) ||
		c.pool.Find(seq) != nil
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

func (ts *tasks) killAll(immediately bool) {
	for _, a := range sorted(ts.attempts) {
		ts.kill(a, wire.Stopped, immediately)
	}
}
