package pool

import (
	"math"
	"testing"
)

func TestDemand(t *testing.T) {
	named := func(s string) Named {
		n, err := ParseNamed(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	node := Need{CPUs: 16, GPUs: 1, Mem: 64 << 30, Named: named("scratch=100")}
	for _, c := range []struct {
		what  string
		size  Need
		tasks []Spec
		times float64 // of each
		want  float64
	}{
		{"none", node, nil, 0, 0},
		{"CPUs", node, []Spec{{Need: Need{CPUs: 1}}}, 8, 0.5},
		{"GPUs", node, []Spec{{Need: Need{CPUs: 1, GPUs: 1}}}, 8, 8},
		{"parts of GPUs", node, []Spec{{Need: Need{CPUs: 1, Share: 500}}}, 8, 4},
		{"memory", node, []Spec{{Need: Need{CPUs: 1, Mem: 32 << 30}}}, 8, 4},
		{"a resource of nodes", node, []Spec{{Need: Need{CPUs: 1, Named: named("scratch=50")}}}, 8, 4},
		{"a resource of all nodes", node, []Spec{{Need: Need{CPUs: 1, Named: named("licence=1")}}}, 8, 0.5},
		{"more than there is of it", node, []Spec{{Need: Need{CPUs: 16, Named: named("licence=1")}}}, 80, 12},
		{"beside others", node, []Spec{{Need: Need{CPUs: 16, Named: named("licence=1")}}, {Need: Need{CPUs: 16}}}, 80, 92},
		{"kinds that share it", node, []Spec{{Need: Need{CPUs: 16, Named: named("licence=1")}}, {Need: Need{CPUs: 16, Mem: 1, Named: named("licence=3")}}}, 4, 6},
		{"more than a job has", node, []Spec{{Need: Need{CPUs: 99}}}, 8, 1},
		{"several nodes", node, []Spec{{Need: Need{CPUs: 16, Nodes: 4}}}, 2, 8},
		{"what leaves gaps", node, []Spec{{Need: Need{CPUs: 9}}}, 8, 8},
		{"kinds that run beside each other", node, []Spec{{Need: Need{CPUs: 1, GPUs: 1}}, {Need: Need{CPUs: 15}}}, 4, 4},
		{"kinds that do not", node, []Spec{{Need: Need{CPUs: 8}}, {Need: Need{CPUs: 4}}}, 4, 3},
		{"nothing is known", Need{}, []Spec{{Need: Need{CPUs: 2, Mem: 1 << 30}}, {Need: Need{CPUs: 1}}}, 4, 6},
		{"only CPUs are known", Need{CPUs: 16}, []Spec{{Need: Need{CPUs: 1, GPUs: 1}}}, 8, 8},
	} {
		d := Demand{}
		for i := range c.tasks {
			d.Add(&c.tasks[i], c.times)
		}
		if got := d.Jobs(c.size, named("licence=100"), named("licence=12")); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v jobs, want %v", c.what, got, c.want)
		}
	}
}
