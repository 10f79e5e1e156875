package pool

import (
	"cmp"
	"math"
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
	// Late reports that a task would not end in time at a node with that need: it does not start
	// there so, and a task that is late at all nodes does not block others. May be nil.
	Late func(*Task, Need, *Node) bool
	// Ends returns when a task that starts now will end at the latest, in the unit of Slot.End; 0:
	// unknown. Tasks that end before the one for which nodes are reserved can start may use those
	// nodes until then. May be nil.
	Ends func(*Task) int64
	// Shared are amounts of what the tasks of all nodes share. It is set before anything else.
	Shared Named
	// Hold keeps tasks that need some of it from starting, as not all of its users are known.
	Hold bool

	nodes    []*Node
	buckets  [][]*Node // open nodes by free CPUs
	lines    map[class]*line
	order    []*line // those with tasks, by the order of their heads
	waiting  int
	widths   map[[2]int]int // how many lines want so many CPUs on so many nodes
	reserved *reservation
	given    Named // of Shared
}

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

// Nodes are the nodes of the pool, in the order they came.
func (p *Pool) Nodes() []*Node { return p.nodes }

// Waiting is the number of tasks in the queue.
func (p *Pool) Waiting() int { return p.waiting }

// AddNode takes a node in.
func (p *Pool) AddNode(n *Node) {
	n.gone, n.shared = false, p.Shared
	p.nodes = append(p.nodes, n)
	p.link(n)
}

// Close lets a node have nothing new; what runs there goes on.
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

// Push puts a task into the queue, by its priority and number.
func (p *Pool) Push(t *Task) {
	key := t.class()
	if p.lines == nil {
		p.lines, p.widths = map[class]*line{}, map[[2]int]int{}
	}
	l := p.lines[key]
	if l == nil {
		l = &line{class: key, ways: p.ways(t.Spec)}
		p.lines[key] = l
		for i := range l.ways {
			p.widths[l.ways[i].width()]++
		}
	}
	before := l.len()
	var oldHead *Task
	if before > 0 {
		oldHead = l.head()
	}
	l.push(t)
	p.waiting++
	switch {
	case before == 0:
		p.order = append(p.order, l)
		p.up(len(p.order) - 1)
	case l.head() != oldHead:
		p.up(slices.Index(p.order, l))
	}
}

func precedes(a, b *line) bool {
	return cmp.Or(b.priority-a.priority, cmp.Compare(a.head().Seq, b.head().Seq)) < 0
}

// up moves the line at i forward to where it belongs.
func (p *Pool) up(i int) {
	for i > 0 && precedes(p.order[i], p.order[i-1]) {
		p.order[i], p.order[i-1] = p.order[i-1], p.order[i]
		i--
	}
}

// shrunk moves the line at i to its place right after its head was taken.
func (p *Pool) shrunk(i int) {
	l := p.order[i]
	if l.len() == 0 {
		p.order = slices.Delete(p.order, i, i+1)
		delete(p.lines, l.class)
		for i := range l.ways {
			width := l.ways[i].width()
			if p.widths[width]--; p.widths[width] == 0 {
				delete(p.widths, width)
			}
		}
		return
	}
	for i+1 < len(p.order) && precedes(p.order[i+1], p.order[i]) {
		p.order[i], p.order[i+1] = p.order[i+1], p.order[i]
		i++
	}
}

func (p *Pool) pop(i int) *Task {
	t := p.order[i].pop()
	p.waiting--
	p.shrunk(i)
	if p.reserved != nil && p.reserved.task == t {
		p.reserved = nil
	}
	return t
}

// Remove takes a waiting task out of the queue, or returns nil.
func (p *Pool) Remove(seq int64) *Task {
	for i, l := range p.order {
		head := l.head()
		t := l.remove(seq)
		if t == nil {
			continue
		}
		p.waiting--
		if t == head {
			p.shrunk(i)
		}
		if p.reserved != nil && p.reserved.task == t {
			p.reserved = nil
		}
		return t
	}
	return nil
}

// Find returns a waiting task, or nil.
func (p *Pool) Find(seq int64) *Task {
	for _, l := range p.order {
		if t := l.find(seq); t != nil {
			return t
		}
	}
	return nil
}

// Each calls f for the waiting tasks, line by line, until it returns false.
func (p *Pool) Each(f func(*Task) bool) {
	for _, l := range p.order {
		for _, t := range l.back {
			if !f(t) {
				return
			}
		}
		for _, t := range l.tasks[l.first:] {
			if !f(t) {
				return
			}
		}
	}
}

