package journal

import (
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Usage is how many tasks ran at each node over time.
type Usage struct {
	Begin, End time.Time
	Nodes      []NodeUsage // in the order in which they had their first task
}

// NodeUsage is the use of one node. Mean[i] is how many tasks ran there at a time on average
// in the i-th of equal parts of the time.
type NodeUsage struct {
	Node  string
	Tasks int64 // attempts that have ended
	Mean  []float64
}

// ReadUsage reads the journal of a run directory, for so many parts of the time from the
// begin of the first scheduler to the last record. Attempts that have not ended are not in it.
func ReadUsage(dir string, intervals int) (*Usage, error) {
	var begin, end float64
	err := readAll(dir, func(r *Record) error {
		if begin == 0 || r.Time < begin {
			begin = r.Time
		}
		if r.Start > 0 {
			begin = min(begin, r.Start)
		}
		end = max(end, r.Time)
		return nil
	})
	if err != nil {
		return nil, err
	}
	none := fault.Errorf(fault.Unavailable, "no task of the run in %q has ended on a node", dir)
	if end <= begin {
		return nil, none
	}
	u := &Usage{Begin: unix(begin), End: unix(end)}
	part := (end - begin) / float64(intervals)
	err = readAll(dir, func(r *Record) error {
		if (r.Kind != End && r.Kind != Try) || r.Node == "" || r.Start == 0 {
			return nil
		}
		i := slices.IndexFunc(u.Nodes, func(n NodeUsage) bool { return n.Node == r.Node })
		if i < 0 {
			i = len(u.Nodes)
			u.Nodes = append(u.Nodes, NodeUsage{Node: r.Node, Mean: make([]float64, intervals)})
		}
		n := &u.Nodes[i]
		n.Tasks++
		from, to := max(r.Start, begin), min(r.Start+r.Seconds, end)
		for k := max(0, int((from-begin)/part)); k < intervals && begin+float64(k)*part < to; k++ {
			a, b := begin+float64(k)*part, begin+float64(k+1)*part
			n.Mean[k] += max(0, min(to, b)-max(from, a)) / part
		}
		return nil
	})
	if err == nil && len(u.Nodes) == 0 {
		return nil, none
	}
	return u, err
}

func unix(t float64) time.Time { return time.UnixMicro(int64(t * 1e6)) }
