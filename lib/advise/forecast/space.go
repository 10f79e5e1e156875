package forecast

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// space is the nodes with what takes them.
type space struct {
	w     *World
	nodes []place
	index map[string]int32
	sets  map[string]*nodeSet
	// partition and preemption class of each job's row, by index
	partitions []*Partition
	rowSets    []*nodeSet
	classes    map[string]int
	who        []class
	owned      bool        // some nodes are a user's alone
	free       []Resources // of each node, what no job has now; -1 CPUs: to be counted
	spans      []span      // scratch
	visits     int         // how often a node was looked at
}

// class is who preempts whom: jobs of one class see the same.
type class struct {
	p   *Partition
	qos string
}

// place is a node.
type place struct {
	total  Resources
	usable bool
	runs   []run
	views  []view // by class, made when needed
	blocks []block
}

// run is a job on a node.
type run struct {
	row int // of the jobs
	id  int // of the task, in a replay
	end int64
	use Resources
}

// view is what becomes free when, for a class of jobs.
type view struct {
	ready bool
	steps []step
}

type step struct {
	at   int64
	free Resources
}

// block is a time in which a node is kept.
type block struct {
	start, end int64
	tier       int64 // only jobs of lower or equal tiers must keep clear
	row        int   // of the planned job; negative: the reservation -1-row
}

// nodeSet are the nodes that a kind of job may use.
type nodeSet struct {
	nodes    []int32
	required []int32
	approx   string
}

// of are those of some nodes that are in the set, in its order.
func (set *nodeSet) of(some []int32) []int32 {
	var at []int
	for _, n := range some {
		if i := slices.Index(set.nodes, n); i >= 0 {
			at = append(at, i)
		}
	}
	slices.Sort(at)
	nodes := make([]int32, len(at))
	for k, i := range at {
		nodes[k] = set.nodes[i]
	}
	return nodes
}

func newSpace(w *World) *space {
	s := &space{w: w, index: make(map[string]int32, len(w.Nodes)), sets: map[string]*nodeSet{}, classes: map[string]int{}}
	s.nodes, s.free = make([]place, len(w.Nodes)), make([]Resources, len(w.Nodes))
	next := int32(0)
	for i := range w.Nodes {
		n := &w.Nodes[i]
		s.owned = s.owned || n.Owner != ""
		s.index[n.Name] = next
		next++
		s.nodes[i] = place{total: n.Total, usable: n.Usable}
		s.free[i].CPUs = unknown
	}
	partitions := map[string]*Partition{}
	for i := range w.Partitions {
		partitions[w.Partitions[i].Name] = &w.Partitions[i]
	}
	s.partitions = make([]*Partition, len(w.Jobs))
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if s.partitions[i] = partitions[j.Partition]; j.Running {
			for name, use := range j.Uses {
				s.put(i, name, use, j.End)
			}
		}
	}
	s.reserve()
	return s
}

// put lets a job have a part of a node until end.
func (s *space) put(row int, node string, use Resources, end int64) {
	if n, ok := s.index[node]; ok {
		if end <= s.w.Now {
			end = s.w.Now + s.w.Scheduler.Resolution // it is late, and still there
		}
		if s.w.Scheduler.WholeNodes {
			use = s.nodes[n].total
		}
		s.nodes[n].runs = append(s.nodes[n].runs, run{row, 0, end, use})
		s.changed(n)
	}
}

// unknown marks what is free on a node as not counted.
const unknown = -1 << 30

// changed forgets what was known of the runs of a node.
func (s *space) changed(n int32) {
	s.nodes[n].views, s.free[n].CPUs = nil, unknown
}

// idle is what no job has of a node.
func (s *space) idle(n int32) *Resources {
	f := &s.free[n]
	if f.CPUs == unknown {
		*f = s.nodes[n].total
		for i := range s.nodes[n].runs {
			use := &s.nodes[n].runs[i].use
			f.CPUs, f.MemMB, f.GPUs = f.CPUs-use.CPUs, f.MemMB-use.MemMB, f.GPUs-use.GPUs
		}
	}
	return f
}

