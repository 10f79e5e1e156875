package pool

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func cpus(n int) []CPU {
	out := make([]CPU, n)
	for i := range out {
		out[i] = CPU{ID: i, Core: i}
	}
	return out
}

func gpus(n int) []GPU {
	out := make([]GPU, n)
	for i := range out {
		out[i] = GPU{ID: fmt.Sprint(i), NUMA: -1}
	}
	return out
}

func spec(n int) *Spec { return &Spec{Need: Need{CPUs: n}} }

func started(slots []*Slot) string {
	var s string
	for _, x := range slots {
		s += fmt.Sprintf(" %d@%s%v", x.Task.Seq, x.Node.Name, x.CPUs)
	}
	return s
}

func drain(p *Pool) []*Slot {
	var out []*Slot
	for s := p.Next(); s != nil; s = p.Next() {
		out = append(out, s)
	}
	return out
}

func TestWideTaskIsNotStarved(t *testing.T) {
	p := &Pool{}
	p.AddNode(NewNode("a", cpus(4), nil, 0, Named{}))
	p.AddNode(NewNode("b", cpus(2), nil, 0, Named{}))
	for i := range int64(3) {
		p.Push(&Task{Seq: i + 1, Spec: spec(1)})
	}
	first := drain(p)
	if got := started(first); got != " 1@a[0] 2@a[1] 3@b[0]" && got != " 1@a[0] 2@a[1] 3@a[2]" {
		t.Fatalf("started%s", got)
	}
	p.Push(&Task{Seq: 4, Spec: spec(4)}) // needs all of a
	for i := range int64(10) {
		p.Push(&Task{Seq: 5 + i, Spec: spec(1)})
	}
	// On b narrow tasks go on, on a nothing new starts.
	for _, s := range drain(p) {
		if s.Node.Name != "b" {
			t.Errorf("task %d started on the reserved node", s.Task.Seq)
		}
	}
	for _, s := range first {
		p.Release(s)
	}
	if got := drain(p); len(got) == 0 || got[0].Task.Seq != 4 {
		t.Errorf("started%s; want 4 first", started(got))
	}
}

func TestOrder(t *testing.T) {
	p := &Pool{}
	p.AddNode(NewNode("a", cpus(1), nil, 0, Named{}))
	urgent := &Spec{Need: Need{CPUs: 1}, Priority: 5}
	p.Push(&Task{Seq: 1, Spec: spec(1)})
	p.Push(&Task{Seq: 3, Spec: spec(1)})
	p.Push(&Task{Seq: 4, Spec: urgent})
	p.Push(&Task{Seq: 2, Spec: spec(1)}) // came back
	var got []int64
	for range 4 {
		s := p.Next()
		got = append(got, s.Task.Seq)
		p.Release(s)
	}
	if !slices.Equal(got, []int64{4, 1, 2, 3}) {
		t.Errorf("order %v", got)
	}
}

func TestSpreadAndPack(t *testing.T) {
	for place, want := range map[Place]string{
		Auto: " 1@a[0] 2@b[0]", Spread: " 1@a[0] 2@b[0]", Pack: " 1@b[0] 2@b[1]",
	} {
		p := &Pool{Place: place}
		p.AddNode(NewNode("b", cpus(2), nil, 0, Named{}))
		p.AddNode(NewNode("a", cpus(3), nil, 0, Named{}))
		p.Push(&Task{Seq: 1, Spec: spec(1)})
		a := p.Next()
		q := []*Slot{a}
		p.Push(&Task{Seq: 2, Spec: spec(1)})
		p.Push(&Task{Seq: 9, Spec: spec(1)})
		q = append(q, p.Next())
		// After the first, a and b both have two free; spread takes either.
		if got := started(q); got != want && (place == Pack || got != " 1@a[0] 2@a[1]") {
			t.Errorf("place %d:%s; want%s", place, got, want)
		}
	}
}

