package pool

import (
	"slices"
)

// Place says how nodes are chosen.
type Place int

// The ways to choose among nodes with room.
const (
	Auto   Place = iota // Spread while all tasks want the same, else Pack
	Spread              // the node with most free CPUs
	Pack                // the node with the fewest that suffice
)

// Pool is the nodes and the tasks that wait for them.
type Pool struct {
	Place Place
	// Late reports that a task would not end in time at a node: it does not start there, and a task
	// that is late at all nodes does not block others. May be nil.
	Late func(*Task, *Node) bool
	// Ends returns when a task that starts now will end at the latest, in the unit of Slot.End; 0:
	// unknown. Tasks that end before the one for which nodes are reserved can start may use those
	// nodes until then. May be nil.
	Ends func(*Task) int64
	// Shared are amounts of what the tasks of all nodes share. It is set before anything else.
	Shared Named
	// Hold keeps tasks that need some of it from starting, as not all of its users are known.
	Hold bool

	together int // see Group
	nodes    []*Node
	buckets  [][]*Node // open nodes by free CPUs
	lines    map[class]*line
	order    []*line // those with tasks, by the order of their heads
	waiting  int
	widths   map[[2]int]int // how many lines want so many CPUs on so many nodes
	reserved *reservation
	given    Named // of Shared
}

// Nodes are the nodes of the pool, in the order they came.
func (p *Pool) Nodes() []*Node { return p.nodes }

// Group sets how many nodes the largest group has or will have. A task of no more has its nodes of one
// group, and waits for that; one of more has them of as few groups as possible.
func (p *Pool) Group(together int) {
	if p.together != together {
		p.together, p.reserved = together, nil
	}
}

// Together is what Group has set.
func (p *Pool) Together() int { return p.together }

// AddNode takes a node in.
func (p *Pool) AddNode(n *Node) {
	n.gone, n.shared = false, p.Shared
	p.nodes = append(p.nodes, n)
	p.link(n)
}

// Close lets a node have nothing new; what runs there continues.
func (p *Pool) Close(n *Node) {
	if !n.Closed() {
		p.unlink(n)
		n.closed = true
		p.forget(n)
	}
}

// Open lets a closed node have tasks again.
func (p *Pool) Open(n *Node) {
	if n.closed && !n.gone {
		n.closed = false
		p.link(n)
	}
}

// RemoveNode removes a node and returns the slots that were in use. Releasing them returns what else
// they hold: parts of other nodes, and of the pool.
func (p *Pool) RemoveNode(n *Node) []*Slot {
	if n.gone {
		return nil
	}
	if !n.closed {
		p.unlink(n)
	}
	n.gone = true
	p.forget(n)
	p.nodes = slices.DeleteFunc(p.nodes, func(m *Node) bool { return m == n })
	slots := n.Slots()
	for _, s := range slots {
		s.release = true
	}
	n.running, n.ending = map[*Slot]struct{}{}, nil
	return slots
}

func (p *Pool) forget(n *Node) {
	if p.reserved != nil && p.reserved.place(n) != nil {
		p.reserved = nil
	}
}

func (p *Pool) link(n *Node) {
	for len(p.buckets) <= n.free.CPUs {
		p.buckets = append(p.buckets, nil)
	}
	n.bucket = len(p.buckets[n.free.CPUs])
	p.buckets[n.free.CPUs] = append(p.buckets[n.free.CPUs], n)
}

func (p *Pool) unlink(n *Node) {
	b := p.buckets[n.free.CPUs]
	last := b[len(b)-1]
	b[n.bucket], last.bucket = last, n.bucket
	p.buckets[n.free.CPUs] = b[:len(b)-1]
}

// Next removes the next task that can start now from the queue and gives it its part of a node, in
// nil if there is no room for any.
func (p *Pool) Next() *Slot {
	blocked := false
	for i := 0; i < len(p.order); i++ {
		l := p.order[i]
		t := l.head()
		held := p.reserved
		if !blocked || held == nil || held.task == t {
			held = nil
		}
		if s := p.try(i, held); s != nil {
			return s
		}
		if !blocked && p.could(l) {
			blocked = true
			if len(p.order) > 1 || p.reserved != nil {
				p.reserve(l)
			}
		}
	}
	if !blocked {
		p.reserved = nil
	}
	return nil
}

