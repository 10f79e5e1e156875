package pool

import (
	"cmp"
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
	p.AddNode(NewNode("a", cpus(4), nil, 0))
	p.AddNode(NewNode("b", cpus(2), nil, 0))
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
	p.AddNode(NewNode("a", cpus(1), nil, 0))
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
		p.AddNode(NewNode("b", cpus(2), nil, 0))
		p.AddNode(NewNode("a", cpus(3), nil, 0))
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
	n := NewNode("a", topology, []GPU{{"x", 0}, {"y", 1}}, 0)
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
	p.AddNode(NewNode("a", cpus(2), gpus(1), 1<<30))
	p.Push(&Task{Seq: 1, Spec: spec(3)})
	p.Push(&Task{Seq: 2, Spec: &Spec{Need: Need{CPUs: 1, GPUs: 2}}})
	p.Push(&Task{Seq: 3, Spec: &Spec{Need: Need{CPUs: 1, Mem: 2 << 30}}})
	p.Push(&Task{Seq: 4, Spec: spec(2)})
	if got := p.Misfits(p.Fits); len(got) != 3 || p.Waiting() != 1 {
		t.Errorf("%d misfits, %d wait; want 3 and 1", len(got), p.Waiting())
	}
	if s := p.Next(); s == nil || s.Task.Seq != 4 {
		t.Error("what fits does not start")
	}
}

func TestAvoidedNode(t *testing.T) {
	p := &Pool{}
	a, b := NewNode("a", cpus(1), nil, 0), NewNode("b", cpus(1), nil, 0)
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
	p := &Pool{Late: func(t *Task, _ *Node) bool { return t.Spec.Time > time.Minute }}
	p.AddNode(NewNode("a", cpus(2), nil, 0))
	p.Push(&Task{Seq: 1, Spec: &Spec{Need: Need{CPUs: 2}, Time: time.Hour}})
	p.Push(&Task{Seq: 2, Spec: spec(1)})
	if got := started(drain(p)); got != " 2@a[0]" || p.Waiting() != 1 {
		t.Errorf("started%s, %d wait", got, p.Waiting())
	}
}

func TestFollower(t *testing.T) {
	p := &Pool{}
	n := NewNode("a", cpus(2), nil, 0)
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
}

func simulate(t *testing.T, r *rand.Rand, tasks int) {
	s := simulation{T: t, pool: &Pool{Place: Place(r.IntN(3))}, running: map[*Slot]int{}}
	p := s.pool
	widest := 0
	addNode := func(i int) {
		n := 1 + r.IntN(16)
		c := cpus(n)
		for j := range c {
			c[j].Core, c[j].Cache, c[j].NUMA = j/2, j/4, j/8
		}
		widest = max(widest, n)
		p.AddNode(NewNode(fmt.Sprint("n", i), c, gpus(r.IntN(4)), int64(r.IntN(64))))
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
			if r.IntN(5) == 0 {
				need.GPUs = r.IntN(3)
			}
			if r.IntN(5) == 0 {
				need.Mem = int64(r.IntN(48))
			}
			p.Push(&Task{Seq: seq, Spec: &Spec{Need: need, Priority: r.IntN(8) / 7}})
		}
		ended += len(p.Misfits(p.Fits))
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
			for _, slot := range p.RemoveNode(n) {
				delete(s.running, slot)
				p.Push(slot.Task)
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
	used := map[*Node]Need{}
	for slot := range s.running {
		if len(slot.CPUs) != slot.Task.Spec.Need.CPUs || len(slot.GPUs) != slot.Task.Spec.Need.GPUs {
			s.Errorf("task %d has CPUs %v, GPUs %v of %v", slot.Task.Seq, slot.CPUs, slot.GPUs, slot.Task.Spec.Need)
		}
		for _, id := range slot.CPUs {
			k := thing{slot.Node, fmt.Sprint("cpu", id)}
			if owner[k] != 0 {
				s.Errorf("%s: CPU %d given to %d and %d", slot.Node.Name, id, owner[k], slot.Task.Seq)
			}
			owner[k] = slot.Task.Seq
		}
		for _, id := range slot.GPUs {
			k := thing{slot.Node, "gpu" + id}
			if owner[k] != 0 {
				s.Errorf("%s: GPU %s given to %d and %d", slot.Node.Name, id, owner[k], slot.Task.Seq)
			}
			owner[k] = slot.Task.Seq
		}
		used[slot.Node] = used[slot.Node].plus(slot.need)
	}
	for _, n := range p.Nodes() {
		if n.free.plus(used[n]) != n.total || !(Need{}).Fits(n.free) {
			s.Errorf("%s: free %v, used %v, total %v", n.Name, n.free, used[n], n.total)
		}
	}
	claim := p.reserved
	p.Each(func(t *Task) bool {
		for _, n := range p.Nodes() {
			if !t.Spec.Need.Fits(n.free) {
				continue
			}
			if claim != nil && n == claim.node && !t.Spec.Need.Fits(n.total.minus(claim.task.Spec.Need).minus(claim.beside)) {
				continue
			}
			s.Errorf("%s has %v free, task %d wants %v and waits", n.Name, n.free, t.Seq, t.Spec.Need)
		}
		return true
	})
	if claim == nil {
		s.claim = nil
		return
	}
	if s.claim != claim {
		s.claim, s.before = claim, map[*Slot]bool{}
		for slot := range s.running {
			if slot.Node == claim.node {
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
		s.Errorf("task %d starves: all that ran on %s before has ended", claim.task.Seq, claim.node.Name)
	}
}
