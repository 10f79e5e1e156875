package forecast

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// ScoreTrace forecasts jobs of a trace at the times at which they were submitted, with what
// was known then, and compares the forecasts with what came. Up to probes jobs are forecast,
// evenly spread behind the first fifth of the trace, which is only learned from. The nodes
// that the cluster had are not known: each partition is taken for one pool that is as large
// as the most that was in use at a time, and jobs for starting in the order of their
// submission, with backfill. It ends early where over says so; each is called with the scores until then.
func ScoreTrace(over func() bool, runs []Past, probes int, each func([]Scored)) []Scored {
	runs = slices.Clone(runs)
	slices.SortStableFunc(runs, func(a, b Past) int { return int(max(-1, min(1, a.Submit-b.Submit))) })
	if len(runs) == 0 || probes <= 0 {
		return nil
	}
	pools := poolsOf(runs)
	ended := slices.Clone(runs)
	slices.SortStableFunc(ended, func(a, b Past) int { return int(max(-1, min(1, a.End-b.End))) })
	h := &History{kinds: map[string][]sample{}}
	first := len(runs) / 5
	every := max(1, (len(runs)-first)/probes)
	var scored []Scored
	var starts, made []int64
	var active []int // submitted, not known to have ended
	learned := 0
	for i := range runs {
		now := runs[i].Submit
		if active = append(active, i); i < first || (i-first)%every != 0 || len(scored) == probes {
			continue
		}
		for learned < len(ended) && ended[learned].End <= now {
			h.Add(ended[learned])
			learned++
		}
		active = slices.DeleteFunc(active, func(k int) bool { return runs[k].End <= now })
		known := knownAt(scored, starts, made, now)
		w, row := poolWorld(pools, runs, active, i, now)
		s := probe(over, w, row, h, runs[i].Start-now, uint64(len(scored)))
		if over() {
			return scored
		}
		s.Median, s.Low, s.High = Calibrate(known, s.RawMedian, s.RawLow, s.RawHigh)
		scored = append(scored, s)
		each(scored)
		starts, made = append(starts, runs[i].Start), append(made, now)
	}
	return scored
}

// knownAt is what was known at a time of the last forecasts: what came of those whose jobs
// had started, in that order, and how long the others had waited.
func knownAt(scored []Scored, starts, made []int64, now int64) []Scored {
	first := max(0, len(scored)-Remembered)
	var order, open []int
	for k := first; k < len(scored); k++ {
		if starts[k] <= now {
			order = append(order, k)
		} else {
			open = append(open, k)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(starts[a], starts[b]) })
	known := make([]Scored, 0, len(order)+len(open))
	for _, k := range order {
		known = append(known, scored[k])
	}
	for _, k := range open {
		s := scored[k]
		s.Open, s.Actual = true, float64(now-made[k])
		known = append(known, s)
	}
	return known
}

// Remembered is how many of the last forecasts correct the next one.
const Remembered = 200

// probe forecasts one row.
func probe(over func() bool, w *World, row int, h *History, actual int64, seed uint64) Scored {
	const replays, horizon, work = 15, 14 * 86400, 400_000
	wait := func(starts []int64) float64 {
		if starts == nil || starts[0] == 0 {
			return horizon
		}
		return float64(max(0, starts[0]-w.Now))
	}
	limits := Replay(over, w, []int{row}, Course{Until: w.Now + horizon, Turns: 50, Work: work, Run: func(j *Job) int64 {
		if j.Running {
			return max(1, j.End-j.Start)
		}
		return j.length()
	}})
	var waits []float64
	for n := range uint64(replays) {
		run := h.drawn(w, rand.New(rand.NewPCG(seed, n)))
		waits = append(waits, wait(Replay(over, w, []int{row}, Course{Until: w.Now + horizon, Turns: 50, Work: work, Run: run})))
	}
	slices.Sort(waits)
	return Scored{
		RawMedian: waits[replays/2], RawLow: waits[0], RawHigh: waits[replays-1],
		Actual: float64(max(0, actual)), Limits: wait(limits), Slurm: -1,
	}
}

// poolsOf is the most that was in use at a time, by partition.
func poolsOf(runs []Past) map[string]Resources {
	type change struct {
		at   int64
		p    *Past
		sign float64
	}
	var changes []change
	for i := range runs {
		p := &runs[i]
		changes = append(changes, change{p.Start, p, 1}, change{p.End, p, -1})
	}
	slices.SortStableFunc(changes, func(a, b change) int {
		switch {
		case a.at != b.at:
			return int(max(-1, min(1, a.at-b.at)))
		case a.sign != b.sign:
			return int(a.sign - b.sign)
		}
		return 0
	})
	now, most := map[string]Resources{}, map[string]Resources{}
	for _, c := range changes {
		r, m, use := now[c.p.Partition], most[c.p.Partition], pooled(c.p)
		r = Resources{r.CPUs + c.sign*use.CPUs, r.MemMB + c.sign*use.MemMB, r.GPUs + c.sign*use.GPUs}
		now[c.p.Partition] = r
		most[c.p.Partition] = Resources{max(m.CPUs, r.CPUs), max(m.MemMB, r.MemMB), max(m.GPUs, r.GPUs)}
	}
	return most
}

// pooled is what a job takes of a pool.
func pooled(p *Past) Resources {
	n := float64(max(1, p.Nodes))
	return Resources{n * p.Need.CPUs, n * p.Need.MemMB, n * p.Need.GPUs}
}

// poolWorld is the cluster as it was at a time; row is that of the job that was submitted
// then.
func poolWorld(pools map[string]Resources, runs []Past, active []int, probed int, now int64) (w *World, row int) {
	w = &World{Now: now, Scheduler: Scheduler{
		Backfill: true, Resolution: 60, Window: 7 * 86400, Interval: 30, MaxTest: 500, ArrayTasks: 20, QueueDepth: 100,
	}}
	for name, total := range pools {
		w.Partitions = append(w.Partitions, Partition{Name: name, Up: true, Tier: 1, Nodes: []string{name}})
		w.Nodes = append(w.Nodes, Node{Name: name, Total: total, Usable: true})
	}
	for _, k := range active {
		p := &runs[k]
		id := uint64(len(w.Jobs)) + 1
		j := Job{
			ID: id, ArrayID: id, Name: p.Name, User: p.User, Account: p.Account, QOS: p.QOS, Partition: p.Partition,
			Submit: p.Submit, Priority: 1,
			Limit: p.Limit, Nodes: 1, Need: pooled(p), Tasks: 1,
		}
		if p.Start <= now && k != probed {
			j.Running, j.Start, j.End, j.Uses = true, p.Start, after(p.Start, p.Limit), map[string]Resources{p.Partition: j.Need}
		}
		if k == probed {
			row = len(w.Jobs)
		}
		w.Jobs = append(w.Jobs, j)
	}
	return w, row
}
