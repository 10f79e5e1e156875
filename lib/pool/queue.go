package pool

import (
	"cmp"
	"slices"
)

// Waiting is the number of tasks in the queue.
func (p *Pool) Waiting() int { return p.waiting }

// Push puts a task into the queue, by its priority and number.
func (p *Pool) Push(t *Task) {
	key := t.class()
	if p.lines == nil {
		p.lines, p.widths = map[class]*line{}, map[[2]int]int{}
	}
	l := p.lines[key]
	if l == nil {
		l = &line{class: key, local: key.need}
		if key.need.Named != (Named{}) {
			l.shared, l.local.Named = key.need.Named.split(p.Shared)
		}
		p.lines[key] = l
		p.widths[l.width()]++
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
		width := l.width()
		if p.widths[width]--; p.widths[width] == 0 {
			delete(p.widths, width)
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

// Width is the most nodes that a waiting task needs; 0: none waits.
func (p *Pool) Width() int {
	most := 0
	for _, l := range p.order {
		most = max(most, l.need.Width())
	}
	return most
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
