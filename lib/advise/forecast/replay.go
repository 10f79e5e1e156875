package forecast

import (
	"container/heap"
	"slices"
)

// Course is the input of a replay.
type Course struct {
	// Run is how long a job runs in all, in seconds; of one that runs, at least as long as
	// it has run until now.
	Run func(j *Job) int64
	// Lag, in seconds, is how long after its end the nodes of a job are free.
	Lag int64
	// Arrival is the nth job, from 0, that is submitted later, in the order of their Submit; false: there is none. They are made one
	// by one, as those of weeks are more than all that wait. nil: none arrives.
	Arrival func(n int) (Job, bool)
	// Until ends the replay; Turns is how many turns of the backfill scheduler it makes
	// exactly, and Work how often it looks at a node, before the turns become rarer.
	Until       int64
	Turns, Work int
}

// Replay lets time pass: jobs end, others arrive, and the scheduler starts those that it
// would start, knowing time limits only. It returns when the jobs of some rows start; 0
// if that is not before the end. A row of which several tasks wait counts by its first. Where over
// says so before the replay ends, it returns nil.
func Replay(over func() bool, w *World, rows []int, c Course) []int64 {
	starts, _ := replayed(over, w, rows, c)
	return starts
}

// replayed is Replay, and how much work it was: how often a node was looked at.
func replayed(over func() bool, w *World, rows []int, c Course) (starts []int64, visits int) {
	r := newReplay(over, w, rows, c)
	for r.left > 0 && !r.p.over() && r.step() {
	}
	if r.left > 0 && r.p.over() {
		return nil, r.p.space.visits
	}
	return r.starts, r.p.space.visits
}

type replay struct {
	w       World
	p       *Plan
	c       Course
	starts  []int64
	target  map[int]int // index into starts by row
	left    int
	events  events
	tasks   map[int]task // that run, by their number
	next    Job          // that arrives; at Forever: none
	arrived int
	after   map[uint64][]int
	alive   map[uint64]int // tasks of a job that have not ended
	ended   map[uint64]bool
	gone    []bool // rows whose tasks have all been started
	dirty   bool
	turn    int64 // when the next turn of the backfill scheduler is due
	turns   int
	same    map[uint64][]int // rows of a job, where it waits for several partitions

	overlaps map[*Partition][]*Partition // those that lose their turn with one, itself among them
	freed    []int32                     // nodes on which something has ended since main looked last
	stuck    map[*Partition]int          // the row that found no node then, and finds one of the freed ones or none
}

type task struct {
	row   int
	nodes []int32
}

