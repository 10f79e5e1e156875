package forecast

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// Timelines are the futures of the nodes as a job of a partition finds them that comes
// after all others. Jobs it would preempt, and plans for partitions that come after it,
// are not in its way. Of no partition, they are those of all nodes with all that is there.
func (p *Plan) Timelines(part *Partition) []Timeline {
	w := p.World
	var machines []Machine
	var busy []Busy
	for i := range p.space.nodes {
		node, place := &w.Nodes[i], &p.space.nodes[i]
		if part != nil && !slices.Contains(part.Nodes, node.Name) {
			continue
		}
		m := Machine{Name: node.Name, Total: node.Total, Whole: w.Scheduler.WholeNodes}
		if part != nil {
			m.Whole = m.Whole || part.Exclusive
			if part.MaxCPUs > 0 {
				m.Total.CPUs = min(m.Total.CPUs, float64(part.MaxCPUs))
			}
			if part.MaxMem > 0 {
				m.Total.MemMB = min(m.Total.MemMB, float64(part.MaxMem))
			}
		}
		machines = append(machines, m)
		if !place.usable {
			busy = append(busy, Busy{Node: node.Name, Kind: Unusable, Start: w.Now, End: Forever, Who: "unavailable"})
		}
		for _, r := range place.runs {
			j := &w.Jobs[r.row]
			if part == nil || !w.Preempts(part, "", w.Partition(j.Partition), j.QOS) {
				busy = append(busy, Busy{Node: node.Name, Kind: Running, Start: min(j.Start, w.Now), End: r.end, Use: r.use, Who: j.Label})
			}
		}
		for _, b := range place.blocks {
			switch {
			case b.row < 0:
				busy = append(busy, Busy{Node: node.Name, Kind: Reserved, Start: b.start, End: b.end, Who: w.Reservations[-1-b.row].Name})
			case part == nil || b.tier >= part.Tier:
				busy = append(busy, Busy{Node: node.Name, Kind: Planned, Start: b.start, End: b.end, Who: w.Jobs[b.row].Label})
			}
		}
	}
	return Timelines(w.Now, w.Scheduler.Resolution, machines, busy)
}

// Preempted are the jobs whose place a job of a partition would take on some nodes if
// it started at start.
func (p *Plan) Preempted(part *Partition, nodes []string, start int64) []string {
	var labels []string
	for _, name := range nodes {
		for _, r := range p.space.nodes[p.space.index[name]].runs {
			j := &p.World.Jobs[r.row]
			if r.end > start && p.World.Preempts(part, "", p.World.Partition(j.Partition), j.QOS) && !slices.Contains(labels, j.Label) {
				labels = append(labels, j.Label)
			}
		}
	}
	return labels
}

// InTheWay are the planned jobs of partitions that come later, whose plans a job of a
// partition on some nodes would move.
func (p *Plan) InTheWay(part *Partition, nodes []string, start, end int64) []string {
	var labels []string
	for _, name := range nodes {
		for _, b := range p.space.nodes[p.space.index[name]].blocks {
			if b.row >= 0 && b.tier < part.Tier && b.start < end && b.end > start {
				if label := p.World.Jobs[b.row].Label; !slices.Contains(labels, label) {
					labels = append(labels, label)
				}
			}
		}
	}
	sort.Strings(labels)
	return labels
}

// Certainty is how far a hole can be relied on.
type Certainty int

// The degrees of certainty.
const (
	Sure       Certainty = iota // a job for it starts in the next turn of the scheduler
	Likely                      // it depends on where Slurm puts jobs that come first
	OutOfReach                  // the scheduler does not look at a job that comes last
)

func (c Certainty) String() string { return [...]string{"sure", "likely", "out_of_reach"}[c] }

