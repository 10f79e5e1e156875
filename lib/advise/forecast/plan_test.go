package forecast

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
)

const now = 1_200_000

// world is n nodes of 4 CPUs, 8000 MiB and no GPUs in the partition cpu.
func world(nodes int, jobs ...Job) *World {
	w := &World{Now: now, Jobs: jobs, Scheduler: Scheduler{Backfill: true, Resolution: 60, Window: 86400, Interval: 30, MaxTest: 500, ArrayTasks: 20}}
	cpu := Partition{Name: "cpu", Up: true, Tier: 1}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i+1)
		w.Nodes = append(w.Nodes, Node{Name: name, Total: Resources{CPUs: 4, MemMB: 8000}, Weight: 1, Usable: true})
		cpu.Nodes = append(cpu.Nodes, name)
	}
	w.Partitions = []Partition{cpu}
	for i := range w.Jobs {
		w.Jobs[i] = filled(w.Jobs[i], i)
	}
	return w
}

// filled gives a job what all have: an id, a partition and, if it waits, a priority
// by its place.
func filled(j Job, i int) Job {
	if j.ID == 0 {
		j.ID = uint64(i + 1)
	}
	if j.ArrayID == 0 {
		j.ArrayID = j.ID
	}
	if j.Partition == "" {
		j.Partition = "cpu"
	}
	if j.User == "" {
		j.User = "alice"
	}
	if j.Label == "" {
		j.Label = fmt.Sprint(j.ID)
	}
	if j.Priority == 0 {
		j.Priority = float64(1000 - i)
	}
	if j.Nodes == 0 {
		j.Nodes = 1
	}
	return j
}

func running(node string, cpus float64, minutes int64) Job {
	return Job{Running: true, Start: now - 600, End: now + minutes*60, Uses: map[string]Resources{node: {CPUs: cpus}}}
}

func waiting(nodes int, cpus float64, minutes int64) Job {
	return Job{Nodes: nodes, Need: Resources{CPUs: cpus}, Limit: minutes * 60}
}

// told is what a plan says, a word for each row: run, now, +MINUTES, or the verdict.
func told(p *Plan) string {
	var words []string
	for i, r := range p.Results {
		switch j := &p.World.Jobs[i]; {
		case j.Running:
			continue
		case r.Verdict == StartsNow && r.Started > 1:
			words = append(words, fmt.Sprintf("now*%d", r.Started))
		case r.Verdict == StartsNow:
			words = append(words, "now@"+strings.Join(r.Nodes, ","))
		case r.Verdict == PlannedLate:
			words = append(words, fmt.Sprintf("+%d@%s", (r.Start-now)/60, strings.Join(r.Nodes, ",")))
		default:
			words = append(words, [...]string{"unreached", "", "", "unplanned", "beyond", "limit", "never-asks", "never-fits", "no-nodes", "license", "waits", "held", "elsewhere", "down", "throttle"}[r.Verdict])
		}
	}
	return strings.Join(words, " ")
}

