package pool

import (
	"math"
	"slices"
)

// Demand counts tasks by what they need.
type Demand map[Need]float64

// Add counts n more tasks.
func (d Demand) Add(s *Spec, n float64) { d[s.Need] += n }

// sampled limits how many lines of tasks stand for all.
const sampled = 1000

// Demand returns that of the tasks in the queue.
func (p *Pool) Demand() Demand {
	d, n := Demand{}, 0
	for _, l := range p.order[:min(sampled, len(p.order))] {
		d[l.need] += float64(l.len())
		n += l.len()
	}
	for k := range d {
		d[k] *= float64(p.waiting) / float64(n)
	}
	return d
}

// Jobs returns how many jobs of a size the tasks would fill if all ran at once: by the resource of
// which all together need most, and no fewer than the tasks of one kind fill. If the CPUs or GPUs of the
// size are 0, they are not known: a job has what the largest task needs. Of tasks that need what all nodes
// share, so many count as what is free of that suffices for. Tasks that no job of the size can run fill
// one: it may be larger than is known.
func (d Demand) Jobs(size Need, shared, free Named) float64 {
	known := size
	for n := range d {
		if known.CPUs == 0 {
			size.CPUs = max(size.CPUs, n.CPUs)
		}
		if known.GPUs == 0 {
			size.GPUs = max(size.GPUs, n.GPUs, min(1, int(n.Share)))
		}
	}
	var all []float64
	jobs := 0.0
	for need, n := range d {
		one := need.parts(size)
		n *= d.atOnce(need, shared, free)
		switch most := slices.Max(one); {
		case most > 1 && need.Width() == 1:
			jobs = max(jobs, 1)
			continue
		case most > 0 && most < 1:
			jobs = max(jobs, n/math.Floor(1/most+1e-9))
		}
		all = slices.Grow(all, len(one))[:len(one)]
		for i := range one {
			all[i] += n * one[i]
		}
	}
	return slices.Max(append(all, jobs))
}

// atOnce is the part of the tasks with a need that can start at a time, by what all nodes share.
func (d Demand) atOnce(need Need, shared, free Named) float64 {
	part := 1.0
	for _, x := range shared.list() {
		if need.Named.Get(x.name) == 0 {
			continue
		}
		all := 0.0
		for other, n := range d {
			all += n * float64(other.Named.Get(x.name))
		}
		part = min(part, max(0, float64(free.Get(x.name)))/all)
	}
	return part
}

// parts is how much of a job of a size a task needs on all of its nodes together, by resource.
func (n Need) parts(size Need) []float64 {
	part := func(need, of float64) float64 {
		if of == 0 {
			return 0 // no job has it, or it is what all nodes share
		}
		return need * float64(n.Width()) / of
	}
	out := []float64{
		part(float64(n.CPUs), float64(size.CPUs)),
		part(float64(n.GPUs)+float64(n.Share)/WholeGPU, float64(size.GPUs)),
		part(float64(n.Mem), float64(size.Mem)),
	}
	for _, x := range size.Named.list() {
		out = append(out, part(float64(n.Named.Get(x.name)), float64(x.amount)))
	}
	return out
}

// And is what two nodes have together.
func (n Need) And(o Need) Need { return n.plus(o) }

// Largest has of each resource as much as the one that has more.
func (n Need) Largest(o Need) Need {
	n.CPUs, n.GPUs, n.Mem = max(n.CPUs, o.CPUs), max(n.GPUs, o.GPUs), max(n.Mem, o.Mem)
	for _, x := range o.Named.list() {
		n.Named = n.Named.With(x.name, max(x.amount, n.Named.Get(x.name)))
	}
	return n
}