// Certainty says how far a job can rely on starting on some nodes at once, if it comes
// after all others of its partition, and why.
func (p *Plan) Certainty(user string, part *Partition, nodes []string) (Certainty, string) {
	if why := p.outOfReach(user, part); why != "" {
		return OutOfReach, why
	}
	if jobs := p.Preempted(part, nodes, p.World.Now); len(jobs) > 0 {
		return Likely, "jobs have to be preempted first"
	}
	for _, row := range p.Order {
		r, j := &p.Results[row], &p.World.Jobs[row]
		if r.Told && p.space.partitions[row].Tier >= part.Tier && p.stale(row, nodes) {
			return Likely, fmt.Sprintf("job %s comes first, and may start sooner than Slurm has planned", j.Label)
		}
		if !r.Verdict.InLine() || r.Told || r.Verdict == Beyond || j.Reservation != "" ||
			p.space.partitions[row] == nil || p.space.partitions[row].Tier < part.Tier {
			continue
		}
		for _, n := range p.space.nodesFor(row).nodes {
			if slices.Contains(nodes, p.World.Nodes[n].Name) && p.space.couldFit(row, n) {
				return Likely, fmt.Sprintf("job %s comes first, and Slurm has published no plan for it", j.Label)
			}
		}
	}
	return Sure, ""
}

// stale reports whether a job could start sooner than Slurm has planned it, on some of these
// nodes. A plan that Slurm has told is of its last turn: nodes may have become free since.
func (p *Plan) stale(row int, nodes []string) bool {
	if p.anew == nil {
		p.anew = NewPlan(p.over, p.World, false)
	}
	r := &p.anew.Results[row]
	return (r.Verdict == StartsNow || r.Verdict == PlannedLate && r.Start+p.World.Scheduler.Resolution < p.Results[row].Start) &&
		slices.ContainsFunc(r.Nodes, func(n string) bool { return slices.Contains(nodes, n) })
}

// outOfReach says why the scheduler does not come to a job that is the last of its
// partition; "" if it does.
func (p *Plan) outOfReach(user string, part *Partition) string {
	s := &p.World.Scheduler
	tried := 0
	for tier, n := range p.through {
		if tier >= part.Tier {
			tried = max(tried, n)
		}
	}
	blocked := slices.ContainsFunc(p.Order, func(row int) bool {
		return p.World.Jobs[row].Partition == part.Name && p.Results[row].Verdict.InLine() && p.Results[row].Verdict != StartsNow
	})
	bound := func(n, limit int) bool { return limit > 0 && n >= limit }
	switch {
	case !s.Backfill && blocked:
		return "without backfill a job starts only when all before it have"
	case bound(tried, s.MaxTest):
		return fmt.Sprintf("the scheduler tries %d jobs in a pass (bf_max_job_test), and at least as many come first", s.MaxTest)
	case bound(p.tried.partition[part.Name], s.MaxPartition):
		return fmt.Sprintf("the scheduler tries %d jobs of a partition (bf_max_job_part), and at least as many come first", s.MaxPartition)
	case bound(p.tried.both[user+"\x00"+part.Name], s.MaxUserInPartition):
		return fmt.Sprintf("the scheduler tries %d jobs of a user in a partition (bf_max_job_user_part)", s.MaxUserInPartition)
	case bound(p.tried.user[user], s.MaxUser):
		return fmt.Sprintf("the scheduler tries %d jobs of a user (bf_max_job_user)", s.MaxUser)
	}
	return ""
}

// meet counts what is used of limits that the world has met since.
func (p *Plan) meet() {
	for i := len(p.used); i < len(p.World.Limits); i++ {
		p.used = append(p.used, p.World.Limits[i].Used)
	}
}

// Last is the plan for a job that comes after all others of its partition, as far as
// the others go as they do in this turn. why says in words what keeps it from starting,
// where that is not that others come first.
func (p *Plan) Last(j Job) (result Result, why string) {
	p.World.sync()
	p.meet()
	w := *p.World
	w.Jobs = append(slices.Clip(w.Jobs), j)
	space := *p.space
	space.w, space.partitions, space.rowSets = &w, append(slices.Clip(space.partitions), w.Partition(j.Partition)), nil
	space.spans = nil
	q := Plan{
		over: p.over, World: &w, space: &space, used: slices.Clone(p.used), free: p.free, running: p.running,
		started: map[uint64]bool{}, kept: map[uint64]bool{}, planned: map[string]int{},
	}
	row := len(w.Jobs) - 1
	q.Results = make([]Result, len(w.Jobs))
	q.Results[row].Limit = -1
	if q.idle(row, w.Now) {
		return q.Results[row], q.Explain(row)
	}
	r := &q.Results[row]
	start, nodes, ok := space.earliest(row, w.Now, j.length())
	p.space.who = space.who // what it has learned of classes stays
	if !ok {
		q.nowhere(row, w.Now)
		return *r, q.Explain(row)
	}
	r.Verdict, r.Start, r.Nodes = PlannedLate, start, q.names(nodes)
	if start <= w.Now {
		r.Verdict = StartsNow
	}
	return *r, ""
}

