package admission

import (
	"math"
	"strings"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// Billed is what a job in a partition counts as in the usage of its account: its CPUs, or what
// TRESBillingWeights makes of its resources, which are named as in TRES, with memory in MiB.
func (c *Cluster) Billed(p *slurm.Partition, taken map[string]float64) float64 {
	if len(p.BillingWeights) == 0 {
		return taken["cpu"]
	}
	largest := c.Known.Config && c.Config.PriorityFlag("MAX_TRES")
	largestAndGRES := c.Known.Config && c.Config.PriorityFlag("MAX_TRES_GRES")
	sum, most := 0.0, 0.0
	for name, weight := range p.BillingWeights {
		n := weight * taken[name]
		ofNode := name == "cpu" || name == "mem" || strings.HasPrefix(name, "gres/")
		switch {
		case largest && ofNode, largestAndGRES && (name == "cpu" || name == "mem"):
			most = math.Max(most, n)
		default:
			sum += n
		}
	}
	return sum + most
}
