package launcher

import (
	"slices"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Described is a cluster as the search sees it without a launchers.yaml, as an entry of one.
type Described struct {
	file.Entry
	Remarks []Remark // on each partition of the entry
}

// Remark is what an entry cannot say of a partition.
type Remark struct {
	Refused string   // why the user cannot use it; "": the user can
	Unsaid  []string // rules that launchers.yaml cannot express
}

// Describe returns the partitions of a snapshot as the search sees them. Those that the user cannot use are disabled.
func Describe(s *cluster.Snapshot, catalogue *gpu.Catalogue) *Described {
	l := Direct(catalogue)
	l.addSlurm(s)
	all := &Described{Entry: file.Entry{Kind: file.Slurm, Connector: "local"}}
	for i, p := range l.partitions {
		from := &s.Partitions[i]
		d := file.Partition{
			Name: p.name, Preemptible: p.class == classPreemptible, Exclusive: p.exclusive, Disabled: len(p.refused) > 0,
			MinNodes: int(from.MinNodes), MaxNodes: int(from.MaxNodes.Or(0)),
		}
		remark := Remark{Unsaid: unsaid(from, s)}
		if d.Disabled {
			remark.Refused = p.refused[0].Text()
		}
		for j := range p.choices {
			c := &p.choices[j]
			if j == 0 {
				d.Configuration.MaxDuration = c.hardMax
			}
			if from.AllowAccounts != nil && c.isAccount != "" && !slices.Contains(d.Accounts, c.isAccount) {
				d.Accounts = append(d.Accounts, c.isAccount)
			}
			if from.AllowQOS != nil && c.isQOS != "" && !slices.Contains(d.QOS, c.isQOS) {
				d.QOS = append(d.QOS, c.isQOS)
				all.addQOS(file.QOS{Name: c.isQOS, MaxDuration: c.hardMax, MinGPU: c.hardMinGPU})
			}
		}
		if len(s.Associations) == 0 {
			d.Accounts = slices.Clone(from.AllowAccounts)
		}
		for _, g := range p.groups {
			d.Nodes = append(d.Nodes, g.entry(from))
		}
		all.Partitions, all.Remarks = append(all.Partitions, d), append(all.Remarks, remark)
	}
	return all
}

// addQOS adds a QoS with its limits; those of a later partition count.
func (d *Described) addQOS(q file.QOS) {
	if i := slices.IndexFunc(d.QOS, func(known file.QOS) bool { return known.Name == q.Name }); i >= 0 {
		d.QOS[i] = q
		return
	}
	d.QOS = append(d.QOS, q)
}

// entry returns the nodes of a group with what a job can have of them in a partition.
func (g *group) entry(p *slurm.Partition) file.Nodes {
	cpu := file.CPU{Cores: g.cores, Memory: g.memory}
	if most := int(p.MaxCPUsPerNode.Or(0)); most > 0 && (cpu.Cores == 0 || cpu.Cores > most) {
		cpu.Cores = most
	}
	if most := p.MaxMemPerNode.Or(0) << 20; most > 0 && (cpu.Memory == 0 || cpu.Memory > most) {
		cpu.Memory = most
	}
	n := file.Nodes{Features: g.features, Hosts: g.names(), Count: g.nodes, Configuration: file.Configuration{CPU: cpu}}
	for _, x := range g.gpus {
		if x.count == anyNumber {
			continue
		}
		of := file.GPU{Kind: x.kind, Model: x.gres, GRES: x.gres, Count: x.count}
		if x.least == x.most {
			of.Memory = x.least
		}
		n.Configuration.GPUs = append(n.Configuration.GPUs, of)
	}
	return n
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
