package pool

import (
	"cmp"
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
	// Late reports that a task would not end in time at a node: it does not start there,
	// and where it is late at all nodes it does not stand in the way of others. May be nil.
	Late func(*Task, *Node) bool
	// Now is in the unit of Slot.End; it is only used to guess which node is free
	// soonest. May be nil.
	Now func() int64

	nodes    []*Node
	buckets  [][]*Node // open nodes by free CPUs
	lines    map[class]*line
	order    []*line // those with tasks, by the order of their heads
	waiting  int
	widths   map[int]int // how many lines want so many CPUs
	reserved *reservation
}

type reservation struct {
	task   *Task
	node   *Node
	beside Need // what started on the node since, and is to leave room for task
}

// Nodes are the nodes of the pool, in the order they came.
func (p *Pool) Nodes() []*Node { return p.nodes }

// Waiting is the number of tasks in the queue.
func (p *Pool) Waiting() int { return p.waiting }

// AddNode takes a node in.
func (p *Pool) AddNode(n *Node) {
	n.gone = false
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

// RemoveNode takes a node out and returns the slots that were in use. They are
// not to be released.
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
	if p.reserved != nil && p.reserved.node == n {
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
		p.lines, p.widths = map[class]*line{}, map[int]int{}
	}
	l := p.lines[key]
	if l == nil {
		l = &line{class: key}
		p.lines[key] = l
		p.widths[key.need.CPUs]++
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

// shrunk puts the line at i right after its head was taken.
func (p *Pool) shrunk(i int) {
	l := p.order[i]
	if l.len() == 0 {
		p.order = slices.Delete(p.order, i, i+1)
		delete(p.lines, l.class)
		if p.widths[l.need.CPUs]--; p.widths[l.need.CPUs] == 0 {
			delete(p.widths, l.need.CPUs)
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

// Next takes the next task that can start now out of the queue and gives it its
// part of a node; nil if there is none.
func (p *Pool) Next() *Slot {
	blocked := false
	for i := 0; i < len(p.order); i++ {
		l := p.order[i]
		t := l.head()
		held := p.reserved
		if !blocked || held == nil || held.task == t {
			held = nil
		}
		if n := p.find(l, held); n != nil {
			t = p.pop(i)
			p.unlink(n)
			s := n.take(t)
			if held != nil && held.node == n && p.reserved == held {
				held.beside = held.beside.plus(s.need)
				s.beside = held
			}
			p.link(n)
			return s
		}
		if !blocked && p.could(l) {
			blocked = true
			if len(p.order) > 1 && (p.reserved == nil || p.reserved.task != t) {
				p.reserved = &reservation{task: t, node: p.soonest(l)}
			}
		}
	}
	if !blocked {
		p.reserved = nil
	}
	return nil
}

// find returns an open node with room for the line's tasks. A node they had
// better avoid is taken only when no other could ever do.
func (p *Pool) find(l *line, held *reservation) *Node {
	ok := func(n *Node) bool {
		if !l.need.Fits(n.free) || !n.tolerates(l.company) || p.late(l, n) {
			return false
		}
		if held != nil && held.node == n {
			if held.task.Company > 0 { // it waits for the node to be empty enough
				return false
			}
			room := n.total.minus(held.task.Spec.Need).minus(held.beside)
			if !l.need.Fits(room) {
				return false
			}
		}
		return !l.avoids(n) || !p.another(l)
	}
	pack := p.Place == Pack || p.Place == Auto && len(p.widths) > 1
	if pack {
		for c := l.need.CPUs; c < len(p.buckets); c++ {
			for _, n := range p.buckets[c] {
				if ok(n) {
					return n
				}
			}
		}
		return nil
	}
	for c := len(p.buckets) - 1; c >= l.need.CPUs && c >= 0; c-- {
		for _, n := range p.buckets[c] {
			if ok(n) {
				return n
			}
		}
	}
	return nil
}

// another reports whether a node other than the one to avoid could take the
// line's tasks at some time.
func (p *Pool) another(l *line) bool {
	for _, n := range p.nodes {
		if !l.avoids(n) && !n.Closed() && l.need.Fits(n.total) {
			return true
		}
	}
	return false
}

// soonest chooses the node where the line's first task will probably start first.
func (p *Pool) soonest(l *line) *Node {
	var best *Node
	var bestTime int64
	var bestShort int
	another := p.another(l)
	for _, n := range p.nodes {
		if n.Closed() || !l.need.Fits(n.total) || another && l.avoids(n) || p.late(l, n) {
			continue
		}
		at, known := n.freeAt(l.need)
		if !known {
			at = 1<<63 - 1
		}
		short := l.need.CPUs - n.free.CPUs
		if best == nil || at < bestTime || at == bestTime && short < bestShort {
			best, bestTime, bestShort = n, at, short
		}
	}
	return best
}

// freeAt tells when the node will have room by what is known of the ends of the
// tasks there.
func (n *Node) freeAt(need Need) (int64, bool) {
	free := n.free
	for _, s := range n.ending {
		if need.Fits(free) {
			break
		}
		free = free.plus(s.need)
		if need.Fits(free) {
			return s.End, true
		}
	}
	return 0, false
}

// Fits reports whether an open node is large enough, busy or not.
func (p *Pool) Fits(need Need) bool {
	for _, n := range p.nodes {
		if !n.Closed() && need.Fits(n.total) {
			return true
		}
	}
	return false
}

// could reports whether an open node could take the line's first task, now or when others
// have ended.
func (p *Pool) could(l *line) bool {
	return slices.ContainsFunc(p.nodes, func(n *Node) bool { return !n.Closed() && l.need.Fits(n.total) && !p.late(l, n) })
}

func (p *Pool) late(l *line, n *Node) bool { return p.Late != nil && p.Late(l.head(), n) }

// Occupy gives part of a node to a task that runs there already; nil if there is no room.
func (p *Pool) Occupy(n *Node, t *Task) *Slot {
	if n.gone || !t.Spec.Need.Fits(n.free) {
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
func (n *Node) FitsNode(need Need) bool { return need.Fits(n.total) }

// Misfits takes all waiting tasks out of the queue whose need is not possible.
func (p *Pool) Misfits(possible func(Need) bool) []*Task {
	var out []*Task
	for i := 0; i < len(p.order); {
		l := p.order[i]
		if possible(l.need) {
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

// Follower takes out of the queue the task that is to follow on a slot of n with
// that need: the one at the very front, if it wants exactly this. Call it only
// after Next returned nil.
func (p *Pool) Follower(n *Node, need Need) *Task {
	if len(p.order) == 0 || n.Closed() {
		return nil
	}
	l := p.order[0]
	if l.need != need || l.avoid != nil || l.company > 0 || n.limited > 0 || p.late(l, n) {
		return nil
	}
	return p.pop(0)
}

// Release gives the part of a node back.
func (p *Pool) Release(s *Slot) {
	if s.release {
		return
	}
	s.release = true
	if s.beside != nil && s.beside == p.reserved {
		p.reserved.beside = p.reserved.beside.minus(s.need)
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
		need: s.need, cpuAt: s.cpuAt, gpuAt: s.gpuAt, beside: s.beside, release: s.release,
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