func TestNeighbouringCPUs(t *testing.T) {
	// Two sockets of four cores with two threads each, numbered as Linux does.
	var topology []CPU
	for id := range 16 {
		core := id % 8
		topology = append(topology, CPU{ID: id, Core: core, Cache: core / 4, NUMA: core / 4})
	}
	n := NewNode("a", topology, []GPU{{"x", 0}, {"y", 1}}, 0, Named{})
	p := &Pool{}
	p.AddNode(n)
	take := func(seq int64, need Need) *Slot {
		p.Push(&Task{Seq: seq, Spec: &Spec{Need: need}})
		return p.Next()
	}
	if s := take(1, Need{CPUs: 2}); !slices.Equal(s.CPUs, []int{0, 8}) {
		t.Errorf("two CPUs: %v; want both threads of a core", s.CPUs)
	}
	if s := take(2, Need{CPUs: 8, GPUs: 1}); !slices.Equal(s.CPUs, []int{4, 5, 6, 7, 12, 13, 14, 15}) || s.GPUs[0] != "y" {
		t.Errorf("eight CPUs: %v, GPU %v; want the free socket and its GPU", s.CPUs, s.GPUs)
	}
	if s := take(3, Need{CPUs: 1}); !slices.Equal(s.CPUs, []int{1}) {
		t.Errorf("one CPU: %v", s.CPUs)
	}
	if s := take(4, Need{CPUs: 3}); !slices.Equal(s.CPUs, []int{2, 3, 10}) {
		t.Errorf("three CPUs: %v; want whole cores first", s.CPUs)
	}
}

func TestMisfits(t *testing.T) {
	p := &Pool{}
	p.AddNode(NewNode("a", cpus(2), gpus(1), 1<<30, Named{}))
	p.Push(&Task{Seq: 1, Spec: spec(3)})
	p.Push(&Task{Seq: 2, Spec: &Spec{Need: Need{CPUs: 1, GPUs: 2}}})
	p.Push(&Task{Seq: 3, Spec: &Spec{Need: Need{CPUs: 1, Mem: 2 << 30}}})
	p.Push(&Task{Seq: 4, Spec: spec(2)})
	if got := p.Misfits(func(s *Spec) bool { return s.Any(p.Fits) }); len(got) != 3 || p.Waiting() != 1 {
		t.Errorf("%d misfits, %d wait; want 3 and 1", len(got), p.Waiting())
	}
	if s := p.Next(); s == nil || s.Task.Seq != 4 {
		t.Error("what fits does not start")
	}
}

func TestAvoidedNode(t *testing.T) {
	p := &Pool{}
	a, b := NewNode("a", cpus(1), nil, 0, Named{}), NewNode("b", cpus(1), nil, 0, Named{})
	p.AddNode(a)
	p.AddNode(b)
	p.Push(&Task{Seq: 1, Spec: spec(1), Avoid: a})
	p.Push(&Task{Seq: 2, Spec: spec(1), Avoid: a})
	if got := started(drain(p)); got != " 1@b[0]" {
		t.Errorf("started%s; want only 1, on b", got)
	}
	p.RemoveNode(b)
	if got := started(drain(p)); got != " 2@a[0]" {
		t.Errorf("started%s; want 2 on a, as there is no other node", got)
	}
}

func TestLateTasksAreLeft(t *testing.T) {
	p := &Pool{Late: func(t *Task, _ Need, _ *Node) bool { return t.Spec.Time > time.Minute }}
	p.AddNode(NewNode("a", cpus(2), nil, 0, Named{}))
	p.Push(&Task{Seq: 1, Spec: &Spec{Need: Need{CPUs: 2}, Time: time.Hour}})
	p.Push(&Task{Seq: 2, Spec: spec(1)})
	if got := started(drain(p)); got != " 2@a[0]" || p.Waiting() != 1 {
		t.Errorf("started%s, %d wait", got, p.Waiting())
	}
}

