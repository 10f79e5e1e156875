package scheduler

import (
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	reader "github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// former is a worker that may still run tasks although its connection, or the head
// that had it, is gone. Those tasks wait until it is certain that they have ended:
// when the worker's own supervisor, or a new worker on the same machine, says so, or
// when its lease is over.
type former struct {
	wire.Former
	since time.Time
	until time.Time
	tasks []lostTask
	told  bool
}

// lostTask is a task that may still run somewhere.
type lostTask struct {
	task   *pool.Task
	record *journal.Record // of the attempt; nil: one of a head before
}

// lease is for how long workers may have tasks running without the head.
func (h *head) lease() time.Duration { return time.Duration(h.Setup.Lease * float64(time.Second)) }

// leaseOver is when a lease given at t is over on any machine, whose clock may be a
// little slower.
func (h *head) leaseOver(t time.Time) time.Time {
	return t.Add(h.lease() + h.lease()/1000 + time.Second)
}

// leaseAhead is for how much longer than needed the run directory says that leases
// run, so that it need not be written each time.
const leaseAhead = 15 * time.Second

// noteLease lets the next head know until when workers may have tasks running. It
// reports whether a lease can be given now.
func (h *head) noteLease(t time.Time) bool {
	over := h.leaseOver(t)
	if over.After(h.leased) {
		if h.Journal.Lease(over.Add(leaseAhead)) != nil {
			return false
		}
		h.leased = over.Add(leaseAhead)
	}
	return true
}

// grant answers a worker that asks for a lease.
func (c *conn) grant(asked int64) {
	if t := time.Now(); c.h.noteLease(t) {
		c.granted = t
		c.send(&wire.Message{Lease: asked})
	}
}

// past takes over what the heads before have left running.
func (h *head) past() {
	h.prior = map[uint16]*former{}
	until := journal.LeaseEnd(h.Journal.Dir)
	for i, w := range h.History.Former() {
		f := &former{Former: w, since: time.Now(), until: until}
		switch {
		case w.Finish && !h.foreign.knows(w):
			continue // it has ended, or its results would be there
		case !w.Finish && time.Now().After(until):
			continue
		}
		h.prior[i] = f
		h.formers = append(h.formers, f)
	}
}

// identity is what the journal says of a worker.
func (c *conn) identity() wire.Former {
	return wire.Former{
		Session: c.h.Setup.Session, Node: c.name(), Kernel: c.hello.Kernel, Processes: c.hello.Processes, Finish: c.h.Setup.Finish,
	}
}

// suspect keeps the tasks of a lost connection until they have surely ended.
func (h *head) suspect(c *conn, tasks []lostTask) *former {
	f := &former{Former: c.identity(), since: time.Now(), until: h.leaseOver(c.granted), tasks: tasks}
	h.formers = append(h.formers, f)
	return f
}

// doubts is the number of tasks that may still run somewhere.
func (h *head) doubts() (n int) {
	for _, f := range h.formers {
		n += len(f.tasks)
	}
	return n
}

// clear is called when nothing is left of a former worker.
func (h *head) clear(f *former) {
	i := slices.Index(h.formers, f)
	if i < 0 {
		return
	}
	h.formers = slices.Delete(h.formers, i, i+1)
	for k, p := range h.prior {
		if p == f {
			delete(h.prior, k)
		}
	}
	h.ended(f.Former)
	for _, c := range h.conns {
		c.await = slices.DeleteFunc(c.await, func(o *former) bool { return o == f })
		h.admit(c)
	}
	tasks := f.tasks
	f.tasks = nil
	for _, l := range tasks {
		switch {
		case h.foreign.claim(l.task): // its result comes from there
		case l.record == nil:
			h.ready(l.task)
		default:
			h.settle(l.task, nil, l.record, output{})
		}
	}
}

// ended notes that nothing is left of a worker.
func (h *head) ended(w wire.Former) {
	h.Journal.Add(&journal.Record{Kind: journal.Node, Time: now(), Node: w.Node, What: journal.Gone, Worker: &w})
}

// admit lets a node have tasks when those of the worker before it have ended.
func (h *head) admit(c *conn) {
	if !c.shut || slices.ContainsFunc(c.await, func(f *former) bool { return f.Node == c.name() }) {
		return
	}
	c.shut = false
	if !c.term {
		h.pool.Open(c.n)
	}
	if h.opening--; h.opening == 0 {
		h.allTried()
	}
}

// checkFormers gives up waiting for workers whose lease is over.
func (h *head) checkFormers(t time.Time) {
	for _, f := range slices.Clone(h.formers) {
		switch {
		case f.Finish && h.foreign.knows(f.Former):
		case f.Finish, t.After(f.until): // its file tells of what goes on
			h.clear(f)
		case !f.told && len(f.tasks) > 0 && t.Sub(f.since) > 3*time.Second:
			f.told = true
			h.Message("node %s: %s of it may still run: to run again when that is over, in %s at the latest", f.Node,
				plural(int64(len(f.tasks)), "task"), reader.Seconds(f.until.Sub(t)))
		}
	}
}

// leaveDoubts leaves what may still run to the next run. It is not noted as ended,
// so that the next head waits, too.
func (h *head) leaveDoubts() {
	for _, f := range h.formers {
		h.stats.left += int64(len(f.tasks))
		f.tasks = nil
	}
}

// cancelLost takes a task that may still run off the list.
func (h *head) cancelLost(seq int64) *pool.Task {
	for _, f := range h.formers {
		for i, l := range f.tasks {
			if l.task.Seq == seq {
				f.tasks = slices.Delete(f.tasks, i, i+1)
				return l.task
			}
		}
	}
	return nil
}
