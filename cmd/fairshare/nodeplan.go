package main

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/hostlist"
	"github.com/ponos-tools/ponos/lib/priority"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// nodePlan is what is known of the nodes' future.
type nodePlan struct {
	config       slurm.Config
	partitions   []slurm.Partition
	nodes        []slurm.Node
	reservations []slurm.Reservation
	jobs         []slurm.Job    // those that have nodes, or are planned
	unplanned    map[string]int // pending jobs in line without a planned start, by partition

	busy []taken
}

// taken is a stretch of time on a node, and the partition it is taken for.
type taken struct {
	priority.Busy
	partition string
}

// maxPlacements bounds how many jobs are asked for one by one.
const maxPlacements = 64

// load asks Slurm for everything at once.
func (n *nodePlan) load(ctx context.Context, a *asker, now int64) error {
	n.unplanned = map[string]int{}
	keep := func(j *slurm.Job) bool {
		if !j.Pending() {
			return j.HoldsNodes()
		}
		if j.Priority == 0 || !slurm.Considered(j.Reason) {
			return false
		}
		if j.Start > 0 && j.SchedNodes != "" {
			return true
		}
		n.unplanned[j.Partition] += j.TaskCount()
		return false
	}
	err := together(ctx, a.config(&n.config), a.partitions(&n.partitions), listing(&n.nodes, a.client.Nodes), listing(&n.reservations, a.client.Reservations),
		a.jobs(&n.jobs, keep, "PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "RESIZING", "STOPPED"))
	if err != nil {
		return err
	}
	return n.lay(ctx, a, now)
}

// lay finds out who has which part of which node, and until when.
func (n *nodePlan) lay(ctx context.Context, a *asker, now int64) error {
	n.busy = nil
	uses, unsure := n.running()
	if len(unsure) > 0 {
		if err := n.place(ctx, a, uses, unsure); err != nil {
			return err
		}
	}
	for i := range n.jobs {
		j := &n.jobs[i]
		end := j.End
		if end == 0 || j.Limit == slurm.Unlimited {
			end = priority.Forever
		}
		if !j.Pending() {
			for node, use := range uses[i] {
				n.busy = append(n.busy, taken{priority.Busy{Node: node, Kind: priority.Running, Start: min(j.Start, now), End: end, Use: use, Who: j.Label}, j.Partition})
			}
			continue
		}
		if n.lastTaskShown(j) {
			continue
		}
		nodes, err := hostlist.Expand(j.SchedNodes)
		if err != nil {
			return err
		}
		for _, node := range nodes {
			n.busy = append(n.busy, taken{priority.Busy{Node: node, Kind: priority.Planned, Start: max(j.Start, now), End: end, Who: j.Label}, j.Partition})
		}
	}
	n.hidden(uses, now)
	for _, r := range n.reservations {
		nodes, err := hostlist.Expand(r.Nodes)
		if err != nil {
			return err
		}
		for _, node := range nodes {
			n.busy = append(n.busy, taken{priority.Busy{Node: node, Kind: priority.Reserved, Start: r.Start, End: r.End, Who: r.Name}, ""})
		}
	}
	for i := range n.nodes {
		if u := &n.nodes[i]; !u.Startable() {
			n.busy = append(n.busy, taken{priority.Busy{Node: u.Name, Kind: priority.Unusable, Start: now, End: priority.Forever, Who: strings.ToLower(u.State)}, ""})
		}
	}
	n.unseen(now)
	return nil
}

func (n *nodePlan) partition(name string) *slurm.Partition {
	for i := range n.partitions {
		if n.partitions[i].Name == name {
			return &n.partitions[i]
		}
	}
	return nil
}

// memoryCounts reports whether memory is handed out to jobs on this cluster.
func (n *nodePlan) memoryCounts() bool {
	return strings.Contains(strings.ToUpper(n.config.Get("SelectTypeParameters")), "MEMORY")
}

// memoryPerCPU is the most MiB that a job may ask for with each CPU; 0 is no
// limit.
func (n *nodePlan) memoryPerCPU(p *slurm.Partition) float64 {
	if p.MaxMemPerCPU.Set {
		return float64(p.MaxMemPerCPU.Max)
	}
	most, err := parseNumber(n.config.Get("MaxMemPerCPU"))
	if err != nil {
		return 0
	}
	return most
}

// wholeNodes reports whether jobs always get whole nodes.
func (n *nodePlan) wholeNodes() bool { return n.config.Get("SelectType") == "select/linear" }

// running divides what each running job has among its nodes. squeue only tells
// the sum: where an even division disagrees with what the nodes say is taken, the
// jobs there are unsure.
func (n *nodePlan) running() (uses []map[string]priority.Resources, unsure []int) {
	uses = make([]map[string]priority.Resources, len(n.jobs))
	sums := map[string]priority.Resources{}
	several := map[string][]int{}
	for i := range n.jobs {
		j := &n.jobs[i]
		if j.Pending() {
			continue
		}
		nodes, err := hostlist.Expand(j.NodeList)
		if err != nil || len(nodes) == 0 {
			continue
		}
		count := float64(len(nodes))
		use := priority.Resources{CPUs: j.TRES["cpu"] / count, MemMB: j.TRES["mem"] / count, GPUs: j.GPUs() / count}
		if use.CPUs == 0 {
			use.CPUs = float64(j.CPUs) / count
		}
		if !n.memoryCounts() {
			use.MemMB = 0
		}
		uses[i] = make(map[string]priority.Resources, len(nodes))
		for _, node := range nodes {
			uses[i][node] = use
			sums[node] = plus(sums[node], use)
			if len(nodes) > 1 {
				several[node] = append(several[node], i)
			}
		}
	}
	for k := range n.nodes {
		u := &n.nodes[k]
		if n.wholeNodes() || alike(sums[u.Name], n.takenNow(u)) {
			continue
		}
		for _, i := range several[u.Name] {
			if !slices.Contains(unsure, i) {
				unsure = append(unsure, i)
			}
		}
	}
	return uses, unsure
}

func (n *nodePlan) takenNow(u *slurm.Node) priority.Resources {
	r := priority.Resources{CPUs: float64(u.CPUsTaken), MemMB: float64(u.MemMBTaken), GPUs: float64(u.GPUsTaken)}
	if !n.memoryCounts() {
		r.MemMB = 0
	}
	return r
}

func plus(a, b priority.Resources) priority.Resources {
	return priority.Resources{CPUs: a.CPUs + b.CPUs, MemMB: a.MemMB + b.MemMB, GPUs: a.GPUs + b.GPUs}
}

func alike(a, b priority.Resources) bool {
	return math.Abs(a.CPUs-b.CPUs) < 0.5 && math.Abs(a.MemMB-b.MemMB) < 1 && math.Abs(a.GPUs-b.GPUs) < 0.5
}

// place asks for the placement of jobs whose division is unsure: one by one, or
// of all jobs if they are many.
func (n *nodePlan) place(ctx context.Context, a *asker, uses []map[string]priority.Resources, unsure []int) error {
	byID := map[uint64]int{}
	for _, i := range unsure {
		byID[n.jobs[i].ID] = i
	}
	var all []slurm.JobDetail
	var err error
	if len(unsure) > maxPlacements {
		if all, err = a.client.JobDetails(ctx, ""); err != nil {
			return err
		}
	} else {
		for _, i := range unsure {
			job, err := a.client.JobDetails(ctx, n.jobs[i].Number()) // one that has just ended has none
			if err != nil {
				return err
			}
			all = append(all, job...)
		}
	}
	for k := range all {
		i, ok := byID[all[k].ID]
		if !ok {
			continue
		}
		for _, p := range all[k].Placements {
			nodes, err := hostlist.Expand(p.Nodes)
			if err != nil {
				return err
			}
			for _, node := range nodes {
				use := priority.Resources{CPUs: float64(p.CPUs), MemMB: p.MemMB, GPUs: float64(p.GPUs)}
				if !n.memoryCounts() {
					use.MemMB = 0
				}
				uses[i][node] = use
			}
		}
	}
	return nil
}

// hidden accounts for what is taken on a node by nobody we see, such as the jobs
// of others on a cluster that keeps them private. Nobody knows until when.
func (n *nodePlan) hidden(uses []map[string]priority.Resources, now int64) {
	sums := map[string]priority.Resources{}
	for _, of := range uses {
		for node, use := range of {
			sums[node] = plus(sums[node], use)
		}
	}
	for i := range n.nodes {
		u := &n.nodes[i]
		rest := n.takenNow(u).Sub(sums[u.Name])
		if n.wholeNodes() || rest.CPUs < 1 && rest.MemMB < 1 && rest.GPUs < 1 {
			continue
		}
		n.busy = append(n.busy, taken{priority.Busy{Node: u.Name, Kind: priority.Running, Start: now, End: priority.Forever, Use: rest, Who: "unknown"}, ""})
	}
}

// machines are the nodes of a partition as it lets jobs use them; nil is all
// nodes as they are.
func (n *nodePlan) machines(p *slurm.Partition) []priority.Machine {
	var list []priority.Machine
	for i := range n.nodes {
		u := &n.nodes[i]
		if p != nil && !u.Partitions.Has(p.Name) {
			continue
		}
		m := priority.Machine{Name: u.Name, Whole: n.wholeNodes(), Total: priority.Resources{
			CPUs: float64(u.JobCPUs()), MemMB: float64(u.JobMemMB()), GPUs: float64(u.GPUs),
		}}
		if p != nil {
			m.Whole = m.Whole || p.Exclusive
			m.Total.CPUs = min(m.Total.CPUs, float64(p.MaxCPUsPerNode.Or(math.MaxInt64)))
			m.Total.MemMB = min(m.Total.MemMB, float64(p.MaxMemPerNode.Or(math.MaxInt64)))
		}
		list = append(list, m)
	}
	return list
}

// preempts reports whether jobs of p take the place of jobs of the partition
// other.
func (n *nodePlan) preempts(p *slurm.Partition, other string) bool {
	if n.config.Get("PreemptType") != "preempt/partition_prio" {
		return false
	}
	for i := range n.partitions {
		if o := &n.partitions[i]; o.Name == other {
			return o.PriorityTier < p.PriorityTier && n.preemptMode(o) != "OFF"
		}
	}
	return false
}

// preemptMode is what happens to a job of the partition that is preempted.
func (n *nodePlan) preemptMode(p *slurm.Partition) string {
	if p.PreemptMode != "" {
		return p.PreemptMode
	}
	return or(n.config.Get("PreemptMode"), "OFF")
}

// timelines are the futures of the nodes as a job of p finds them. Jobs it would
// preempt, and plans for partitions that come after it, are not in its way.
func (n *nodePlan) timelines(p *slurm.Partition, now int64) []priority.Timeline {
	tiers := map[string]float64{}
	for i := range n.partitions {
		tiers[n.partitions[i].Name] = float64(n.partitions[i].PriorityTier)
	}
	machines := n.machines(p)
	wanted := make(map[string]bool, len(machines))
	for _, m := range machines {
		wanted[m.Name] = true
	}
	var busy []priority.Busy
	for _, t := range n.busy {
		if !wanted[t.Node] {
			continue
		}
		if p != nil {
			tier, known := tiers[t.partition]
			if t.Kind == priority.Planned && known && tier < float64(p.PriorityTier) || t.Kind == priority.Running && n.preempts(p, t.partition) {
				continue
			}
			if n.wholeNodes() && t.Kind == priority.Running {
				t.Use = priority.Resources{CPUs: math.MaxInt32, MemMB: math.MaxInt32, GPUs: math.MaxInt32}
			}
		}
		busy = append(busy, t.Busy)
	}
	return priority.Timelines(now, int64(n.config.BackfillResolution().Seconds()), machines, busy)
}

// victims are the jobs that a job of p would preempt on these nodes at start.
func (n *nodePlan) victims(p *slurm.Partition, nodes []string, start int64) []string {
	var jobs []string
	for _, t := range n.busy {
		if t.Kind == priority.Running && slices.Contains(nodes, t.Node) && t.End > start && n.preempts(p, t.partition) && !slices.Contains(jobs, t.Who) {
			jobs = append(jobs, t.Who)
		}
	}
	return jobs
}

// gpuType is the type of the GPUs of these nodes, if the partition has several
// types and these nodes only one.
func (n *nodePlan) gpuType(p *slurm.Partition, nodes []string) string {
	inPartition, here := map[string]bool{}, map[string]bool{}
	for i := range n.nodes {
		u := &n.nodes[i]
		for gres := range strings.SplitSeq(u.GRES, ",") {
			f := strings.Split(strings.Split(gres, "(")[0], ":")
			if len(f) != 3 || f[0] != "gpu" {
				continue
			}
			if u.Partitions.Has(p.Name) {
				inPartition[f[1]] = true
			}
			if slices.Contains(nodes, u.Name) {
				here[f[1]] = true
			}
		}
	}
	if len(inPartition) < 2 || len(here) != 1 {
		return ""
	}
	for t := range here {
		return t
	}
	return ""
}

// threads is the number of CPUs of a core on these nodes: jobs get whole cores.
func (n *nodePlan) threads(nodes []string) float64 {
	t := 1.0
	for i := range n.nodes {
		if slices.Contains(nodes, n.nodes[i].Name) {
			t = max(t, float64(n.nodes[i].ThreadsPerCore))
		}
	}
	return t
}

func integer(f float64) string { return strconv.FormatInt(int64(f), 10) }
