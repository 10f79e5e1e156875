package pool

import (
	"fmt"
	"slices"
	"strings"
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
	if got := p.Misfits(func(s *Spec) bool { return p.Fits(s.Need) }); len(got) != 3 || p.Waiting() != 1 {
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
	p := &Pool{Late: func(t *Task, _ *Node) bool { return t.Spec.Time > time.Minute }}
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

// gathered is a pool of nodes "HOST@GROUP" of two CPUs each, of which those with a "!" have none free.
func gathered(together int, names ...string) (p *Pool, busy []*Slot) {
	p = &Pool{}
	p.Group(together)
	for _, name := range names {
		full := strings.TrimSuffix(name, "!")
		n := NewNode(full, cpus(2), nil, 0, Named{})
		n.Host, n.Group, _ = strings.Cut(full, "@")
		p.AddNode(n)
		if full != name {
			busy = append(busy, p.Occupy(n, &Task{Seq: int64(100 + len(busy)), Spec: spec(2)}))
		}
	}
	return p, busy
}

func nodeNames(nodes []*Node) string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// A task of several nodes has them of one group if any group has as many, and never two of one host.
func TestNodesOfATaskAreOfOneGroup(t *testing.T) {
	for name, tt := range map[string]struct {
		together int
		width    int32
		nodes    string
		want     string
		kept     string // for the task, if it waits
		there    int
	}{
		"one group":                     {2, 2, "a@1 c@2 b@1 d@2", "a@1 b@1", "", 2},
		"the first of one is busy":      {2, 2, "a@1! c@2 b@1 d@2", "c@2 d@2", "", 2},
		"one of each is busy":           {2, 2, "a@1! c@2 b@1 d@2!", "", "a@1 b@1", 2},
		"a group that is not complete":  {2, 2, "a@1 c@2", "", "", 1},
		"groups that are too small":     {1, 2, "a@1 c@2", "a@1 c@2", "", 2},
		"as few groups as possible":     {2, 3, "a@1 b@2 c@2 d@3", "a@1 b@2 c@2", "", 3},
		"one host in two groups":        {1, 2, "a@1 a@2", "", "", 1},
		"one host in two of three":      {1, 2, "a@1 a@2 b@3", "a@1 b@3", "", 2},
		"the other host is busy":        {1, 2, "a@1 a@2 b@3!", "", "a@1 b@3", 2},
		"one host in two larger groups": {2, 3, "a@1 b@1 b@2 c@2", "a@1 b@1 c@2", "", 3},
		"without groups":                {0, 2, "a b! c", "a c", "", 2},
	} {
		p, _ := gathered(tt.together, strings.Fields(tt.nodes)...)
		need := Need{CPUs: 2, Nodes: tt.width}
		if there := p.There(need); there != tt.there {
			t.Errorf("%s: %d nodes are there, want %d", name, there, tt.there)
		}
		p.Push(&Task{Seq: 1, Spec: &Spec{Need: need}})
		p.Push(&Task{Seq: 2, Spec: &Spec{Need: Need{CPUs: 2}, Priority: -1}})
		got, kept := "", ""
		if s := p.Next(); s != nil && s.Task.Seq == 1 {
			got = nodeNames(s.Nodes())
		} else if task, nodes := p.Kept(); task != nil {
			kept = nodeNames(nodes)
		}
		if got != tt.want || kept != tt.kept {
			t.Errorf("%s: starts on %q, want %q; %q are kept for it, want %q", name, got, tt.want, kept, tt.kept)
		}
		if possible := p.Fits(need); possible != (tt.want != "" || tt.kept != "") {
			t.Errorf("%s: it fits: %v", name, possible)
		}
	}
}

// Nodes are reserved in the group that is free soonest.
func TestNodesOfOneGroupAreReserved(t *testing.T) {
	p, busy := gathered(2, "a@1!", "c@2!", "b@1!", "d@2!")
	for i, at := range []int64{10, 20, 40, 30} {
		busy[i].SetEnd(at)
	}
	p.Push(&Task{Seq: 1, Spec: &Spec{Need: Need{CPUs: 2, Nodes: 2}}})
	p.Push(&Task{Seq: 2, Spec: spec(2)})
	p.Next()
	if _, nodes := p.Kept(); nodeNames(nodes) != "c@2 d@2" || p.reserved.at != 30 {
		t.Errorf("%q are kept, until %d; want the nodes of group 2, until 30", nodeNames(nodes), p.reserved.at)
	}
}
