package pool

import (
	"slices"
	"strings"
	"unique"
)

// Settings are those parts of a Need that a Variant has of its own.
type Settings uint8

// The settings. Named amounts are always the variant's own.
const (
	OfCPUs Settings = 1 << iota
	OfGPUs
	OfMem
	OfNodes
)

// Variant is one of the ways in which a task can run: what it needs in place of what its
// Spec says.
type Variant struct {
	Need Need
	Own  Settings
}

// of is what the task needs in that way.
func (v Variant) of(base Need) Need {
	base.Named = v.Need.Named
	if v.Own&OfCPUs != 0 {
		base.CPUs = v.Need.CPUs
	}
	if v.Own&OfGPUs != 0 {
		base.GPUs, base.Share = v.Need.GPUs, v.Need.Share
	}
	if v.Own&OfMem != 0 {
		base.Mem = v.Need.Mem
	}
	if v.Own&OfNodes != 0 {
		base.Nodes = v.Need.Nodes
	}
	return base
}

// MaxVariants is in how many ways a task can run.
const MaxVariants = 8

type variants struct {
	of    [MaxVariants]Variant
	count int8
}

// Variants are the ways in which a task can run, the best first. Those that are equal are
// ==; the zero value is the one that the Spec says.
type Variants struct {
	h unique.Handle[variants]
}

// NewVariants makes Variants of a list, of which it takes the first MaxVariants.
func NewVariants(list []Variant) Variants {
	if len(list) == 0 {
		return Variants{}
	}
	var v variants
	v.count = int8(copy(v.of[:], list))
	return Variants{unique.Make(v)}
}

// Ways is in how many ways the tasks can run.
func (s *Spec) Ways() int {
	if s.Variants == (Variants{}) {
		return 1
	}
	return int(s.Variants.h.Value().count)
}

// Way is what the tasks need in the i-th way, from 0 on.
func (s *Spec) Way(i int) Need {
	if s.Variants == (Variants{}) {
		return s.Need
	}
	return s.Variants.h.Value().of[i].of(s.Need)
}

// Any reports whether is holds for what the tasks need in one of the ways.
func (s *Spec) Any(is func(Need) bool) bool {
	for i := range s.Ways() {
		if is(s.Way(i)) {
			return true
		}
	}
	return false
}

// Needs names what the tasks need: "1 CPU, 1 GPU or 16 CPUs".
func (s *Spec) Needs() string {
	var out []string
	for i := range s.Ways() {
		out = append(out, s.Way(i).String())
	}
	return strings.Join(out, " or ")
}

// Need is what the task needs in the way in which it runs, or ran last.
func (t *Task) Need() Need { return t.Spec.Way(int(t.Variant)) }

// Chosen is the number of that way, from 1 on; 0 if there is only one.
func (t *Task) Chosen() int {
	if t.Spec.Ways() == 1 {
		return 0
	}
	return int(t.Variant) + 1
}

// way is what the tasks of a line need in one of their ways.
type way struct {
	need   Need
	local  Need  // what a node gives of it
	shared Named // and the pool
}

// ways are those of the tasks of a class.
func (p *Pool) ways(s *Spec) []way {
	out := make([]way, s.Ways())
	for i := range out {
		w := &out[i]
		w.need = s.Way(i)
		w.local = w.need
		if w.need.Named != (Named{}) {
			w.shared, w.local.Named = w.need.Named.split(p.Shared)
		}
	}
	return out
}

// width returns the numbers of CPUs and nodes. If all tasks have the same, they count as equal in
// size.
func (w *way) width() [2]int { return [2]int{w.need.CPUs, int(w.need.Nodes)} }

// wayOf is the way in which the tasks of a line need exactly this, and nothing that nodes
// share; -1: none.
func (l *line) wayOf(need Need) int {
	return slices.IndexFunc(l.ways, func(w way) bool { return w.need == need && w.shared == (Named{}) })
}
