package forecast

import (
	"math"
	"sort"
)

// Resources are what a node has, or what is taken of it.
type Resources struct{ CPUs, MemMB, GPUs float64 }

// Sub is r without o, never below nothing.
func (r Resources) Sub(o Resources) Resources {
	return Resources{max(0, r.CPUs-o.CPUs), max(0, r.MemMB-o.MemMB), max(0, r.GPUs-o.GPUs)}
}

// Min is what both have.
func (r Resources) Min(o Resources) Resources {
	return Resources{min(r.CPUs, o.CPUs), min(r.MemMB, o.MemMB), min(r.GPUs, o.GPUs)}
}

// Covers reports whether o fits into r.
func (r Resources) Covers(o Resources) bool {
	return r.CPUs >= o.CPUs && r.MemMB >= o.MemMB && r.GPUs >= o.GPUs
}

// Usable reports whether a job can be run in it at all.
func (r Resources) Usable() bool { return r.CPUs >= 1 && r.MemMB >= 1 }

// Kind says what takes a node.
type Kind int

// What takes a node, the later ones drawn over the earlier.
const (
	Running Kind = iota
	Planned      // the backfill scheduler keeps the node for a pending job
	Reserved
	Unusable
)

// Busy is a time during which a part of a node is taken. Planned jobs and
// reservations take all of it: that is how the backfill scheduler plans.
type Busy struct {
	Node       string
	Kind       Kind
	Start, End int64 // End is Forever where none is known
	Use        Resources
	Who        string
}

// Forever is later than any end.
const Forever = math.MaxInt64

// Machine is a node.
type Machine struct {
	Name  string
	Total Resources
	// Whole allows only jobs that take the whole node.
	Whole bool
}

// Span is a stretch of time in which the same is free on a node.
type Span struct {
	Start, End int64
	Free       Resources
	Kind       Kind     // the strongest of what takes the node
	Taken      bool     // something takes at least a part of it
	Who        []string // who takes it
}

// Timeline is the future of a node.
type Timeline struct {
	Machine
	Spans []Span
}

// Timelines lays the nodes out over time, from now on to Forever. resolution, in
// seconds, is the backfill scheduler's: planned starts are rounded down to it and
// ends up, so a hole before a planned job is as long as the scheduler will see it.
func Timelines(now, resolution int64, machines []Machine, busy []Busy) []Timeline {
	resolution = max(1, resolution)
	byNode := map[string][]Busy{}
	for _, b := range busy {
		if b.Kind == Planned {
			b.Start -= b.Start % resolution
			if b.End != Forever {
				b.End = (b.End + resolution - 1) / resolution * resolution
			}
		}
		b.Start = max(b.Start, now)
		if b.Kind == Running && b.End <= now {
			b.End = now + resolution // it is late, and still there
		}
		if b.End > b.Start {
			byNode[b.Node] = append(byNode[b.Node], b)
		}
	}
	lines := make([]Timeline, 0, len(machines))
	for _, m := range machines {
		lines = append(lines, Timeline{m, spans(now, m, byNode[m.Name])})
	}
	return lines
}

func spans(now int64, m Machine, busy []Busy) []Span {
	cuts := []int64{now}
	for _, b := range busy {
		cuts = append(cuts, b.Start, b.End)
	}
	sort.Slice(cuts, func(i, j int) bool { return cuts[i] < cuts[j] })
	sort.SliceStable(busy, func(i, j int) bool { return busy[i].Start < busy[j].Start })
	var list []Span
	var active []Busy
	next := 0
	for i, from := range cuts {
		if from == Forever || i > 0 && from == cuts[i-1] {
			continue
		}
		to := int64(Forever)
		for _, c := range cuts[i+1:] {
			if c > from {
				to = c
				break
			}
		}
		for next < len(busy) && busy[next].Start <= from {
			active = append(active, busy[next])
			next++
		}
		still := active[:0]
		s := Span{Start: from, End: to, Free: m.Total}
		for _, b := range active {
			if b.End <= from {
				continue
			}
			still = append(still, b)
			s.Taken, s.Kind = true, max(s.Kind, b.Kind)
			s.Who = append(s.Who, b.Who)
			if b.Kind == Running && !m.Whole {
				s.Free = s.Free.Sub(b.Use)
			} else {
				s.Free = Resources{}
			}
		}
		active = still
		if n := len(list); n > 0 && same(list[n-1], s) {
			list[n-1].End = to
			continue
		}
		list = append(list, s)
	}
	return list
}

func same(a, b Span) bool {
	if a.Free != b.Free || a.Kind != b.Kind || a.Taken != b.Taken || len(a.Who) != len(b.Who) {
		return false
	}
	for i := range a.Who {
		if a.Who[i] != b.Who[i] {
			return false
		}
	}
	return true
}

// Hole is room for a job: on each of the nodes that much is free from Start until
// before End.
type Hole struct {
	Start, End int64
	Free       Resources // per node
	Nodes      []string
}

// The limits keep the search short on a cluster of any size: how many amounts are
// looked for, and how many stretches of time are considered in all. Holes that
// begin sooner are looked for first.
const (
	maxAmounts      = 256
	maxAmountsLarge = 48 // on more than largeCluster nodes
	largeCluster    = 256
	maxVisits       = 20_000_000
	maxLengths      = 16 // of holes with the same amount and start
)

