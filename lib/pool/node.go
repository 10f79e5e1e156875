package pool

import (
	"cmp"
	"slices"
)

// CPU is one CPU id of a node and where it sits.
type CPU struct {
	ID    int `json:"id"`
	Core  int `json:"core"`  // CPUs of one core are hardware threads
	Cache int `json:"cache"` // those of one last-level cache
	NUMA  int `json:"numa"`
}

// GPU is one GPU as its user must name it.
type GPU struct {
	ID   string `json:"id"`
	NUMA int    `json:"numa"` // -1: not known
}

// Node is a machine of the pool.
type Node struct {
	Name string
	// Host is the machine, of which a task has one node at most; empty: it has no other.
	Host string
	// Group is what a task of several nodes has them of, if it can: see [Pool.Group].
	Group string
	// Data is the caller's.
	Data any

	cpus    []CPU  // by NUMA node, cache, core
	busy    []bool // by index into cpus
	gpus    []GPU
	gpuFree []int32 // by index into gpus, in thousandths
	total   Need
	free    Need
	shared  Named   // resources of the pool, which are none of the node's
	groups  []group // caches, then NUMA nodes, then all: where to look, in order
	near    bool    // it is known which of its GPUs are near which CPUs
	closed  bool    // takes nothing new
	gone    bool    // is not in the pool
	bucket  int     // index in Pool.buckets[free.CPUs]
	running map[*Slot]struct{}
	ending  []*Slot // those of running with an End, by that
	numbers []bool  // numbers of slots in use
	limited int     // how many of those in use bound the number of others
}

// group is a range of cpus that are near each other.
type group struct{ from, to int }

// Slot is the part of a node that a task has.
type Slot struct {
	Node *Node
	Task *Task
	CPUs []int    // ids, ascending
	GPUs []string // as CUDA_VISIBLE_DEVICES and the like name them
	// Number tells the slots of a node that are in use at a time apart: the least
	// one from 1 that is free.
	Number int
	End    int64 // when it will be over at the latest, in the caller's unit; 0: not known

	// Others are the parts of other nodes, if the task runs on several.
	Others []*Slot

	need    Need
	local   Need  // of that, what the node gives
	shared  Named // and the pool
	cpuAt   []int
	gpuAt   []int
	beside  *reservation // that the part of the node leaves room for
	sharing *reservation // and the part of what is shared
	release bool
}

// Nodes are the nodes of the slot, its own first.
func (s *Slot) Nodes() []*Node {
	nodes := []*Node{s.Node}
	for _, o := range s.Others {
		nodes = append(nodes, o.Node)
	}
	return nodes
}

// SetEnd notes when the slot will be over at the latest.
func (s *Slot) SetEnd(at int64) {
	for _, o := range s.Others {
		o.SetEnd(at)
	}
	n := s.Node
	n.forgetEnd(s)
	if s.End = at; at > 0 {
		i, _ := slices.BinarySearchFunc(n.ending, at, func(o *Slot, at int64) int { return cmp.Compare(o.End, at) })
		n.ending = slices.Insert(n.ending, i, s)
	}
}

// forgetEnd takes a slot off the list of those that end.
func (n *Node) forgetEnd(s *Slot) {
	if s.End <= 0 {
		return
	}
	i, _ := slices.BinarySearchFunc(n.ending, s.End, func(o *Slot, at int64) int { return cmp.Compare(o.End, at) })
	for ; i < len(n.ending) && n.ending[i].End == s.End; i++ {
		if n.ending[i] == s {
			n.ending = slices.Delete(n.ending, i, i+1)
			return
		}
	}
}

// Need is what the slot takes.
func (s *Slot) Need() Need { return s.need }

// Numbered are CPUs that stand for no real ones.
func Numbered(n int) []CPU {
	cpus := make([]CPU, n)
	for id := range cpus {
		cpus[id] = CPU{ID: id, Core: id}
	}
	return cpus
}

// NewNode describes a node. Order of cpus does not matter.
func NewNode(name string, cpus []CPU, gpus []GPU, mem int64, more Named) *Node {
	n := &Node{
		Name: name, cpus: slices.Clone(cpus), gpus: slices.Clone(gpus),
		busy: make([]bool, len(cpus)), gpuFree: slices.Repeat([]int32{WholeGPU}, len(gpus)),
		total:   Need{CPUs: len(cpus), GPUs: len(gpus), Mem: mem, Named: more},
		running: map[*Slot]struct{}{},
	}
	n.free = n.total
	slices.SortFunc(n.cpus, func(a, b CPU) int {
		return cmp.Or(a.NUMA-b.NUMA, a.Cache-b.Cache, a.Core-b.Core, a.ID-b.ID)
	})
	n.addGroups(func(a, b CPU) bool { return a.NUMA == b.NUMA && a.Cache == b.Cache })
	n.addGroups(func(a, b CPU) bool { return a.NUMA == b.NUMA })
	n.groups = append(n.groups, group{0, len(n.cpus)})
	n.near = len(n.groups) > 1 && slices.ContainsFunc(gpus, func(g GPU) bool { return g.NUMA >= 0 })
	return n
}

