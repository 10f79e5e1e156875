package admission

import "github.com/ponos-tools/ponos/lib/slurm"

// Fits reports whether a node has what a job takes of it in a partition, if nothing
// else runs there.
func (c *Cluster) Fits(p *slurm.Partition, n *slurm.Node, j Job) bool {
	if !n.Usable() || !n.Partitions.Has(p.Name) || !c.reservedFor(j.Reservation, n.Name) {
		return false
	}
	need := c.Need(p, j)
	cpus := min(n.JobCPUs(), p.MaxCPUsPerNode.Or(n.CPUs))
	if n.Sockets > 0 {
		cpus = min(cpus, p.MaxCPUsPerSocket.Or(n.CPUs)*n.Sockets)
	}
	if need.AskedCPUs > cpus || need.CPUs > n.JobCPUs() || c.countsMemory() && need.MemMB > n.JobMemMB() || j.GPUs > n.GPUs {
		return false
	}
	gres, err := slurm.ParseGRES(n.GRES)
	for name, count := range j.GPUTypes {
		have := int64(0)
		for _, g := range gres {
			if g.Name == "gpu" && g.Type == name {
				have += g.Count
			}
		}
		if err != nil || have < count {
			return false
		}
	}
	return true
}
