package cluster

import (
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/advise/probe"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Snapshot is what Slurm reports of a cluster and of a user's rights.
type Snapshot struct {
	Time       time.Time
	Partitions []slurm.Partition
	Groups     []Group
	// Associations are the accounts that the user may charge; empty without accounting, or if
	// it does not answer.
	Associations   []slurm.Association
	DefaultAccount string
	QOS            []slurm.QOS
	Accounts       []slurm.Association // of the accounts, without users
	Licenses       []slurm.License
	Reservations   []slurm.Reservation
	Config         slurm.Config
	UserGroups     []string // Unix groups; set only if a partition or a reservation names groups
	User           string
	Host           string // where sbatch runs; set only if a partition has AllocNodes
	Known          admission.Known
	Facts          map[string]probe.Facts // what nodes were found to have, by node
	// Note says which answers are missing; empty if none are.
	Note string
}

// Admission returns the model of Slurm's rules for this user's jobs.
func (s *Snapshot) Admission() *admission.Cluster {
	var nodes []slurm.Node
	for i := range s.Groups {
		nodes = append(nodes, s.Groups[i].node())
	}
	return &admission.Cluster{
		Nodes: nodes, Partitions: s.Partitions, QOS: s.QOS, Associations: s.Associations, Accounts: s.Accounts,
		Licenses: s.Licenses, Reservations: s.Reservations, Config: s.Config,
		User: s.User, Groups: s.UserGroups, Host: s.Host, DefaultAccount: s.DefaultAccount, Known: s.Known,
	}
}

// longReserved is how long a reservation must still last for its nodes to count as unavailable.
// A shorter one is an ordinary wait.
const longReserved = 24 * time.Hour

// Reserved returns, by node name, the active reservation that keeps all other jobs off the node
// for at least longReserved.
func (s *Snapshot) Reserved() map[string]*slurm.Reservation {
	cpus := map[string]float64{}
	by := map[string]*slurm.Reservation{}
	for i := range s.Reservations {
		r := &s.Reservations[i]
		nodes, err := hostlist.Expand(r.Nodes)
		if err != nil || r.Start > s.Time.Unix() || r.End < s.Time.Add(longReserved).Unix() || r.Flags.Has("FLEX") {
			continue
		}
		if len(cpus) == 0 {
			for _, g := range s.Groups {
				for host := range strings.SplitSeq(g.Hosts, ",") {
					cpus[host] = float64(g.CPUs)
				}
			}
		}
		whole := 0.0
		for _, n := range nodes {
			whole += cpus[n]
		}
		if !r.Flags.Has("MAINT") && r.TRES["cpu"] < whole {
			continue // it reserves only some cores of its nodes
		}
		for _, n := range nodes {
			by[n] = r
		}
	}
	return by
}

// Group is a number of identical nodes in the same partitions; CPUs, Memory and Disk (bytes)
// are those of one node.
type Group struct {
	Partitions slurm.List
	Features   slurm.List
	GRES       string
	CPUs       int
	Threads    int // that a job gets together, as they are of one core
	Memory     int64
	Disk       int64  // TmpDisk
	Hosts      string // names of all nodes, joined by commas
	Count      int
	Unusable   int // of Count: down, drained, failed
}

// node is one of the group, without its name and state.
func (g *Group) node() slurm.Node {
	n := slurm.Node{
		Partitions: g.Partitions, Features: g.Features, GRES: g.GRES,
		CPUs: int64(g.CPUs), ThreadsPerCore: int64(g.Threads), MemMB: g.Memory >> 20, TmpDiskMB: g.Disk >> 20,
	}
	gres, _ := slurm.ParseGRES(g.GRES)
	for _, item := range gres {
		if item.Name == "gpu" {
			n.GPUs += item.Count
		}
	}
	return n
}

// GroupNodes groups identical nodes, in the order in which each kind first appears.
func GroupNodes(nodes []slurm.Node) []Group {
	type kind struct {
		partitions, features slurm.List
		gres                 string
		cpus, memory, disk   int64
		threads              int64
	}
	index := make(map[kind]int, 64)
	var groups []Group
	var hosts [][]string
	for i := range nodes {
		n := &nodes[i]
		k := kind{n.Partitions, n.Features, n.GRES, n.JobCPUs(), n.JobMemMB() << 20, n.TmpDiskMB << 20, n.CoreCPUs()}
		i, ok := index[k]
		if !ok {
			i = len(groups)
			index[k] = i
			groups = append(groups, Group{
				Partitions: k.partitions, Features: k.features, GRES: k.gres,
				CPUs: int(k.cpus), Threads: int(k.threads), Memory: k.memory, Disk: k.disk,
			})
			hosts = append(hosts, nil)
		}
		groups[i].Count++
		if !n.Usable() {
			groups[i].Unusable++
		}
		hosts[i] = append(hosts[i], n.Name)
	}
	for i := range groups {
		groups[i].Hosts = strings.Join(hosts[i], ",")
	}
	return groups
}
