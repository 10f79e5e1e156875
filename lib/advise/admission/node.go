package admission

import (
	"cmp"
	"math"
	"strings"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// Fits reports whether a node has what a job takes of it in a partition, if nothing
// else runs there.
func (c *Cluster) Fits(p *slurm.Partition, n *slurm.Node, j Job) bool {
	return n.Usable() && n.Partitions.Has(p.Name) && c.reservedFor(j.Reservation, n.Name) && c.holds(p, n, j)
}

// holds reports whether a node has what a job takes of it in a partition.
func (c *Cluster) holds(p *slurm.Partition, n *slurm.Node, j Job) bool {
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

// span is what nodes give a job that gets all of them, at least and at most on each.
type span struct{ least, most float64 }

// wholeNodes is what each node gives a job because it gets whole nodes, or all their memory, by the name of the resource:
// over the nodes of the partition that can hold it. It is empty for other jobs.
func (c *Cluster) wholeNodes(p *slurm.Partition, j Job) map[string]span {
	if !j.Exclusive && !p.Exclusive && !j.AllMemory {
		return nil
	}
	var each []slurm.TRES
	names := map[string]bool{}
	for n := range c.nodesOf(p) {
		if !c.holds(p, n, j.Smallest()) {
			continue
		}
		gives := c.gives(p, n, j)
		each = append(each, gives)
		for name := range gives {
			names[name] = true
		}
	}
	spans := map[string]span{}
	for name := range names {
		s := span{least: math.Inf(1)}
		for _, gives := range each {
			s = span{min(s.least, gives[name]), max(s.most, gives[name])}
		}
		if name == "gres/shard" || name == "gres/mps" { // shares of GPUs that are given whole
			s.least = 0
		}
		spans[name] = s
	}
	return spans
}

// Least is what each node gives a job at least because it gets whole nodes, or all their memory, by the name of the
// resource; mem in MiB. It is empty for other jobs.
func (c *Cluster) Least(p *slurm.Partition, j Job) slurm.TRES {
	least := slurm.TRES{}
	for name, whole := range c.wholeNodes(p, j) {
		least[name] = whole.least
	}
	return least
}

// gives is what a node gives a job that gets all of it, as limits count it: what is requested of its memory, or the default,
// for each of its CPUs or GPUs; all of it without either.
func (c *Cluster) gives(p *slurm.Partition, n *slurm.Node, j Job) slurm.TRES {
	gives := slurm.TRES{}
	if c.countsMemory() && j.MemMB == 0 {
		mem := cmp.Or(j.MemPerGPU*n.GPUs, c.WholeMemMB(p, j, n.CPUs), p.DefMemPerNode.Or(c.defaults().memPerNode), n.JobMemMB())
		if j.AllMemory {
			mem = n.JobMemMB()
		}
		gives["mem"] = float64(mem)
	}
	if !j.Exclusive && !p.Exclusive {
		return gives
	}
	gives["cpu"] = float64(n.JobCPUs())
	gres, _ := slurm.ParseGRES(n.GRES)
	for _, g := range gres {
		gives["gres/"+g.Name] += float64(g.Count)
		if g.Type != "" {
			gives["gres/"+g.Name+":"+g.Type] += float64(g.Count)
		}
	}
	return gives
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
