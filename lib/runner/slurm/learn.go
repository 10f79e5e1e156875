package slurm

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/config"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/unit"
	"github.com/ponos-tools/ponos/lib/usage"
)

// past is what jobs of tasks have needed, by their names without numbers. It is asked for
// once in an hour, however many tasks there are.
type past struct {
	asked time.Time
	runs  map[string][]usage.Run
}

// learnFrom is how far back runs teach, pastServes for how long they do without a new look,
// and learnWait how long a task waits for that look.
const (
	learnFrom  = 30 * 24 * time.Hour
	pastServes = time.Hour
	learnWait  = time.Minute
)

// learned is what the next job of a task should ask for by the ends of those before it.
// It is a help: where accounting does not answer, nothing is learned.
func (o *options) learned(ctx context.Context, label string) usage.Learned {
	if o.config.Learn == "" || label == "" {
		return usage.Learned{}
	}
	risk, err := unit.Risk(o.config.Learn)
	if err != nil {
		return usage.Learned{}
	}
	if o.past.asked.IsZero() || o.now().Sub(o.past.asked).Abs() >= pastServes {
		ctx, stop := context.WithTimeout(ctx, learnWait)
		defer stop()
		runs := map[string][]usage.Run{}
		until := o.now()
		err := o.client.EachConsumed(ctx, nil, slurm.Period{Since: until.Add(-learnFrom), Until: until, Users: []string{strconv.Itoa(o.uid)}}, func(c *slurm.Consumed) error {
			if strings.HasPrefix(c.Name, namePrefix) {
				run := usage.Of(c)
				runs[usage.ByName(&run)] = append(runs[usage.ByName(&run)], run)
			}
			return nil
		})
		if o.past.asked = o.now(); err == nil {
			o.past.runs = runs
		}
	}
	l := usage.Learn(o.past.runs[usage.ByName(&usage.Run{Name: jobName(label)})], risk)
	if most := time.Duration(o.config.Limits.Time); most > 0 {
		l.Time = min(l.Time, most)
	}
	return usage.Learned{Time: l.Time, MemMB: l.MemMB}
}

// withLearned puts what was learned in the place of what is configured for all tasks, where
// it is not more than that.
func withLearned(all config.Options, l usage.Learned) config.Options {
	if text, given := all.Get("time"); l.Time > 0 {
		if d, err := slurm.ParseDuration(text); !given || err == nil && (d == 0 || l.Time < d) {
			all = replace(all, config.Options{{Key: "time", Name: "time", Value: slurm.FormatDuration(l.Time)}})
		}
	}
	if text, given := all.Get("mem"); l.MemMB > 0 {
		if mb, err := slurm.ParseMemory(text); !given || err == nil && (mb == 0 || float64(l.MemMB) < mb) {
			all = replace(all, config.Options{{Key: "mem", Name: "mem", Value: slurm.FormatMemory(l.MemMB << 20)}})
		}
	}
	return all
}
