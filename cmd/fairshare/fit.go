package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ponos-tools/ponos/lib/hostlist"
	"github.com/ponos-tools/ponos/lib/priority"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// fit is how a waiting job could start now: with a shorter time limit.
type fit struct {
	minutes int64
	nodes   string
}

// submitMargin is the time in seconds until the user has changed the job.
const submitMargin = 60

// fit looks for room in the holes for the one job that was asked for. All it may
// change is the time limit, which an owner can lower while the job waits.
func (v *queueView) fit(ctx context.Context) error {
	j := &v.jobs[v.rows[0]]
	if j.HetID != 0 || j.Reservation != "" {
		return nil
	}
	now := v.at.Unix()
	var plan nodePlan
	var details []slurm.JobDetail
	err := together(ctx,
		func(ctx context.Context) error { return plan.load(ctx, v.ask, now) },
		listing(&details, func(ctx context.Context) ([]slurm.JobDetail, error) { return v.ask.client.JobDetails(ctx, j.Number()) }))
	if err != nil {
		return err
	}
	whole := slices.ContainsFunc(details, func(d slurm.JobDetail) bool { return d.WholeNodes })
	plan.forget(j.Label)
	v.fits = map[string]fit{}
	for _, i := range v.rows {
		j := &v.jobs[i]
		p := plan.partition(j.Partition)
		if p == nil || p.State != "UP" || slurm.WillNeverStart(j.Reason) {
			continue
		}
		need, count := plan.need(j)
		lines := plan.fitting(p, j, now)
		if whole {
			for k := range lines {
				lines[k] = emptyOnly(lines[k])
			}
		}
		end, nodes, ok := priority.Longest(lines, need, count, now)
		if !ok {
			continue
		}
		minutes := priority.Minutes(now, end, submitMargin)
		if minutes >= 1 && minutes != priority.Forever && (j.Limit == slurm.Unlimited || time.Duration(minutes)*time.Minute < j.Limit) {
			v.fits[j.Partition] = fit{minutes, hostlist.Compress(nodes)}
		}
	}
	return nil
}

// forget takes the plans for a job out of everybody's way.
func (n *nodePlan) forget(label string) {
	kept := n.busy[:0]
	for _, t := range n.busy {
		if t.Kind != priority.Planned || t.Who != label {
			kept = append(kept, t)
		}
	}
	n.busy = kept
}

// emptyOnly is the future of a node for a job that wants it for itself.
func emptyOnly(line priority.Timeline) priority.Timeline {
	spans := make([]priority.Span, len(line.Spans))
	copy(spans, line.Spans)
	for i := range spans {
		if spans[i].Taken {
			spans[i].Free = priority.Resources{}
		}
	}
	line.Spans = spans
	return line
}

// fitText says how the job could start now, or nothing.
func (v *queueView) fitText(j *slurm.Job) string {
	f, ok := v.fits[j.Partition]
	if !ok {
		return ""
	}
	text := fmt.Sprintf("there is room for it now on %s for %s: it would start with that time limit", f.nodes, span(time.Duration(f.minutes)*time.Minute))
	if j.TaskCount() == 1 {
		text += ": scontrol update job=" + j.Label + " timelimit=" + strconv.FormatInt(f.minutes, 10)
	}
	return text
}
