package priority

import "sort"

// Earliest finds when and where a job could be planned: count nodes with need free
// on each for length seconds, not before from. Nodes are taken in their order. ok
// is false if that will never be.
func Earliest(lines []Timeline, need Resources, count int, length, from, resolution int64) (start int64, nodes []string, ok bool) {
	resolution = max(1, resolution)
	starts := []int64{from}
	for _, line := range lines {
		for _, s := range line.Spans {
			if s.Start > from {
				starts = append(starts, s.Start)
			}
		}
	}
	sort.Slice(starts, func(i, j int) bool { return starts[i] < starts[j] })
	count = max(1, count)
	for i, t := range starts {
		if i > 0 && t == starts[i-1] {
			continue
		}
		end := int64(Forever)
		if length < Forever-t-resolution {
			end = (t + length + resolution - 1) / resolution * resolution
		}
		nodes = nodes[:0]
		for _, line := range lines {
			if !line.Total.Usable() || !line.covers(t, end, need) {
				continue
			}
			if nodes = append(nodes, line.Name); len(nodes) == count {
				return t, nodes, true
			}
		}
	}
	return 0, nil, false
}

// Longest tells until when a job that starts now could keep count nodes with need
// free on each, and on which. ok is false if there is no room now.
func Longest(lines []Timeline, need Resources, count int, now int64) (end int64, nodes []string, ok bool) {
	type room struct {
		end  int64
		name string
	}
	var rooms []room
	for _, line := range lines {
		r := room{name: line.Name}
		for _, s := range line.Spans {
			if !line.Total.Usable() || !s.Free.Covers(need) || s.Start > now && r.end != s.Start {
				break
			}
			r.end = s.End
		}
		if r.end > now {
			rooms = append(rooms, r)
		}
	}
	count = max(1, count)
	if len(rooms) < count {
		return 0, nil, false
	}
	sort.SliceStable(rooms, func(i, j int) bool { return rooms[i].end > rooms[j].end })
	for _, r := range rooms[:count] {
		nodes = append(nodes, r.name)
	}
	return rooms[count-1].end, nodes, true
}
