package forecast

import (
	"slices"
	"testing"
)

// The rough answer lies near that of a replay, in a queue in which many jobs come first, and says how many these are.
func TestDrained(t *testing.T) {
	w := large(50, 3000)
	w.Scheduler.MaxTest, w.Scheduler.QueueDepth = 50, 50 // else a small job may start in front of any number of others
	run := func(j *Job) int64 { return max(60, j.length()/4) }
	p := NewPlan(never, w, false)
	for _, place := range []int{600, 1500, 2900} {
		row := p.Order[place]
		got, before := p.Drained(row, run)
		want := Replay(never, w, []int{row}, Course{Run: run, Until: now + 365*86400, Turns: 1000})[0]
		if wait := float64(want - now); float64(got-now) < wait/1.5 || float64(got-now) > 1.5*wait || before != place {
			t.Errorf("place %d: in %d s behind %d jobs; a replay says %d s", place, got-now, before, want-now)
		}
	}

	// The jobs far behind do not matter, but those that others wait for.
	w.Jobs[p.Order[2999]].ID, w.Jobs[p.Order[2999]].ArrayID = 99_999, 99_999
	w.Jobs[p.Order[20]].After = []uint64{99_999}
	row := p.Order[10]
	near, at := p.Near([]int{row})
	all, short := Replay(never, w, []int{row}, Course{Run: run}), Replay(never, near, at, Course{Run: run})
	if len(near.Jobs) != 50+2010+1 || near.Jobs[at[0]].ID != w.Jobs[row].ID || !slices.ContainsFunc(near.Jobs, func(j Job) bool { return j.ID == 99_999 }) || short[0] != all[0] {
		t.Errorf("%d jobs, %v; want %v", len(near.Jobs), short, all)
	}

	gpu := waiting(1, 1, 10)
	gpu.Need.GPUs = 1
	nowhere, late, endless, held := waiting(1, 1, 10), waiting(1, 1, 10), waiting(1, 1, 10), waiting(1, 4, 600)
	nowhere.Partition, late.Eligible, endless.Limit, held.Held = "none", now+7200, Forever, true
	held.Priority = 5000
	w = world(1, running("n1", 4, 30), gpu, held, nowhere, late, endless, waiting(1, 1, 10))
	p = NewPlan(never, w, false)
	for row, want := range map[int]int64{1: now + 1800, 3: Forever, 4: now + 7200, 6: Forever} {
		if got, _ := p.Drained(row, asLimited); got != want {
			t.Errorf("row %d: in %d s, want %d", row, got-now, want-now)
		}
	}
}

// A plan that ends before it is done has planned the first jobs, and says why it knows nothing of the others.
func TestShortPlan(t *testing.T) {
	w, turns := large(5, 100), 0
	p := NewPlan(func() bool { turns++; return turns > 10 }, w, false)
	if first, last := p.Order[0], p.Order[99]; !p.Short || p.Results[first].Verdict == NotReached || p.Results[last].Verdict != NotReached ||
		p.Explain(last) != "so many jobs come before it that the plan was not finished in time" {
		t.Errorf("%+v: %q", p.Results[last], p.Explain(last))
	}
}
