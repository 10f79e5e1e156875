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