// Alone is when a component of a heterogeneous job would start if it were a job by itself; 0: that is not known.
func (p *Plan) Alone(row int) int64 {
	j := p.World.Jobs[row]
	j.Het, j.Planned = 0, nil
	r, _ := p.Last(j)
	return r.Start
}

// Longest tells until when a row could run if it started now, where nothing else of its
// own is in the way.
func (p *Plan) Longest(row int) (end int64, ok bool) {
	j := &p.World.Jobs[row]
	var ends []int64
	class := p.space.preemption(row)
	for _, n := range p.space.nodesFor(row).nodes {
		place := &p.space.nodes[n]
		need, _ := p.space.asked(row, n)
		if !place.usable || !p.space.couldFit(row, n) {
			continue
		}
		free := p.space.steps(n, class)
		if !free[0].free.Covers(need) {
			continue
		}
		until := int64(Forever)
		for _, b := range place.blocks {
			own := b.row == row || b.row < 0 && p.space.mayUse(row, -1-b.row) || b.row >= 0 && p.World.Jobs[b.row].ID == j.ID
			if !own && b.tier >= p.space.partitions[row].Tier && b.end > p.World.Now {
				until = min(until, b.start)
			}
		}
		if until > p.World.Now {
			ends = append(ends, until)
		}
	}
	count := max(1, j.Nodes)
	if len(ends) < count {
		return 0, false
	}
	slices.Sort(ends)
	return ends[len(ends)-count], true
}

// ShorterLimit is the longest time limit in minutes with which a row would start now
// though it does not as it is, checked by a turn of the scheduler with that limit. margin,
// in seconds, is the time until it is changed. delays are the jobs that start later then.
func (p *Plan) ShorterLimit(row int, margin int64) (minutes int64, nodes, delays []string, ok bool) {
	r, j := &p.Results[row], p.World.Jobs[row]
	if !r.Verdict.InLine() || r.Verdict == StartsNow || j.Approximate != "" || p.space.nodesFor(row).approx != "" {
		return 0, nil, nil, false
	}
	end, ok := p.Longest(row)
	if !ok {
		return 0, nil, nil, false
	}
	minutes = Minutes(p.World.Now, end, margin)
	if minutes < 1 || minutes == Forever || minutes*60 >= j.length() {
		return 0, nil, nil, false
	}
	if j.Limit = minutes*60 + margin; j.Limit >= p.World.Jobs[row].length() {
		return 0, nil, nil, false
	}
	changed := p.Instead(row, j)
	if changed.Results[row].Verdict != StartsNow || changed.Results[row].Started < max(1, min(j.Tasks, 1)) {
		return 0, nil, nil, false
	}
	for _, other := range p.delayed(changed) {
		if label := p.World.Jobs[other].Label; p.World.Jobs[other].ID != j.ID && !slices.Contains(delays, label) {
			delays = append(delays, label)
		}
	}
	return minutes, changed.Results[row].Nodes, delays, true
}

// delayed compares without what Slurm has told.
func (p *Plan) delayed(changed *Plan) []int {
	return NewPlan(p.over, p.World, false).Delayed(NewPlan(p.over, changed.World, false))
}

