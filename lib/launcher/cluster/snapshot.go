package cluster

import (
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// Snapshot is what Slurm said of a cluster and of a user's rights.
type Snapshot struct {
	Time       time.Time
	Partitions []slurm.Partition
	Groups     []Group
	// Memberships are the accounts that the user may charge; none if there is no
	// accounting, or if it does not answer.
	Memberships    []slurm.Membership
	DefaultAccount string
	QOS            []slurm.QOSRule
	UserGroups     []string // Unix groups; only asked for where a partition names some
	User           string
	// Note says what could not be asked, empty if all is well.
	Note string
}

// Group is a number of nodes that have the same, in the same partitions.
type Group struct {
	Partitions string // joined by commas
	Features   string // joined by commas
	GRES       string
	CPUs       int
	Memory     int64
	Disk       int64  // bytes of TmpDisk
	Hosts      string // names joined by commas, of all nodes
	Count      int
	Unusable   int // of Count: down, drained, failed
}

// GroupNodes puts alike nodes together, in the order in which each kind is first
// seen.
func GroupNodes(nodes []slurm.Node) []Group {
	type kind struct {
		partitions, features, gres string
		cpus                       int
		memory                     int64
	}
	index := make(map[kind]int, 64)
	var groups []Group
	var hosts [][]string
	for _, n := range nodes {
		k := kind{n.Partitions, n.Features, n.GRES, n.CPUs, n.Memory}
		i, ok := index[k]
		if !ok {
			i = len(groups)
			index[k] = i
			groups = append(groups, Group{Partitions: n.Partitions, Features: n.Features, GRES: n.GRES, CPUs: n.CPUs, Memory: n.Memory})
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