// reserve lays the reservations out.
func (s *space) reserve() {
	for i := range s.nodes {
		s.nodes[i].blocks = s.nodes[i].blocks[:0]
	}
	for k, r := range s.w.Reservations {
		for _, name := range r.Nodes {
			if n, ok := s.index[name]; ok && r.End > s.w.Now {
				s.block(n, block{max(r.Start, s.w.Now), r.End, math.MaxInt64, -1 - k})
			}
		}
	}
}

func (s *space) block(n int32, b block) {
	p := &s.nodes[n]
	at, _ := slices.BinarySearchFunc(p.blocks, b, func(x, y block) int { return cmp.Compare(x.start, y.start) })
	p.blocks = slices.Insert(p.blocks, at, b)
}

// preemption is the class of a row; 0 preempts no job.
func (s *space) preemption(row int) int {
	if !s.w.Scheduler.PreemptByQOS && !s.w.Scheduler.PreemptByTier {
		return 0
	}
	c := class{s.partitions[row], s.w.Jobs[row].QOS}
	key := c.qos
	if s.w.Scheduler.PreemptByTier {
		key = c.p.Name
	}
	if k, ok := s.classes[key]; ok {
		return k
	}
	s.who = append(s.who, c)
	s.classes[key] = len(s.who)
	return len(s.who)
}

// steps are the amounts that are free on a node, as time goes by.
func (s *space) steps(n int32, class int) []step {
	p := &s.nodes[n]
	for len(p.views) <= class {
		p.views = append(p.views, view{})
	}
	v := &p.views[class]
	if v.ready {
		return v.steps
	}
	runs := make([]run, 0, len(p.runs))
	for _, r := range p.runs {
		if class > 0 && r.row >= 0 {
			c := s.who[class-1]
			if other := s.partitions[r.row]; s.w.Preempts(c.p, c.qos, other, s.w.Jobs[r.row].QOS) {
				if !other.PreemptSuspended {
					continue
				}
				r.use = Resources{MemMB: r.use.MemMB}
			}
		}
		runs = append(runs, r)
	}
	sort.Slice(runs, func(i, j int) bool { return runs[i].end < runs[j].end })
	free := p.total
	for _, r := range runs {
		free.CPUs, free.MemMB, free.GPUs = free.CPUs-r.use.CPUs, free.MemMB-r.use.MemMB, free.GPUs-r.use.GPUs
	}
	v.steps = append(v.steps[:0], step{math.MinInt64, free})
	for _, r := range runs {
		if r.end == Forever {
			break
		}
		free.CPUs, free.MemMB, free.GPUs = free.CPUs+r.use.CPUs, free.MemMB+r.use.MemMB, free.GPUs+r.use.GPUs
		if last := &v.steps[len(v.steps)-1]; last.at == r.end {
			last.free = free
		} else {
			v.steps = append(v.steps, step{r.end, free})
		}
	}
	v.ready = true
	return v.steps
}

// nodesFor are the nodes that a row may use.
func (s *space) nodesFor(row int) *nodeSet {
	for len(s.rowSets) <= row {
		s.rowSets = append(s.rowSets, nil)
	}
	if s.rowSets[row] == nil {
		s.rowSets[row] = s.makeSet(row)
	}
	return s.rowSets[row]
}