// Next removes the next task that can start now from the queue and gives it its part of a node, in
// the first of its variants for which there is room; nil if there is none.
func (p *Pool) Next() *Slot {
	blocked := false
	for i := 0; i < len(p.order); i++ {
		l := p.order[i]
		t := l.head()
		held := p.reserved
		if !blocked || held == nil || held.task == t {
			held = nil
		}
		for way := range l.ways {
			if s := p.try(i, way, held); s != nil {
				return s
			}
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

// try starts the first task of a line in one of its ways, if there is room for it beside a
// reservation.
func (p *Pool) try(i, way int, held *reservation) *Slot {
	l := p.order[i]
	w := &l.ways[way]
	if !p.hasShared(w) || w.shared != (Named{}) && held != nil && !w.shared.Fits(p.Shared.Minus(held.way.shared).Minus(held.beside)) {
		return nil
	}
	var nodes []*Node
	if w.need.Nodes > 1 {
		nodes = p.findMany(l, w, held)
	} else if n := p.find(l, w, held); n != nil {
		nodes = append(make([]*Node, 0, 1), n)
	}
	if nodes == nil {
		return nil
	}
	t := p.pop(i)
	t.Variant = int8(way)
	s := p.give(t, nodes[0], held)
	for _, n := range nodes[1:] {
		s.Others = append(s.Others, p.give(t, n, held))
	}
	p.share(s, w.shared, held)
	return s
}

// hasShared reports whether there is enough now of what all nodes share.
func (p *Pool) hasShared(w *way) bool {
	return w.shared == (Named{}) || !p.Hold && w.shared.Fits(p.Shared.Minus(p.given))
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

// find returns an open node with room for the line's tasks. A node that they should avoid is taken
// only if no other could ever run them.
func (p *Pool) find(l *line, w *way, held *reservation) (found *Node) {
	p.scan(l, w, held, func(n *Node) bool {
		found = n
		return false
	})
	return found
}

// findMany returns as many nodes as the line's tasks need, or nil.
func (p *Pool) findMany(l *line, w *way, held *reservation) []*Node {
	nodes := make([]*Node, 0, w.need.Nodes)
	p.scan(l, w, held, func(n *Node) bool {
		nodes = append(nodes, n)
		return len(nodes) < cap(nodes)
	})
	if len(nodes) < cap(nodes) {
		return nil
	}
	return nodes
}

// scan goes through the open nodes with room for the line's tasks, until take returns
// false.
func (p *Pool) scan(l *line, w *way, held *reservation, take func(*Node) bool) {
	more := func(n *Node) bool {
		if !w.local.Fits(n.free) || !n.tolerates(l.company) || p.late(l, w, n) {
			return true
		}
		if held != nil {
			if at := held.place(n); at != nil && !p.beside(l, w, held, at) {
				return true
			}
		}
		return l.avoids(n) && p.another(l) || take(n)
	}
	pack := p.Place == Pack || p.Place == Auto && len(p.widths) > 1
	if pack {
		for c := w.need.CPUs; c < len(p.buckets); c++ {
			for _, n := range p.buckets[c] {
				if !more(n) {
					return
				}
			}
		}
		return
	}
	for c := len(p.buckets) - 1; c >= w.need.CPUs && c >= 0; c-- {
		for _, n := range p.buckets[c] {
			if !more(n) {
				return
			}
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

// another reports whether nodes other than the one to avoid could take the
// line's tasks at some time.
func (p *Pool) another(l *line) bool {
	return slices.ContainsFunc(l.ways, func(w way) bool {
		return p.enough(w.need, func(n *Node) bool { return !l.avoids(n) && w.local.Fits(n.total) })
	})
}

// enough reports whether as many open nodes satisfy is as a task needs.
func (p *Pool) enough(need Need, is func(*Node) bool) bool {
	left := need.Width()
	for _, n := range p.nodes {
		if !n.Closed() && is(n) {
			if left--; left == 0 {
				return true
			}
		}
	}
	return false
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
	places := make([]place, 0, w.need.Width())
	at := int64(0)
	for _, c := range all[:min(len(all), cap(places))] {
		places = append(places, place{node: c.n})
		at = max(at, c.at)
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

// Fits reports whether open nodes are large enough, busy or not, and the pool has what all
// of them share.
func (p *Pool) Fits(need Need) bool {
	shared, _ := need.Named.split(p.Shared)
	return shared.Fits(p.Shared) && p.enough(need, func(n *Node) bool { return n.FitsNode(need) })
}

// could reports whether open nodes could take the line's first task, now or when others
// have ended.
func (p *Pool) could(l *line) bool {
	for i := range l.ways {
		if p.couldAs(l, &l.ways[i]) {
			return true
		}
	}
	return false
}

func (p *Pool) couldAs(l *line, w *way) bool {
	return p.enough(w.need, func(n *Node) bool { return w.local.Fits(n.total) && !p.late(l, w, n) })
}

// SharedFree returns what is free of what all nodes share.
func (p *Pool) SharedFree() Named { return p.Shared.Minus(p.given) }

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

func (p *Pool) late(l *line, w *way, n *Node) bool {
	return p.Late != nil && p.Late(l.head(), w.need, n)
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

// Misfits takes all waiting tasks out of the queue whose need is not possible.
func (p *Pool) Misfits(possible func(*Spec) bool) []*Task {
	var out []*Task
	for i := 0; i < len(p.order); {
		l := p.order[i]
		if possible(l.head().Spec) {
			i++
			continue
		}
		for l.len() > 0 {
			out = append(out, l.pop())
			p.waiting--
		}
		p.shrunk(i)
		p.reserved = nil
	}
	return out
}

// TakeAll empties the queue.
func (p *Pool) TakeAll() []*Task {
	var out []*Task
	for len(p.order) > 0 {
		out = append(out, p.pop(0))
	}
	return out
}

// Follower removes from the queue the task that is to follow on a slot of n with that need: the one
// at the very front, if it needs exactly this, and nothing that nodes share. Call it only after Next
// returned nil.
func (p *Pool) Follower(n *Node, need Need) *Task {
	if len(p.order) == 0 || n.Closed() {
		return nil
	}
	l := p.order[0]
	way := l.wayOf(need)
	if way < 0 || l.avoid != nil || l.company > 0 || n.limited > 0 || need.Nodes > 1 || p.late(l, &l.ways[way], n) {
		return nil
	}
	t := p.pop(0)
	t.Variant = int8(way)
	return t
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
