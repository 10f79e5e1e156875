package jobpool

import (
	"context"
	"slices"

	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// measure asks Slurm for the memory of the job at its nodes where its variables do not tell it. Without an
// answer, tasks have that of the machine.
func (p *place) measure(ctx context.Context, client *slurm.Client, job string) {
	unknown := func(n scheduler.NodeSpec) bool { return n.Mem+n.MemPerGPU == 0 }
	if job == "" || !slices.ContainsFunc(p.nodes, unknown) {
		return
	}
	details, err := client.JobDetails(ctx, job)
	if err != nil {
		return
	}
	for _, d := range details {
		for _, at := range d.Placements {
			hosts, err := hostlist.Expand(at.Nodes)
			if err != nil {
				continue
			}
			for i, n := range p.nodes {
				if unknown(n) && slices.Contains(hosts, n.Name) {
					p.nodes[i].Mem = int64(at.MemMB) << 20
				}
			}
		}
	}
}
