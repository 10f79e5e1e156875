package scheduler

import (
	"time"

	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// idleBefore is how long a node must have been idle to be given back.
const idleBefore = 5 * time.Second

// releaseIdle gives nodes back that will not be needed any more: nothing waits,
// and nothing runs there. The node of the head stays, as the job ends with it.
func (h *head) releaseIdle(t time.Time) {
	if h.Release == nil || !h.eof || h.pool.Waiting() > 0 || h.deps.waiting() > 0 || len(h.held)+h.doubts() > 0 || h.Serve || h.opening > 0 || t.Before(h.releaseAt) {
		return
	}
	var idle []*conn
	keep := []string{}
	for _, n := range h.nodes {
		c := n.conn
		if c != nil && len(c.attempts) == 0 && !n.spec.Local && !h.printer.waitsFor(c) {
			if c.idle.IsZero() {
				c.idle = t
			}
			if t.Sub(c.idle) >= idleBefore {
				idle = append(idle, c)
				continue
			}
		} else if c != nil {
			c.idle = time.Time{}
		}
		if !n.released {
			keep = append(keep, n.spec.Name)
		}
	}
	if len(idle) == 0 || len(keep) == 0 {
		return
	}
	h.releaseAt = t.Add(30 * time.Second)
	left := make([]*conn, 0, len(idle))
	for _, c := range idle {
		c.node.released = true
		c.send(&wire.Message{Bye: true})
		c.flush(true)
		c.gone = true
		c.node.conn = nil
		h.gone += time.Since(c.node.up).Seconds() * float64(c.n.Total().CPUs)
		h.pool.RemoveNode(c.n)
		h.drop(c)
		h.record(c.node, "released", "")
		left = append(left, c)
	}
	go func() {
		for _, c := range left { // the step must have ended
			_ = c.w.Close()
			c.link.Close()
		}
		if err := h.Release(h.ctx, keep); err != nil {
			h.send(func(h *head) { h.Message("nodes cannot be given back: %v", err) })
			return
		}
		h.send(func(h *head) { h.Message("gave %d idle nodes back", len(left)) })
	}()
}

// drop takes a connection off the list.
func (h *head) drop(c *conn) {
	for i, o := range h.conns {
		if o == c {
			h.conns = append(h.conns[:i:i], h.conns[i+1:]...)
			return
		}
	}
}

func (p *printer) waitsFor(c *conn) bool {
	for _, it := range p.queue {
		if it.out.conn == c {
			return true
		}
	}
	for _, it := range p.stored {
		if it.out.conn == c {
			return true
		}
	}
	return false
}