// try starts the first task of a line, if there is room for it beside a reservation.
func (p *Pool) try(i int, held *reservation) *Slot {
	l := p.order[i]
	if !p.hasShared(l) || l.shared != (Named{}) && held != nil && !l.shared.Fits(p.Shared.Minus(held.line.shared).Minus(held.beside)) {
		return nil
	}
	var nodes []*Node
	if l.need.Nodes > 1 {
		nodes = p.findMany(l, held)
	} else if n := p.find(l, held); n != nil {
		nodes = append(make([]*Node, 0, 1), n)
	}
	if nodes == nil {
		return nil
	}
	t := p.pop(i)
	s := p.give(t, nodes[0], held)
	for _, n := range nodes[1:] {
		s.Others = append(s.Others, p.give(t, n, held))
	}
	p.share(s, l.shared, held)
	return s
}

// hasShared reports whether there is enough now of what all nodes share.
func (p *Pool) hasShared(l *line) bool {
	return l.shared == (Named{}) || !p.Hold && l.shared.Fits(p.Shared.Minus(p.given))
}

// give gives part of a node to a task.
func (p *Pool) give(t *Task, n *Node, held *reservation) *Slot {
	p.unlink(n)
	s := n.take(t)
	p.link(n)
	if held != nil && p.reserved == held {
		if at := held.place(n); at != nil && s.local.Fits(held.room(at)) {
			at.beside = at.beside.plus(s.local)
			s.beside = held
		}
	}
	return s
}

// share gives a slot its part of what all nodes share.
func (p *Pool) share(s *Slot, shared Named, held *reservation) {
	if shared == (Named{}) {
		return
	}
	s.shared = shared
	p.given = p.given.Plus(shared)
	if held != nil && p.reserved == held {
		held.beside = held.beside.Plus(shared)
		s.sharing = held
	}
}

// unshare takes it back.
func (p *Pool) unshare(s *Slot) {
	if s.shared == (Named{}) {
		return
	}
	p.given = p.given.Minus(s.shared)
	if s.sharing != nil && s.sharing == p.reserved {
		p.reserved.beside = p.reserved.beside.Minus(s.shared)
	}
	s.shared = Named{}
}

// Claim gives a task its part of what all nodes share, though it may be given already: it
// may run somewhere. The slot has no part of a node.
func (p *Pool) Claim(t *Task) *Slot {
	need := t.Need()
	shared, _ := need.Named.split(p.Shared)
	s := &Slot{Task: t, need: need, release: true}
	p.share(s, shared, nil)
	return s
}

// find returns an open node with room for the line's tasks. A node that they should avoid is taken
// only if no other could ever run them.
func (p *Pool) find(l *line, held *reservation) (found *Node) {
	p.scan(l, held, func(n *Node) bool {
		found = n
		return false
	})
	return found
}

// findMany returns as many nodes as the line's tasks need, or nil.
func (p *Pool) findMany(l *line, held *reservation) []*Node {
	g := p.gather(l.need)
	p.scan(l, held, func(n *Node) bool { return !g.add(n) })
	return g.nodes()
}

// scan goes through the open nodes with room for the line's tasks, until take returns
// false.
func (p *Pool) scan(l *line, held *reservation, take func(*Node) bool) {
	more := func(n *Node) bool {
		if !l.local.Fits(n.free) || !n.tolerates(l.company) || p.late(l, n) {
			return true
		}
		if held != nil {
			if at := held.place(n); at != nil && !p.beside(l, held, at) {
				return true
			}
		}
		return l.avoids(n) && p.another(l) || take(n)
	}
	pack := p.Place == Pack || p.Place == Auto && len(p.widths) > 1
	if pack {
		for c := l.need.CPUs; c < len(p.buckets); c++ {
			for _, n := range p.buckets[c] {
				if !more(n) {
					return
				}
			}
		}
		return
	}
	for c := len(p.buckets) - 1; c >= l.need.CPUs && c >= 0; c-- {
		for _, n := range p.buckets[c] {
			if !more(n) {
				return
			}
		}
	}
}

// another reports whether nodes other than the one to avoid could take the
// line's tasks at some time.
func (p *Pool) another(l *line) bool {
	return p.enough(l.need, func(n *Node) bool { return !l.avoids(n) && l.local.Fits(n.total) })
}

