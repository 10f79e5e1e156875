package admission

import (
	"cmp"
	"strings"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// Fits reports whether a node has what a job takes of it in a partition, if nothing
// else runs there.
func (c *Cluster) Fits(p *slurm.Partition, n *slurm.Node, j Job) bool {
	if !n.Usable() || !n.Partitions.Has(p.Name) || !c.reservedFor(j.Reservation, n.Name) {
		return false
	}
	if (j.Exclusive || p.Exclusive) && !p.MaxCPUsPerNode.Allows(n.CPUs) {
		return false
	}
	need := c.Need(p, j)
	need.MemMB = max(need.MemMB, c.WholeMemMB(p, j, n.CPUs))
	cpus := min(n.JobCPUs(), p.MaxCPUsPerNode.Or(n.CPUs))
	if n.Sockets > 0 {
		cpus = min(cpus, p.MaxCPUsPerSocket.Or(n.CPUs)*n.Sockets)
	}
	if need.AskedCPUs > cpus || need.CPUs > n.JobCPUs() || c.countsMemory() && need.MemMB > n.JobMemMB() || j.GPUs > n.GPUs {
		return false
	}
	return HasGRES(n.GRES, j)
}

// WholeMemMB is the memory that a job needs of a node with some CPUs because it gets the whole node, and its memory
// is counted by CPU. It is 0 for other jobs.
func (c *Cluster) WholeMemMB(p *slurm.Partition, j Job, cpus int64) int64 {
	if !j.Exclusive && !p.Exclusive || j.MemMB > 0 || j.MemPerGPU > 0 || j.AllMemory || !c.countsMemory() {
		return 0
	}
	return cmp.Or(j.MemPerCPU, c.perCPU(p)) * cpus
}

// HasGRES reports whether a node with some GRES has those of a job, GPUs of a type included.
func HasGRES(configured string, j Job) bool {
	gres, err := slurm.ParseGRES(configured)
	has := func(name, kind string, count int64) bool {
		for _, g := range gres {
			if g.Name == name && (kind == "" || g.Type == kind) {
				count -= g.Count
			}
		}
		return err == nil && count <= 0
	}
	for kind, count := range j.GPUTypes {
		if !has("gpu", kind, count) {
			return false
		}
	}
	for name, count := range j.GRES {
		name, kind, _ := strings.Cut(name, ":")
		if !has(name, kind, count) {
			return false
		}
	}
	return true
}
