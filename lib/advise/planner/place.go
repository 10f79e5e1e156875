package planner

import (
	"context"

	"github.com/ponos-tools/ponos/lib/advise/diagnosis"
	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// Place is the plan for a job in a partition and QoS.
type Place struct {
	Start    int64  // as it is planned with time limits, after the jobs that come first; 0: not planned
	Expected int64  // as jobs really run; 0: nothing was learned, or it starts now
	Nodes    string // where it is planned, as a hostlist
	Never    string // why it can never start there, or not while the partition is as it is
	Down     bool   // the partition starts no jobs
	Note     string // why it is not planned
}

// Soonest is the best that is known of its start; forecast.Forever if nothing is.
func (p *Place) Soonest() int64 {
	switch {
	case p.Expected > 0:
		return p.Expected
	case p.Start > 0:
		return p.Start
	}
	return forecast.Forever
}

// Place plans a job that options of sbatch request in a partition and QoS: with time
// limits, and as jobs really run, where the history knows that.
func (n *Planner) Place(
	ctx context.Context, a *Asker, user string, options sbatch.Options, p *slurm.Partition, qos string, h *forecast.History,
) (Place, error) {
	job, err := n.JobFor(ctx, a, user, options, p, qos)
	if err != nil {
		return Place{}, err
	}
	job.ID, job.ArrayID = 1<<61, 1<<61
	plan, row := n.Plan.With(job)
	result := &plan.Results[row]
	place := Place{Down: result.Verdict == forecast.PartitionDown}
	switch d := n.Judge(plan, []int{row}); {
	case place.Down:
		place.Never = "it starts no jobs now"
		return place, nil
	case d.Kind == diagnosis.Never:
		place.Never = d.Text
		return place, nil
	case d.Kind == diagnosis.Now || result.Start > 0 && result.Verdict.InLine():
		place.Start, place.Nodes = result.Start, hostlist.Compress(result.Nodes)
	default:
		place.Note = d.Text
	}
	if known, _ := h.Known(&job); known == 0 || result.Verdict == forecast.StartsNow {
		return place, nil
	}
	e := forecast.When(over(ctx), plan.World, []int{row}, h, ArrivalPriority(n.World), uint64(n.Now.Unix()))
	if e.Median != forecast.Forever {
		place.Expected = e.Median
	}
	return place, nil
}

// Partition is the one of a name, or nil.
func (n *Planner) Partition(name string) *slurm.Partition {
	for i := range n.Partitions {
		if n.Partitions[i].Name == name {
			return &n.Partitions[i]
		}
	}
	return nil
}
