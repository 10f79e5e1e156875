package forecast

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
)

func machine(name string, cpus, gpus float64) Machine {
	return Machine{Name: name, Total: Resources{CPUs: cpus, MemMB: 1000, GPUs: gpus}}
}

func TestHoles(t *testing.T) {
	const now = 60_000
	lines := Timelines(now, 60, []Machine{machine("a", 4, 2), machine("b", 4, 2)}, []Busy{
		{Node: "a", Kind: Running, Start: 0, End: now + 3600, Use: Resources{CPUs: 1, MemMB: 100, GPUs: 1}, Who: "1"},
		{Node: "a", Kind: Planned, Start: now + 7230, End: now + 10_830, Who: "2"},
		{Node: "b", Kind: Reserved, Start: now + 1800, End: Forever, Who: "maint"},
	})
	got := Holes(lines, 60, now+86400)
	want := []Hole{
		{now, now + 1800, Resources{4, 1000, 2}, []string{"b"}},
		{now, now + 7200, Resources{3, 900, 1}, []string{"a"}},
		{now, now + 1800, Resources{3, 900, 1}, []string{"a", "b"}},
		{now + 3600, now + 7200, Resources{4, 1000, 2}, []string{"a"}},
		{now + 10_860, Forever, Resources{4, 1000, 2}, []string{"a"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	// The longest job that starts within a minute and ends before the plan begins.
	if m := Minutes(now, now+7200, 60); m != 118 {
		t.Errorf("%d minutes; want 118", m)
	}
	if m := Minutes(now, Forever, 60); m != Forever {
		t.Errorf("%d minutes; want no end", m)
	}
	if m := Minutes(now, now+30, 60); m != 0 {
		t.Errorf("%d minutes; want none", m)
	}
}

func TestTimelines(t *testing.T) {
	const now = 1_000_020
	lines := Timelines(now, 60, []Machine{{Name: "a", Total: Resources{4, 10, 0}, Whole: true}}, []Busy{
		{Node: "a", Kind: Running, Start: 0, End: now - 500, Use: Resources{CPUs: 1}, Who: "late"},
		{Node: "other", Kind: Running, Start: 0, End: Forever},
	})
	want := []Span{
		{now, now + 60, Resources{}, Running, true, []string{"late"}},
		{now + 60, Forever, Resources{4, 10, 0}, Running, false, nil},
	}
	if !reflect.DeepEqual(lines[0].Spans, want) {
		t.Errorf("%+v; want %+v", lines[0].Spans, want)
	}
}

// Whatever is on the nodes: a hole is free on each of its nodes from start to end,
// ends where something begins, and no hole lies within another one.
func TestHolesAreHoles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		const now = 120_000
		var machines []Machine
		var busy []Busy
		for i := range 1 + random.IntN(4) {
			name := fmt.Sprintf("n%d", i)
			machines = append(machines, machine(name, 8, 4))
			for range random.IntN(6) {
				start := now + int64(random.IntN(200)-20)*60
				busy = append(busy, Busy{
					Node: name, Kind: Kind(random.IntN(3)), Start: start, End: start + int64(1+random.IntN(100))*60,
					Use: Resources{CPUs: float64(random.IntN(9)), MemMB: float64(random.IntN(400)), GPUs: float64(random.IntN(5))},
				})
			}
		}
		lines := Timelines(now, 60, machines, busy)
		at := func(node string, when int64) Resources {
			free := machine(node, 8, 4).Total
			for _, b := range busy {
				if b.Node != node || when < max(b.Start, now) || when >= b.End {
					continue
				}
				if b.Kind != Running {
					return Resources{}
				}
				free = free.Sub(b.Use)
			}
			return free
		}
		holes := Holes(lines, 60, now+100_000)
		for i, h := range holes {
			for _, node := range h.Nodes {
				for when := h.Start; when < min(h.End, now+60_000); when += 60 {
					if free := at(node, when); !free.Covers(h.Free) {
						t.Fatalf("round %d: %v is not free on %s at +%d: %v", round, h, node, when-now, free)
					}
				}
			}
			if h.End != Forever {
				held := 0
				for _, node := range h.Nodes {
					if at(node, h.End).Covers(h.Free) {
						held++
					}
				}
				if held == len(h.Nodes) {
					t.Fatalf("round %d: %v could be longer", round, h)
				}
			}
			for j, o := range holes {
				if i != j && o.Start <= h.Start && o.End >= h.End && o.Free.Covers(h.Free) && contains(o.Nodes, h.Nodes) {
					t.Fatalf("round %d: %v lies within %v", round, h, o)
				}
			}
		}
	}
}

func BenchmarkHolesLargeCluster(b *testing.B) {
	random := rand.New(rand.NewPCG(3, 4))
	var machines []Machine
	var busy []Busy
	for i := range 5000 {
		name := fmt.Sprintf("n%04d", i)
		machines = append(machines, machine(name, 64, 8))
		for range 6 {
			busy = append(busy, Busy{Node: name, Start: 0, End: 60_000 + int64(random.IntN(86_400)), Use: Resources{float64(random.IntN(16)), 100, float64(random.IntN(2))}})
		}
	}
	for b.Loop() {
		b.ReportMetric(float64(len(Holes(Timelines(60_000, 60, machines, busy), 60, 146_400))), "holes")
	}
}
