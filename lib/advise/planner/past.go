package planner

import (
	"context"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// learnFrom is the age of the oldest jobs from which run times are learned.
const learnFrom = 30 * 24 * time.Hour

// Ended returns the jobs from which run times are learned. If there are none, why is the
// reason.
func (a *Asker) Ended(ctx context.Context) (runs []forecast.Past, why string, err error) {
	now := a.Now()
	err = a.Client.EachEnded(ctx, slurm.Period{Since: now.Add(-learnFrom), Until: now}, func(r *slurm.Record) error {
		if p, ok := PastOf(r); ok {
			runs = append(runs, p)
		}
		return nil
	})
	if absent(err) {
		return nil, "the cluster has no accounting", nil
	}
	return runs, "", err
}

// PastOf is a run as a forecast learns from it.
func PastOf(r *slurm.Record) (forecast.Past, bool) {
	if r.Start == 0 || r.End < r.Start {
		return forecast.Past{}, false
	}
	n := float64(max(1, r.Nodes))
	p := forecast.Past{
		Name: r.Name, User: r.User, Account: r.Account, Partition: r.Partition, QOS: r.QOS,
		Submit: r.Submit, Start: r.Start, End: r.End, Limit: forecast.Forever, Nodes: int(n),
		Need: forecast.Resources{CPUs: r.TRES["cpu"] / n, MemMB: r.TRES["mem"] / n, GPUs: r.TRES.GPUs() / n},
	}
	if r.Limit > 0 && r.Limit != slurm.Unlimited {
		p.Limit = int64(r.Limit / time.Second)
	}
	return p, true
}

// ArrivalPriority is the priority of jobs that arrive: that of the jobs of the same user
// that wait, without what their age adds; or that of any.
func ArrivalPriority(w *forecast.World) func(*forecast.Past) float64 {
	byUser := map[string]float64{}
	var all []float64
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if j.Running || j.Held || j.Priority == 0 {
			continue
		}
		byUser[j.User] = j.Priority - j.AgePriority
		all = append(all, j.Priority-j.AgePriority)
	}
	slices.Sort(all)
	middle := 1.0
	if len(all) > 0 {
		middle = all[len(all)/2]
	}
	return func(p *forecast.Past) float64 {
		if f, ok := byUser[p.User]; ok {
			return f
		}
		return middle
	}
}
