package pool

import (
	"cmp"
	"math"
	"slices"
)

// reservation keeps nodes free for the first task that cannot start.
type reservation struct {
	task   *Task
	line   *line   // of which it is the first
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
	return at.node.total.minus(r.line.local).minus(at.beside)
}

// reserve reserves what the first task of a line needs.
func (p *Pool) reserve(l *line) {
	r := p.reserved
	if r == nil || r.task != l.head() {
		r = &reservation{task: l.head()}
		p.reserved = r
	}
	if len(r.places) > 0 {
		return
	}
	if r.line = l; p.hasShared(l) {
		r.places, r.at = p.soonest(l)
	}
}

// Reserve reserves what the first task of the queue needs, after tasks have started beside it at n that the pool has not placed.
func (p *Pool) Reserve(n *Node, beside Need) {
	p.reserve(p.order[0])
	if at := p.reserved.place(n); at != nil {
		at.beside = at.beside.plus(n.local(beside))
	}
}

// beside reports whether the first task of a line can start at a place without delaying the task for
// which it is reserved.
func (p *Pool) beside(l *line, held *reservation, at *place) bool {
	if held.task.Company > 0 { // it waits for the node to be empty enough
		return false
	}
	if l.local.Fits(held.room(at)) {
		return true
	}
	if held.at == 0 || p.Ends == nil {
		return false
	}
	end := p.Ends(l.head())
	return end > 0 && end <= held.at
}

// soonest chooses the nodes where the line's first task will probably start first,
// and returns when; 0: unknown.
func (p *Pool) soonest(l *line) ([]place, int64) {
	type choice struct {
		n     *Node
		at    int64
		short int
	}
	var all []choice
	another := p.another(l)
	for _, n := range p.nodes {
		if n.Closed() || !l.local.Fits(n.total) || another && l.avoids(n) || p.late(l, n) {
			continue
		}
		at, known := n.freeAt(l.local)
		if !known {
			at = math.MaxInt64
		}
		all = append(all, choice{n, at, l.need.CPUs - n.free.CPUs})
	}
	slices.SortStableFunc(all, func(a, b choice) int { return cmp.Or(cmp.Compare(a.at, b.at), a.short-b.short) })
	g := p.gather(l.need)
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