func (s *space) makeSet(row int) *nodeSet {
	j := &s.w.Jobs[row]
	key := strings.Join([]string{
		j.Partition, j.Features, j.GPUType, j.Reservation,
		strings.Join(j.Required, ","), strings.Join(j.Excluded, ","), strconv.FormatBool(j.Need.GPUs > 0), j.User,
	}, "\x00")
	if !s.owned {
		key = strings.TrimSuffix(key, j.User)
	}
	if set, ok := s.sets[key]; ok {
		return set
	}
	set := &nodeSet{}
	s.sets[key] = set
	names := s.partitions[row].Nodes
	if j.Reservation != "" {
		for _, r := range s.w.Reservations {
			if r.Name == j.Reservation && !r.Flexible {
				names = r.Nodes
			}
		}
	}
	for _, name := range names {
		n, ok := s.index[name]
		if !ok || slices.Contains(j.Excluded, name) {
			continue
		}
		node := &s.w.Nodes[n]
		matches, exact := Matches(j.Features, node.Features)
		if !exact {
			set.approx = "features"
		}
		if !matches || j.GPUType != "" && node.GPUs[j.GPUType] == 0 || node.Owner != "" && node.Owner != j.User {
			continue
		}
		if len(node.GPUs) > 1 && j.Need.GPUs > 0 {
			set.approx = "several types of GPUs in a node"
		}
		set.nodes = append(set.nodes, n)
		if slices.Contains(j.Required, name) {
			set.required = append(set.required, n)
		}
	}
	if len(set.required) < len(j.Required) {
		set.nodes = nil // a node that is asked for is not among them
	}
	if len(set.required) >= max(1, j.Nodes) {
		set.nodes = set.required
	}
	sort.SliceStable(set.nodes, func(a, b int) bool { return s.w.Nodes[set.nodes[a]].Weight < s.w.Nodes[set.nodes[b]].Weight })
	return set
}

// asked is what a row takes of a node: need, or all of it.
func (s *space) asked(row int, n int32) (need Resources, whole bool) {
	j, p := &s.w.Jobs[row], s.partitions[row]
	if j.Whole || p.Exclusive || s.w.Scheduler.WholeNodes {
		return s.nodes[n].total, true
	}
	return j.Need, false
}

// couldFit reports whether a node has what a row requests if nothing else runs there.
func (s *space) couldFit(row int, n int32) bool {
	j, p := &s.w.Jobs[row], s.partitions[row]
	total := s.nodes[n].total
	if p.MaxCPUs > 0 {
		total.CPUs = min(total.CPUs, float64(p.MaxCPUs))
	}
	if p.MaxMem > 0 {
		total.MemMB = min(total.MemMB, float64(p.MaxMem))
	}
	if j.GPUType != "" && float64(s.w.Nodes[n].GPUs[j.GPUType]) < j.Need.GPUs {
		return false
	}
	return total.Covers(j.Need)
}

// window finds when a row can first have its part of a node for length seconds, not
// before from, and until when it could begin then. ok is false if that is never.
func (s *space) window(row int, n int32, from, length int64, class int) (start, last int64, ok bool) {
	p := &s.nodes[n]
	s.visits++
	if !p.usable || !s.couldFit(row, n) {
		return 0, 0, false
	}
	need, _ := s.asked(row, n)
	steps := s.steps(n, class)
	at := 0
	for at < len(steps) && !steps[at].free.Covers(need) {
		at++
	}
	if at == len(steps) {
		return 0, 0, false
	}
	start = max(from, steps[at].at)
	tier := s.partitions[row].Tier
	for _, b := range p.blocks {
		if b.end <= start || b.tier < tier || b.row < 0 && s.mayUse(row, -1-b.row) {
			continue
		}
		end := after(start, length)
		if b.start > start && roundUp(end, s.w.Scheduler.Resolution) <= b.start {
			latest := b.start - length
			for latest > start && roundUp(after(latest, length), s.w.Scheduler.Resolution) > b.start {
				latest -= s.w.Scheduler.Resolution
			}
			return start, max(latest, start), true
		}
		if b.end == Forever {
			return 0, 0, false
		}
		start = b.end
	}
	if r := s.ownReservation(row); r != nil {
		if start = max(start, r.Start); after(start, length) > r.End {
			return 0, 0, false
		}
		return start, r.End - length, true
	}
	return start, Forever, true
}

func (s *space) mayUse(row, reservation int) bool {
	return s.w.Jobs[row].Reservation == s.w.Reservations[reservation].Name
}

