package forecast

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

func past(user, name string, seconds, limit, end int64) Past {
	return Past{User: user, Account: "lab", Name: name, Partition: "cpu", Submit: end - seconds - 100, Start: end - seconds, End: end, Limit: limit, Nodes: 1, Need: Resources{CPUs: 4}}
}

func TestDraw(t *testing.T) {
	var runs []Past
	for i := range int64(50) {
		runs = append(runs, past("alice", "train-1", 600, 7200, now-i*60), past("alice", "test", 30, 7200, now-i*60), past("bob", "x", 1800, 3600, now-i*60))
	}
	for i := range int64(50) {
		runs = append(runs, past("carol", "y", 4, 60, now-i*60), past("dave", "other", 5, Forever, now-i*60))
	}
	h := NewHistory(runs)
	mean := func(j Job, elapsed int64) float64 {
		random := rand.New(rand.NewPCG(1, 2))
		sum := int64(0)
		for range 400 {
			d := h.Draw(&j, elapsed, random)
			if d <= elapsed || d > max(j.length(), elapsed+1) {
				t.Fatalf("%+v runs %d s, of which %d are gone", j, d, elapsed)
			}
			sum += d
		}
		return float64(sum) / 400
	}
	for _, c := range []struct {
		what      string
		job       Job
		elapsed   int64
		low, high float64
		kind      string
	}{
		{"its name, with another number", Job{User: "alice", Account: "lab", Name: "train-9", Limit: 7200}, 0, 590, 610, "of the same name"},
		{"its name", Job{User: "alice", Account: "lab", Name: "test", Limit: 7200}, 0, 30, 60, "of the same name"},
		{"a part of its limit", Job{User: "bob", Account: "lab", Name: "new", Limit: 36000}, 0, 17000, 18500, "of the user"},
		{"a job that runs", Job{User: "alice", Account: "lab", Name: "test", Limit: 7200}, 100, 300, 1200, "of the same name"},
		{"a job that has outlived all that is like it", Job{User: "bob", Account: "lab", Name: "x", Limit: 360000}, 340000, 341000, 360000, "of the same name"},
		{"a job that is a bit late", Job{User: "carol", Account: "new", Name: "y", Limit: 3600}, 6, 20, 200, "of the same name"},
		{"of runs without a limit, how long they took", Job{User: "dave", Account: "new2", Name: "z", Limit: 3600}, 0, 4, 60, "of the user"},
		{"an unknown user", Job{User: "eve", Account: "other", Name: "a", Limit: 1000}, 0, 100, 400, "of everyone"},
		{"no time limit", Job{User: "bob", Account: "lab", Name: "x", Limit: Forever}, 0, 1750, 1810, "of the same name"},
	} {
		if got := mean(c.job, c.elapsed); got < c.low || got > c.high {
			t.Errorf("%s: %v s in the mean, want %v to %v", c.what, got, c.low, c.high)
		}
		if _, kind := h.Known(&c.job); kind != c.kind {
			t.Errorf("%s: known %q, want %q", c.what, kind, c.kind)
		}
	}
	empty := NewHistory(nil)
	if d := empty.Draw(&Job{Limit: 500}, 0, rand.New(rand.NewPCG(1, 1))); d != 500 {
		t.Errorf("without a history, a job runs %d s", d)
	}
	if n, _ := empty.Known(&Job{}); n != 0 {
		t.Error(n)
	}
}

func TestWhen(t *testing.T) {
	var runs []Past
	for i := range int64(60) {
		runs = append(runs, past("alice", "short", 60+i, 3600, now-40*86400+i))
	}
	h := NewHistory(runs)
	r := running("n1", 4, 60)
	r.Start, r.Name, r.Account, r.Limit = now-10, "short", "lab", 3600
	first, second := waiting(1, 4, 60), waiting(1, 4, 60)
	first.Name, second.Name, first.Account, second.Account = "short", "short", "lab", "lab"
	w := world(1, r, first, second)
	e := When(never, w, []int{2}, h, func(*Past) float64 { return 1 }, 7)
	// Two jobs of 60 to 120 s come first, which may run for an hour.
	if e.Low < now+100 || e.Median < now+130 || e.Median > now+260 || e.High > now+600 || e.Started != e.Replays || e.Replays != maxReplays {
		t.Errorf("%+v, at %d", e, now)
	}
	if again := When(never, w, []int{2}, h, func(*Past) float64 { return 1 }, 7); again != e {
		t.Errorf("%+v and %+v of the same seed", e, again)
	}
	held := w.Jobs[2]
	held.Held = true
	w.Jobs[2] = held
	if e := When(never, w, []int{2}, h, func(*Past) float64 { return 1 }, 7); e.Median != Forever || e.Started != 0 {
		t.Errorf("held: %+v", e)
	}
}

// all are the jobs that arrive.
func all(a *arrivals) (jobs []Job) {
	for j, ok := a.job(0); ok; j, ok = a.job(len(jobs)) {
		jobs = append(jobs, j)
	}
	return jobs
}

