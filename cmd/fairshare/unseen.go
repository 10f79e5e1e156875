package main

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/hostlist"
	"github.com/ponos-tools/ponos/lib/priority"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// lastTaskShown reports whether the start that squeue shows is that of the last
// task of an array that was planned, not of the first: so it was before 23.02.
func (n *nodePlan) lastTaskShown(j *slurm.Job) bool {
	return j.TaskCount() > 1 && !n.config.AtLeast(23, 2)
}

// fitting are the futures of the nodes that a job may use in a partition: those
// it asks for by name, or those with the features of the node it is planned on.
func (n *nodePlan) fitting(p *slurm.Partition, j *slurm.Job, now int64) []priority.Timeline {
	lines := n.timelines(p, now)
	var names []string
	if j.ReqNodes != "" {
		names, _ = hostlist.Expand(j.ReqNodes)
	} else if j.Features != "" {
		planned, _ := hostlist.Expand(j.SchedNodes)
		for i := range n.nodes {
			u := &n.nodes[i]
			if slices.ContainsFunc(n.nodes, func(o slurm.Node) bool {
				return slices.Contains(planned, o.Name) && o.ActiveFeatures == u.ActiveFeatures
			}) {
				names = append(names, u.Name)
			}
		}
	}
	if names == nil {
		return lines
	}
	return slices.DeleteFunc(lines, func(l priority.Timeline) bool { return !slices.Contains(names, l.Name) })
}

// unseen adds the plans that squeue does not show. The scheduler plans several
// tasks of an array, and a job in each of its partitions; squeue has room for the
// earliest only. The others are put where they fit first, in the scheduler's order.
func (n *nodePlan) unseen(now int64) {
	type extra struct {
		job   *slurm.Job
		tasks int
	}
	tiers := map[string]float64{}
	for i := range n.partitions {
		tiers[n.partitions[i].Name] = float64(n.partitions[i].PriorityTier)
	}
	perArray := 20 // bf_max_job_array_resv
	if v, ok := n.config.SchedulerParameter("bf_max_job_array_resv"); ok {
		if k, err := strconv.Atoi(v); err == nil && k >= 0 {
			perArray = k
		}
	}
	_, once := n.config.SchedulerParameter("bf_one_resv_per_job")
	running := map[uint64]int{}
	seen := map[uint64]string{} // the partition that a job's plan is taken for
	var extras []extra
	for i := range n.jobs {
		j := &n.jobs[i]
		if !j.Pending() {
			running[j.ArrayID]++
		} else if other, ok := seen[j.ID]; !ok || tiers[other] < tiers[j.Partition] {
			seen[j.ID] = j.Partition
		}
	}
	for i := range n.jobs {
		j := &n.jobs[i]
		if !j.Pending() || j.HetID != 0 {
			continue
		}
		tasks := min(perArray, j.TaskCount())
		if _, limit, ok := strings.Cut(j.Tasks, "%"); ok && !n.lastTaskShown(j) {
			if k, err := strconv.Atoi(limit); err == nil {
				tasks = min(tasks, k-running[j.ArrayID])
			}
		}
		tasks = max(tasks, 1)
		if seen[j.ID] == j.Partition {
			if !n.lastTaskShown(j) {
				tasks--
			}
		} else if once {
			continue
		}
		if tasks > 0 {
			extras = append(extras, extra{j, tasks})
		}
	}
	slices.SortStableFunc(extras, func(a, b extra) int {
		if d := tiers[b.job.Partition] - tiers[a.job.Partition]; d != 0 {
			return int(d)
		}
		return int(int64(b.job.Priority) - int64(a.job.Priority))
	})
	budget := min(256, max(16, 1<<20/max(1, len(n.nodes))))
	resolution := int64(n.config.BackfillResolution().Seconds())
	window := now + int64(n.config.BackfillWindow().Seconds())
	for _, e := range extras {
		p := n.partition(e.job.Partition)
		if p == nil {
			continue
		}
		need, count := n.need(e.job)
		length := int64(priority.Forever)
		if e.job.Limit != slurm.Unlimited && e.job.Limit > 0 {
			length = int64(e.job.Limit.Seconds())
		}
		from := max(now, e.job.Start)
		if n.lastTaskShown(e.job) {
			from = now
		}
		for range e.tasks {
			if budget--; budget < 0 {
				return
			}
			start, nodes, ok := priority.Earliest(n.fitting(p, e.job, now), need, count, length, from, resolution)
			if !ok || start > window {
				break
			}
			end := int64(priority.Forever)
			if length != priority.Forever {
				end = start + length
			}
			for _, node := range nodes {
				n.busy = append(n.busy, taken{priority.Busy{Node: node, Kind: priority.Planned, Start: start, End: end, Who: e.job.Label}, p.Name})
			}
			from = start
		}
	}
}

// need is what a pending job asks for on each of how many nodes.
func (n *nodePlan) need(j *slurm.Job) (each priority.Resources, nodes int) {
	count := float64(max(1, j.Nodes))
	each = priority.Resources{CPUs: j.TRES["cpu"] / count, MemMB: j.TRES["mem"] / count, GPUs: j.GPUs() / count}
	if !n.memoryCounts() {
		each.MemMB = 0
	}
	return each, int(count)
}
