package planner

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/advise/usage"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// Advice is what to request next time.
type Advice struct {
	Options sbatch.Options // nil: Slurm would not plan a job with them
	Before  int64          // when a job like the last run would start by time limits; 0: not planned
	After   int64          // the same with the options
}

// Advise plans a job like the last run of a group, as it was and with the options that were
// learned from the group.
func (n *Planner) Advise(ctx context.Context, a *Asker, g *usage.Group, l *usage.Learned, options sbatch.Options) (Advice, error) {
	last := &g.Runs[len(g.Runs)-1]
	given := sbatch.Options{
		{Name: "partition", Value: last.Partition}, {Name: "account", Value: last.Account}, {Name: "qos", Value: last.QOS},
		{Name: "nodes", Value: strconv.FormatInt(last.Nodes, 10)}, {Name: sbatch.JobName, Value: last.Name},
	}
	if last.Limit > 0 {
		given.Set("time", slurm.FormatDuration(last.Limit))
	}
	partition, _, _ := strings.Cut(last.Partition, ",")
	at := slices.IndexFunc(n.Partitions, func(p slurm.Partition) bool { return p.Name == partition })
	if at < 0 {
		return Advice{}, nil
	}
	was, err := n.JobFor(ctx, a, last.User, given, &n.Partitions[at], last.QOS)
	if err != nil {
		return Advice{}, err
	}
	nodes := float64(last.Nodes)
	was.Need = forecast.Resources{CPUs: last.CPUs / nodes, GPUs: last.GPUs / nodes, MemMB: last.MemMB}
	if !n.MemoryCounts() {
		was.Need.MemMB = 0
	}
	less := was
	if l.Time > 0 && options.Has("time") {
		less.Limit = int64(l.Time / time.Second)
	}
	if n.MemoryCounts() && options.Has("mem") {
		less.Need.MemMB = float64(l.MemMB)
	}
	if options.Has(sbatch.CPUsPerTask) {
		less.Need.CPUs = float64(l.CPUs)
	}
	out := Advice{}
	out.Before, _ = n.startOf(was)
	var ok bool
	if out.After, ok = n.startOf(less); ok {
		out.Options = options
	}
	return out, nil
}

// startOf is when a job would start by time limits; 0: that is not known. ok is whether it
// may start at all.
func (n *Planner) startOf(j forecast.Job) (start int64, ok bool) {
	j.ID, j.ArrayID = 1<<61, 1<<61
	plan, row := n.Plan.With(n.World.Bound(j))
	switch r := &plan.Results[row]; r.Verdict {
	case forecast.StartsNow, forecast.PlannedLate, forecast.Unplanned, forecast.Beyond:
		return r.Start, true
	case forecast.NeverAsks, forecast.NeverFits:
		return 0, false
	default:
		return 0, true
	}
}