// Jobs that come every day at this time come today, too.
func TestArrivals(t *testing.T) {
	var runs []Past
	for day := range int64(14) {
		p := past("bob", "daily", 3000, 3600, now-(day+1)*86400+60+3000)
		p.Submit = p.Start
		runs = append(runs, p)
	}
	h := NewHistory(runs)
	high := func(*Past) float64 { return 5000 }
	coming := h.arrivals(&World{Now: now}, now+3600, rand.New(rand.NewPCG(1, 1)), high)
	jobs := all(coming)
	if len(jobs) != 1 || jobs[0].Submit != now+60 || coming.seconds(&jobs[0]) != 3000 || jobs[0].Priority != 5000 {
		t.Fatalf("%+v %v", jobs, coming)
	}
	// The job that waits has no chance before: it would be in the way of the node.
	r := running("n1", 4, 2)
	w := world(1, r, waiting(1, 4, 60))
	e := When(never, w, []int{1}, h, func(*Past) float64 { return 5000 }, 1)
	if e.Median < now+3000 {
		t.Errorf("%+v at %d", e, now)
	}
}

// Where less than a day is known, what was submitted lately comes again, whether it has ended or not.
func TestArrivalsLikeTheLastHours(t *testing.T) {
	ended := past("bob", "short", 100, 3600, now-300)
	ended.Submit = now - 400
	h := NewHistory([]Past{ended})
	w := &World{Now: now, Jobs: []Job{
		{ID: 1, User: "ann", Submit: now - 30, Tasks: 2}, {ID: 1, User: "ann", Submit: now - 30, Tasks: 2}, // in two partitions
		{ID: 2, User: "new", Submit: now},
	}}
	for seed := range uint64(20) {
		coming := h.arrivals(w, now+86400, rand.New(rand.NewPCG(1, seed)), func(*Past) float64 { return 1 })
		jobs, of := all(coming), map[string]int{}
		for i, j := range jobs {
			if of[j.User]++; j.Submit < now || j.Submit > now+1200 || i > 0 && j.Submit < jobs[i-1].Submit || (j.User == "bob") != (coming.seconds(&j) == 100) {
				t.Errorf("seed %d: %+v, %d s", seed, j, coming.seconds(&j))
			}
		}
		if of["ann"] != 4 || of["bob"] > 2 || of["new"] > 0 {
			t.Errorf("seed %d: %v", seed, of)
		}
	}
}

// Forecasts whose error is not that of their replays: nine of ten ranges hold all the same,
// after the first 30, while the last ones are not known yet, and where the error changes.
func TestCalibrate(t *testing.T) {
	for what, bias := range map[string]func(i int) float64{
		"none": func(int) float64 { return 0 }, "all take three times as long": func(int) float64 { return 1.1 }, "all take a third": func(int) float64 { return -1.1 },
		"drift": func(i int) float64 { return float64(i) / 200 }, "bursts": func(i int) float64 { return float64(i / 60 % 2) },
	} {
		random := rand.New(rand.NewPCG(5, 6))
		var scored []Scored
		var starts, made []int64
		held, below, better := 0, 0, 0
		const count = 600
		for i := range count {
			now := int64(i) * 20
			raw := math.Exp(3 + 3*random.Float64()) // 20 s to 7 minutes
			s := Scored{RawMedian: raw, RawLow: raw * 0.8, RawHigh: raw * 1.25, Actual: raw * math.Exp(bias(i)+0.6*random.NormFloat64())}
			s.Median, s.Low, s.High = Calibrate(knownAt(scored, starts, made, now), raw, s.RawLow, s.RawHigh)
			if s.Low > s.Median || s.High < s.Median {
				t.Fatalf("%s: %+v", what, s)
			}
			if i >= 30 && s.Actual >= s.Low && s.Actual <= s.High {
				held++
			}
			if s.Actual < s.Median {
				below++
			}
			if math.Abs(math.Log(s.Actual/s.Median)) < math.Abs(math.Log(s.Actual/raw)) {
				better++
			}
			scored, starts, made = append(scored, s), append(starts, now+int64(s.Actual)), append(made, now)
		}
		if part := float64(held) / (count - 30); part < 0.85 || part > 0.95 {
			t.Errorf("%s: %.0f%% of the ranges hold", what, 100*part)
		}
		if part := float64(below) / count; (part < 0.35 || part > 0.65) && what != "drift" {
			t.Errorf("%s: %.0f%% start before the median", what, 100*part)
		}
		if strings.HasPrefix(what, "all") && better < count*3/4 {
			t.Errorf("%s: %d of %d are better than before", what, better, count)
		}
	}
	median, low, high := Calibrate(nil, 0, 0, 0)
	if low != 0 || median != 0 || high < 30 || high > 90 {
		t.Error(median, low, high)
	}
	// Before any is known, a range is that of the replays and some times wider, not its own power.
	if median, low, high = Calibrate(nil, 80, 0, 600); median != 80 || low != 0 || high < 1200 || high > 2400 {
		t.Error(median, low, high)
	}
	if _, _, high := Calibrate(nil, 1000, 900, math.Inf(1)); !math.IsInf(high, 1) {
		t.Error(high)
	}
	if median, _, _ := Calibrate(nil, math.Inf(1), 900, math.Inf(1)); !math.IsInf(median, 1) {
		t.Error(median)
	}
}

