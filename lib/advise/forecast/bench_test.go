package forecast

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// BenchmarkLarge measures a plan of a full cluster of 5,000 nodes with 10,000 jobs that wait,
// and beside it a forecast of one of them, which is many replays, bounded by work.
func BenchmarkLarge(b *testing.B) {
	w := large(5000, 10_000)
	for i := range w.Jobs {
		j := &w.Jobs[i]
		j.User, j.Account, j.Name = fmt.Sprintf("user%03d", i%300), "lab", fmt.Sprintf("train-%d", i)
	}
	tree := []slurm.Share{{Account: "root", RawUsage: 1e9}, {Depth: 1, Account: "lab", RawShares: 1, NormUsage: 1, RawUsage: 1e9}}
	for i := range 3000 {
		tree = append(tree, slurm.Share{Depth: 2, Account: "lab", User: fmt.Sprintf("user%03d", i), RawShares: 1, NormUsage: float64(i%300) / 44850 / 10, RawUsage: 1})
	}
	w.Fair = NewFair(slurm.Config{"PriorityType": "priority/multifactor", "PriorityWeightFairShare": "100000", "PriorityDecayHalfLife": "7-00:00:00"}, tree)
	var runs []Past
	for i := range int64(40_000) {
		runs = append(runs, past(fmt.Sprintf("user%03d", i%300), fmt.Sprintf("train-%d", i), 60+i*97%5000, 36_000, now-i*40))
	}
	h := NewHistory(runs)
	var plans, whens time.Duration
	for b.Loop() {
		at := time.Now()
		NewPlan(never, w, true)
		plans += time.Since(at)
		at = time.Now()
		When(never, w, []int{len(w.Jobs) - 5000}, h, func(*Past) float64 { return 1 }, 1)
		whens += time.Since(at)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	b.ReportMetric(plans.Seconds()/float64(b.N), "s-plan")
	b.ReportMetric(whens.Seconds()/float64(b.N), "s-when")
	b.ReportMetric(whens.Seconds()/plans.Seconds(), "when-per-plan")
	b.ReportMetric(float64(m.Sys)/(1<<20), "MiB")
}

// BenchmarkTrace scores forecasts on a trace of 100,000 jobs, beside the same work on a
// fifth of them.
func BenchmarkTrace(b *testing.B) {
	trace := func(n int64) []Past {
		runs := make([]Past, 0, n)
		for i := range n {
			p := past(fmt.Sprintf("user%03d", i%300), fmt.Sprintf("train-%d", i%5000), 60+i*97%2000, 36_000, now+i*60)
			p.Submit = p.Start - i*131%4000
			runs = append(runs, p)
		}
		return runs
	}
	all, part := trace(100_000), trace(20_000)
	var large, small time.Duration
	for b.Loop() {
		at := time.Now()
		ScoreTrace(never, all, 300, func([]Scored) {})
		large += time.Since(at)
		at = time.Now()
		ScoreTrace(never, part, 300, func([]Scored) {})
		small += time.Since(at)
	}
	b.ReportMetric(large.Seconds()/float64(b.N), "s-100000")
	b.ReportMetric(large.Seconds()/small.Seconds(), "times-20000")
}
