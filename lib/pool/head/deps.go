package head

import (
	"strconv"

	"github.com/ponos-tools/ponos/lib/pool"
)

// dependencies knows which tasks wait for others. A task is named by its id, or
// by its number.
type dependencies struct {
	ids   map[string]depState
	waits map[string][]*pool.Task // by the first name that is not yet met
	count int
	track bool // numbers, too
	ended []uint64
	good  []uint64
}

type depState uint8

const (
	depsWait depState = iota
	depsMet
	depsFailed
)

func newDependencies(track bool) dependencies {
	return dependencies{ids: map[string]depState{}, waits: map[string][]*pool.Task{}, track: track}
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
	d.ids[id] = depsWait
	return true
}

func (d *dependencies) of(name string) depState {
	if s, ok := d.ids[name]; ok {
		return s
	}
	seq, err := strconv.ParseInt(name, 10, 64)
	if err != nil || seq < 1 || seq>>6 >= int64(len(d.ended)) || d.ended[seq>>6]>>(seq&63)&1 == 0 {
		return depsWait
	}
	if d.good[seq>>6]>>(seq&63)&1 == 1 {
		return depsMet
	}
	return depsFailed
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
		if d.ids[id] = depsFailed; ok {
			d.ids[id] = depsMet
		}
		out = d.take(id)
	}
	if !d.track {
		return out
	}
	word, bit := t.Seq>>6, uint64(1)<<(t.Seq&63)
	for int64(len(d.ended)) <= word {
		d.ended, d.good = append(d.ended, 0), append(d.good, 0)
	}
	d.ended[word] |= bit
	if ok {
		d.good[word] |= bit
	}
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
