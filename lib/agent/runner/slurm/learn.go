package slurm

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/usage"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// past is what earlier jobs and packed tasks have used, by the names of the jobs without numbers. It is
// queried once an hour, however many tasks there are.
type past struct {
	asked  time.Time
	jobs   map[string][]usage.Run
	packed map[string][]usage.Run
}

// learnFrom is how old runs may be to count, and pastServes how long a query is reused.
const (
	learnFrom  = 30 * 24 * time.Hour
	pastServes = time.Hour
)

// learned returns what the next job of a task should request, given the ends of those before it. It
// is optional: if accounting does not answer, nothing is learned.
func (o *options) learned(ctx context.Context, label string) usage.Learned {
	if o.config.Learn == "" || label == "" {
		return usage.Learned{}
	}
	risk, err := unit.Risk(o.config.Learn)
	if err != nil {
		return usage.Learned{}
	}
	if o.past.asked.IsZero() || o.now().Sub(o.past.asked).Abs() >= pastServes {
		runs := map[string][]usage.Run{}
		until := o.now()
		period := slurm.Period{Since: until.Add(-learnFrom), Until: until, Users: []string{strconv.Itoa(o.uid)}}
		err := o.client.EachConsumed(ctx, nil, period, func(c *slurm.Consumed) error {
			if strings.HasPrefix(c.Name, namePrefix) {
				run := usage.Of(c)
				runs[usage.ByName(&run)] = append(runs[usage.ByName(&run)], run)
			}
			return nil
		})
		if o.past.asked = o.now(); err == nil {
			o.past.jobs = runs
		}
		o.past.packed = o.packedRuns(until.Add(-learnFrom))
	}
	key := usage.ByName(&usage.Run{Name: jobName(label)})
	l := usage.Learn(slices.Concat(o.past.jobs[key], o.past.packed[key]), risk)
	if most := time.Duration(o.config.Limits.Time); most > 0 {
		l.Time = min(l.Time, most)
	}
	return usage.Learned{Time: l.Time, MemMB: l.MemMB}
}

// packedRuns returns what packed tasks have used since a time, as far as that can be read.
func (o *options) packedRuns(since time.Time) map[string][]usage.Run {
	if o.packed == nil {
		return nil
	}
	runs := map[string][]usage.Run{}
	packed, _ := o.packed(since)
	for i := range packed {
		name := usage.ByName(&packed[i])
		runs[name] = append(runs[name], packed[i])
	}
	return runs
}

// withLearned replaces options that are configured for all tasks by what was learned, unless that is
// more.
func withLearned(all sbatch.Options, l usage.Learned) sbatch.Options {
	if text, given := all.Get("time"); l.Time > 0 {
		if d, err := slurm.ParseDuration(text); !given || err == nil && (d == 0 || l.Time < d) {
			all = all.With(sbatch.Option{Name: "time", Value: slurm.FormatDuration(l.Time)})
		}
	}
	if a, err := all.Amount(); err == nil && l.MemMB > 0 {
		if mb := a.Node().MemMB; mb == 0 || l.MemMB < mb {
			all = all.With(sbatch.Option{Name: "mem", Value: slurm.FormatMemory(l.MemMB << 20)})
		}
	}
	return all
}
