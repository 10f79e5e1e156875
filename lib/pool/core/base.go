package core

import (
	"fmt"
	"time"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// base is what the parts of a core share: the configuration, the pool with its slots, and of the event that is handled the time and the
// effects so far.
type base struct {
	Config
	pool *pool.Pool
	now  time.Time
	out  []Effect
}

func (b *base) do(e Effect) { b.out = append(b.out, e) }

func (b *base) say(format string, args ...any) { b.do(Say{fmt.Sprintf(format, args...)}) }

func (b *base) send(w *Worker, m *wire.Message) { b.do(Send{w, m}) }

func (b *base) nodeEvent(n *Node, what, why string) {
	b.do(NodeEvent{Node: n.Spec.Name, What: what, Why: why})
}

func (b *base) seconds() float64 { return float64(b.now.UnixMicro()) / 1e6 }

// leaseOver returns when a lease that was granted at t has expired on any machine, whose clock may be
// a little slower.
func (b *base) leaseOver(t time.Time) time.Time { return t.Add(b.Lease + b.Lease/1000 + time.Second) }

func (b *base) kill(a *attempt, why wire.Outcome, immediately bool) {
	if a.why == "" {
		a.why = why
	}
	b.send(a.worker, &wire.Message{Kill: &wire.Kill{Key: a.key(), Why: a.why, Now: immediately}})
}

// recall requests a task back, if it has not begun.
func (b *base) recall(a *attempt) {
	if !a.recalled {
		a.recalled = true
		k := a.key()
		b.send(a.worker, &wire.Message{Unrun: &k})
	}
}

// vacate releases what an attempt at an orphan holds: what occupy took, and what does not belong to
// the node that was lost.
func (b *base) vacate(a *attempt) {
	for _, s := range []*pool.Slot{a.beside, a.claim, a.slot} {
		if s != nil {
			b.pool.Release(s)
		}
	}
	a.beside, a.claim = nil, nil
}

func (b *base) newResult(node string, d *wire.Done) *Result {
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
