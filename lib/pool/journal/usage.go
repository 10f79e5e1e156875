package journal

import (
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Usage is how many tasks ran at each node, from the begin of the first scheduler to the last record.
type Usage struct {
	Begin, End time.Time
	Nodes      []NodeUsage // in the order in which they had their first task
}

// NodeUsage is the use of one node.
type NodeUsage struct {
	Node  string
	Tasks int64         // attempts that have ended
	Time  time.Duration // of these together
}

// ReadUsage reads the journal of a run directory. Attempts that have not ended are not in it.
func ReadUsage(dir string) (*Usage, error) {
	u := new(Usage)
	var begin, end float64
	none := "no task of the run in %q has ended on a node"
	err := readAll(dir, func(r *Record) error {
		if r.Kind == Cuts {
			none = "the journal of the run in %q has no more of the tasks that have ended on a node"
		}
		if begin == 0 || r.Time < begin {
			begin = r.Time
		}
		if r.Start > 0 {
			begin = min(begin, r.Start)
		}
		end = max(end, r.Time)
		if (r.Kind != End && r.Kind != Try) || r.Node == "" || r.Start == 0 {
			return nil
		}
		i := slices.IndexFunc(u.Nodes, func(n NodeUsage) bool { return n.Node == r.Node })
		if i < 0 {
			i = len(u.Nodes)
			u.Nodes = append(u.Nodes, NodeUsage{Node: r.Node})
		}
		u.Nodes[i].Tasks++
		u.Nodes[i].Time += time.Duration(r.Seconds * float64(time.Second))
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(u.Nodes) == 0 || end <= begin {
		return nil, fault.Errorf(fault.Unavailable, none, dir)
	}
	u.Begin, u.End = unix(begin), unix(end)
	return u, nil
}

func unix(t float64) time.Time { return time.UnixMicro(int64(t * 1e6)) }
