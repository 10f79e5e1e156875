package launcher

import (
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/gpu"
	"github.com/ponos-tools/ponos/lib/launcher/cluster"
)

// Described is a partition as the search sees it, for those who write it down.
type Described struct {
	Name        string
	Refused     string   // why the user cannot use it, "": can
	Preemptible bool     // its jobs may be ended for others
	Accounts    []string // one of these must be charged; none: the user's own
	QOS         []DescribedQOS
	MaxDuration time.Duration // 0: no limit
	Groups      []DescribedGroup
}

// DescribedQOS is a QoS that can be used, and the time limit it has.
type DescribedQOS struct {
	Name        string
	MaxDuration time.Duration // 0: no limit
}

// DescribedGroup is a number of alike nodes.
type DescribedGroup struct {
	Features []string // sorted
	Hosts    []string
	Count    int
	Cores    int
	Memory   int64
	GPUs     []DescribedGPU
}

// DescribedGPU is a number of alike GPUs of a node.
type DescribedGPU struct {
	Kind, Type string
	Count      int
	Memory     int64
}

// Describe returns the partitions that Slurm has, as the search would see them
// with no file.
func Describe(s *cluster.Snapshot, catalogue *gpu.Catalogue) []Described {
	l := Direct(catalogue)
	l.addSlurm(s)
	all := make([]Described, 0, len(l.partitions))
	for i, p := range l.partitions {
		d := Described{Name: p.name, Preemptible: p.class == classPreemptible}
		if len(p.refused) > 0 {
			d.Refused = p.refused[0].Text
		}
		from := &s.Partitions[i]
		for j := range p.choices {
			c := &p.choices[j]
			if j == 0 {
				d.MaxDuration = c.hardMax
			}
			if from.AllowAccounts != nil && c.isAccount != "" && !slices.Contains(d.Accounts, c.isAccount) {
				d.Accounts = append(d.Accounts, c.isAccount)
			}
			named := func(q DescribedQOS) bool { return q.Name == c.isQOS }
			if from.AllowQOS != nil && c.isQOS != "" && !slices.ContainsFunc(d.QOS, named) {
				d.QOS = append(d.QOS, DescribedQOS{c.isQOS, c.hardMax})
			}
		}
		if len(s.Memberships) == 0 {
			d.Accounts = slices.Clone(from.AllowAccounts)
		}
		for _, g := range p.groups {
			dg := DescribedGroup{Features: g.features, Hosts: g.names(), Count: g.nodes, Cores: g.cores, Memory: g.memory}
			for _, x := range g.gpus {
				if x.count < anyNumber {
					described := DescribedGPU{Kind: x.kind, Type: x.gres, Count: x.count}
					if x.least == x.most {
						described.Memory = x.least
					}
					dg.GPUs = append(dg.GPUs, described)
				}
			}
			d.Groups = append(d.Groups, dg)
		}
		all = append(all, d)
	}
	return all
}
