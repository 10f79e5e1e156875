package scheduler

import (
	"fmt"
	"strconv"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

func newRecord(t *pool.Task, node string, d *wire.Done) *journal.Record {
	return &journal.Record{
		Kind: journal.End, Time: now(), Seq: d.Seq, Attempt: d.Attempt, Hash: journal.FormatHash(journal.Hash(t)), ID: t.ID(),
		Node: node, What: d.What, Exit: d.Exit, Signal: d.Signal, Start: d.Start, Seconds: d.Seconds,
		User: d.User, System: d.System, MaxRSS: d.MaxRSS, Error: d.Error,
	}
}

// settle decides what an ended attempt means for its task.
func (h *head) settle(t *pool.Task, at *pool.Node, r *journal.Record, out output) {
	h.stats.usage(r, t)
	again := func(avoid *pool.Node) {
		h.printer.discard(r, out)
		r.Kind = journal.Try
		h.Journal.Add(r)
		t.Avoid = avoid
		h.pool.Push(t)
	}
	stopped := h.phase >= stopping
	switch r.What {
	case wire.Lost:
		h.stats.lost++
		t.Losses++
		if stopped {
			h.leave(t, r, out)
			return
		}
		if int(t.Losses) <= h.LostRetries {
			again(nil)
			return
		}
	case wire.Stopped:
		if h.phase < stopping { // only its node was told to end
			h.stats.lost++
			t.Losses++
			if int(t.Losses) <= h.LostRetries {
				again(nil)
				return
			}
			r.What = wire.Lost
			break
		}
		h.leave(t, r, out)
		return
	case wire.NoStart:
		// It had no effect yet, so another node may try, once.
		if t.Avoid == nil && len(h.conns) > 1 && h.phase == running {
			again(at)
			return
		}
	case wire.Failed, wire.Timeout:
		t.Fails++
		if int(t.Fails) <= h.Retries && h.phase == running {
			again(at)
			return
		}
	}
	if h.Hold && h.phase == running && (r.What == wire.Failed || r.What == wire.Timeout || r.What == wire.NoStart || r.What == wire.Lost) {
		h.printer.discard(r, out)
		h.hold(t, r)
		return
	}
	h.endTask(t, r, out)
}

// leave keeps a task for the next run.
func (h *head) leave(t *pool.Task, r *journal.Record, out output) {
	r.Kind = journal.Try
	h.Journal.Add(r)
	h.stats.left++
	h.printer.print(t, r, out)
}

func (h *head) hold(t *pool.Task, r *journal.Record) {
	r.Kind = journal.Try
	h.Journal.Add(r)
	if len(h.held) == 0 {
		h.Message("task %d is on hold: it %s; see %q", t.Seq, describe(r), "jobpool ctl list")
	}
	h.held[t.Seq] = &heldTask{t, r}
}

// endTask writes the end of a task, which happens once.
func (h *head) endTask(t *pool.Task, r *journal.Record, out output) {
	r.Kind = journal.End
	h.Journal.Add(r)
	h.Journal.Ended(t, r)
	h.stats.end(t, r)
	if waiters := h.waiters[t.Seq]; t.Extra != nil && t.Extra.Capture {
		h.printer.skip(t.Seq)
		h.printer.collect(t, r, out, func(text [2][]byte) {
			h.remember(r, text)
			for _, f := range waiters {
				f(r, text)
			}
		})
	} else {
		h.printer.print(t, r, out)
		h.remember(r, [2][]byte{})
		for _, f := range waiters {
			f(r, [2][]byte{})
		}
	}
	delete(h.waiters, t.Seq)
	h.release(t, r.What == wire.OK)
	h.checkHalt()
}

// release lets go what waited for a task.
func (h *head) release(t *pool.Task, ok bool) {
	for _, next := range h.deps.finish(t, ok) {
		h.ready(next)
	}
}

// refuse ends a task that can never run.
func (h *head) refuse(t *pool.Task, why string) {
	if h.bad == 0 && h.stats.refused < 10 {
		h.Message("task %d: %s", t.Seq, why)
	}
	h.stats.refused++
	h.endUnrun(t, wire.Refused, why)
}

// refuseTwin ends a task whose id another has, without ending that one's.
func (h *head) refuseTwin(t *pool.Task) {
	id, x := t.ID(), *t.Extra
	x.ID = ""
	t.Extra = &x
	h.refuse(t, fmt.Sprintf("id %q is that of another task", id))
}

// cancelTask ends a task that shall not run.
func (h *head) cancelTask(t *pool.Task, why string) { h.endUnrun(t, wire.Cancelled, why) }

func (h *head) endUnrun(t *pool.Task, what wire.Outcome, why string) {
	h.endTask(t, &journal.Record{
		Time: now(), Seq: t.Seq, Attempt: t.Attempt, Hash: journal.FormatHash(journal.Hash(t)), ID: t.ID(),
		What: what, Exit: 125, Start: now(), Error: wire.Text(why),
	}, output{})
}

// cancelUnmet ends what waits for tasks that do not exist, or for each other.
func (h *head) cancelUnmet() {
	for _, t := range h.deps.takeAll() {
		h.Message("task %d: it waits for %s, which never ends", t.Seq, h.deps.unmet(t))
		h.cancelTask(t, "it waits for "+h.deps.unmet(t)+", which never ends")
	}
}

// checkHalt gives up when enough has failed, or succeeded.
func (h *head) checkHalt() {
	s, halt := &h.stats, h.Halt
	failed := s.failed + s.cancelled
	ended := failed + s.done
	all := max(ended, s.seen*btoi(h.eof))
	reached := func(n int64, percent int) bool {
		return percent > 0 && ended >= 3 && n*100 >= int64(percent)*all
	}
	var why string
	code := 1
	switch {
	case h.phase != running:
		return
	case halt.Fail > 0 && failed >= int64(halt.Fail):
		why = strconv.FormatInt(failed, 10) + " tasks have failed"
	case reached(failed, halt.Percent):
		why = fmt.Sprintf("%d %% of the tasks have failed", halt.Percent)
	case halt.Success > 0 && s.done >= int64(halt.Success):
		why, code = strconv.FormatInt(s.done, 10)+" tasks have succeeded", 0
	case reached(s.done, halt.SuccessPercent):
		why, code = fmt.Sprintf("%d %% of the tasks have succeeded", halt.SuccessPercent), 0
	case halt.Done > 0 && ended >= int64(halt.Done):
		why, code = strconv.FormatInt(ended, 10)+" tasks have ended", int(btoi(failed > 0))
	case reached(ended, halt.DonePercent):
		why, code = fmt.Sprintf("%d %% of the tasks have ended", halt.DonePercent), int(btoi(failed > 0))
	default:
		return
	}
	if halt.Now {
		h.stop(stopping, why, code)
		return
	}
	h.stop(draining, why, code)
}

func btoi(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// describe says how an attempt has ended, after "it".
func describe(r *journal.Record) string {
	switch r.What {
	case wire.OK:
		return "succeeded"
	case wire.NoStart:
		return "could not be started: " + string(r.Error)
	case wire.Timeout:
		return "took too long"
	case wire.Lost:
		return "was lost: " + string(r.Error)
	case wire.Refused, wire.Cancelled, wire.Stopped:
		if r.Error != "" {
			return string(r.What) + ": " + string(r.Error)
		}
		return "was " + string(r.What)
	}
	if r.Signal != 0 {
		return fmt.Sprintf("was ended by signal %d", r.Signal)
	}
	return fmt.Sprintf("failed with exit status %d", r.Exit)
}
