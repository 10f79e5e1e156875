package forecast

import (
	"maps"
	"slices"
)

// Verdict is the result of one turn of the scheduler for a job in a partition.
type Verdict int

// The verdicts.
const (
	NotReached  Verdict = iota // the turn ends before the job
	StartsNow                  // it starts in this turn
	PlannedLate                // nodes are kept for it from Start on
	Unplanned                  // it could start at Start, and nothing is kept for it
	Beyond                     // it starts after the window of the scheduler
	AtLimit                    // a limit is used up; Limit says which
	NeverAsks                  // it requests more than a limit allows at all
	NeverFits                  // no node, or too few, has what it requests
	NoNodes                    // the nodes that have it are down, drained or reserved for long
	NoLicense                  // licenses are used up
	Waits                      // for a dependency or its begin time
	Held                       // held, or invalid
	Elsewhere                  // started, or planned, in another of its partitions
	PartitionDown
	ArrayThrottle // the array has reached its own limit of running tasks
)

// Result is the outcome of a row.
type Result struct {
	Verdict Verdict
	Start   int64
	Nodes   []string // of the first task
	Limit   int      // of AtLimit and NeverAsks; index into the limits
	License string
	Rank    int  // place in its partition, from 1, among those that may take nodes; 0: it takes none
	Started int  // tasks that start now
	Told    bool // Start and Nodes are Slurm's own plan
}

// Plan is one turn of the scheduler.
type Plan struct {
	World   *World
	Results []Result // of each job's row
	Order   []int    // rows as the scheduler takes them
	// Tried is how many rows, and tasks, the turn tried; Cut that it ended at its depth.
	Tried int
	Cut   bool
	// Short: there was no time to come to all rows; those behind have NotReached.
	Short bool

	candidates []candidate // scratch

	space   *space
	used    []float64 // of each limit
	free    map[string]int64
	tried   counters
	planned map[string]int   // reservations by partition
	placed  map[uint64][]int // rows of the components of a heterogeneous job that have found nodes
	through map[int64]int    // how many were tried when the last row of a tier was done
	running map[uint64]int   // tasks that run, by array
	started map[uint64]bool
	kept    map[uint64]bool
	toldOf  map[uint64]bool // jobs of which Slurm's own plan has been followed
	told    bool
	anew    *Plan // without Slurm's own plans; made when needed

	over    func() bool                  // ends the turn
	skip    []bool                       // rows that wait no longer, in a replay
	onStart func(row int, nodes []int32) // called at each start
}

// counters are how many rows were tried, by what they are bounded by.
type counters struct {
	user, partition, assoc, both map[string]int
}

// NewPlan makes one turn of the backfill scheduler, at the time of the world. If told,
// the nodes of Slurm's own plan are kept for a job. The turn ends early where over says so.
func NewPlan(over func() bool, w *World, told bool) *Plan {
	w.sync()
	p := &Plan{
		over: over, World: w, Results: make([]Result, len(w.Jobs)), space: newSpace(w),
		free: maps.Clone(w.Licenses), running: w.running(),
	}
	p.meet()
	p.told = told
	p.turn(w.Now, told, 0)
	return p
}

// turn goes through the pending rows. told follows Slurm's own plans.
// depth, if positive, is how many rows are considered.
func (p *Plan) turn(now int64, told bool, depth int) {
	w := p.World
	p.tried = counters{map[string]int{}, map[string]int{}, map[string]int{}, map[string]int{}}
	p.planned, p.started, p.kept, p.through = map[string]int{}, map[uint64]bool{}, map[uint64]bool{}, map[int64]int{}
	p.toldOf, p.placed = map[uint64]bool{}, map[uint64][]int{}
	p.space.visits += len(w.Jobs) / 4 // to go through the rows is work, too
	p.Tried, p.Cut = 0, false
	anew := len(p.Order) == 0
	for i := range w.Jobs {
		p.Results[i] = Result{Limit: -1}
		if anew && !w.Jobs[i].Running {
			p.Order = append(p.Order, i)
		}
	}
	p.Order = slices.DeleteFunc(p.Order, func(row int) bool { return row < len(p.skip) && p.skip[row] })
	p.order(p.Order, now)
	starts, tested := 0, 0
	blocked := map[string]bool{} // partitions in which no more starts, without backfill
	for _, row := range p.Order {
		j, r := &w.Jobs[row], &p.Results[row]
		if p.over() {
			p.Short = true
			break
		}
		if p.idle(row, now) {
			continue
		}
		s := &w.Scheduler
		if s.MaxTest > 0 && p.Tried >= s.MaxTest || depth > 0 && tested >= depth || s.MaxStart > 0 && starts >= s.MaxStart {
			p.Cut = true
			p.through[p.space.partitions[row].Tier] = p.Tried
			break
		}
		tested++
		if p.bounded(j) || !s.Backfill && blocked[j.Partition] {
			continue
		}
		p.row(row, now, told)
		starts += r.Started
		if r.Verdict != StartsNow {
			blocked[j.Partition] = true
		}
		p.through[p.space.partitions[row].Tier] = p.Tried
	}
	p.join(now)
	p.rank()
}