func (n *Node) addGroups(same func(a, b CPU) bool) {
	first := len(n.groups)
	for from := 0; from < len(n.cpus); {
		to := from + 1
		for to < len(n.cpus) && same(n.cpus[from], n.cpus[to]) {
			to++
		}
		n.groups = append(n.groups, group{from, to})
		from = to
	}
	if len(n.groups) == first+1 { // the same as all of the node
		n.groups = n.groups[:first]
	}
}

// Total is what the node has.
func (n *Node) Total() Need { return n.total }

// Free returns what is not in use.
func (n *Node) Free() Need { return n.free }

// Running is the number of slots in use.
func (n *Node) Running() int { return len(n.running) }

// Slots are the slots in use, by task number.
func (n *Node) Slots() []*Slot {
	slots := make([]*Slot, 0, len(n.running))
	for s := range n.running {
		slots = append(slots, s)
	}
	slices.SortFunc(slots, func(a, b *Slot) int { return cmp.Compare(a.Task.Seq, b.Task.Seq) })
	return slots
}

// tolerates reports whether a task that accepts this much company may run beside those that run.
func (n *Node) tolerates(company int16) bool {
	if company > 0 && len(n.running) >= int(company) {
		return false
	}
	if n.limited == 0 {
		return true
	}
	for s := range n.running {
		if c := s.Task.Company; c > 0 && len(n.running) >= int(c) {
			return false
		}
	}
	return true
}

// Closed reports whether the node accepts no new tasks.
func (n *Node) Closed() bool { return n.closed || n.gone }

// take gives part of the node to t. The caller has checked that it fits.
func (n *Node) take(t *Task) *Slot {
	need := t.Need()
	s := &Slot{Node: n, Task: t, need: need, local: need}
	if need.Named != (Named{}) {
		s.local = n.local(need)
	}
	s.cpuAt = n.pickCPUs(need)
	s.CPUs = make([]int, 0, need.CPUs)
	for _, i := range s.cpuAt {
		n.busy[i] = true
		s.CPUs = append(s.CPUs, n.cpus[i].ID)
	}
	slices.Sort(s.CPUs)
	if need.GPUs > 0 || need.Share > 0 {
		numa := -1
		if len(s.cpuAt) > 0 {
			numa = n.cpus[s.cpuAt[0]].NUMA
		}
		s.gpuAt = n.pickGPUs(need, numa)
		for _, i := range s.gpuAt {
			n.gpuFree[i] -= s.perGPU()
			s.GPUs = append(s.GPUs, n.gpus[i].ID)
		}
	}
	for s.Number < len(n.numbers) && n.numbers[s.Number] {
		s.Number++
	}
	if s.Number == len(n.numbers) {
		n.numbers = append(n.numbers, false)
	}
	n.numbers[s.Number] = true
	s.Number++
	n.free = n.free.minus(s.local)
	n.countGPUs(s)
	n.running[s] = struct{}{}
	if t.Company > 0 {
		n.limited++
	}
	return s
}

// Given takes off a node what a task has that somebody else has given it: CPUs and GPUs by their names, or any CPUs if
// these are not named. The node may have less than that left.
func (n *Node) Given(need Need, cpus []int, gpus []string) {
	left := need.CPUs
	for i, c := range n.cpus {
		if left > 0 && !n.busy[i] && (len(cpus) == 0 || slices.Contains(cpus, c.ID)) {
			n.busy[i] = true
			left--
		}
	}
	for i, g := range n.gpus {
		if slices.Contains(gpus, g.ID) {
			n.gpuFree[i] = 0
		}
	}
	n.free = n.free.minus(need)
	n.free.CPUs = max(0, n.free.CPUs)
	n.recount()
}

// perGPU is how much of each of its GPUs the slot has.
func (s *Slot) perGPU() int32 {
	if s.need.Share > 0 {
		return s.need.Share
	}
	return WholeGPU
}

// countGPUs corrects what is free after a slot that has some has come or gone.
func (n *Node) countGPUs(s *Slot) {
	if len(s.gpuAt) > 0 {
		n.recount()
	}
}

func (n *Node) recount() {
	n.free.GPUs, n.free.Share = 0, 0
	for _, free := range n.gpuFree {
		if free == WholeGPU {
			n.free.GPUs++
		} else {
			n.free.Share = max(n.free.Share, free)
		}
	}
}