// Fitting are the nodes, as indices into those of the world, that could run a row if nothing else ran
// on them; also those that are out of service.
func (p *Plan) Fitting(row int) (nodes []int32) {
	if p.space.partitions[row] == nil {
		return nil
	}
	for _, n := range p.space.nodesFor(row).nodes {
		if p.space.couldFit(row, n) {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// Lacking are the requests of a row, in words, of which one alone is too much: without it, enough
// nodes of the partition could run the job.
func (p *Plan) Lacking(row int) (words []string) {
	j := p.World.Jobs[row]
	gpus := strings.TrimSpace(PlainNumber(j.Need.GPUs) + " " + j.GPUType)
	for _, without := range []struct {
		asks   bool
		text   string
		change func(*Job)
	}{
		{j.Nodes > 1, "all that it requests", func(j *Job) { j.Nodes = 1 }},
		{j.Features != "", "the features " + j.Features, func(j *Job) { j.Features = "" }},
		{len(j.Required) > 0, "the name " + strings.Join(j.Required, ","), func(j *Job) { j.Required = nil }},
		{len(j.Excluded) > 0, "another name than " + strings.Join(j.Excluded, ","), func(j *Job) { j.Excluded = nil }},
		{j.Need.GPUs > 0, gpus + " GPUs", func(j *Job) { j.Need.GPUs, j.GPUType = 0, "" }},
		{j.Need.MemMB > 0, PlainNumber(j.Need.MemMB) + " MiB of memory", func(j *Job) { j.Need.MemMB = 0 }},
		{j.Need.CPUs > 0, PlainNumber(j.Need.CPUs) + " CPUs", func(j *Job) { j.Need.CPUs = 0 }},
	} {
		if !without.asks {
			continue
		}
		changed := j
		without.change(&changed)
		w := *p.World
		w.Jobs = []Job{changed} // alone: of a long queue there is no copy for each of its jobs
		space := *p.space
		space.w, space.partitions, space.rowSets = &w, []*Partition{w.Partition(j.Partition)}, nil
		q := Plan{World: &w, space: &space}
		if len(q.Fitting(0)) >= max(1, changed.Nodes) {
			words = append(words, without.text)
		}
	}
	return words
}

// NeverLikeThis ends the explanation of a request that exceeds a limit.
const NeverLikeThis = ": it will never start like this"

// Explain explains in plain words why a row does not start now; "" where the reason that
// Slurm gives says as much.
func (p *Plan) Explain(row int) string {
	r, j := &p.Results[row], &p.World.Jobs[row]
	if r.Limit >= 0 && (r.Verdict == NeverAsks || r.Verdict == AtLimit) {
		l := &p.World.Limits[r.Limit]
		amount := 0.0
		for _, ask := range j.Limits {
			if ask.Limit == r.Limit {
				amount = ask.Amount
			}
		}
		what := fmt.Sprintf("%s: %s allowed", l.Whose, l.amount(l.Max, true))
		if !strings.HasPrefix(l.Resource, "job ") {
			what += fmt.Sprintf(" in all, %s in use", l.amount(p.used[r.Limit], false))
		}
		ask := ", the job requests " + l.amount(amount, false)
		if l.Resource == "jobs" {
			ask = ""
		}
		if amount < 1e-6 {
			ask = ""
		}
		if r.Verdict == NeverAsks {
			return what + ask + NeverLikeThis
		}
		return what + ask
	}
	switch r.Verdict {
	case NoLicense:
		return fmt.Sprintf("license %s: %d free, the job requests %d", r.License, p.free[r.License], j.Licenses[r.License])
	case NeverFits:
		return "no node of partition " + j.Partition + " has what it requests: it will never start there"
	case NotReached:
		if p.Short && !p.Cut {
			return "so many jobs come before it that the plan was not finished in time"
		}
		return fmt.Sprintf("the scheduler has not reached it: it tries %d jobs in a pass (bf_max_job_test)", p.World.Scheduler.MaxTest)
	case Beyond:
		return "its turn comes after the time for which the scheduler plans (bf_window)"
	case Unplanned:
		return "the scheduler keeps no nodes for it: it starts where room is left (bf_min_prio_reserve, bf_job_part_count_reserve or bf_one_resv_per_job)"
	}
	return ""
}

// amount writes an amount of what is limited; times as people write them.
func (l *Limit) amount(n float64, named bool) string {
	if strings.Contains(l.What, " minutes") && l.Max >= 60 {
		hours := Limit{What: strings.Replace(l.What, " minutes", " hours", 1)}
		return hours.amount(n/60, named)
	}
	switch {
	case strings.HasSuffix(l.Resource, "wall"):
		return slurm.FormatDuration(time.Duration(n * float64(time.Minute)))
	case !named:
		return PlainNumber(n)
	case n == 1:
		return "1 " + strings.Replace(strings.Replace(strings.Replace(l.What, "jobs", "job", 1), "CPUs", "CPU", 1), "GPUs", "GPU", 1)
	}
	return PlainNumber(n) + " " + l.What
}

// PlainNumber writes an amount of a limit.
func PlainNumber(f float64) string {
	if f == float64(int64(f)) {
		return fmt.Sprintf("%d", int64(f))
	}
	return fmt.Sprintf("%.1f", f)
}
