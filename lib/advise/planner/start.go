package planner

import (
	"context"
	"math"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
)

// Basis is what the answer for a start rests on. The later ones take more time, and are better:
//
//	work -> limits -> replays      where run times are known from past jobs
//	work -> limits                 where they are not
type Basis string

// The bases of answers.
const (
	Nothing  Basis = ""
	ByWork   Basis = "work"    // what the jobs before it request, and how long such jobs run
	ByLimits Basis = "limits"  // a replay in which all jobs run to their time limits
	Replays  Basis = "replays" // replays with run times of past jobs
)

// Start is when a pending job starts, and what that rests on.
type Start struct {
	Basis     Basis
	Estimate  forecast.Estimate // Median is calibrated; Low and High are as the replays had them
	Low, High float64           // calibrated, in seconds from now, for 9 of 10; +Inf: unknown, or beyond the horizon
	Limits    int64             // if all jobs ran to their time limits; 0: not known, or beyond the horizon
	Before    int               // of an answer by work, the jobs that come first
	Certain   int64             // not before that: its begin time, or its reservation's; 0: at any time
	Runs      int               // from how many runs of past jobs its run time is drawn
	Like      string            // of which jobs these are
	OutOfTime bool              // the answer would be better with more time
	// Raw are seconds from now as the replays had them, before calibration.
	RawMedian, RawLow, RawHigh float64
}

// startHorizon is how far ahead starts are forecast.
const startHorizon = 30 * 24 * time.Hour

// StartOf forecasts when the job of some rows of a plan starts, one row for each of its
// partitions. scored are past forecasts. The answer is as good as there is time for, but one by work is always given.
func (n *Planner) StartOf(
	ctx context.Context, left time.Duration, p *forecast.Plan, rows []int, h *forecast.History, scored []forecast.Scored,
) (Start, error) {
	all, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	now := n.Now.Unix()
	s := Start{Certain: p.World.NotBefore(rows), Low: math.Inf(1), High: math.Inf(1)}
	s.Runs, s.Like = h.Known(&p.World.Jobs[rows[0]])
	s.Estimate = forecast.Estimate{Median: forecast.Forever, Low: forecast.Forever, High: forecast.Forever}
	for _, row := range rows {
		if start, before := p.Drained(row, h.Mean); start < s.Estimate.Median {
			s.Basis, s.Before, s.Estimate.Median = ByWork, before, start
		}
	}
	w, rows := p.Near(rows)
	if s.byLimits(all, left/3, w, rows, now); s.OutOfTime || s.Runs == 0 || ctx.Err() != nil {
		return s, ctx.Err()
	}
	e := forecast.When(over(all), w, rows, h, ArrivalPriority(n.World), uint64(now))
	if s.OutOfTime = all.Err() != nil; e.Replays == 0 {
		return s, ctx.Err()
	}
	s.Basis, s.Estimate = Replays, e
	wait := func(t int64) float64 {
		if t == forecast.Forever {
			return math.Inf(1)
		}
		return float64(max(0, t-now))
	}
	s.RawMedian, s.RawLow, s.RawHigh = wait(e.Median), wait(e.Low), wait(e.High)
	// Only what comes after the certain time is uncertain.
	sure := float64(max(0, s.Certain-now))
	beyond := func(wait float64) float64 { return max(0, wait-sure) }
	median, low, high := forecast.Calibrate(scored, beyond(s.RawMedian), beyond(s.RawLow), beyond(s.RawHigh))
	s.Low, s.High = low+sure, high+sure
	if !math.IsInf(median, 0) {
		s.Estimate.Median = now + int64(math.Round(median+sure))
	}
	return s, ctx.Err()
}

// byLimits lets all jobs run to their time limits, for a part of the time that there is: replays with learned run times say more.
func (s *Start) byLimits(ctx context.Context, part time.Duration, w *forecast.World, rows []int, now int64) {
	until, cancel := context.WithTimeout(ctx, part)
	defer cancel()
	first, done := limited(over(until), w, rows, now)
	if !done {
		s.OutOfTime = s.Runs == 0
		return
	}
	if first != forecast.Forever {
		s.Limits = first
	}
	if s.Runs == 0 || first < s.Estimate.Median { // limits are several times what jobs run
		s.Basis, s.Estimate = ByLimits, forecast.Estimate{Median: first, Low: first, High: first}
	}
}

// replayLimits is when each of some rows starts if all jobs run to their time limits; 0: not within the horizon.
func replayLimits(over func() bool, w *forecast.World, rows []int, now int64) []int64 {
	return forecast.Replay(over, w, rows, forecast.Course{
		Run: func(j *forecast.Job) int64 {
			if j.Running {
				return max(1, j.End-j.Start)
			}
			return max(1, j.Limit)
		}, Until: now + int64(startHorizon/time.Second), Turns: 100, Work: 4_000_000,
	})
}

// Throttled is when arrays start their next task whose own limit keeps them back, by row, in the same way; those of which there was
// no time to know it are missing.
func (n *Planner) Throttled(over func() bool) map[int]int64 {
	var rows []int
	for row := range n.Jobs {
		if n.Plan.Results[row].Verdict == forecast.ArrayThrottle {
			rows = append(rows, row)
		}
	}
	starts := map[int]int64{}
	if len(rows) > 0 {
		for k, start := range replayLimits(over, n.World, rows, n.Now.Unix()) {
			starts[rows[k]] = start
		}
	}
	return starts
}

// limited is when the first of some rows starts if all jobs run to their time limits; Forever: not within the horizon.
func limited(over func() bool, w *forecast.World, rows []int, now int64) (first int64, done bool) {
	starts := replayLimits(over, w, rows, now)
	first = forecast.Forever
	for _, start := range starts {
		if start > 0 {
			first = min(first, start)
		}
	}
	return first, starts != nil
}

// deep is how many jobs may come before one whose start is replayed beside the list of the queue.
const deep = 3000

// ByLimits is when the job of some rows starts if all jobs run to their time limits: replayed, or where too many come before it or over
// says that there is no time, by the work of these. It is 0 where that is not known, or not within 30 days.
func (n *Planner) ByLimits(over func() bool, rows []int) (start int64, basis Basis) {
	start = forecast.Forever
	behind := 0
	for _, row := range rows {
		rough, before := n.Plan.Drained(row, (&forecast.History{}).Mean)
		start, behind = min(start, rough), max(behind, before)
	}
	if basis = ByWork; behind <= deep {
		w, rows := n.Plan.Near(rows)
		if first, done := limited(over, w, rows, n.Now.Unix()); done {
			start, basis = first, ByLimits
		}
	}
	if start == forecast.Forever {
		return 0, Nothing
	}
	return start, basis
}

// over reports whether a context has ended.
func over(ctx context.Context) func() bool { return func() bool { return ctx.Err() != nil } }
