package scheduler

import (
	"strconv"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/names"
)

// dependencies knows which tasks wait for others. A task is named by its id, or
// by its number. What it keeps of tasks that have ended takes next to no memory, as
// a run may be fed for ever.
type dependencies struct {
	ids   map[string]struct{}     // of tasks that have not ended
	ended names.Map               // the others
	waits map[string][]*pool.Task // by the first name that is not yet met
	count int
	track bool // numbers, too
	pages []*page
}

// page says how the tasks of a range of numbers have ended.
type page struct {
	ended, good [pageSize / 64]uint64
	left        int // that have not ended well
}

const pageSize = 4096

// allGood is a page like most.
var allGood = &page{}

type depState uint8

const (
	depsWait depState = iota
	depsMet
	depsFailed
)

func newDependencies(track bool, dir string) dependencies {
	return dependencies{ids: map[string]struct{}{}, ended: names.Map{Dir: dir}, waits: map[string][]*pool.Task{}, track: track}
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
	d.ids[id] = struct{}{}
	return true
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

// note keeps how a task has ended.
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

// unmet is the first name a task still waits for.
func (d *dependencies) unmet(t *pool.Task) string {
	for _, name := range t.Extra.After {
		if d.of(name) == depsWait {
			return strconv.Quote(name)
		}
	}
	return ""
}

func (d *dependencies) wait(t *pool.Task) {
	for _, name := range t.Extra.After {
		if d.of(name) == depsWait {
			d.waits[name] = append(d.waits[name], t)
			d.count++
			return
		}
	}
}

func (d *dependencies) waiting() int { return d.count }

// finish notes the end of a task and returns those to look at again.
func (d *dependencies) finish(t *pool.Task, ok bool) []*pool.Task {
	var out []*pool.Task
	if id := t.ID(); id != "" {
		state := depsFailed
		if ok {
			state = depsMet
		}
		delete(d.ids, id)
		d.ended.Put(id, byte(state))
		out = d.take(id)
	}
	if !d.track {
		return out
	}
	d.note(t.Seq, ok)
	return append(out, d.take(strconv.FormatInt(t.Seq, 10))...)
}

func (d *dependencies) take(name string) []*pool.Task {
	if d.count == 0 {
		return nil
	}
	out := d.waits[name]
	delete(d.waits, name)
	d.count -= len(out)
	return out
}

// takeAll returns everything that waits.
func (d *dependencies) takeAll() []*pool.Task {
	var out []*pool.Task
	for name := range d.waits {
		out = append(out, d.take(name)...)
	}
	return out
}

// remove takes one waiting task out, or returns nil.
func (d *dependencies) remove(seq int64) *pool.Task {
	for name, tasks := range d.waits {
		for i, t := range tasks {
			if t.Seq == seq {
				d.waits[name] = append(tasks[:i:i], tasks[i+1:]...)
				d.count--
				return t
			}
		}
	}
	return nil
}