func TestPlan(t *testing.T) {
	on := func(j Job, partition string) Job { j.Partition = partition; return j }
	with := func(j Job, change func(*Job)) Job { change(&j); return j }
	gpu := func(w *World) {
		for i := range w.Nodes {
			w.Nodes[i].Total.GPUs = 2
			w.Nodes[i].GPUs = map[string]int64{[]string{"a100", "rtx"}[i%2]: 2}
			w.Nodes[i].Features = []string{[]string{"big", "small"}[i%2], "all"}
		}
	}
	low := func(w *World) {
		w.Partitions = append(w.Partitions, w.Partitions[0])
		w.Partitions[0].Tier, w.Partitions[1].Name, w.Partitions[1].Tier = 2, "low", 1
	}
	for _, c := range []struct {
		name   string
		nodes  int
		jobs   []Job
		change func(*World)
		want   string
	}{
		{"an empty cluster", 1, []Job{waiting(1, 1, 10)}, nil, "now@n1"},
		{"a job that runs keeps its part", 1, []Job{running("n1", 3, 60), waiting(1, 1, 10), waiting(1, 1, 10)}, nil, "now@n1 +10@n1"},
		{"a job that fits before a planned one starts", 1, []Job{running("n1", 3, 60), waiting(1, 4, 60), waiting(1, 1, 59)}, nil, "+60@n1 now@n1"},
		{"one that does not waits for it", 1, []Job{running("n1", 3, 60), waiting(1, 4, 60), waiting(1, 1, 61)}, nil, "+60@n1 +120@n1"},
		{"a planned job keeps the whole node", 1, []Job{running("n1", 4, 60), waiting(1, 1, 60), waiting(1, 1, 60)}, nil, "+60@n1 +120@n1"},
		{"several nodes at the same time", 3, []Job{running("n1", 4, 30), running("n2", 4, 60), waiting(3, 1, 10), waiting(2, 1, 10)}, nil, "+60@n1,n2,n3 +30@n1,n3"},
		{"without backfill the first one blocks", 2, []Job{running("n1", 4, 60), waiting(2, 4, 60), waiting(1, 1, 1)}, func(w *World) { w.Scheduler.Backfill = false }, "+60@n1,n2 unreached"},
		{"priorities", 1, []Job{with(waiting(1, 4, 10), func(j *Job) { j.Priority = 5 }), with(waiting(1, 4, 10), func(j *Job) { j.Priority = 6 })}, nil, "+10@n1 now@n1"},
		{"a tier comes before a priority", 1, []Job{on(waiting(1, 4, 10), "low"), on(waiting(1, 4, 10), "cpu")}, low, "+10@n1 now@n1"},
		{"preemption by tier", 1, []Job{on(running("n1", 4, 600), "low"), waiting(1, 4, 10)}, func(w *World) {
			low(w)
			w.Scheduler.PreemptByTier = true
			w.Partitions[1].Preemptible = true
		}, "now@n1"},
		{"nobody preempts a partition that does not allow it", 1, []Job{on(running("n1", 4, 600), "low"), waiting(1, 4, 10)}, func(w *World) {
			low(w)
			w.Scheduler.PreemptByTier = true
		}, "+600@n1"},
		{"a suspended job keeps its memory", 1, []Job{
			{Running: true, Partition: "low", End: now + 6000, Uses: map[string]Resources{"n1": {CPUs: 4, MemMB: 6000}}},
			{Need: Resources{CPUs: 4, MemMB: 3000}, Limit: 600}, {Need: Resources{CPUs: 4, MemMB: 2000}, Limit: 600},
		}, func(w *World) {
			low(w)
			w.Scheduler.PreemptByTier, w.Partitions[1].Preemptible, w.Partitions[1].PreemptSuspended = true, true, true
		}, "+100@n1 now@n1"},
		{"preemption by QoS", 1, []Job{with(running("n1", 4, 600), func(j *Job) { j.QOS = "scavenge" }), with(waiting(1, 4, 10), func(j *Job) { j.QOS = "high" })}, func(w *World) {
			w.Scheduler.PreemptByQOS, w.Scheduler.PreemptQOS = true, map[string][]string{"high": {"scavenge"}}
		}, "now@n1"},
		{"several partitions: it starts in one", 1, []Job{with(waiting(1, 4, 10), func(j *Job) { j.ID = 7 }), on(with(waiting(1, 4, 10), func(j *Job) { j.ID = 7 }), "low")}, low, "now@n1 elsewhere"},
		{"a partition whose nodes cannot have it", 2, []Job{on(with(waiting(1, 4, 10), func(j *Job) { j.ID, j.Need.GPUs = 7, 2 }), "low"), with(waiting(1, 4, 10), func(j *Job) { j.ID, j.Need.GPUs = 7, 2 })}, func(w *World) {
			low(w)
			w.Nodes[0].Total.GPUs = 2
			w.Partitions[1].Nodes = []string{"n2"}
		}, "elsewhere now@n1"},
		{"features", 2, []Job{with(waiting(1, 1, 10), func(j *Job) { j.Features = "small&all" }), with(waiting(1, 1, 10), func(j *Job) { j.Features = "big&small|none" })}, gpu, "now@n2 never-fits"},
		{"types of GPUs", 2, []Job{{Uses: map[string]Resources{"n2": {GPUs: 2}}, Running: true, End: now + 600}, with(waiting(1, 1, 10), func(j *Job) { j.GPUType, j.Need.GPUs = "rtx", 1 })}, gpu, "+10@n2"},
		{"nodes that are excluded", 2, []Job{with(waiting(1, 1, 10), func(j *Job) { j.Excluded = []string{"n1"} })}, nil, "now@n2"},
		{"nodes that are named", 3, []Job{with(waiting(1, 1, 10), func(j *Job) { j.Required = []string{"n3"} }), with(waiting(2, 1, 10), func(j *Job) { j.Required = []string{"n2"} })}, nil, "now@n3 now@n2,n1"},
		{"whole nodes", 2, []Job{running("n1", 1, 30), with(waiting(1, 1, 10), func(j *Job) { j.Whole = true }), with(waiting(1, 1, 10), func(j *Job) { j.Whole = true })}, nil, "now@n2 +10@n2"},
		{"a node of a lower weight is taken first", 2, []Job{waiting(1, 1, 10)}, func(w *World) { w.Nodes[0].Weight = 5 }, "now@n2"},
		{"drained nodes", 2, []Job{waiting(1, 1, 10), waiting(2, 1, 10)}, func(w *World) { w.Nodes[0].Usable = false }, "now@n2 no-nodes"},
		{"more than any node has", 2, []Job{waiting(1, 5, 10)}, nil, "never-fits"},
		{"a reservation of others", 1, []Job{waiting(1, 1, 29), waiting(1, 1, 31)}, func(w *World) {
			w.Reservations = []Reservation{{Name: "maint", Start: now + 1800, End: now + 3600, Nodes: []string{"n1"}}}
		}, "now@n1 +60@n1"},
		{"its own reservation", 2, []Job{with(waiting(1, 1, 10), func(j *Job) { j.Reservation = "mine" }), with(waiting(1, 1, 90), func(j *Job) { j.Reservation = "mine" })}, func(w *World) {
			w.Reservations = []Reservation{{Name: "mine", Start: now, End: now + 3600, Nodes: []string{"n2"}}}
		}, "now@n2 no-nodes"},
		{"its own reservation that has not begun", 1, []Job{with(waiting(1, 1, 10), func(j *Job) { j.Reservation = "mine" }), waiting(1, 4, 10)}, func(w *World) {
			w.Reservations = []Reservation{{Name: "mine", Start: now + 1800, End: now + 3600, Nodes: []string{"n1"}}}
		}, "waits now@n1"},
		{"a limit of which only Slurm knows", 1, []Job{with(waiting(1, 1, 10), func(j *Job) { j.AtLimit = true }), waiting(1, 4, 10)}, nil, "limit now@n1"},
		{"licenses", 1, []Job{with(waiting(1, 1, 10), func(j *Job) { j.Licenses = map[string]int64{"matlab": 1} }), with(waiting(1, 1, 10), func(j *Job) { j.Licenses = map[string]int64{"matlab": 1} })},
			func(w *World) { w.Licenses = map[string]int64{"matlab": 1} }, "now@n1 license"},
		{"a job at a limit keeps nothing", 1, []Job{with(waiting(1, 4, 10), func(j *Job) { j.Limits = []Ask{{0, 4}} }), with(waiting(1, 4, 10), func(j *Job) { j.User = "bob" })},
			func(w *World) { w.Limits = []Limit{{Max: 6, Used: 3}} }, "limit now@n1"},
		{"a job over a limit never starts", 1, []Job{with(waiting(1, 4, 10), func(j *Job) { j.Limits = []Ask{{0, 7}} })}, func(w *World) { w.Limits = []Limit{{Max: 6}} }, "never-asks"},
		{"what starts counts", 2, []Job{with(waiting(1, 1, 10), func(j *Job) { j.Limits = []Ask{{0, 1}} }), with(waiting(1, 1, 10), func(j *Job) { j.Limits = []Ask{{0, 1}} })},
			func(w *World) { w.Limits = []Limit{{Max: 1}} }, "now@n1 limit"},
		{"held, waiting, down", 1, []Job{
			with(waiting(1, 1, 1), func(j *Job) { j.Held = true }), with(waiting(1, 1, 1), func(j *Job) { j.After = []uint64{9} }),
			with(waiting(1, 1, 1), func(j *Job) { j.Eligible = now + 60 }), on(waiting(1, 1, 1), "off"),
		}, func(w *World) { w.Partitions = append(w.Partitions, Partition{Name: "off"}) }, "held waits waits down"},
		{"an array", 1, []Job{with(waiting(1, 1, 10), func(j *Job) { j.Tasks = 6 }), waiting(1, 1, 10)}, nil, "now*4 +30@n1"},
		{"an array with a throttle", 1, []Job{with(waiting(1, 1, 10), func(j *Job) { j.Tasks, j.AtOnce = 6, 2 }), waiting(1, 1, 10)}, nil, "now*2 now@n1"},
		{"bf_max_job_array_resv", 1, []Job{running("n1", 4, 10), with(waiting(1, 4, 10), func(j *Job) { j.Tasks = 9 }), waiting(1, 4, 10)}, func(w *World) { w.Scheduler.ArrayTasks = 2 }, "+10@n1 +30@n1"},
		{"bf_max_job_test", 2, []Job{running("n1", 4, 10), waiting(2, 4, 10), waiting(2, 4, 10), waiting(1, 1, 5)}, func(w *World) { w.Scheduler.MaxTest = 2 }, "+10@n1,n2 +20@n1,n2 unreached"},
		{"bf_max_job_user", 2, []Job{running("n1", 4, 10), waiting(2, 4, 10), waiting(1, 1, 5), with(waiting(1, 1, 5), func(j *Job) { j.User = "bob" })}, func(w *World) { w.Scheduler.MaxUser = 1 }, "+10@n1,n2 unreached now@n2"},
		{"bf_max_job_part", 2, []Job{running("n1", 4, 10), waiting(2, 4, 10), waiting(1, 1, 5), on(waiting(1, 1, 5), "low")}, func(w *World) { low(w); w.Scheduler.MaxPartition = 1 }, "+10@n1,n2 unreached now@n2"},
		{"bf_max_job_assoc", 2, []Job{running("n1", 4, 10), waiting(2, 4, 10), waiting(1, 1, 5), with(waiting(1, 1, 5), func(j *Job) { j.Account = "lab" })}, func(w *World) { w.Scheduler.MaxAssoc = 1 }, "+10@n1,n2 unreached now@n2"},
		{"bf_min_prio_reserve", 2, []Job{running("n1", 4, 10), waiting(2, 4, 10), waiting(1, 1, 50)}, func(w *World) { w.Scheduler.MinPriority = 1001 }, "unplanned now@n2"},
		{"bf_job_part_count_reserve", 1, []Job{running("n1", 4, 10), waiting(1, 4, 10), waiting(1, 4, 10)}, func(w *World) { w.Scheduler.ReserveInPartition = 1 }, "+10@n1 unplanned"},
		{"bf_window", 1, []Job{running("n1", 4, 120), waiting(1, 4, 10)}, func(w *World) { w.Scheduler.Window = 3600 }, "beyond"},
		{"bf_max_job_start", 2, []Job{waiting(1, 4, 10), waiting(1, 4, 10)}, func(w *World) { w.Scheduler.MaxStart = 1 }, "now@n1 unreached"},
		{"what Slurm has planned is kept", 2, []Job{running("n1", 4, 10), running("n2", 4, 10), with(waiting(1, 4, 10), func(j *Job) { j.Start, j.Planned = now+600, []string{"n2"} }), waiting(1, 4, 10)}, nil, "+10@n2 +10@n1"},
		{"what Slurm has planned is for one partition; it plans the others as well", 2, []Job{
			running("n1", 4, 10), running("n2", 4, 10),
			with(waiting(1, 4, 10), func(j *Job) { j.ID, j.Start, j.Planned = 7, now+600, []string{"n1"} }),
			on(with(waiting(1, 4, 10), func(j *Job) { j.ID, j.Start, j.Planned = 7, now+600, []string{"n1"} }), "low"), on(waiting(2, 4, 10), "low"),
		}, low, "+10@n1 +10@n2 +20@n1,n2"},
		{"a limit on memory and CPUs of the partition", 1, []Job{waiting(1, 3, 10), waiting(1, 2, 10)}, func(w *World) { w.Partitions[0].MaxCPUs = 2 }, "never-fits now@n1"},
		{"a job without a time limit", 1, []Job{running("n1", 3, 60), {Need: Resources{CPUs: 1}, Limit: Forever}, waiting(1, 4, 10)}, nil, "now@n1 no-nodes"},
		{"a job that is late is still there", 1, []Job{running("n1", 4, -5), waiting(1, 4, 10)}, nil, "+1@n1"},
	} {
		w := world(c.nodes, c.jobs...)
		if c.change != nil {
			c.change(w)
		}
		if got := told(NewPlan(never, w, true)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestRanksLeaveOutWhatTakesNothing(t *testing.T) {
	blocked, array := waiting(1, 4, 10), waiting(1, 4, 10)
	blocked.Limits = []Ask{{0, 1}}
	array.Tasks, array.AtOnce = 20, 3
	w := world(1, running("n1", 4, 60), blocked, array, waiting(1, 4, 10))
	w.Limits = []Limit{{Max: 1, Used: 1}}
	p := NewPlan(never, w, true)
	if got := []int{p.Results[1].Rank, p.Results[2].Rank, p.Results[3].Rank}; !slices.Equal(got, []int{0, 1, 4}) {
		t.Error(got)
	}
}

func TestAgeOvertakes(t *testing.T) {
	old, young := waiting(1, 4, 10), waiting(1, 4, 10)
	old.Priority, old.AgePriority, old.Accrue = 1100, 1000, now-7200 // as old as counts
	young.Priority, young.AgePriority, young.Accrue = 600, 500, now-1800
	w := world(1, old, young)
	w.Scheduler.AgeWeight, w.Scheduler.MaxAge = 1000, 3600
	w.Jobs[1].Priority = 650
	for after, first := range map[int64]int{0: 0, 1800: 1} {
		rows := []int{0, 1}
		if NewPlan(never, w, false).order(rows, now+after); rows[0] != first {
			t.Errorf("after %d s: %v", after, rows)
		}
	}
}

func TestWhatWouldChange(t *testing.T) {
	w := world(1, running("n1", 3, 60), waiting(1, 4, 60), waiting(1, 1, 90))
	p := NewPlan(never, w, false)
	shorter := w.Jobs[2]
	shorter.Limit = 59 * 60
	if other := p.Instead(2, shorter); other.Results[2].Verdict != StartsNow || len(p.Delayed(other)) != 0 {
		t.Error(told(other))
	}
	one := filled(waiting(1, 1, 600), 9)
	one.Priority = 5000
	other, row := p.With(one)
	if other.Results[row].Verdict != StartsNow || !slices.Equal(p.Delayed(other), []int{1}) {
		t.Error(told(other), p.Delayed(other))
	}
}

// Room that is there is of no use to a job that something else keeps back: another type
// of GPU, a node that it excludes, a limit, a license.
func TestShorterLimit(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*World, *Job)
		ok     bool
	}{
		{"a plain job", func(*World, *Job) {}, true},
		{"a type of GPU that the node does not have", func(w *World, j *Job) {
			w.Nodes[0].GPUs, w.Nodes[0].Total.GPUs, w.Nodes[1].GPUs, w.Nodes[1].Total.GPUs = map[string]int64{"rtx": 1}, 1, map[string]int64{"a100": 1}, 1
			j.Need.GPUs, j.GPUType = 1, "a100"
		}, false},
		{"a node that it excludes", func(_ *World, j *Job) { j.Excluded = []string{"n1"} }, false},
		{"a node that it does not name", func(_ *World, j *Job) { j.Required = []string{"n2"} }, false},
		{"features", func(w *World, j *Job) { w.Nodes[1].Features, j.Features = []string{"new"}, "new" }, false},
		{"a limit", func(w *World, j *Job) { w.Limits, j.Limits = []Limit{{Max: 1, Used: 1}}, []Ask{{0, 1}} }, false},
		{"licenses", func(w *World, j *Job) { w.Licenses, j.Licenses = map[string]int64{"m": 0}, map[string]int64{"m": 1} }, false},
		{"a node for itself", func(_ *World, j *Job) { j.Whole = true }, false},
		{"the depth of the scheduler", func(w *World, _ *Job) { w.Scheduler.MaxTest = 1 }, false},
		{"nodes that nobody knows exactly", func(_ *World, j *Job) { j.Approximate = "components" }, false},
	} {
		// n1 has a CPU free until the first job that waits takes both nodes in half an hour.
		w := world(2, running("n1", 3, 30), running("n2", 4, 30), waiting(2, 4, 60), waiting(1, 1, 120))
		c.change(w, &w.Jobs[3])
		minutes, nodes, delays, ok := NewPlan(never, w, true).ShorterLimit(3, 60)
		if ok != c.ok || ok && (minutes != 28 || !slices.Equal(nodes, []string{"n1"}) || delays != nil) {
			t.Errorf("%s: %d minutes on %v, %v; want %v", c.name, minutes, nodes, ok, c.ok)
		}
	}
}

func TestCertainty(t *testing.T) {
	low := func(w *World) {
		w.Partitions = append(w.Partitions, w.Partitions[0])
		w.Partitions[0].Tier, w.Partitions[1].Name, w.Partitions[1].Tier, w.Partitions[1].Preemptible = 2, "low", 1, true
	}
	toldPlan := waiting(1, 4, 60)
	toldPlan.Start, toldPlan.Planned = now+1800, []string{"n2"}
	anywhere := toldPlan
	toldPlan.Required = []string{"n2"}
	later := waiting(1, 4, 60)
	later.Partition = "low"
	for _, c := range []struct {
		name   string
		jobs   []Job
		change func(*World)
		want   Certainty
		delays string
	}{
		{"nobody waits", nil, nil, Sure, ""},
		{"Slurm has told the plan of the job before", []Job{running("n2", 4, 30), toldPlan}, nil, Sure, ""},
		{"what Slurm has told is of before n1 became free", []Job{running("n2", 4, 30), anywhere}, nil, Likely, ""},
		{"it has not", []Job{running("n1", 1, 30), running("n2", 4, 30), waiting(1, 4, 60)}, nil, Likely, ""},
		{"the scheduler does not come so far", []Job{running("n2", 4, 30), toldPlan}, func(w *World) { w.Scheduler.MaxTest = 1 }, OutOfReach, ""},
		{"jobs of a later partition wait", []Job{running("n1", 1, 30), running("n2", 4, 30), later}, low, Sure, "3"},
		{"no backfill", []Job{running("n2", 4, 30), waiting(2, 4, 60)}, func(w *World) { w.Scheduler.Backfill = false }, OutOfReach, ""},
	} {
		w := world(2, c.jobs...)
		if c.change != nil {
			c.change(w)
		}
		p := NewPlan(never, w, true)
		got, why := p.Certainty("carol", &w.Partitions[0], []string{"n1"})
		if delays := strings.Join(p.InTheWay(&w.Partitions[0], []string{"n1"}, now, now+36000), ","); got != c.want || delays != c.delays || (why == "") != (got == Sure) {
			t.Errorf("%s: %v (%s), delays %q", c.name, got, why, delays)
		}
	}
}

func TestLastHasLimits(t *testing.T) {
	w := world(1)
	w.Limits = []Limit{{Whose: "QoS high", What: "GPUs", Resource: "gres/gpu", Max: 2, Used: 1}}
	for gpus, want := range map[float64]string{
		1: "", 2: "QoS high: 2 GPUs allowed in all, 1 in use, the job requests 2",
		3: "QoS high: 2 GPUs allowed in all, 1 in use, the job requests 3: it will never start like this",
	} {
		j := filled(waiting(1, 1, 10), 0)
		j.Limits = []Ask{{0, gpus}}
		if r, why := NewPlan(never, w, true).Last(j); why != want || (r.Verdict == StartsNow) != (want == "") {
			t.Errorf("%v GPUs: %v, %q", gpus, r.Verdict, why)
		}
	}
}

// Jobs of several partitions that preempt are asked about one after the other.
func TestLastPreempts(t *testing.T) {
	low := running("n1", 4, 600)
	low.Partition = "low"
	w := world(1, low)
	w.Scheduler.PreemptByTier = true
	for _, name := range []string{"low", "high"} {
		p := w.Partitions[0]
		p.Name, p.Preemptible = name, true
		w.Partitions = append(w.Partitions, p)
	}
	w.Partitions[0].Tier, w.Partitions[1].Tier, w.Partitions[2].Tier = 2, 1, 3
	plan := NewPlan(never, w, true)
	for range 2 {
		for partition, want := range map[string]Verdict{"cpu": StartsNow, "low": PlannedLate, "high": StartsNow} {
			j := filled(waiting(1, 4, 10), 1)
			j.Partition = partition
			if r, _ := plan.Last(j); r.Verdict != want {
				t.Errorf("%s: %v, want %v", partition, r.Verdict, want)
			}
		}
	}
}

// Jobs that ask for one type, each for another number.
func TestGPUCounts(t *testing.T) {
	many, one := waiting(1, 1, 10), waiting(1, 1, 10)
	many.GPUType, many.Need.GPUs, one.GPUType, one.Need.GPUs = "a100", 4, "a100", 1
	w := world(2, many, one)
	for i, n := range []int64{2, 4} {
		w.Nodes[i].GPUs, w.Nodes[i].Total.GPUs = map[string]int64{"a100": n}, float64(n)
	}
	if got := told(NewPlan(never, w, true)); got != "now@n2 now@n1" {
		t.Error(got)
	}
}

// large is a full cluster of nodes with jobs that wait, of a hundred kinds.
func large(nodes, jobs int) *World {
	w := world(nodes)
	for i := range nodes {
		r := running(w.Nodes[i].Name, float64(1+i%4), int64(1+i*7%2880))
		w.Jobs = append(w.Jobs, filled(r, i))
	}
	for i := range jobs {
		j := waiting(1+i%50/45*(i%16), float64(1+i%4), int64(10+i%25*60))
		j.Need.MemMB = float64(500 * (1 + i%3))
		w.Jobs = append(w.Jobs, filled(j, nodes+i))
	}
	return w
}

// A job that gives its nodes back ends soon, also where Slurm tells no end of it, as of one that is preempted and requeued.
func TestCompletingJobsEnd(t *testing.T) {
	w := NewWorld(Records{
		Now: time.Unix(now, 0), Config: slurm.Config{"SchedulerType": "sched/backfill", "SelectType": "select/cons_tres", "SelectTypeParameters": "CR_Core"},
		Partitions: []slurm.Partition{{Name: "a", State: "UP", MaxTime: slurm.Unlimited, Nodes: "n0"}},
		Nodes:      []slurm.Node{{Name: "n0", State: "MIXED+COMPLETING", Partitions: slurm.List("a"), CPUs: 4, CPUsTaken: 4}},
		Jobs: []slurm.Job{
			{ID: 1, ArrayID: 1, Label: "1", Partition: "a", State: "COMPLETING", NodeList: "n0", Start: now - 100, Limit: time.Hour, Nodes: 1, CPUs: 4, TRES: slurm.TRES{"cpu": 4}},
			{ID: 2, ArrayID: 2, Label: "2", Partition: "a", State: "PENDING", Priority: 5, Reason: "None", Limit: time.Hour, Nodes: 1, CPUs: 4, TRES: slurm.TRES{"cpu": 4}},
		},
	})
	p := NewPlan(never, w, true)
	if r := p.Results[1]; !r.Verdict.InLine() || r.Start == 0 || r.Start > now+120 {
		t.Errorf("verdict %d, start in %d s", r.Verdict, r.Start-now)
	}
}
