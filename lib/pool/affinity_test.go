package pool

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// sockets is a node of two sockets of four cores with two threads each, numbered as Linux does, with
// two GPUs each: a and b at the first, c and d at the second.
func sockets() *Node {
	var topology []CPU
	for id := range 16 {
		core := id % 8
		topology = append(topology, CPU{ID: id, Core: core, Cache: core / 4, NUMA: core / 4})
	}
	return NewNode("n", topology, []GPU{{"a", 0}, {"b", 0}, {"c", 1}, {"d", 1}}, 0, Named{})
}

// Tasks get CPUs near GPUs that are free, and those without GPUs leave such CPUs free if that splits no
// socket that was whole.
func TestCPUsAreNearFreeGPUs(t *testing.T) {
	gpu := func(cpus, gpus int) Need { return Need{CPUs: cpus, GPUs: gpus} }
	share := func(cpus int, part int32) Need { return Need{CPUs: cpus, Share: part} }
	first, second := []int{0, 1, 2, 3, 8, 9, 10, 11}, []int{4, 5, 6, 7, 12, 13, 14, 15}
	for name, tt := range map[string]struct {
		before []Need
		need   Need
		cpus   []int    // among which those of the task are
		gpus   []string // of the task
	}{
		"the GPUs of the first socket are taken":        {[]Need{gpu(1, 2)}, gpu(2, 1), second, []string{"c"}},
		"two GPUs, of the socket that has two":          {[]Need{gpu(1, 1)}, gpu(2, 2), second, []string{"c", "d"}},
		"two GPUs, and no socket has two":               {[]Need{gpu(1, 1), gpu(7, 1), gpu(1, 1)}, gpu(1, 1), second, []string{"d"}},
		"three GPUs, of both":                           {nil, gpu(2, 3), first, []string{"a", "b", "c"}},
		"a GPU where the CPUs are taken":                {[]Need{gpu(2, 2), gpu(7, 0)}, gpu(6, 1), first, []string{"c"}},
		"a part of a GPU where too few CPUs are free":   {[]Need{share(6, 100)}, share(4, 900), second, []string{"a"}},
		"more CPUs than a socket has":                   {[]Need{gpu(1, 2)}, gpu(10, 1), append(slices.Clone(first), second...), []string{"c"}},
		"a part of a GPU, when the first are taken":     {[]Need{gpu(1, 2)}, share(2, 500), second, []string{"c"}},
		"the other part of a GPU":                       {[]Need{gpu(1, 2), share(2, 500), gpu(1, 1)}, share(2, 500), second, []string{"c"}},
		"no GPU, when those of the first are taken":     {[]Need{gpu(2, 2), gpu(2, 1)}, gpu(2, 0), first, nil},
		"no GPU, and the second socket is split":        {[]Need{gpu(2, 2), gpu(6, 0), gpu(1, 1)}, gpu(1, 0), second, nil},
		"no GPU, all of a socket, of which one has GPU": {[]Need{gpu(1, 1)}, gpu(8, 0), second, nil},
	} {
		p := &Pool{Place: Pack}
		p.AddNode(sockets())
		seq := int64(0)
		take := func(need Need) *Slot {
			seq++
			p.Push(&Task{Seq: seq, Spec: &Spec{Need: need}})
			return p.Next()
		}
		for _, need := range tt.before {
			if take(need) == nil {
				t.Fatalf("%s: no room for %v", name, need)
			}
		}
		s := take(tt.need)
		if s == nil {
			t.Errorf("%s: no room", name)
			continue
		}
		for _, id := range s.CPUs {
			if !slices.Contains(tt.cpus, id) {
				t.Errorf("%s: CPUs %v, want of %v", name, s.CPUs, tt.cpus)
				break
			}
		}
		if !slices.Equal(s.GPUs, tt.gpus) {
			t.Errorf("%s: GPUs %q, want %q", name, s.GPUs, tt.gpus)
		}
	}
}

// A socket that is whole stays so while a task without GPUs fits beside others, even near a free GPU.
func TestTaskWithoutGPUsSplitsNoSocket(t *testing.T) {
	n := NewNode("n", sockets().cpus, []GPU{{"c", 1}}, 0, Named{})
	p := &Pool{}
	p.AddNode(n)
	var got []string
	for seq, need := range []Need{{CPUs: 2}, {CPUs: 2, GPUs: 1}, {CPUs: 2}} {
		p.Push(&Task{Seq: int64(seq), Spec: &Spec{Need: need}})
		s := p.Next()
		got = append(got, fmt.Sprint(s.CPUs))
		if seq > 0 {
			p.Release(s)
		}
	}
	if s := strings.Join(got, " "); s != "[0 8] [4 12] [1 9]" {
		t.Errorf("CPUs %s", s)
	}
	// Now only the socket of the GPU is in use, and not all of it.
	p = &Pool{}
	n = NewNode("n", sockets().cpus, []GPU{{"c", 1}}, 0, Named{})
	p.AddNode(n)
	for _, i := range n.pickCPUs(Need{CPUs: 2, GPUs: 1}) {
		n.busy[i] = true
	}
	if i := n.pickCPUs(Need{CPUs: 2}); n.cpus[i[0]].NUMA != 1 {
		t.Errorf("CPUs at socket %d, which was whole", n.cpus[i[0]].NUMA)
	}
}

func BenchmarkTake(b *testing.B) {
	for name, gpus := range map[string]int{"no GPUs": 0, "8 GPUs": 8} {
		var topology []CPU
		for id := range 128 {
			topology = append(topology, CPU{ID: id, Core: id, Cache: id / 8, NUMA: id / 64})
		}
		var g []GPU
		for i := range gpus {
			g = append(g, GPU{fmt.Sprint(i), i / 4})
		}
		n := NewNode("n", topology, g, 0, Named{})
		for _, need := range []Need{{CPUs: 1}, {CPUs: 8, GPUs: min(1, gpus)}} {
			b.Run(name+"/"+need.String(), func(b *testing.B) {
				task := &Task{Spec: &Spec{Need: need}}
				slots := make([]*Slot, 0, 128)
				for range b.N {
					if !n.HasRoom(need) || len(slots) == cap(slots) {
						for _, s := range slots {
							n.put(s)
						}
						slots = slots[:0]
					}
					slots = append(slots, n.take(task))
				}
				for _, s := range slots {
					n.put(s)
				}
			})
		}
	}
}