// idle decides on rows that take no part in the turn.
func (p *Plan) idle(row int, now int64) bool {
	j, r := &p.World.Jobs[row], &p.Results[row]
	part := p.space.partitions[row]
	switch {
	case part == nil || !part.Up:
		r.Verdict = PartitionDown
	case j.Held || j.Never != "":
		r.Verdict = Held
	case len(j.After) > 0:
		r.Verdict = Waits
	case j.Eligible > now:
		r.Verdict, r.Start = Waits, j.Eligible
	case j.Reservation != "" && !p.begun(j.Reservation, now):
		r.Verdict = Waits // the reservation keeps its nodes
	case j.AtLimit:
		r.Verdict = AtLimit
	case p.started[j.ID]:
		r.Verdict = Elsewhere
	case p.full(j):
		r.Verdict = ArrayThrottle
	default:
		return p.limited(row)
	}
	return true
}

// begun reports whether a reservation lets its jobs start.
func (p *Plan) begun(name string, now int64) bool {
	return slices.ContainsFunc(p.World.Reservations, func(r Reservation) bool { return r.Name == name && r.Start <= now && r.End > now })
}

// limited decides on rows that a limit or a license keeps back.
func (p *Plan) limited(row int) bool {
	w, j, r := p.World, &p.World.Jobs[row], &p.Results[row]
	for _, never := range []bool{true, false} {
		for _, ask := range j.Limits {
			l := &w.Limits[ask.Limit]
			switch {
			case never && ask.Amount > l.Max:
				r.Verdict, r.Limit = NeverAsks, ask.Limit
			case !never && p.used[ask.Limit]+ask.Amount > l.Max:
				r.Verdict, r.Limit = AtLimit, ask.Limit
			default:
				continue
			}
			if l.Resource != "jobs" && l.Resource != "wall" {
				p.Tried++ // nodes are looked for before these limits are
			}
			return true
		}
	}
	for name, n := range j.Licenses {
		if free, known := p.free[name]; known && free < n {
			r.Verdict, r.License = NoLicense, name
			return true
		}
	}
	return false
}

// bounded counts a row, and reports whether there were too many of its kind.
func (p *Plan) bounded(j *Job) bool {
	s, t := &p.World.Scheduler, &p.tried
	if s.MaxUser+s.MaxPartition+s.MaxAssoc+s.MaxUserInPartition == 0 {
		return false
	}
	assoc, both := j.User+"\x00"+j.Account, j.User+"\x00"+j.Partition
	full := func(n, limit int) bool { return limit > 0 && n >= limit }
	if full(t.both[both], s.MaxUserInPartition) || full(t.partition[j.Partition], s.MaxPartition) ||
		full(t.assoc[assoc], s.MaxAssoc) || full(t.user[j.User], s.MaxUser) {
		return true
	}
	t.both[both]++
	t.partition[j.Partition]++
	t.assoc[assoc]++
	t.user[j.User]++
	return false
}

// row plans one row: a job, or the tasks of an array.
func (p *Plan) row(row int, now int64, told bool) {
	w, j, r := p.World, &p.World.Jobs[row], &p.Results[row]
	s := &w.Scheduler
	if j.Het != 0 {
		p.component(row, now, told)
		return
	}
	tasks, kept, from := max(1, j.Tasks), 0, now
	for task := 0; task < tasks; task++ {
		if p.full(j) || kept > 0 && (kept >= s.ArrayTasks || j.AtOnce > 0 && kept+r.Started >= j.AtOnce) {
			return
		}
		if task > 0 && p.limited(row) {
			if r.Started > 0 {
				r.Verdict = StartsNow
			} else {
				r.Verdict = PlannedLate
			}
			return
		}
		if s.MaxTest > 0 && p.Tried >= s.MaxTest {
			p.Cut = true
			return
		}
		if told && task == 0 && p.tell(row, now) {
			kept++
			from = r.Start
			continue
		}
		start, nodes, ok := p.space.earliest(row, from, j.length())
		if !ok {
			p.nowhere(row, now)
			return
		}
		p.Tried++
		if task == 0 {
			r.Start, r.Nodes = start, p.names(nodes)
		}
		if start <= now {
			p.begin(row, now, nodes)
			r.Verdict = StartsNow
			r.Started++
			continue
		}
		from = start
		if p.keep(row, start, nodes, kept == 0 && r.Started == 0) {
			kept++
			continue
		}
		return
	}
}

