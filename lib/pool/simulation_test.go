package pool

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestProperties runs random mixes of tasks over random nodes that come and go:
// nothing is given out twice, nothing idles while something fits, nobody starves.
func TestProperties(t *testing.T) {
	for seed := range uint64(300) {
		simulate(t, rand.New(rand.NewPCG(seed, 1)), 150)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func FuzzPool(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) { simulate(t, rand.New(rand.NewPCG(a, b)), 100) })
}

type simulation struct {
	*testing.T
	pool    *Pool
	running map[*Slot]int // when it ends
	// claim is the reservation seen last, and what ran there then.
	claim  *reservation
	before map[*Slot]bool
	placed bool // the reservation had its nodes then
}

func amounts(r *rand.Rand, name string, most int) Named {
	return Named{}.With(name, Amount(500*r.IntN(2*most+1)))
}

func simulate(t *testing.T, r *rand.Rand, tasks int) {
	s := simulation{T: t, pool: &Pool{Place: Place(r.IntN(3)), Shared: amounts(r, "licence", 4)}, running: map[*Slot]int{}}
	p := s.pool
	widest := 0
	addNode := func(i int) {
		n := 1 + r.IntN(16)
		c := cpus(n)
		for j := range c {
			c[j].Core, c[j].Cache, c[j].NUMA = j/2, j/4, j/8
		}
		widest = max(widest, n)
		p.AddNode(NewNode(fmt.Sprint("n", i), c, gpus(r.IntN(4)), int64(r.IntN(64)), amounts(r, "scratch", 3)))
	}
	for i := range 1 + r.IntN(4) {
		addNode(i)
	}
	left, ended, now := tasks, 0, 0
	var seq int64
	for ended < tasks {
		for left > 0 && r.IntN(3) > 0 {
			seq++
			left--
			width := 1
			if r.IntN(4) == 0 {
				width = 1 + r.IntN(widest)
			}
			need := Need{CPUs: width}
			switch r.IntN(10) {
			case 0, 1:
				need.GPUs = r.IntN(3)
			case 2:
				need.Share = int32(1 + r.IntN(WholeGPU-1))
			}
			if r.IntN(6) == 0 {
				need.Nodes = int32(1 + r.IntN(3))
			}
			if r.IntN(6) == 0 {
				need.Named = amounts(r, "licence", 2)
			}
			if r.IntN(6) == 0 {
				need.Named = need.Named.Plus(amounts(r, "scratch", 2))
			}
			if r.IntN(5) == 0 {
				need.Mem = int64(r.IntN(48))
			}
			task := &Task{Seq: seq, Spec: &Spec{Need: need, Priority: r.IntN(8) / 7}}
			p.Push(task)
		}
		ended += len(p.Misfits(func(s *Spec) bool { return p.Fits(s.Need) }))
		for slot := p.Next(); slot != nil; slot = p.Next() {
			s.running[slot] = now + 1 + r.IntN(20)
			if s.claim != nil && goesFirst(slot.Task, s.claim.task) {
				s.claim = nil // what comes first may take its place
			}
		}
		s.check()
		now++
		for slot, end := range s.running {
			if end <= now {
				delete(s.running, slot)
				if f := p.Follower(slot.Node, slot.Need()); f != nil && r.IntN(2) == 0 {
					s.running[p.Follow(slot, f)] = now + 1 + r.IntN(20)
					s.claim = nil
				} else {
					if f != nil {
						p.Push(f)
					}
					p.Release(slot)
				}
				ended++
			}
		}
		if r.IntN(60) == 0 { // a node is lost, another comes
			n := p.Nodes()[r.IntN(len(p.Nodes()))]
			for _, part := range p.RemoveNode(n) {
				for slot := range s.running {
					if slot.Task == part.Task {
						delete(s.running, slot)
						p.Release(slot)
						p.Push(slot.Task)
					}
				}
			}
			addNode(100 + now)
		}
		if now > 100*tasks {
			t.Fatalf("%d of %d tasks ended, %d wait", ended, tasks, p.Waiting())
		}
	}
	for _, n := range p.Nodes() {
		if n.Free() != n.Total() {
			t.Errorf("node %s: %v of %v is free at the end", n.Name, n.Free(), n.Total())
		}
	}
	if p.SharedFree() != p.Shared {
		t.Errorf("%v of %v is free at the end", p.SharedFree(), p.Shared)
	}
}

