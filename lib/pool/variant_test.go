package pool

import (
	"testing"
)

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
