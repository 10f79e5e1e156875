package forecast

import "slices"

// Drained is a rough answer to when a row starts, for queues in which too many jobs come before it to let time pass: when its
// partition's nodes have done the work of what runs there and of the jobs before it, all of them busy and nothing arriving. run is
// how long a job is expected to run in all; before is how many jobs come first. The start is Forever where that is not known.
func (p *Plan) Drained(row int, run func(*Job) int64) (start int64, before int) {
	w, part := p.World, p.space.partitions[row]
	if part == nil || !slices.Contains(p.Order, row) {
		return Forever, 0
	}
	mine := make([]bool, len(p.space.nodes)) // the nodes of its partition
	var capacity, work Resources
	for _, name := range part.Nodes {
		if n, ok := p.space.index[name]; ok && p.space.nodes[n].usable {
			mine[n] = true
			capacity.add(&p.space.nodes[n].total, 1)
		}
	}
	shared := map[*Partition]float64{} // which part of a partition's work is done on these nodes
	for i := range w.Partitions {
		other := &w.Partitions[i]
		all, here := 0, 0
		for _, name := range other.Nodes {
			if n, ok := p.space.index[name]; ok && p.space.nodes[n].usable {
				if all++; mine[n] {
					here++
				}
			}
		}
		if all > 0 {
			shared[other] = float64(here) / float64(all)
		}
	}
	rows := map[uint64]int{} // of jobs that wait in several partitions
	for _, i := range p.Order {
		rows[w.Jobs[i].ID]++
	}
	for i := range w.Jobs {
		j := &w.Jobs[i]
		if !j.Running {
			continue
		}
		left := max(1, min(run(j)-(w.Now-j.Start), max(1, j.End-w.Now)))
		for name, use := range j.Uses {
			n, ok := p.space.index[name]
			switch {
			case !ok || !mine[n]:
			case left > Forever/4: // nobody knows when it ends
				capacity.add(&use, -1)
			default:
				work.add(&use, float64(left))
			}
		}
	}
	for _, i := range p.Order {
		if i == row {
			break
		}
		j, part := &w.Jobs[i], p.space.partitions[i]
		waits := j.Held || j.Never != "" || len(j.After) > 0 || j.Eligible > w.Now // the turn may have ended before it
		if j.ID == w.Jobs[row].ID || waits || !p.Results[i].Verdict.InLine() || shared[part] == 0 {
			continue
		}
		length := run(j)
		if length == Forever {
			return Forever, 0
		}
		times := float64(max(1, j.Tasks)*max(1, j.Nodes)) * shared[part] / float64(rows[j.ID])
		before += max(1, j.Tasks)
		work.add(&j.Need, times*float64(length))
	}
	longest := 0.0
	for _, of := range [][2]float64{{work.CPUs, capacity.CPUs}, {work.MemMB, capacity.MemMB}, {work.GPUs, capacity.GPUs}} {
		switch {
		case of[0] > 0 && of[1] <= 0:
			return Forever, before
		case of[0] > 0:
			longest = max(longest, of[0]/of[1])
		}
	}
	if longest > float64(Forever/4) {
		return Forever, before
	}
	return max(w.Now+int64(longest), w.NotBefore([]int{row})), before
}

func (r *Resources) add(o *Resources, times float64) {
	r.CPUs, r.MemMB, r.GPUs = r.CPUs+times*o.CPUs, r.MemMB+times*o.MemMB, r.GPUs+times*o.GPUs
}

// Near is the world without jobs that come so far behind some rows that they do not matter for these, and where the rows are in it.
// Jobs that others wait for stay.
func (p *Plan) Near(rows []int) (w *World, at []int) {
	last := 0
	for place, row := range p.Order {
		if slices.Contains(rows, row) {
			last = place
		}
	}
	const behind = 2000 // these may overtake, and fill gaps
	if most := max(2*last, last+behind); most < len(p.Order) {
		w := *p.World
		needed, far := map[uint64]bool{}, map[int]bool{}
		for i := range w.Jobs {
			for _, id := range w.Jobs[i].After {
				needed[id] = true
			}
		}
		for _, row := range p.Order[most:] {
			if j := &w.Jobs[row]; j.Het == 0 && !needed[j.ID] && !needed[j.ArrayID] {
				far[row] = true
			}
		}
		kept := make([]Job, 0, len(w.Jobs)-len(far))
		for i := range w.Jobs {
			if slices.Contains(rows, i) {
				at = append(at, len(kept))
			}
			if !far[i] {
				kept = append(kept, w.Jobs[i])
			}
		}
		w.Jobs = kept
		return &w, at
	}
	return p.World, rows
}