func goesFirst(a, b *Task) bool {
	return cmp.Or(b.Spec.Priority-a.Spec.Priority, cmp.Compare(a.Seq, b.Seq)) < 0
}

func (s *simulation) check() {
	p := s.pool
	type thing struct {
		n  *Node
		id string
	}
	owner := map[thing]int64{}
	gpu := map[thing]int32{}
	used := map[*Node]Need{}
	var licences, free Amount
	for first := range s.running {
		licences += first.Task.Need().Named.Get("licence")
		if nodes := first.Nodes(); len(nodes) != first.Task.Need().Width() {
			s.Errorf("task %d has %d nodes of %v", first.Task.Seq, len(nodes), first.Task.Need())
		}
		for _, slot := range append([]*Slot{first}, first.Others...) {
			need := slot.Task.Need()
			if len(slot.CPUs) != need.CPUs || len(slot.GPUs) != need.GPUs+min(1, int(need.Share)) {
				s.Errorf("task %d has CPUs %v, GPUs %v of %v", slot.Task.Seq, slot.CPUs, slot.GPUs, need)
			}
			for _, id := range slot.CPUs {
				k := thing{slot.Node, fmt.Sprint("cpu", id)}
				if owner[k] != 0 {
					s.Errorf("%s: CPU %d given to %d and %d", slot.Node.Name, id, owner[k], slot.Task.Seq)
				}
				owner[k] = slot.Task.Seq
			}
			for _, id := range slot.GPUs {
				k := thing{slot.Node, id}
				if gpu[k] += slot.perGPU(); gpu[k] > WholeGPU {
					s.Errorf("%s: %d of 1000 parts of GPU %s given, also to %d", slot.Node.Name, gpu[k], id, slot.Task.Seq)
				}
			}
			need.GPUs, need.Share = 0, 0
			used[slot.Node] = used[slot.Node].plus(slot.Node.local(need))
		}
	}
	for _, n := range p.Nodes() {
		is, want := n.free, n.total.minus(used[n])
		want.GPUs, want.Share = 0, 0
		for _, g := range n.gpus {
			switch part := WholeGPU - gpu[thing{n, g.ID}]; part {
			case WholeGPU:
				want.GPUs++
			default:
				want.Share = max(want.Share, part)
			}
		}
		if is != want || !(Need{}).Fits(is) {
			s.Errorf("%s: free %v, want %v, total %v", n.Name, is, want, n.total)
		}
	}
	total := p.Shared.Get("licence")
	if free = p.SharedFree().Get("licence"); free+licences != total || free < 0 {
		s.Errorf("%v licences are given, %v free, of %v", licences, free, total)
	}
	claim := p.reserved
	p.Each(func(t *Task) bool {
		need := t.Need()
		startable := func() bool {
			mine := need.Named.Get("licence")
			if mine > free || claim != nil && mine > 0 && mine > total-claim.line.shared.Get("licence")-claim.beside.Get("licence") {
				return false
			}
			room := 0
			for _, n := range p.Nodes() {
				if !n.HasRoom(need) {
					continue
				}
				if claim != nil {
					if at := claim.place(n); at != nil && !n.local(need).Fits(claim.room(at)) {
						continue
					}
				}
				room++
			}
			return room >= need.Width()
		}
		if startable() {
			s.Errorf("task %d wants %v, for which nodes have room, and waits", t.Seq, need)
		}
		return true
	})
	if claim == nil {
		s.claim = nil
		return
	}
	if s.claim != claim || s.placed != (len(claim.places) > 0) {
		s.claim, s.before, s.placed = claim, map[*Slot]bool{}, len(claim.places) > 0
		for slot := range s.running {
			if slot.shared != (Named{}) && claim.line.shared != (Named{}) || slices.ContainsFunc(slot.Nodes(), func(n *Node) bool { return claim.place(n) != nil }) {
				s.before[slot] = true
			}
		}
		return
	}
	waits := false
	for slot := range s.before {
		if _, ok := s.running[slot]; ok {
			waits = true
		}
	}
	if !waits && len(s.before) > 0 {
		s.Errorf("task %d starves: all that was in its way has ended", claim.task.Seq)
	}
}
