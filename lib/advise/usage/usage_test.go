package usage

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/testscripts/captures"
)

func recorded(t *testing.T) []Run {
	t.Helper()
	client := slurm.Client{Run: captures.Runner("../../slurm/testdata/22.05.8/sacct-consumed.table")}
	var runs []Run
	if err := client.EachConsumed(t.Context(), nil, slurm.Period{}, func(c *slurm.Consumed) error { runs = append(runs, Of(c)); return nil }); err != nil {
		t.Fatal(err)
	}
	return runs
}

// Job 3 ran four tasks of 108 MiB on two nodes of which one had three CPUs; its batch step
// ran beside them.
func TestOf(t *testing.T) {
	byLabel := map[string]Run{}
	for _, r := range recorded(t) {
		byLabel[r.Label] = r
	}
	j := byLabel["3"]
	if j.PeakMB < 3*107+19 || j.PeakMB > 3*108+21 || j.MemMB != 1000 || j.Tasks != 4 || j.CPUSeconds < 0.18 || j.CPUSeconds > 0.19 || j.GPUPart != Unknown {
		t.Errorf("%+v", j)
	}
	groups := Fold(recorded(t), ByJob)
	for _, g := range groups {
		s := g.Sum()
		switch g.Key {
		case "4":
			if s.Runs != 4 || s.CPUSeconds != 20 || s.WastedCPU < 19.9 || s.Largest != time.Hour || s.Median != 5*time.Second {
				t.Errorf("array: %+v", s)
			}
		case "1":
			if groups[0].Key != "3" || s.CPUUsed < 4.2 || s.WastedCPU > 36 {
				t.Errorf("%+v", s)
			}
		}
	}
	if len(Fold(recorded(t), ByName)) != 4 {
		t.Errorf("%+v", Fold(recorded(t), ByName))
	}
}

func step(name, nodes string, tasks, start, end int64, mem float64) slurm.ConsumedStep {
	return slurm.ConsumedStep{Name: name, Nodes: nodes, Tasks: tasks, Start: start, End: end, Most: slurm.TRES{"mem": mem}}
}

// Steps that run one after the other do not add up, those beside each other on a node do.
func TestPeak(t *testing.T) {
	for _, c := range []struct {
		what  string
		steps []slurm.ConsumedStep
		want  float64
	}{
		{"one after the other", []slurm.ConsumedStep{step("0", "n1", 1, 0, 10, 100), step("1", "n1", 1, 10, 20, 150)}, 150},
		{"side by side", []slurm.ConsumedStep{step("0", "n1", 1, 0, 10, 100), step("1", "n1", 1, 5, 20, 150)}, 250},
		{"on other nodes", []slurm.ConsumedStep{step("0", "n1", 1, 0, 10, 100), step("1", "n2", 1, 5, 20, 150)}, 150},
		{"tasks of a step", []slurm.ConsumedStep{step("0", "n[1-2]", 5, 0, 10, 100)}, 300},
		{"in one second", []slurm.ConsumedStep{step("0", "n1", 2, 3, 3, 100)}, 200},
		{"still running", []slurm.ConsumedStep{step("batch", "n1", 1, 0, 0, 100), step("0", "n1", 1, 5, 0, 50)}, 150},
		{"not measured", []slurm.ConsumedStep{{Name: "0", Nodes: "n1", Tasks: 1}}, Unknown},
	} {
		if got := peak(&slurm.Consumed{Used: c.steps, Record: slurm.Record{Nodes: 1}}); got != c.want {
			t.Errorf("%s: %v MiB, want %v", c.what, got, c.want)
		}
	}
}

func TestGPU(t *testing.T) {
	c := slurm.Consumed{Record: slurm.Record{Start: 1, End: 101, Nodes: 1, TRES: slurm.TRES{"cpu": 2, "gres/gpu": 4}}, Elapsed: 100 * time.Second, Used: []slurm.ConsumedStep{
		{Name: "batch", Tasks: 1, Start: 1, End: 101, Most: slurm.TRES{"mem": 10, "gres/gpuutil": 100}, TRES: slurm.TRES{"gres/gpu": 4}},
	}}
	if r := Of(&c); r.GPUPart != 0.25 {
		t.Errorf("one of four GPUs is busy: %v", r.GPUPart)
	}
	g := Group{Runs: []Run{Of(&c)}}
	if s := g.Sum(); s.WastedGPU != 300 || s.WastedCPU != 200 {
		t.Errorf("%+v", s)
	}
}

func ended(state string, minutes float64, peak float64) Run {
	d := time.Duration(minutes * float64(time.Minute))
	return Run{State: state, Start: 1000, End: 1000 + int64(d.Seconds()), Elapsed: d, Limit: 12 * time.Hour, Nodes: 1, CPUs: 8, MemMB: 64000, PeakMB: peak, CPUSeconds: d.Seconds() * 1.5, Tasks: 1}
}

func TestLearn(t *testing.T) {
	var runs []Run
	for i := range 99 {
		runs = append(runs, ended("COMPLETED", float64(i+1), 1000+float64(i)))
	}
	l := Learn(runs, 0.05)
	// Of 99 runs the 95th is enough: 95 minutes, and a tenth to spare.
	if l.Time != 105*time.Minute || l.MemMB != 1280 || l.CPUs != 2 || l.Few || l.Runs != 99 {
		t.Errorf("%+v", l)
	}
	g := Group{Runs: runs}
	s := g.Sum()
	if got, want := l.Options(&s).Args(), []string{"--time=1:45:00", "--mem=1280M", "--cpus-per-task=2"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if l := Learn(runs[:3], 0.05); !l.Few || l.Time != 5*time.Minute || l.MemMB != 1792 {
		t.Errorf("of three runs: %+v", l)
	}
	// Runs that were ended by a limit needed more.
	for range 10 {
		runs = append(runs, ended("TIMEOUT", 720, 900), ended("OUT_OF_MEMORY", 1, 64000), ended("FAILED", 0.1, 5))
	}
	if l := Learn(runs, 0.05); !l.Cut || !l.Killed || l.Time != 0 || l.MemMB != 0 {
		t.Errorf("%+v", l)
	}
	if l := Learn(nil, 0.05); l.Time != 0 || l.MemMB != 0 || l.Cut || l.Killed {
		t.Errorf("%+v", l)
	}
}

// What is learned is enough for all but that part of further runs, whatever their
// distribution is.
func TestRisk(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, draw := range []func() float64{random.Float64, random.ExpFloat64, func() float64 { return random.Float64() * float64(1+9*random.IntN(2)) }} {
		for _, risk := range []float64{0.05, 0.2} {
			more, trials := 0, 4000
			for range trials {
				needed := make([]float64, 40)
				for i := range needed {
					needed[i] = draw()
				}
				if most, few := enough(needed, risk); few || draw() > most {
					more++
				}
			}
			if part := float64(more) / float64(trials); part > risk+0.015 {
				t.Errorf("%v of the runs need more, the risk is %v", part, risk)
			}
		}
	}
}
