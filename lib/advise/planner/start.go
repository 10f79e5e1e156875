package planner

import (
	"context"
	"math"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
)

// Start is when a pending job starts, and what that rests on. Of the estimate, Replays is 0 where
// the budget ended before a replay did: then nothing but Limits is known, if that is not 0.
type Start struct {
	Estimate  forecast.Estimate // Median is calibrated; Low and High are as the replays had them
	Low, High float64           // calibrated, in seconds from now, for 9 of 10; +Inf: unknown, or beyond the horizon
	Limits    int64             // if all jobs ran to their time limits; 0: not known, or beyond the horizon
	Certain   int64             // not before that: its begin time, or its reservation's; 0: at any time
	Runs      int               // from how many runs of past jobs its run time is drawn
	Like      string            // of which jobs these are
	OutOfTime bool              // the budget ended before the answer was as good as it gets
	// Raw are seconds from now as the replays had them, before calibration.
	RawMedian, RawLow, RawHigh float64
}

// startHorizon is how far ahead starts are forecast.
const startHorizon = 30 * 24 * time.Hour

// StartOf forecasts when the job of some rows of a world starts, one row for each of its
// partitions. scored are past forecasts. The answer is as good as budget allows.
func (n *Planner) StartOf(
	ctx context.Context, w *forecast.World, rows []int, h *forecast.History, scored []forecast.Scored, budget time.Duration,
) (Start, error) {
	all, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	first, stop := context.WithTimeout(all, budget/3)
	defer stop()
	now := n.Now.Unix()
	s := Start{Certain: w.NotBefore(rows), Low: math.Inf(1), High: math.Inf(1)}
	s.Runs, s.Like = h.Known(&w.Jobs[rows[0]])
	for _, start := range forecast.Replay(over(first), w, rows, forecast.Course{
		Run: func(j *forecast.Job) int64 {
			if j.Running {
				return max(1, j.End-j.Start)
			}
			return max(1, j.Limit)
		}, Until: now + int64(startHorizon/time.Second), Turns: 100, Work: 4_000_000,
	}) {
		if start > 0 && (s.Limits == 0 || start < s.Limits) {
			s.Limits = start
		}
	}
	s.OutOfTime = first.Err() != nil
	if s.Runs == 0 { // nothing was learned
		at := s.Limits
		if at == 0 {
			at = forecast.Forever
		}
		if s.Estimate = (forecast.Estimate{Median: at, Low: at, High: at, Replays: 1}); s.OutOfTime {
			s.Estimate.Replays = 0
		}
		return s, ctx.Err()
	}
	s.Estimate = forecast.When(over(all), w, rows, h, ArrivalPriority(n.World), uint64(now))
	s.OutOfTime = all.Err() != nil
	if s.Estimate.Replays == 0 {
		return s, ctx.Err()
	}
	wait := func(t int64) float64 {
		if t == forecast.Forever {
			return math.Inf(1)
		}
		return float64(max(0, t-now))
	}
	s.RawMedian, s.RawLow, s.RawHigh = wait(s.Estimate.Median), wait(s.Estimate.Low), wait(s.Estimate.High)
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

// over reports whether a context has ended.
func over(ctx context.Context) func() bool { return func() bool { return ctx.Err() != nil } }