func (s *space) ownReservation(row int) *Reservation {
	name := s.w.Jobs[row].Reservation
	if name == "" {
		return nil
	}
	for i := range s.w.Reservations {
		if s.w.Reservations[i].Name == name {
			return &s.w.Reservations[i]
		}
	}
	return nil
}

// earliest finds when and where a row can start, not before from.
func (s *space) earliest(row int, from, length int64) (start int64, nodes []int32, ok bool) {
	set := s.nodesFor(row)
	count := max(1, s.w.Jobs[row].Nodes)
	if len(set.nodes) < count {
		return 0, nil, false
	}
	class := s.preemption(row)
	if count == 1 {
		best, at := int64(0), int32(-1)
		for _, n := range set.nodes {
			if t, _, ok := s.window(row, n, from, length, class); ok && (at < 0 || t < best) {
				if best, at = t, n; best <= from {
					break
				}
			}
		}
		return best, []int32{at}, at >= 0
	}
	return s.together(row, set, count, from, length, class)
}

// span is a stretch of time in which a job could begin on a node.
type span struct {
	start, last int64
	node        int32
}

// together finds when several nodes are free at the same time.
func (s *space) together(row int, set *nodeSet, count int, from, length int64, class int) (int64, []int32, bool) {
	spans := s.spans[:0]
	for _, n := range set.nodes {
		for at, k := from, 0; k < 64; k++ {
			start, last, ok := s.window(row, n, at, length, class)
			if !ok {
				break
			}
			spans = append(spans, span{start, last, n})
			if last == Forever {
				break
			}
			at = last + 1
		}
	}
	s.spans = spans
	// The spans of one node do not overlap: it is enough to count those that have begun
	// and not ended. Ends are considered after starts of the same second.
	starts, ends := make([]int64, 0, len(spans)), []int64{}
	for _, o := range spans {
		starts = append(starts, o.start)
		if o.last < Forever {
			ends = append(ends, o.last)
		}
	}
	slices.Sort(starts)
	slices.Sort(ends)
	open, ended := 0, 0
	for i, t := range starts {
		open++
		for ended < len(ends) && ends[ended] < t {
			ended++
			open--
		}
		if open < count || i+1 < len(starts) && starts[i+1] == t {
			continue
		}
		if nodes := choose(spans, set.required, t, count); nodes != nil {
			return t, nodes, true
		}
	}
	return 0, nil, false
}

// choose takes nodes that are free at a time: those that are required, and the first of
// the others. It is nil if a required one is not.
func choose(spans []span, required []int32, t int64, count int) []int32 {
	chosen := make([]int32, 0, count)
	for pass := range 2 {
		for _, o := range spans {
			if o.start > t || o.last < t || len(chosen) == count {
				continue
			}
			if slices.Contains(required, o.node) == (pass == 0) {
				chosen = append(chosen, o.node)
			}
		}
		if pass == 0 && len(chosen) < len(required) {
			return nil
		}
	}
	return chosen
}

// atOnce finds nodes on which a row can start at a time, or nil; among, if that is not nil, are those
// of which one must be chosen, as none did before.
func (s *space) atOnce(row int, at, length int64, among []int32) []int32 {
	set := s.nodesFor(row)
	count := max(1, s.w.Jobs[row].Nodes)
	class := s.preemption(row)
	nodes := set.nodes
	if count == 1 && among != nil && len(among) < len(nodes)/8 {
		nodes = set.of(among)
	}
	spans := s.spans[:0]
	for _, n := range nodes {
		if class == 0 && !s.idle(n).Covers(s.w.Jobs[row].Need) {
			continue // as nearly all nodes of a full cluster
		}
		if start, last, ok := s.window(row, n, at, length, class); ok && start <= at {
			if spans = append(spans, span{start, last, n}); len(spans) == count && len(set.required) == 0 {
				break
			}
		}
	}
	if s.spans = spans; len(spans) < count {
		return nil
	}
	return choose(spans, set.required, at, count)
}