// enough reports whether as many open nodes satisfy is as a task needs.
func (p *Pool) enough(need Need, is func(*Node) bool) bool {
	g := p.gather(need)
	for _, n := range p.nodes {
		if !n.Closed() && is(n) && (g.width == 1 || g.add(n)) {
			return true
		}
	}
	return g.most() >= g.width
}

// There is how many of the nodes that a task needs are there, open and large enough, busy or not.
func (p *Pool) There(need Need) int {
	return p.count(need, func(n *Node) bool { return n.FitsNode(need) })
}

// WithRoom is how many of them have room now.
func (p *Pool) WithRoom(need Need) int {
	return p.count(need, func(n *Node) bool { return n.HasRoom(need) })
}

func (p *Pool) count(need Need, is func(*Node) bool) int {
	g := p.gather(need)
	for _, n := range p.nodes {
		if !n.Closed() && is(n) && g.add(n) {
			break
		}
	}
	return min(g.most(), g.width)
}

// Fits reports whether open nodes are large enough, busy or not, and the pool has what all
// of them share.
func (p *Pool) Fits(need Need) bool {
	shared, _ := need.Named.split(p.Shared)
	return shared.Fits(p.Shared) && p.enough(need, func(n *Node) bool { return n.FitsNode(need) })
}

// could reports whether open nodes could take the line's first task, now or when others
// have ended.
func (p *Pool) could(l *line) bool {
	return p.enough(l.need, func(n *Node) bool { return l.local.Fits(n.total) && !p.late(l, n) })
}

// SharedFree returns what is free of what all nodes share.
func (p *Pool) SharedFree() Named { return p.Shared.Minus(p.given) }

func (p *Pool) late(l *line, n *Node) bool {
	return p.Late != nil && p.Late(l.head(), n)
}

// Occupy gives part of a node to a task that runs there already; nil if there is no room.
func (p *Pool) Occupy(n *Node, t *Task) *Slot {
	if n.gone || !n.HasRoom(t.Need()) {
		return nil
	}
	if n.closed {
		return n.take(t)
	}
	p.unlink(n)
	s := n.take(t)
	p.link(n)
	return s
}

// FitsNode reports whether n is large enough, busy or not.
func (n *Node) FitsNode(need Need) bool { return n.local(need).Fits(n.total) }

// Follower removes from the queue the task that is to follow on a slot of n with that need: the one
// at the very front, if it needs exactly this, and nothing that nodes share. Call it only after Next
// returned nil.
func (p *Pool) Follower(n *Node, need Need) *Task {
	if len(p.order) == 0 || n.Closed() {
		return nil
	}
	l := p.order[0]
	if l.need != need || l.shared != (Named{}) || l.avoid != nil || l.company > 0 || n.limited > 0 || need.Nodes > 1 || p.late(l, n) {
		return nil
	}
	return p.pop(0)
}

// Release gives everything back: of a node that was removed, what other nodes gave, and
// the pool.
func (p *Pool) Release(s *Slot) {
	p.unshare(s)
	for _, o := range s.Others {
		p.Release(o)
	}
	s.Others = nil
	if s.release {
		return
	}
	s.release = true
	if s.beside != nil && s.beside == p.reserved {
		at := p.reserved.place(s.Node)
		at.beside = at.beside.minus(s.local)
	}
	n := s.Node
	if n.Closed() {
		n.put(s)
		return
	}
	p.unlink(n)
	n.put(s)
	p.link(n)
}

// Follow gives the slot of a task that has ended to its follower.
func (p *Pool) Follow(s *Slot, t *Task) *Slot {
	next := &Slot{
		Node: s.Node, Task: t, CPUs: s.CPUs, GPUs: s.GPUs, Number: s.Number,
		need: s.need, local: s.local, cpuAt: s.cpuAt, gpuAt: s.gpuAt, beside: s.beside, release: s.release,
	}
	s.release = true
	if !next.release {
		delete(s.Node.running, s)
		s.Node.forgetEnd(s)
		s.Node.running[next] = struct{}{}
		if s.Task.Company > 0 {
			s.Node.limited--
		}
		if t.Company > 0 {
			s.Node.limited++
		}
	}
	return next
}
