package core

import (
	"strconv"

	"github.com/ponos-tools/ponos/lib/pool"
)

// dependencies records which tasks wait for others. A task is named by its id, or by its number. A
// waiting task has a count of the names that are not met yet, so that each edge is visited twice,
// whatever the graph. Tasks that have ended take almost no memory, as a run may be fed for ever.
type dependencies struct {
	ids   map[string]named // of tasks that have not ended
	ended Names            // the others
	waits map[string][]*dependent
	tasks map[int64]*dependent
	pages []*page
}

// named is a task that has an id.
type named struct {
	id  string
	seq int64
}

// dependent is a waiting task; the task is nil once it no longer waits.
type dependent struct {
	task  *pool.Task
	unmet int
}

// page records how the tasks of a range of numbers have ended.
type page struct {
	ended, good [pageSize / 64]uint64
	left        int // that have not ended well
}

const pageSize = 4096

// allGood is shared by all pages without failures.
var allGood = &page{}

type depState uint8

const (
	depsWait depState = iota
	depsMet
	depsFailed
)

// memory is the default Names.
type memory map[string]byte

func (m memory) Get(name string) (byte, bool) { v, ok := m[name]; return v, ok }
func (m memory) Put(name string, value byte)  { m[name] = value }

func newDependencies(names Names) dependencies {
	if names == nil {
		names = memory{}
	}
	return dependencies{
		ids: map[string]named{}, ended: names,
		waits: map[string][]*dependent{}, tasks: map[int64]*dependent{},
	}
}

// add makes the id of a task known; false if it is in use.
func (d *dependencies) add(t *pool.Task) bool {
	id := t.ID()
	if id == "" {
		return true
	}
	if _, ok := d.ids[id]; ok {
		return false
	}
	if _, ok := d.ended.Get(id); ok {
		return false
	}
	d.ids[id] = named{id, t.Seq}
	return true
}

// seq returns the number of a task that has not ended, by its id or number; 0: there is no such id.
func (d *dependencies) seq(name string) int64 {
	if known, ok := d.ids[name]; ok {
		return known.seq
	}
	seq, _ := strconv.ParseInt(name, 10, 64)
	return seq
}

func (d *dependencies) of(name string) depState {
	if _, ok := d.ids[name]; ok {
		return depsWait
	}
	if s, ok := d.ended.Get(name); ok {
		return depState(s)
	}
	seq, err := strconv.ParseInt(name, 10, 64)
	if err != nil || seq < 1 || seq/pageSize >= int64(len(d.pages)) || d.pages[seq/pageSize] == nil {
		return depsWait
	}
	p, word, bit := d.pages[seq/pageSize], seq%pageSize/64, seq%64
	switch {
	case p == allGood, p.good[word]>>bit&1 == 1:
		return depsMet
	case p.ended[word]>>bit&1 == 1:
		return depsFailed
	}
	return depsWait
}

// note records how a task has ended.
func (d *dependencies) note(seq int64, ok bool) {
	for int64(len(d.pages)) <= seq/pageSize {
		d.pages = append(d.pages, nil)
	}
	p := d.pages[seq/pageSize]
	if p == nil {
		p = &page{left: pageSize}
		if seq < pageSize {
			p.left-- // there is no task 0
		}
		d.pages[seq/pageSize] = p
	}
	if p == allGood {
		return
	}
	word, bit := seq%pageSize/64, uint64(1)<<(seq%64)
	p.ended[word] |= bit
	if ok && p.good[word]&bit == 0 {
		p.good[word] |= bit
		if p.left--; p.left == 0 {
			d.pages[seq/pageSize] = allGood
		}
	}
}

// succeeded records that tasks from a number to another have ended well.
func (d *dependencies) succeeded(from, to int64) {
	for seq := from; seq <= to; seq++ {
		d.note(seq, true)
		if p := seq / pageSize; seq == p*pageSize && seq+pageSize <= to+1 {
			d.pages[p] = allGood
			seq += pageSize - 1
		}
	}
}

// state looks up each of the names once.
func (d *dependencies) state(t *pool.Task) depState {
	if t.Extra == nil {
		return depsMet
	}
	result := depsMet
	for _, name := range t.Extra.After {
		switch d.of(name) {
		case depsFailed:
			return depsFailed
		case depsWait:
			result = depsWait
		case depsMet:
		}
	}
	return result
}

// wait adds a task that waits for its dependencies.
func (d *dependencies) wait(t *pool.Task) {
	w := &dependent{task: t}
	for i, name := range t.Extra.After {
		if d.of(name) != depsWait {
			continue
		}
		if known, ok := d.ids[name]; ok {
			t.Extra.After[i], name = known.id, known.id // a name that many tasks have is stored once
		}
		w.unmet++
		d.waits[name] = append(d.waits[name], w)
	}
	d.tasks[t.Seq] = w
}

func (d *dependencies) waiting() int { return len(d.tasks) }

// unmet returns the first name that a task waits for, and whether a task of that name exists.
func (d *dependencies) unmet(t *pool.Task) (name string, known bool) {
	for _, name := range t.Extra.After {
		if d.of(name) == depsWait {
			_, known := d.ids[name]
			if seq, err := strconv.ParseInt(name, 10, 64); err == nil && d.tasks[seq] != nil {
				known = true
			}
			return name, known
		}
	}
	return "", false
}

// finish records the end of a task. It returns the tasks whose dependencies are met by it, and those
// that wait in vain.
func (d *dependencies) finish(t *pool.Task, ok bool) (free, failed []*pool.Task) {
	take := func(name string) {
		for _, w := range d.waits[name] {
			w.unmet--
			switch {
			case w.task == nil:
			case !ok:
				failed = append(failed, w.task)
				d.drop(w)
			case w.unmet == 0:
				free = append(free, w.task)
				d.drop(w)
			}
		}
		delete(d.waits, name)
	}
	if id := t.ID(); id != "" {
		state := depsFailed
		if ok {
			state = depsMet
		}
		delete(d.ids, id)
		d.ended.Put(id, byte(state))
		take(id)
	}
	if d.note(t.Seq, ok); len(d.tasks) > 0 {
		take(strconv.FormatInt(t.Seq, 10))
	}
	return free, failed
}

func (d *dependencies) drop(w *dependent) {
	delete(d.tasks, w.task.Seq)
	w.task = nil
}

// all returns everything that waits.
func (d *dependencies) all() []*pool.Task {
	out := make([]*pool.Task, 0, len(d.tasks))
	for _, w := range d.tasks {
		out = append(out, w.task)
	}
	return out
}

// find returns a task that waits, or nil.
func (d *dependencies) find(seq int64) *pool.Task {
	if w := d.tasks[seq]; w != nil {
		return w.task
	}
	return nil
}

// remove takes a task that waits out, or returns nil.
func (d *dependencies) remove(seq int64) *pool.Task {
	w := d.tasks[seq]
	if w == nil {
		return nil
	}
	t := w.task
	d.drop(w)
	return t
}