type event struct {
	at   int64
	task int // 0: only a look
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newReplay(over func() bool, w *World, rows []int, c Course) *replay {
	w.sync()
	r := &replay{
		w: *w, c: c, starts: make([]int64, len(rows)), target: map[int]int{}, tasks: map[int]task{}, after: map[uint64][]int{},
		alive: map[uint64]int{}, ended: map[uint64]bool{}, same: map[uint64][]int{}, dirty: true, turn: w.Now,
		overlaps: w.overlaps(),
	}
	const arrive = 1000 // room for some: if the jobs had to grow for the first one, they would be there twice
	r.w.Jobs = append(make([]Job, 0, len(w.Jobs)+arrive), w.Jobs...)
	if w.Fair != nil {
		r.w.course = w.Fair.course(w.Now)
	}
	if r.c.Turns <= 0 {
		r.c.Turns = 200
	}
	for i, row := range rows {
		r.target[row] = i
	}
	r.left = len(rows)
	p := &Plan{
		over: over, World: &r.w, space: newSpace(&r.w), free: map[string]int64{},
		Results: make([]Result, len(w.Jobs)), running: w.running(),
	}
	r.p = p
	p.meet()
	for name, n := range w.Licenses {
		p.free[name] = n
	}
	p.onStart = r.started
	for i := range r.w.Jobs {
		j := &r.w.Jobs[i]
		r.gone = append(r.gone, j.Running)
		r.alive[j.ID]++
		if j.ArrayID != j.ID {
			r.alive[j.ArrayID]++
		}
		if !j.Running {
			r.same[j.ID] = append(r.same[j.ID], i)
		}
	}
	for i := range r.w.Jobs {
		j := &r.w.Jobs[i]
		r.shares(j)
		if j.Running {
			if r.w.course != nil {
				r.w.course.began(j.leaf-1, j.usage(), j.Start, w.Now)
			}
			r.runs(i)
			continue
		}
		j.Planned = nil
		j.After = slices.Clone(j.After)
		for _, id := range j.After {
			r.after[id] = append(r.after[id], i)
		}
		if j.Eligible > w.Now {
			r.events = append(r.events, event{at: j.Eligible})
		}
	}
	for _, v := range w.Reservations {
		r.events = append(r.events, event{at: v.Start}, event{at: v.End})
	}
	for id := range r.after {
		if r.alive[id] == 0 && id != 0 {
			r.release(id) // it has ended already
		}
	}
	heap.Init(&r.events)
	r.await()
	return r
}

// shares finds the association of a job.
func (r *replay) shares(j *Job) {
	if r.w.course == nil {
		return
	}
	j.leaf = r.w.Fair.leaf(j) + 1
	if r.w.Fair.rising {
		j.floor = j.Priority
	}
}

// runs takes over a job that runs.
func (r *replay) runs(row int) {
	j := &r.w.Jobs[row]
	number := len(r.tasks) + 1
	var nodes []int32
	for name := range j.Uses {
		if n, ok := r.p.space.index[name]; ok {
			nodes = append(nodes, n)
		}
	}
	for _, n := range nodes {
		for k := range r.p.space.nodes[n].runs {
			if run := &r.p.space.nodes[n].runs[k]; run.row == row {
				run.id = number
			}
		}
	}
	r.tasks[number] = task{row, nodes}
	if j.End == Forever && j.ID == 0 {
		return // a job that is not visible
	}
	end := after(j.Start, r.c.Run(j))
	if j.End > r.w.Now {
		end = min(end, j.End)
	}
	r.events = append(r.events, event{max(end, r.w.Now+1) + r.c.Lag, number})
}

// await looks for the next job that arrives.
func (r *replay) await() {
	more := false
	if r.c.Arrival != nil {
		r.next, more = r.c.Arrival(r.arrived)
	}
	if !more {
		r.next.Submit = Forever
	}
}

// step goes to the next time at which something happens, and lets the scheduler act.
func (r *replay) step() bool {
	at := int64(Forever)
	if len(r.events) > 0 {
		at = r.events[0].at
	}
	at = min(at, r.next.Submit)
	if r.dirty {
		at = min(at, r.turn)
	}
	if at == Forever || r.c.Until > 0 && at > r.c.Until {
		return false
	}
	at = max(at, r.w.Now)
	r.w.Now = at
	happened := false
	for len(r.events) > 0 && r.events[0].at <= at {
		e := heap.Pop(&r.events).(event)
		happened = true
		if e.task > 0 {
			r.ends(e.task)
		} else {
			r.stuck = nil // a reservation begins or ends, or a job may start from now on
		}
	}
	for r.next.Submit <= at {
		r.arrive(r.w.Bound(r.next))
		r.arrived++
		r.await()
		happened = true
	}
	r.dirty = r.dirty || happened
	if r.dirty && at >= r.turn {
		r.backfill(at)
	} else if happened {
		r.main(at)
	}
	return true
}

// backfill is a full turn.
func (r *replay) backfill(at int64) {
	r.p.space.reserve()
	r.p.skip = r.gone
	if c := r.w.course; c != nil && c.due(at) {
		c.compute(at)
		r.p.space.visits += 8 * len(c.nodes) // that is work, too
		for i := range r.w.Jobs {
			if j := &r.w.Jobs[i]; c.rising && !r.gone[i] {
				j.floor = r.w.PriorityAt(j, at)
			}
		}
	}
	r.p.turn(at, false, 0)
	r.turns++
	r.dirty = false
	every := max(1, r.w.Scheduler.Interval)
	coarse := r.turns / r.c.Turns
	if r.c.Work > 0 {
		coarse = max(coarse, 4*r.p.space.visits/r.c.Work)
	}
	for range min(coarse, 12) {
		every *= 2 // far ahead it need not be so exact
	}
	r.turn = at + every
}

// main is the scheduler that acts whenever something happens: it starts the first jobs of
// each partition, until one cannot start.
func (r *replay) main(at int64) {
	p := r.p
	p.space.reserve()
	clear(p.started)
	blocked, stuck := map[*Partition]bool{}, map[*Partition]int{}
	for first := 0; first < len(p.Order) && r.gone[p.Order[first]]; first++ {
		p.Order = p.Order[1:] // it is looked at after each end of a job
		first--
	}
	tested := 0
	for _, row := range p.Order {
		if len(blocked) == len(r.w.Partitions) {
			break
		}
		part := p.space.partitions[row]
		if part == nil || r.gone[row] || blocked[part] || r.w.Jobs[row].Het != 0 {
			continue
		}
		if tested++; r.w.Scheduler.QueueDepth > 0 && tested > r.w.Scheduler.QueueDepth {
			break
		}
		p.Results[row] = Result{Limit: -1}
		j := &r.w.Jobs[row]
		for !r.gone[row] && !p.idle(row, at) {
			var among []int32 // nil: all
			if was, ok := r.stuck[part]; ok && was == row {
				among = r.freed
			}
			nodes := p.space.atOnce(row, at, j.length(), among)
			if nodes == nil {
				for _, other := range r.overlaps[part] {
					blocked[other] = true
				}
				stuck[part] = row
				break
			}
			delete(r.stuck, part)
			p.begin(row, at, nodes)
			delete(p.started, j.ID)
		}
	}
	r.stuck, r.freed = stuck, r.freed[:0]
}

// overlaps are, by partition, those that start nothing either when its next job has to wait: itself, and those whose
// first node is one of its own. Partitions that overlap mostly do so in all of the smaller one's nodes.
func (w *World) overlaps() map[*Partition][]*Partition {
	all := map[*Partition][]*Partition{}
	for i := range w.Partitions {
		part := &w.Partitions[i]
		for k := range w.Partitions {
			other := &w.Partitions[k]
			if k == i || len(other.Nodes) > 0 && slices.Contains(part.Nodes, other.Nodes[0]) {
				all[part] = append(all[part], other)
			}
		}
	}
	return all
}

// started records the start of one task of a row.
func (r *replay) started(row int, nodes []int32) {
	j := &r.w.Jobs[row]
	if r.w.course != nil {
		r.w.course.runs(j.leaf-1, j.usage(), r.w.Now)
	}
	number := len(r.tasks) + 1
	r.tasks[number] = task{row, slices.Clone(nodes)}
	for _, n := range nodes {
		runs := r.p.space.nodes[n].runs
		runs[len(runs)-1].id = number
	}
	for _, k := range r.same[j.ID] {
		other := &r.w.Jobs[k]
		if i, ok := r.target[k]; ok && r.starts[i] == 0 {
			r.starts[i] = r.w.Now
			r.left--
		}
		if other.Tasks--; other.Tasks <= 0 {
			r.gone[k] = true
		}
	}
	if r.alive[j.ID]++; j.ArrayID != j.ID {
		r.alive[j.ArrayID]++
	}
	length := max(1, min(r.c.Run(j), j.length()))
	heap.Push(&r.events, event{after(after(r.w.Now, length), r.c.Lag), number})
	r.dirty = true
}

// ends frees what a task had.
func (r *replay) ends(number int) {
	t := r.tasks[number]
	for _, n := range t.nodes {
		place := &r.p.space.nodes[n]
		place.runs = slices.DeleteFunc(place.runs, func(run run) bool { return run.id == number })
		r.p.space.changed(n)
	}
	r.freed = append(r.freed, t.nodes...)
	j := &r.w.Jobs[t.row]
	if r.w.course != nil {
		r.w.course.runs(j.leaf-1, -j.usage(), r.w.Now)
	}
	r.p.take(j, -1)
	r.p.running[j.ArrayID]--
	for _, id := range []uint64{j.ID, j.ArrayID} {
		if r.alive[id]--; r.alive[id] <= 0 || r.only(id) {
			r.release(id)
		}
		if j.ArrayID == j.ID {
			break
		}
	}
}

// only reports whether all that is left of a job are rows whose tasks have been started.
func (r *replay) only(id uint64) bool {
	rows := 0
	for _, k := range r.same[id] {
		if !r.gone[k] {
			return false
		}
		rows++
	}
	return r.alive[id] <= rows
}

// release lets the jobs go on that waited for one.
func (r *replay) release(id uint64) {
	for _, row := range r.after[id] {
		j := &r.w.Jobs[row]
		j.After = slices.DeleteFunc(j.After, func(other uint64) bool { return other == id })
	}
	delete(r.after, id)
}

// arrive adds a job to those that wait.
func (r *replay) arrive(j Job) {
	row := len(r.w.Jobs)
	r.p.meet()
	r.shares(&j)
	r.w.Jobs = append(r.w.Jobs, j)
	r.gone = append(r.gone, false)
	r.p.Results = append(r.p.Results, Result{Limit: -1})
	r.p.space.partitions = append(r.p.space.partitions, r.w.Partition(j.Partition))
	r.same[j.ID] = append(r.same[j.ID], row)
	r.alive[j.ID]++
	// Where it comes in the order, as far as that is sorted by priority.
	at, priority := len(r.p.Order), r.w.PriorityAt(&j, r.w.Now)
	for at > 0 {
		before := &r.w.Jobs[r.p.Order[at-1]]
		if before.Partition != j.Partition || r.w.PriorityAt(before, r.w.Now) >= priority {
			break
		}
		at--
		r.p.space.visits++
	}
	r.p.Order = slices.Insert(r.p.Order, at, row)
}
