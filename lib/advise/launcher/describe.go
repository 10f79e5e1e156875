package launcher

import (
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Described is a partition as the search sees it, for writing launchers.yaml.
type Described struct {
	Name        string
	Refused     string   // why the user cannot use it; "": the user can
	Preemptible bool     // its jobs may be preempted
	Exclusive   bool     // its jobs get whole nodes
	Accounts    []string // one of these must be charged; empty: any of the user's
	QOS         []DescribedQOS
	MaxDuration time.Duration // 0: no limit
	MinNodes    int
	MaxNodes    int      // 0: no limit
	Unsaid      []string // rules that launchers.yaml cannot express
	Groups      []DescribedGroup
}

// DescribedQOS is a QoS that the user can use, with its time limit.
type DescribedQOS struct {
	Name        string
	MaxDuration time.Duration // 0: no limit
	MinGPU      int
}

// DescribedGroup is a number of identical nodes; Cores, Memory (bytes) and GPUs are those of
// one node.
type DescribedGroup struct {
	Features []string // sorted
	Hosts    []string
	Count    int
	Cores    int
	Memory   int64
	GPUs     []DescribedGPU
}

// DescribedGPU is a number of identical GPUs of a node; Memory is in bytes, 0 if unknown.
type DescribedGPU struct {
	Kind, Type string
	Count      int
	Memory     int64
}

// Describe returns the partitions of a snapshot as the search sees them without a
// launchers.yaml.
func Describe(s *cluster.Snapshot, catalogue *gpu.Catalogue) []Described {
	l := Direct(catalogue)
	l.addSlurm(s)
	all := make([]Described, 0, len(l.partitions))
	for i, p := range l.partitions {
		d := Described{Name: p.name, Preemptible: p.class == classPreemptible, Exclusive: p.exclusive}
		if len(p.refused) > 0 {
			d.Refused = p.refused[0].Text()
		}
		from := &s.Partitions[i]
		d.MinNodes, d.MaxNodes = int(from.MinNodes), int(from.MaxNodes.Or(0))
		d.Unsaid = unsaid(from, s)
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
				d.QOS = append(d.QOS, DescribedQOS{c.isQOS, c.hardMax, c.hardMinGPU})
			}
		}
		if len(s.Associations) == 0 {
			d.Accounts = slices.Clone(from.AllowAccounts)
		}
		for _, g := range p.groups {
			dg := DescribedGroup{Features: g.features, Hosts: g.names(), Count: g.nodes, Cores: g.cores, Memory: g.memory}
			if most := int(from.MaxCPUsPerNode.Or(0)); most > 0 && (dg.Cores == 0 || dg.Cores > most) {
				dg.Cores = most
			}
			if most := from.MaxMemPerNode.Or(0) << 20; most > 0 && (dg.Memory == 0 || dg.Memory > most) {
				dg.Memory = most
			}
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

// unsaid returns the rules of a partition, and of the QoS and accounts that limit its jobs,
// that launchers.yaml cannot express.
func unsaid(p *slurm.Partition, s *cluster.Snapshot) []string {
	var all []string
	say := func(is bool, text string) {
		if is {
			all = append(all, text)
		}
	}
	say(p.DefCPUPerGPU.Set || p.DefMemPerGPU.Set, "CPUs and memory for each GPU (JobDefaults)")
	say(p.MaxMemPerCPU.Set, "MaxMemPerCPU")
	say(p.DefMemPerCPU.Set || p.DefMemPerNode.Set, "memory of jobs that ask for none (DefMemPerCPU, DefMemPerNode)")
	say(p.MaxCPUsPerSocket.Set, "MaxCPUsPerSocket")
	say(p.AllocNodes != "" && s.Host == "", "from which hosts jobs may be submitted (AllocNodes)")
	say(p.AllowGroups != nil && !s.Known.Groups, "for which groups it is (AllowGroups)")
	limited := slices.ContainsFunc(s.QOS, func(q slurm.QOS) bool {
		return len(q.MaxTRESPerJob)+len(q.MaxTRESPerNode)+len(q.MaxTRESPerUser)+len(q.MaxTRESPerAccount)+len(q.Grp.TRES) > 0
	})
	say(limited, "what QoS allow a job, a node, a user or an account")
	bounded := slices.ContainsFunc(append(slices.Clone(s.Associations), s.Accounts...), func(a slurm.Association) bool {
		return len(a.MaxTRESPerJob)+len(a.MaxTRESPerNode)+len(a.Grp.TRES) > 0 || a.MaxWall.Set
	})
	say(bounded, "what accounts allow")
	return all
}