// Of what is open only a lower bound is known: it counts among those beyond it.
func TestQuantile(t *testing.T) {
	scores := []score{{1, false}, {2, true}, {3, false}, {4, false}, {0.5, true}}
	// 1 is one of four that are left, 3 one of two.
	for level, want := range map[float64]float64{0.2: 1, 0.25: 1, 0.5: 3, 0.9: 4} {
		if got := quantile(scores, level); got != want {
			t.Errorf("%v: %v, want %v", level, got, want)
		}
	}
}

func TestLag(t *testing.T) {
	var runs []Past
	at := int64(now)
	for range 20 { // one after the other, 7 s apart
		runs = append(runs, Past{User: "u", Partition: "cpu", Submit: now - 100, Start: at, End: at + 60, Limit: 600})
		at += 67
	}
	if h := NewHistory(runs); h.lag != 7 {
		t.Error(h.lag)
	}
	// One that was submitted after the other had ended did not wait for it.
	runs[1].Submit = runs[0].End + 1
	if h := NewHistory(runs[:2]); h.lag != 0 {
		t.Error(h.lag)
	}
	if h := NewHistory(runs[:1]); h.lag != 0 {
		t.Error(h.lag)
	}
}

func TestScore(t *testing.T) {
	s := Score([]Scored{
		{Median: 100, Low: 50, High: 200, Actual: 100}, {Median: 100, Low: 50, High: 200, Actual: 190}, {Median: 100, Low: 50, High: 200, Actual: 300},
		{Median: 0, Low: 0, High: 60, Actual: 20}, {Median: -1},
	}, func(s Scored) float64 { return s.Median })
	if s.Count != 4 || s.Median != 90 || s.WithinTwo != 0.75 || s.Coverage != 0.75 || s.P90 != 200 {
		t.Errorf("%+v", s)
	}
	if (Score(nil, nil) != Summary{}) {
		t.Error("nothing has a score")
	}
}

// On a trace in which jobs run a tenth of their limits, what was learned is far better than
// the limits.
func TestScoreTrace(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	var runs []Past
	free := [4]int64{}
	for i := range int64(1500) {
		submit := now + i*70
		seconds := 200 + random.Int64N(200)
		at := 0
		for k := range free {
			if free[k] < free[at] {
				at = k
			}
		}
		start := max(submit, free[at])
		free[at] = start + seconds
		runs = append(runs, Past{User: "alice", Account: "lab", Name: "job", Partition: "cpu", Submit: submit, Start: start, End: start + seconds, Limit: 3000, Nodes: 1, Need: Resources{CPUs: 1}})
	}
	partial := 0
	scored := ScoreTrace(never, runs, 60, func(s []Scored) {
		if partial++; partial != len(s) {
			t.Errorf("%d scores at the call %d", len(s), partial)
		}
	})
	if partial != len(scored) {
		t.Errorf("%d of %d scores were told", partial, len(scored))
	}
	if early := ScoreTrace(func() bool { return true }, runs, 60, func([]Scored) {}); len(early) != 0 {
		t.Errorf("%d scored though it was to stop", len(early))
	}
	learned, limits := Score(scored, func(s Scored) float64 { return s.Median }), Score(scored, func(s Scored) float64 { return s.Limits })
	if len(scored) != 60 || learned.Median > 150 || limits.Median < 5*learned.Median || learned.Coverage < 0.85 {
		t.Errorf("%d scored; learned %+v, limits %+v", len(scored), learned, limits)
	}
}

// Of a job of whose name none has ended, those that run tell how long it runs at least; of other names they tell nothing, and no job is
// drawn beyond its time limit.
func TestRunningJobsTellOfTheirName(t *testing.T) {
	var runs []Past
	for i := range int64(50) {
		runs = append(runs, Past{Name: "short", User: "u", Account: "a", Start: 1000 + 20*i, End: 1010 + 20*i, Limit: 3600})
	}
	h := NewHistory(runs)
	w := &World{Now: 10_000, Jobs: []Job{
		{Name: "fold-1", User: "u", Account: "a", Running: true, Start: 9500, Limit: 3600},
		{Name: "fold-2", User: "u", Account: "a", Limit: 3600},
		{Name: "fold-3", User: "u", Account: "a", Limit: 300},
		{Name: "other", User: "u", Account: "a", Limit: 3600},
	}}
	draw := h.drawn(w, rand.New(rand.NewPCG(1, 2)))
	for range 100 {
		if same, brief, other := draw(&w.Jobs[1]), draw(&w.Jobs[2]), draw(&w.Jobs[3]); same <= 500 || same > 3600 || brief > 300 || other != 10 {
			t.Fatalf("%d s of a name of which one has run 500 s, %d s with a limit of 300 s, %d s of another name", same, brief, other)
		}
	}
}