// component finds when one component of a heterogeneous job could start. Nodes are kept
// for those that cannot start now.
func (p *Plan) component(row int, now int64, told bool) {
	j, r := &p.World.Jobs[row], &p.Results[row]
	if !told || !p.tell(row, now) {
		start, nodes, ok := p.space.earliest(row, now, j.length())
		if !ok {
			p.nowhere(row, now)
			return
		}
		p.Tried++
		r.Start, r.Nodes, r.Verdict = start, p.names(nodes), StartsNow
		if start > now {
			p.keep(row, start, nodes, true)
		}
	}
	p.placed[j.Het] = append(p.placed[j.Het], row)
}

// join starts the heterogeneous jobs of which all components can start now, beside each
// other. The others start when the last of their components can.
func (p *Plan) join(now int64) {
	components := map[uint64]map[uint64]bool{} // that wait, by heterogeneous job
	for _, row := range p.Order {
		if j := &p.World.Jobs[row]; j.Het != 0 {
			if components[j.Het] == nil {
				components[j.Het] = map[uint64]bool{}
			}
			components[j.Het][j.ID] = true
		}
	}
	for _, het := range slices.Sorted(maps.Keys(p.placed)) {
		rows, latest, found := p.placed[het], int64(0), map[uint64]bool{}
		for _, row := range rows {
			latest = max(latest, p.Results[row].Start)
			found[p.World.Jobs[row].ID] = true
		}
		nodes := map[int][]int32{}
		switch {
		case len(found) < len(components[het]):
			for _, row := range rows {
				p.Results[row] = Result{Verdict: Waits, Limit: -1}
			}
		case latest <= now:
			nodes = p.beside(rows, now)
		}
		for _, row := range rows {
			r := &p.Results[row]
			switch chosen, ok := nodes[row]; {
			case ok:
				r.Verdict, r.Started, r.Nodes = StartsNow, 1, p.names(chosen)
				p.begin(row, now, chosen)
			case r.Verdict == StartsNow:
				r.Verdict, r.Start = PlannedLate, max(latest, now+1)
			case r.Start > 0:
				r.Start = latest
			}
		}
	}
}

// beside finds nodes on which all components of a job start at the same time; none if there are
// too few. Of a component that waits for several partitions the first row counts.
func (p *Plan) beside(rows []int, now int64) map[int][]int32 {
	chosen, done := map[int][]int32{}, map[uint64]bool{}
	for _, row := range rows {
		j := &p.World.Jobs[row]
		if done[j.ID] {
			continue
		}
		nodes := p.space.atOnce(row, now, j.length(), nil)
		if nodes == nil {
			chosen = nil
			break
		}
		done[j.ID], chosen[row] = true, nodes
		for _, n := range nodes {
			use, _ := p.space.asked(row, n)
			p.space.nodes[n].runs = append(p.space.nodes[n].runs, run{row, 0, after(now, j.length()), use})
			p.space.changed(n)
		}
	}
	for i := range p.space.nodes { // begin puts them there
		place := &p.space.nodes[i]
		if n := len(place.runs); n > 0 {
			place.runs = slices.DeleteFunc(place.runs, func(r run) bool { return slices.Contains(rows, r.row) })
			if len(place.runs) < n {
				p.space.changed(int32(i))
			}
		}
	}
	return chosen
}

// length is how long the scheduler believes that the job runs.
func (j *Job) length() int64 {
	if j.Limit <= 0 {
		return Forever
	}
	return j.Limit
}

// nowhere says why there is no time at which a row could start.
func (p *Plan) nowhere(row int, now int64) {
	r := &p.Results[row]
	if r.Started > 0 || r.Verdict != NotReached {
		return
	}
	set := p.space.nodesFor(row)
	fits, usable := 0, 0
	for _, n := range set.nodes {
		if !p.space.couldFit(row, n) {
			continue
		}
		fits++
		if p.space.nodes[n].usable {
			usable++
		}
	}
	need := max(1, p.World.Jobs[row].Nodes)
	switch {
	case fits < need:
		r.Verdict = NeverFits
	default:
		r.Verdict = NoNodes
	}
}

// tell applies Slurm's own plan for a row.
func (p *Plan) tell(row int, now int64) bool {
	j, r := &p.World.Jobs[row], &p.Results[row]
	if len(j.Planned) == 0 || j.Start <= now || p.toldOf[j.ID] {
		return false // or it has been told for a partition of a higher tier: this plan is not shown
	}
	nodes := make([]int32, 0, len(j.Planned))
	for _, name := range j.Planned {
		n, ok := p.space.index[name]
		if !ok || !slices.Contains(p.space.partitions[row].Nodes, name) {
			return false // the plan is for another of its partitions
		}
		nodes = append(nodes, n)
	}
	p.Tried++
	p.toldOf[j.ID] = true
	r.Start, r.Nodes, r.Told = j.Start, j.Planned, true
	p.keep(row, j.Start, nodes, true)
	return true
}

