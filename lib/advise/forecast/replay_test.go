package forecast

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// limits is a course in which jobs run for their time limits.
func asLimited(j *Job) int64 { return j.length() }

func minutes(starts []int64) []int64 {
	for i := range starts {
		if starts[i] > 0 {
			starts[i] = (starts[i] - now + 30) / 60
		} else {
			starts[i] = -1
		}
	}
	return starts
}

// in lets some jobs arrive.
func in(jobs []Job) func(int) (Job, bool) {
	return func(n int) (Job, bool) {
		if n >= len(jobs) {
			return Job{}, false
		}
		return jobs[n], true
	}
}

// never lets a replay come to its end.
func never() bool { return false }

func TestReplay(t *testing.T) {
	half := func(j *Job) int64 {
		if j.Running {
			return now - j.Start + (j.End-now)/2
		}
		return j.length() / 2
	}
	with := func(j Job, change func(*Job)) Job { change(&j); return j }
	for _, c := range []struct {
		name   string
		jobs   []Job
		change func(*World)
		run    func(*Job) int64
		add    []Job
		want   []int64 // minutes until each job that waits starts
	}{
		{"one after the other", []Job{running("n1", 4, 30), waiting(1, 4, 20), waiting(1, 4, 20)}, nil, asLimited, nil, []int64{30, 50}},
		{"jobs end before their limits", []Job{running("n1", 4, 30), waiting(1, 4, 20), waiting(1, 4, 20)}, nil, half, nil, []int64{15, 25}},
		{"backfill goes by the limit", []Job{running("n1", 3, 30), waiting(1, 4, 20), waiting(1, 1, 29), waiting(1, 1, 31)}, nil, half, nil, []int64{15, 0, 25}},
		{"a dependency", []Job{running("n1", 3, 30), with(waiting(1, 1, 20), func(j *Job) { j.After = []uint64{1} }), with(waiting(1, 1, 20), func(j *Job) { j.After = []uint64{2} })}, nil, asLimited, nil, []int64{30, 50}},
		{"a dependency on what is gone", []Job{with(waiting(1, 1, 20), func(j *Job) { j.After = []uint64{99} })}, nil, asLimited, nil, []int64{0}},
		{"a begin time", []Job{with(waiting(1, 1, 20), func(j *Job) { j.Eligible = now + 600 })}, nil, asLimited, nil, []int64{10}},
		{"a limit", []Job{with(running("n1", 1, 30), func(j *Job) { j.Limits = []Ask{{0, 1}} }), with(waiting(1, 1, 20), func(j *Job) { j.Limits = []Ask{{0, 1}} })},
			func(w *World) { w.Limits = []Limit{{Max: 1, Used: 1}} }, asLimited, nil, []int64{30}},
		{"an array that lets one task run", []Job{with(waiting(1, 1, 20), func(j *Job) { j.Tasks, j.AtOnce = 3, 1 }), with(waiting(1, 4, 20), func(j *Job) { j.After = []uint64{1} })}, nil, asLimited, nil, []int64{0, 60}},
		{"an array of which as many tasks run as it lets", []Job{with(running("n1", 1, 30), func(j *Job) { j.ArrayID = 5 }), with(waiting(1, 1, 20), func(j *Job) { j.ArrayID, j.Tasks, j.AtOnce = 5, 3, 1 })},
			nil, asLimited, nil, []int64{30}},
		{"a heterogeneous job starts when all its components can", []Job{running("n1", 3, 30), with(waiting(1, 1, 20), func(j *Job) { j.Het = 2 }), with(waiting(1, 2, 20), func(j *Job) { j.Het = 2 }), waiting(1, 1, 20)},
			nil, asLimited, nil, []int64{30, 30, 0}},
		{"a component that is held keeps the others", []Job{with(waiting(1, 1, 20), func(j *Job) { j.Het = 1 }), with(waiting(1, 1, 20), func(j *Job) { j.Het, j.Held = 1, true })},
			nil, asLimited, nil, []int64{-1, -1}},
		{"a job of a higher priority arrives", []Job{running("n1", 4, 30), waiting(1, 4, 20)}, nil, asLimited,
			[]Job{with(filled(waiting(1, 4, 60), 9), func(j *Job) { j.Submit, j.Priority, j.ID = now+60, 5000, 77 })}, []int64{90}},
		{"several partitions", []Job{running("n1", 4, 30), with(waiting(1, 4, 20), func(j *Job) { j.ID = 9 }), with(waiting(1, 4, 20), func(j *Job) { j.ID, j.Partition = 9, "b" })},
			func(w *World) {
				w.Partitions = append(w.Partitions, Partition{Name: "b", Up: true, Nodes: []string{"n1"}})
			}, asLimited, nil, []int64{30, 30}},
		{"held", []Job{with(waiting(1, 4, 20), func(j *Job) { j.Held = true })}, nil, asLimited, nil, []int64{-1}},
		{"a reservation", []Job{waiting(1, 4, 30)}, func(w *World) {
			w.Reservations = []Reservation{{Name: "m", Start: now + 600, End: now + 3000, Nodes: []string{"n1"}}}
		}, asLimited, nil, []int64{50}},
		{"a license", []Job{with(running("n1", 1, 30), func(j *Job) { j.Licenses = map[string]int64{"m": 1} }), with(waiting(1, 1, 5), func(j *Job) { j.Licenses = map[string]int64{"m": 1} })},
			func(w *World) { w.Licenses = map[string]int64{"m": 0} }, asLimited, nil, []int64{30}},
	} {
		w := world(1, c.jobs...)
		if c.change != nil {
			c.change(w)
		}
		var rows []int
		for i := range w.Jobs {
			if !w.Jobs[i].Running {
				rows = append(rows, i)
			}
		}
		before := fmt.Sprint(w)
		if got := minutes(Replay(never, w, rows, Course{Run: c.run, Arrival: in(c.add), Until: now + 86400})); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if fmt.Sprint(w) != before {
			t.Errorf("%s: the replay has changed the world", c.name)
		}
	}
}

// A replay that looks only at nodes on which something has ended starts each job when one does that looks at all of them.
func TestReplayLooksWhereItMust(t *testing.T) {
	worlds := []*World{large(40, 400)}
	for seed := range uint64(300) {
		worlds = append(worlds, NewWorld(oddRecords(rand.New(rand.NewPCG(seed, 40)))))
	}
	started := 0
	for i, w := range worlds {
		var rows []int
		for row := range w.Jobs {
			if !w.Jobs[row].Running {
				rows = append(rows, row)
			}
		}
		course := Course{Run: func(j *Job) int64 { return 1 + j.length()%5000/2 }, Until: now + 7*86400, Turns: 3}
		short, long := newReplay(never, w, rows, course), newReplay(never, w, rows, course)
		for short.left > 0 && short.step() {
		}
		for long.left > 0 && long.step() {
			long.stuck = nil
		}
		if !slices.Equal(short.starts, long.starts) {
			t.Errorf("world %d: %v, want %v", i, short.starts, long.starts)
		}
		for _, s := range short.starts {
			if s > now {
				started++
			}
		}
	}
	if started < 300 {
		t.Errorf("only %d jobs started later", started)
	}
}

func BenchmarkReplay(b *testing.B) {
	w := large(5000, 10000)
	rows := []int{len(w.Jobs) - 1}
	for b.Loop() {
		_, visits := replayed(never, w, rows, Course{Run: func(j *Job) int64 { return j.length() / 10 }, Until: now + 7*86400, Turns: 50, Work: 8_000_000})
		b.ReportMetric(float64(visits), "visits")
	}
}