func TestFollower(t *testing.T) {
	p := &Pool{}
	n := NewNode("a", cpus(2), nil, 0, Named{})
	p.AddNode(n)
	for i := range int64(4) {
		p.Push(&Task{Seq: i + 1, Spec: spec(1)})
	}
	slots := drain(p)
	f := p.Follower(n, Need{CPUs: 1})
	if f == nil || f.Seq != 3 || p.Follower(n, Need{CPUs: 2}) != nil {
		t.Fatalf("follower %v", f)
	}
	next := p.Follow(slots[1], f)
	p.Release(slots[1]) // must not free what the follower has
	if n.Free().CPUs != 0 || !slices.Equal(next.CPUs, []int{1}) {
		t.Errorf("free %d, follower on %v", n.Free().CPUs, next.CPUs)
	}
	p.Release(next)
	if n.Free().CPUs != 1 {
		t.Errorf("free %d; want 1", n.Free().CPUs)
	}
}

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
			if r.IntN(5) == 0 {
				task.Spec.Variants = NewVariants([]Variant{
					{Need: Need{GPUs: 1 + r.IntN(2), Named: need.Named}, Own: OfGPUs},
					{Need: Need{CPUs: 1 + r.IntN(widest), Mem: need.Mem}, Own: OfCPUs | OfMem},
					{Need: Need{Nodes: int32(r.IntN(3)), Named: amounts(r, "licence", 2)}, Own: OfNodes},
				}[:1+r.IntN(3)])
			}
			p.Push(task)
		}
		ended += len(p.Misfits(func(s *Spec) bool { return s.Any(p.Fits) }))
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
		if t.Spec.Any(func(need Need) bool {
			mine := need.Named.Get("licence")
			if mine > free || claim != nil && mine > 0 && mine > total-claim.way.shared.Get("licence")-claim.beside.Get("licence") {
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
		}) {
			s.Errorf("task %d wants %s, for which nodes have room, and waits", t.Seq, t.Spec.Needs())
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
			if slot.shared != (Named{}) && claim.way.shared != (Named{}) || slices.ContainsFunc(slot.Nodes(), func(n *Node) bool { return claim.place(n) != nil }) {
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

func named(t *testing.T, s string) Named {
	t.Helper()
	n, err := ParseNamed(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestGPUsAreShared(t *testing.T) {
	p := &Pool{}
	p.AddNode(NewNode("a", cpus(8), gpus(2), 0, Named{}))
	half := &Spec{Need: Need{CPUs: 1, Share: 500}}
	for i := range int64(3) {
		p.Push(&Task{Seq: i + 1, Spec: half})
	}
	p.Push(&Task{Seq: 4, Spec: &Spec{Need: Need{CPUs: 1, GPUs: 1}}})
	slots := drain(p)
	if len(slots) != 3 || slots[0].GPUs[0] != slots[1].GPUs[0] || slots[1].GPUs[0] == slots[2].GPUs[0] {
		t.Fatalf("started%s; want two on one GPU, one on the other, and 4 to wait", started(slots))
	}
	p.Release(slots[0])
	p.Push(&Task{Seq: 5, Spec: &Spec{Need: Need{CPUs: 1, Share: 501}}})
	if got := started(drain(p)); got != "" {
		t.Errorf("started%s; no GPU has so much free", got)
	}
	p.Release(slots[2])
	if got := drain(p); len(got) != 1 || got[0].Task.Seq != 4 {
		t.Errorf("started%s; want 4 on the GPU that is free now", started(got))
	}
}

func TestSharedResourceIsNotStarved(t *testing.T) {
	p := &Pool{Shared: named(t, "licence=3")}
	p.AddNode(NewNode("a", cpus(8), nil, 0, Named{}))
	one, all := &Spec{Need: Need{CPUs: 1, Named: named(t, "licence=1")}}, &Spec{Need: Need{CPUs: 1, Named: named(t, "licence=3")}}
	p.Push(&Task{Seq: 1, Spec: one})
	first := drain(p)
	p.Push(&Task{Seq: 2, Spec: all})
	p.Push(&Task{Seq: 3, Spec: one})
	p.Push(&Task{Seq: 4, Spec: spec(8)})
	p.Push(&Task{Seq: 5, Spec: spec(1)})
	if got := started(drain(p)); got != " 5@a[1]" {
		t.Errorf("started%s; want only 5, which needs no licence", got)
	}
	p.Release(first[0])
	if got := drain(p); len(got) != 1 || got[0].Task.Seq != 2 {
		t.Errorf("started%s; want 2", started(got))
	}
}

// TestWideTaskGetsItsNodes has a task of two nodes behind others: nodes are kept free for
// it, and used meanwhile by what is over in time.
func TestWideTaskGetsItsNodes(t *testing.T) {
	now := int64(100)
	p := &Pool{Ends: func(t *Task) int64 {
		if t.Spec.Time == 0 {
			return 0
		}
		return now + int64(t.Spec.Time)
	}}
	for _, name := range []string{"a", "b", "c"} {
		p.AddNode(NewNode(name, cpus(2), nil, 0, Named{}))
	}
	for i := range int64(3) {
		p.Push(&Task{Seq: i + 1, Spec: spec(2)})
	}
	first := drain(p)
	for i, s := range first {
		s.SetEnd(now + 10*int64(i+1))
	}
	p.Push(&Task{Seq: 4, Spec: &Spec{Need: Need{CPUs: 2, Nodes: 2}}})
	p.Push(&Task{Seq: 5, Spec: spec(1)})
	p.Push(&Task{Seq: 6, Spec: &Spec{Need: Need{CPUs: 1}, Time: 10}})
	p.Push(&Task{Seq: 7, Spec: &Spec{Need: Need{CPUs: 1}, Time: 11}})
	if got := started(drain(p)); got != "" {
		t.Fatalf("started%s on nodes that have no room", got)
	}
	if task, nodes := p.Kept(); task.Seq != 4 || len(nodes) != 2 || nodes[0] != first[0].Node || nodes[1] != first[1].Node {
		t.Fatalf("for task %d, %v are kept; want those that are free first", task.Seq, nodes)
	}
	now = 110
	p.Release(first[0])
	got := drain(p)
	if len(got) != 1 || got[0].Task.Seq != 6 {
		t.Fatalf("started%s; want 6, which ends when the second node is free", started(got))
	}
	now = 120
	p.Release(first[1])
	p.Release(got[0])
	got = drain(p)
	if len(got) != 1 || got[0].Task.Seq != 4 || len(got[0].Nodes()) != 2 {
		t.Fatalf("started%s; want 4", started(got))
	}
	p.Release(first[2])
	drain(p)
	p.RemoveNode(got[0].Others[0].Node)
	if n := got[0].Node; n.Free().CPUs != 0 {
		t.Errorf("%v is free while the task is not known to have ended", n.Free())
	}
	p.Release(got[0])
	if n := got[0].Node; n.Free() != n.Total() {
		t.Errorf("%v is free of %v", n.Free(), n.Total())
	}
}

func TestVariants(t *testing.T) {
	p := &Pool{}
	gpu, cpu := NewNode("g", cpus(2), gpus(1), 0, Named{}), NewNode("c", cpus(4), nil, 0, Named{})
	p.AddNode(gpu)
	p.AddNode(cpu)
	either := &Spec{Need: Need{CPUs: 1}, Variants: NewVariants([]Variant{
		{Need: Need{GPUs: 1}, Own: OfGPUs}, {Need: Need{CPUs: 4}, Own: OfCPUs},
	})}
	for i := range int64(3) {
		p.Push(&Task{Seq: i + 1, Spec: either})
	}
	for i := range int64(8) {
		p.Push(&Task{Seq: 4 + i, Spec: spec(1)})
	}
	slots := drain(p)
	if len(slots) < 3 || slots[0].Node != gpu || slots[0].Task.Chosen() != 1 || slots[1].Node != cpu || slots[1].Task.Chosen() != 2 {
		t.Fatalf("started%s, variants %d and %d", started(slots), slots[0].Task.Chosen(), slots[1].Task.Chosen())
	}
	if need := slots[1].Task.Need(); need != (Need{CPUs: 4}) || either.Needs() != "1 CPU, 1 GPU or 4 CPUs" {
		t.Errorf("runs with %v, of %s", need, either.Needs())
	}
	// The third one is not starved: the node of its first way is kept, as nothing is known of
	// either. A narrow task may have what it leaves there.
	if task, nodes := p.Kept(); task == nil || task.Seq != 3 || len(nodes) != 1 || nodes[0] != gpu || gpu.Free().CPUs != 0 || p.Waiting() != 8 {
		t.Errorf("kept %v for %v, %d wait", nodes, task, p.Waiting())
	}
	// It starts in the other way if that is possible sooner.
	p.Release(slots[1])
	if got := drain(p); got[0].Task.Seq != 3 || got[0].Task.Chosen() != 2 || len(got) != 1 {
		t.Errorf("started%s", started(got))
	}
	// A task with variants follows on the slot of a task that has what one of them needs.
	q := &Pool{}
	q.AddNode(NewNode("a", cpus(4), nil, 0, Named{}))
	q.Push(&Task{Seq: 1, Spec: spec(4)})
	q.Push(&Task{Seq: 2, Spec: either})
	slots = drain(q)
	if f := q.Follower(slots[0].Node, slots[0].Need()); f == nil || f.Chosen() != 2 {
		t.Errorf("follower %v", f)
	}
}

// TestVariantThatEndsSooner has a task wait where its second way is possible first, as far as
// is known.
func TestVariantThatEndsSooner(t *testing.T) {
	p := &Pool{}
	p.AddNode(NewNode("a", cpus(2), nil, 0, Named{}))
	p.AddNode(NewNode("b", cpus(3), nil, 0, Named{}))
	p.Push(&Task{Seq: 1, Spec: spec(2)})
	p.Push(&Task{Seq: 2, Spec: spec(3)})
	for _, s := range drain(p) {
		s.SetEnd(map[string]int64{"a": 100, "b": 10}[s.Node.Name])
	}
	p.Push(&Task{Seq: 3, Spec: &Spec{Need: Need{CPUs: 1}, Variants: NewVariants([]Variant{
		{Need: Need{CPUs: 2, Nodes: 2}, Own: OfCPUs | OfNodes}, {Need: Need{CPUs: 3}, Own: OfCPUs},
	})}})
	p.Push(&Task{Seq: 4, Spec: spec(1)})
	if s := p.Next(); s != nil {
		t.Fatalf("started %v", s.Task)
	}
	if _, nodes := p.Kept(); len(nodes) != 1 || nodes[0].Name != "b" {
		t.Errorf("kept %v", nodes)
	}
}

func TestAmounts(t *testing.T) {
	for text, want := range map[string]string{
		"licence=1,scratch=50G": "licence=1,scratch=50G", "b=0.5,a=1.250": "a=1.25,b=0.5", "x=0": "", "x=1024": "x=1024", "x=10MiB": "x=10MiB", "x=5000000": "x=5M",
	} {
		if got := named(t, text).String(); got != want {
			t.Errorf("%s is read as %s", text, got)
		}
	}
	for _, text := range []string{"", "x", "x=", "x=-1", "x=.", "x=1.", "x=1.2345", "x=1e3", "1x=1", "x=1,x=2", "x=9999999999999999999", "cpus=2", "x=2P", "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1"} {
		if n, err := ParseNamed(text); err == nil {
			t.Errorf("%q is read as %v", text, n)
		}
	}
}

func FuzzNamed(f *testing.F) {
	for _, s := range []string{"licence=1,scratch=50G", "a=0.125", "a=1,a=2", "x=1.5MiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseNamed(s)
		if err != nil || n == (Named{}) {
			return
		}
		again, err := ParseNamed(n.String())
		if err != nil || again != n {
			t.Errorf("%q is %v, and that %v: %v", s, n, again, err)
		}
		b, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		var read Named
		if err := json.Unmarshal(b, &read); err != nil || read != n {
			t.Errorf("%s is read as %v: %v", b, read, err)
		}
	})
}

func FuzzAmount(f *testing.F) {
	for _, s := range []string{"0.5", "50G", "1.250", "2MiB", "007"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseAmount(s)
		if err != nil {
			return
		}
		if again, err := ParseAmount(a.String()); err != nil || again != a || a < 0 || a > maxAmount {
			t.Errorf("%q is %v, and that %v: %v", s, a, again, err)
		}
		if again, err := ParseAmount(a.Number()); err != nil || again != a {
			t.Errorf("%q is %s, and that %v: %v", s, a.Number(), again, err)
		}
	})
}