// keep reserves nodes for a row, if the scheduler does.
func (p *Plan) keep(row int, start int64, nodes []int32, first bool) bool {
	w, j, r := p.World, &p.World.Jobs[row], &p.Results[row]
	s := &w.Scheduler
	verdict := PlannedLate
	switch {
	case start > w.Now+s.Window && s.Window > 0:
		verdict = Beyond
	case j.Priority < s.MinPriority,
		s.OneReservation && p.kept[j.ID],
		s.ReserveInPartition > 0 && p.planned[j.Partition] >= s.ReserveInPartition:
		verdict = Unplanned
	}
	if first {
		r.Verdict = verdict
	}
	if verdict != PlannedLate {
		return false
	}
	p.kept[j.ID] = true
	p.planned[j.Partition]++
	end := roundUp(after(start, j.length()), max(1, s.Resolution))
	b := block{start - start%max(1, s.Resolution), end, p.space.partitions[row].Tier, row}
	for _, n := range nodes {
		p.space.block(n, b)
	}
	return true
}

// begin starts a task of a row.
func (p *Plan) begin(row int, now int64, nodes []int32) {
	j := &p.World.Jobs[row]
	p.started[j.ID] = true
	p.running[j.ArrayID]++
	for _, n := range nodes {
		use, _ := p.space.asked(row, n)
		place := &p.space.nodes[n]
		place.runs = append(place.runs, run{row, 0, after(now, j.length()), use})
		p.space.changed(n)
	}
	p.take(j, 1)
	if p.onStart != nil {
		p.onStart(row, nodes)
	}
}

// full reports whether an array has reached its own limit of running tasks.
func (p *Plan) full(j *Job) bool { return j.AtOnce > 0 && p.running[j.ArrayID] >= j.AtOnce }

// take counts a job against its limits and licenses, or gives back.
func (p *Plan) take(j *Job, sign float64) {
	for _, ask := range j.Limits {
		if sign > 0 || !p.World.Limits[ask.Limit].Decays {
			p.used[ask.Limit] += sign * ask.Amount
		}
	}
	for name, n := range j.Licenses {
		if _, known := p.free[name]; known {
			p.free[name] -= int64(sign) * n
		}
	}
}

func (p *Plan) names(nodes []int32) []string {
	list := make([]string, len(nodes))
	for i, n := range nodes {
		list[i] = p.World.Nodes[n].Name
	}
	return list
}

// rank counts, in each partition, the rows that may take nodes before a row.
func (p *Plan) rank() {
	before := map[string]int{}
	for _, row := range p.Order {
		r := &p.Results[row]
		if !r.Verdict.InLine() {
			continue
		}
		j := &p.World.Jobs[row]
		r.Rank = before[j.Partition] + 1
		n := max(1, j.Tasks)
		if j.AtOnce > 0 {
			n = min(n, j.AtOnce)
		}
		before[j.Partition] += n
	}
}

// InLine reports whether a job with that verdict may take nodes that others want.
func (v Verdict) InLine() bool {
	switch v {
	case NotReached, StartsNow, PlannedLate, Unplanned, Beyond:
		return true
	default:
		return false
	}
}

// With is the turn that follows if a world had one more job; row is its row.
func (p *Plan) With(j Job) (changed *Plan, row int) {
	w := *p.World
	w.Jobs = append(slices.Clip(w.Jobs), j)
	return NewPlan(p.over, &w, p.told), len(w.Jobs) - 1
}

// Instead is the turn that follows if one row were another job.
func (p *Plan) Instead(row int, j Job) *Plan {
	w := *p.World
	w.Jobs = slices.Clone(w.Jobs)
	j.Planned = nil
	w.Jobs[row] = j
	return NewPlan(p.over, &w, p.told)
}

// Delayed are the rows that start later, or lose their plan, in another turn than in
// this one. Rows that the other one has in addition are not compared. Both must be
// without Slurm's own plans, which do not know the change.
func (p *Plan) Delayed(other *Plan) []int {
	var rows []int
	for i := range p.Results {
		a, b := &p.Results[i], &other.Results[i]
		was := a.Verdict == StartsNow || a.Verdict == PlannedLate
		is := b.Verdict == StartsNow || b.Verdict == PlannedLate
		if was && (!is || b.Start > a.Start) && b.Verdict != Elsewhere {
			rows = append(rows, i)
		}
	}
	return rows
}
