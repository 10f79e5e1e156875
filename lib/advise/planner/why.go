package planner

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/diagnosis"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
)

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
	now := a.Now()
	at := func(unix int64) string {
		t := time.Unix(unix, 0).In(now.Location())
		if t.YearDay() != now.YearDay() || t.Year() != now.Year() {
			return t.Format("Jan _2 15:04")
		}
		return t.Format(time.TimeOnly)
	}
	facts := diagnosis.Facts{
		Plan: n.Plan, Row: n.Row, Nodes: n.Nodes, Partitions: n.Partitions, QOS: n.QOS, Time: at,
		Memory: func(mib float64) string { return unit.ShortSize(int64(mib) << 20) },
	}
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
