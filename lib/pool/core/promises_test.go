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
		if has := w.core.nodes.resources(b.name, "").Get("scratch"); scratch > has || shares > pool.WholeGPU {
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
	for _, a := range c.tasks.attempts {
		note(a)
	}
	for _, s := range c.tasks.sweeps {
		note(s.attempt)
	}
	for _, o := range c.orphans.all {
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
	fmt.Fprintf(&b, "# %v %v %d ", c.ending.phase, c.finished, c.pool.Waiting())
	for _, n := range c.nodes.all {
		fmt.Fprintf(&b, "n%d.%d %v ", n.reconnects, n.deaths, n.dropped)
		if x := n.Worker; x != nil {
			fmt.Fprintf(&b, "%v %d %d %d %d %d ", x.State, rel(x.until), rel(x.deadline), rel(x.heard), rel(x.granted), x.queued)
		}
	}
	for _, o := range c.orphans.all {
		fmt.Fprintf(&b, "x%s %v %v %d %d ", o.Name(), o.State, o.died, rel(o.until), len(o.attempts))
	}
	for _, s := range c.tasks.sweeps {
		fmt.Fprintf(&b, "s%v%d ", s.attempt.key(), len(s.left))
	}
	for i := range w.needs {
		seq := int64(i + 1)
		fmt.Fprintf(&b, "t%d ", w.ended[seq])
		if r := w.past[seq]; r != nil {
			fmt.Fprintf(&b, "%d %d ", r.state, r.attempt)
		}
		if a := c.tasks.attempts[seq]; a != nil {
			fmt.Fprintf(&b, "a%v%v%v ", a.key(), a.slot != nil, a.recalled)
		}
		if t := c.pool.Find(seq); t != nil {
			fmt.Fprintf(&b, "w%d.%d.%d ", t.Attempt, t.Losses, t.Company)
		}
		for _, o := range c.orphans.all {
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
