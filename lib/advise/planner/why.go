package planner

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/diagnosis"
	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Facts are what diagnoses of the jobs of the plan follow from.
func (n *Planner) Facts() diagnosis.Facts {
	return diagnosis.Facts{Plan: n.Plan, Row: n.Row, Nodes: n.Nodes, Partitions: n.Partitions, QOS: n.QOS, Now: n.Now}
}

// Judge says why the job of some rows of a changed plan waits, which is not in the queue; one row for each of its partitions.
func (n *Planner) Judge(plan *forecast.Plan, rows []int) diagnosis.Diagnosis {
	jobs := make([]*slurm.Job, len(rows))
	for i, row := range rows {
		j := &plan.World.Jobs[row]
		jobs[i] = &slurm.Job{Label: j.Label, Partition: j.Partition, QOS: j.QOS, Account: j.Account, State: "PENDING"}
		jobs[i].Nodes = uint64(j.Nodes)
		if j.Limit != forecast.Forever {
			jobs[i].Limit = time.Duration(j.Limit) * time.Second
		}
	}
	facts := n.Facts()
	facts.Plan, facts.Row = plan, func(j *slurm.Job) int { return rows[slices.Index(jobs, j)] }
	return facts.Of(jobs...)
}

// Why says why pending jobs wait, by their numbers, in a sentence each. What is not known within the budget is left out.
func Why(ctx context.Context, a *Asker, budget time.Duration, jobs ...string) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	n := Planner{Budget: budget}
	if n.Load(ctx, a) != nil {
		return nil
	}
	rows := map[string][]*slurm.Job{}
	for i := range n.Jobs {
		if j := &n.Jobs[i]; j.Pending() {
			number := strconv.FormatUint(j.ArrayID, 10)
			if j.HetID != 0 {
				number = strconv.FormatUint(j.HetID, 10)
			}
			rows[number] = append(rows[number], j)
		}
	}
	facts := n.Facts()
	at := func(unix int64) string { return unit.ShortTime(unix, facts.Now) }
	why := map[string]string{}
	for _, job := range jobs {
		number, _, element := strings.Cut(job, "_")
		// A row of elements that wait for different things has the words of all of them.
		mixed := func(j *slurm.Job) bool { return len(slurm.ReasonCodes(j.Reason)) > 1 }
		if len(rows[number]) == 0 || slices.ContainsFunc(rows[number], mixed) || element && len(rows[number]) > 1 {
			continue
		}
		d := facts.Of(rows[number]...)
		if why[job] = d.Text; element {
			continue // when the first of its array starts is known
		}
		if start := d.Starts(at); start != "" && d.Cause != diagnosis.Begin { // which says when
			why[job] += "; " + start
		}
	}
	return why
}