// local is what the node gives of a need.
func (n *Node) local(need Need) Need {
	if need.Named != (Named{}) && n.shared != (Named{}) {
		_, need.Named = need.Named.split(n.shared)
	}
	return need
}

// pickCPUs chooses free CPUs: from the smallest group of neighbours that has as many, and there whole
// cores before parts of one. Those for a task with GPUs are near GPUs that it can have, if there are
// enough; other tasks leave them, unless they would have to split a group that is whole.
func (n *Node) pickCPUs(need Need) []int {
	want := need.CPUs
	best := n.groups[len(n.groups)-1] // all
	if len(n.groups) > 1 {
		best = n.pickGroup(need)
	}
	picked := make([]int, 0, want)
	// First round: cores of which all is free and wanted; second: a free core for
	// the rest; third: what is left.
	for round := 0; round < 3 && len(picked) < want; round++ {
		for from := best.from; from < best.to && len(picked) < want; {
			to, free := from, 0
			for to < best.to && n.cpus[to].Core == n.cpus[from].Core && n.cpus[to].NUMA == n.cpus[from].NUMA {
				if !n.busy[to] && !slices.Contains(picked, to) {
					free++
				}
				to++
			}
			whole := free == to-from
			if round == 0 && whole && free <= want-len(picked) || round == 1 && whole || round == 2 {
				for i := from; i < to && len(picked) < want; i++ {
					if !n.busy[i] && !slices.Contains(picked, i) {
						picked = append(picked, i)
					}
				}
			}
			from = to
		}
	}
	return picked
}

// pickGroup chooses where a task gets its CPUs.
func (n *Node) pickGroup(need Need) group {
	wants := need.GPUs > 0 || need.Share > 0
	best, least := n.groups[len(n.groups)-1], -1
	numa, suits := -1, false
	for _, g := range n.groups {
		// In this order: far from its GPUs, size, whether it is whole, near GPUs that others can have, free CPUs.
		rank := (g.to - g.from) << 30
		if n.near {
			if at := n.cpus[g.from].NUMA; at != numa {
				numa, suits = at, n.suits(need, at)
			}
			one := numa == n.cpus[g.to-1].NUMA
			switch {
			case wants && (!suits || !one):
				rank |= 1 << 50
			case !wants && suits && one:
				rank |= 1 << 28
			}
		}
		if least >= 0 && rank > least|(1<<30-1) {
			continue
		}
		free := 0
		for i := g.from; i < g.to; i++ {
			if !n.busy[i] {
				free++
			}
		}
		if free == g.to-g.from {
			rank |= 1 << 29
		}
		if rank |= free; free >= need.CPUs && (least < 0 || rank < least) {
			best, least = g, rank
		}
	}
	return best
}

// suits reports whether a NUMA node has the GPUs of a task, or for a task without GPUs, any that is
// free. A part of a GPU is of the one of which least is free that suffices.
func (n *Node) suits(need Need, numa int) bool {
	count, part := 0, int32(0)
	for i, free := range n.gpuFree {
		switch {
		case need.Share > 0:
			if free >= need.Share && (part == 0 || free < part) {
				count, part = 0, free
			}
			if free == part && n.gpus[i].NUMA == numa {
				count++
			}
		case free == WholeGPU && n.gpus[i].NUMA == numa:
			count++
		}
	}
	return count >= max(1, need.GPUs)
}

// pickGPUs chooses GPUs, near the CPUs if it can: for a part, the one of which least is
// free that suffices.
func (n *Node) pickGPUs(need Need, numa int) []int {
	if need.Share > 0 {
		best := -1
		for i, free := range n.gpuFree {
			if free < need.Share || best >= 0 && free > n.gpuFree[best] {
				continue
			}
			if best < 0 || free < n.gpuFree[best] || n.gpus[i].NUMA == numa && n.gpus[best].NUMA != numa {
				best = i
			}
		}
		return []int{best}
	}
	picked := make([]int, 0, need.GPUs)
	for _, near := range []bool{true, false} {
		for i, g := range n.gpus {
			if len(picked) < need.GPUs && n.gpuFree[i] == WholeGPU && (g.NUMA == numa) == near {
				picked = append(picked, i)
			}
		}
	}
	return picked
}

func (n *Node) put(s *Slot) {
	for _, i := range s.cpuAt {
		n.busy[i] = false
	}
	for _, i := range s.gpuAt {
		n.gpuFree[i] += s.perGPU()
	}
	n.numbers[s.Number-1] = false
	n.free = n.free.plus(s.local)
	n.countGPUs(s)
	delete(n.running, s)
	n.forgetEnd(s)
	if s.Task.Company > 0 {
		n.limited--
	}
}

// HasRoom reports whether a task with that need could start there now.
func (n *Node) HasRoom(need Need) bool { return n.local(need).Fits(n.free) }
