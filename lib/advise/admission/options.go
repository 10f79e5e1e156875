package admission

import (
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// JobOf is what options of sbatch request, and the partitions that they name. What no rule
// of this model depends on is left out. If a number cannot be read, there are none: sbatch says so.
func JobOf(options sbatch.Options) (j Job, partitions []string) {
	if p := options.Value("partition"); p != "" {
		partitions = strings.Split(p, ",")
	}
	j = Job{Account: options.Value("account"), QOS: options.Value("qos"), Reservation: options.Value("reservation")}
	if d, err := slurm.ParseDuration(options.Value("time")); err == nil {
		j.Time = d
	}
	a, err := options.Amount()
	if err != nil {
		return j, partitions
	}
	j.spread(&a, options)
	widest := max(a.Tasks, a.GPUs)
	if a.MostNodes > 0 {
		widest = a.MostNodes
	}
	if widest > a.Nodes {
		if a, err := options.With(sbatch.Option{Name: "nodes", Value: strconv.FormatInt(widest, 10)}).Amount(); err == nil {
			least := j
			least.spread(&a, options)
			j.Least = &least
		}
	}
	return j, partitions
}

// spread sets what each node has if the job is spread evenly over the fewest nodes.
func (j *Job) spread(a *sbatch.Amount, options sbatch.Options) {
	node := a.Node()
	j.Nodes, j.Exclusive, j.Licenses = a.Nodes, a.Exclusive, a.Licenses
	j.Tasks, j.CPUsPerTask = min(node.Tasks, node.CPUs), a.PerTask
	if tasks := max(1, j.Tasks); node.CPUs > tasks*max(1, j.CPUsPerTask) {
		j.CPUsPerTask = (node.CPUs-1)/tasks + 1
	} else if options.Has(sbatch.CPUsPerGPU) {
		j.CPUsPerTask = max(1, j.CPUsPerTask)
	}
	j.MemMB, _ = sbatch.Megabytes(options.Value("mem"))
	j.AllMemory = a.AllMemory
	j.MemPerCPU, _ = sbatch.Megabytes(options.Value(sbatch.MemPerCPU))
	j.MemPerGPU, _ = sbatch.Megabytes(options.Value(sbatch.MemPerGPU))
	j.GPUs, j.GPUTypes = node.GPUs, node.Kinds
	delete(j.GPUTypes, "")
	j.GRES = node.Others
}

// CheckIn returns the rules that keep a job out of all of some partitions; of the
// default one, if none is named. There are none if one of them would take the job or
// if that is not known, unless EnforcePartLimits asks that all of them do.
func (c *Cluster) CheckIn(j Job, partitions []string) []Finding {
	if len(partitions) == 0 {
		i := slices.IndexFunc(c.Partitions, func(p slurm.Partition) bool { return p.Default })
		if i < 0 {
			return nil
		}
		partitions = []string{c.Partitions[i].Name}
	}
	all := c.Known.Config && strings.EqualFold(c.Config.Get("EnforcePartLimits"), "ALL")
	var findings []Finding
	taken := false
	for _, name := range partitions {
		j.Partition = name
		found := c.Check(j)
		if all && slices.ContainsFunc(found, func(f Finding) bool { return f.Verdict == No && !f.Waits }) {
			return found
		}
		taken = taken || Of(found) != No
		findings = append(findings, found...)
	}
	if taken {
		return nil
	}
	return findings
}

// Narrowest is the job of options on the fewest nodes, at most the given number, on which fits holds: Slurm takes more of
// them where the options leave that open. It is that of JobOf if fits never holds.
func Narrowest(options sbatch.Options, most int64, fits func(Job) bool) Job {
	j, _ := JobOf(options)
	if j.Least == nil || fits(j) {
		return j
	}
	for nodes := j.Nodes + 1; nodes <= min(most, j.Least.Nodes); nodes++ {
		wider, _ := JobOf(options.With(sbatch.Option{Name: "nodes", Value: strconv.FormatInt(nodes, 10)}))
		if fits(wider) {
			return wider
		}
	}
	return j
}
