package pool

import (
	"cmp"
	"math"
	"slices"
)

// reservation keeps nodes free for the first task that cannot start.
type reservation struct {
	task   *Task
	way    *way    // in which it will probably start first
	places []place // none while it waits for what all nodes share
	beside Named   // of what is shared, what started since
	at     int64   // when it can start, as far as is known; 0: not known
}

// place is a node of a reservation.
type place struct {
	node   *Node
	beside Need // what started there since, and is to leave room for the task
}

// place is the one at a node, or nil.
func (r *reservation) place(n *Node) *place {
	for i := range r.places {
		if r.places[i].node == n {
			return &r.places[i]
		}
	}
	return nil
}

// room is what tasks that start after the reservation may have of a place.
func (r *reservation) room(at *place) Need {
	return at.node.total.minus(r.way.local).minus(at.beside)
}

// reserve reserves what the first task of a line needs: in the variant in which it can start first,
// as far as is known, or else in the first for which there are nodes.
func (p *Pool) reserve(l *line) {
	r := p.reserved
	if r == nil || r.task != l.head() {
		r = &reservation{task: l.head()}
		p.reserved = r
	}
	if len(r.places) > 0 {
		return
	}
	r.way = nil
	for i := range l.ways {
		w := &l.ways[i]
		if !p.couldAs(l, w) {
			continue
		}
		if !p.hasShared(w) {
			if r.way == nil {
				r.way = w
			}
			continue
		}
		places, at := p.soonest(l, w)
		if len(r.places) == 0 || at > 0 && (r.at == 0 || at < r.at) {
			r.way, r.places, r.at = w, places, at
		}
	}
}

// beside reports whether the first task of a line can start at a place without delaying the task for
// which it is reserved.
func (p *Pool) beside(l *line, w *way, held *reservation, at *place) bool {
	if held.task.Company > 0 { // it waits for the node to be empty enough
		return false
	}
	if w.local.Fits(held.room(at)) {
		return true
	}
	if held.at == 0 || p.Ends == nil {
		return false
	}
	end := p.Ends(l.head())
	return end > 0 && end <= held.at
}

// soonest chooses the nodes where the line's first task will probably start first in that variant,
// and returns when; 0: unknown.
func (p *Pool) soonest(l *line, w *way) ([]place, int64) {
	type choice struct {
		n     *Node
		at    int64
		short int
	}
	var all []choice
	another := p.another(l)
	for _, n := range p.nodes {
		if n.Closed() || !w.local.Fits(n.total) || another && l.avoids(n) || p.late(l, w, n) {
			continue
		}
		at, known := n.freeAt(w.local)
		if !known {
			at = math.MaxInt64
		}
		all = append(all, choice{n, at, w.need.CPUs - n.free.CPUs})
	}
	slices.SortStableFunc(all, func(a, b choice) int { return cmp.Or(cmp.Compare(a.at, b.at), a.short-b.short) })
	g := p.gather(w.need)
	ends := map[*Node]int64{}
	for _, c := range all {
		ends[c.n] = c.at
		if g.add(c.n) || !g.together && g.most() >= g.width {
			break
		}
	}
	var places []place
	at := int64(0)
	for _, n := range g.nodes() {
		places = append(places, place{node: n})
		at = max(at, ends[n])
	}
	if at == math.MaxInt64 {
		at = 0
	}
	return places, at
}

// freeAt tells when the node will have room by what is known of the ends of the
// tasks there; 0: now.
func (n *Node) freeAt(need Need) (int64, bool) {
	free := n.free
	if need.Fits(free) {
		return 0, true
	}
	for _, s := range n.ending {
		free = free.plus(s.local)
		if need.Fits(free) {
			return s.End, true
		}
	}
	return 0, false
}

// Kept is the task that nodes are kept free for, and these; nil if there is none.
func (p *Pool) Kept() (*Task, []*Node) {
	if p.reserved == nil {
		return nil, nil
	}
	var nodes []*Node
	for _, at := range p.reserved.places {
		nodes = append(nodes, at.node)
	}
	return p.reserved.task, nodes
}