// Holes finds the largest holes: none lies within another on the same nodes. They
// are sorted by start, then those with more GPUs, CPUs and time first. Only holes
// of at least shortest seconds that start before until count.
func Holes(lines []Timeline, shortest, until int64) []Hole {
	visits := 0
	frees := amounts(lines, until)
	place := make(map[string]int, len(lines))
	for i, line := range lines {
		place[line.Name] = i
	}
	var holes []Hole
	for _, start := range starts(lines, until) {
		var here []Hole
		for _, free := range frees {
			for _, h := range fill(lines, place, start, free, &visits) {
				if h.End-h.Start >= shortest {
					here = append(here, h)
				}
			}
		}
		holes = append(holes, largest(here)...)
		if visits > maxVisits {
			break
		}
	}
	holes = largest(holes)
	sort.SliceStable(holes, func(i, j int) bool {
		a, b := holes[i], holes[j]
		switch {
		case a.Start != b.Start:
			return a.Start < b.Start
		case a.Free.GPUs != b.Free.GPUs:
			return a.Free.GPUs > b.Free.GPUs
		case a.Free.CPUs != b.Free.CPUs:
			return a.Free.CPUs > b.Free.CPUs
		case a.End != b.End:
			return a.End > b.End
		case a.Free.MemMB != b.Free.MemMB:
			return a.Free.MemMB > b.Free.MemMB
		}
		return len(a.Nodes) > len(b.Nodes)
	})
	return holes
}

// starts are the times at which something becomes free, in order.
func starts(lines []Timeline, until int64) []int64 {
	seen := map[int64]bool{}
	var list []int64
	for _, line := range lines {
		for i, s := range line.Spans {
			if s.Start >= until || seen[s.Start] || i > 0 && line.Spans[i-1].Free.Covers(s.Free) {
				continue
			}
			seen[s.Start] = true
			list = append(list, s.Start)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
	return list
}

// amounts are what may be free for some time on a node, and what two such
// amounts have in common, for jobs on several nodes.
func amounts(lines []Timeline, until int64) []Resources {
	limit := maxAmounts
	if len(lines) > largeCluster {
		limit = maxAmountsLarge
	}
	seen := map[Resources]bool{}
	var list []Resources
	add := func(r Resources) {
		if r.Usable() && !seen[r] && len(list) < limit {
			seen[r] = true
			list = append(list, r)
		}
	}
	for _, line := range lines {
		for i := range line.Spans {
			if line.Spans[i].Start >= until {
				break
			}
			free := line.Spans[i].Free
			for j := i; j < len(line.Spans) && free.Usable(); j++ {
				free = free.Min(line.Spans[j].Free)
				add(free)
			}
		}
	}
	single := list[:len(list):len(list)]
	for i, a := range single {
		for _, b := range single[:i] {
			add(a.Min(b))
		}
	}
	return list
}

// fill finds the holes of one size that begin at start: the fewer nodes, the
// longer. Those that could begin earlier are left out.
func fill(lines []Timeline, place map[string]int, start int64, free Resources, visits *int) []Hole {
	type room struct {
		end   int64
		early bool // free before, too
		name  string
	}
	var rooms []room
	for _, line := range lines {
		if !line.Total.Covers(free) {
			continue
		}
		at := sort.Search(len(line.Spans), func(i int) bool { return line.Spans[i].End > start })
		r := room{name: line.Name}
		r.early = at > 0 && line.Spans[at].Start == start && line.Spans[at-1].Free.Covers(free) ||
			at < len(line.Spans) && line.Spans[at].Start < start
		for ; at < len(line.Spans) && line.Spans[at].Free.Covers(free); at++ {
			*visits++
			r.end = line.Spans[at].End
		}
		*visits++
		if r.end > start {
			rooms = append(rooms, r)
		}
	}
	sort.SliceStable(rooms, func(i, j int) bool { return rooms[i].end > rooms[j].end })
	lengths := 0
	for i := range rooms {
		if i == 0 || rooms[i].end != rooms[i-1].end {
			lengths++
		}
	}
	var holes []Hole
	early, last := true, 0
	for i, r := range rooms {
		early = early && r.early
		if i+1 < len(rooms) && rooms[i+1].end == r.end {
			continue
		}
		// Of many lengths those are kept with twice the nodes of the one before.
		if lengths > maxLengths && i+1 < 2*last && i+1 < len(rooms) {
			continue
		}
		last = i + 1
		if early {
			continue
		}
		h := Hole{Start: start, End: r.end, Free: free, Nodes: make([]string, 0, i+1)}
		for _, o := range rooms[:i+1] {
			h.Nodes = append(h.Nodes, o.name)
		}
		sort.Slice(h.Nodes, func(a, b int) bool { return place[h.Nodes[a]] < place[h.Nodes[b]] })
		holes = append(holes, h)
	}
	return holes
}

// largest drops every hole that lies within another one.
func largest(holes []Hole) []Hole {
	kept := holes[:0:0]
	for i, h := range holes {
		within := false
		for j, o := range holes {
			if i != j && o.Start <= h.Start && o.End >= h.End && o.Free.Covers(h.Free) && contains(o.Nodes, h.Nodes) &&
				(j < i || !equal(o, h)) {
				within = true
				break
			}
		}
		if !within {
			kept = append(kept, h)
		}
	}
	return kept
}

func equal(a, b Hole) bool {
	return a.Start == b.Start && a.End == b.End && a.Free == b.Free && len(a.Nodes) == len(b.Nodes)
}

// contains reports whether all names of few are in many; both are in the order of
// the nodes.
func contains(many, few []string) bool {
	if len(few) > len(many) {
		return false
	}
	i := 0
	for _, name := range many {
		if i < len(few) && few[i] == name {
			i++
		}
	}
	return i == len(few)
}

// Minutes is the longest time limit, in whole minutes as Slurm counts them, of a
// job that starts at the latest margin seconds after start and has to end before
// end.
func Minutes(start, end, margin int64) int64 {
	if end == Forever {
		return Forever
	}
	return max(0, (end-1-start-margin)/60)
}
