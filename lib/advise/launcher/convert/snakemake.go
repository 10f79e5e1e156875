package convert

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
)

// WriteSnakemake writes the file of partitions that Snakemake's executor for Slurm takes (--slurm-partition-config): the
// limits of each partition that the user can use. What a job may have at most is what the largest node has; where nodes
// differ, a comment says so.
func WriteSnakemake(w io.Writer, s *cluster.Snapshot, o Options) error {
	out := bufio.NewWriter(w)
	d := describe(s, o)
	usable := slices.ContainsFunc(d.Partitions, func(p file.Partition) bool { return !p.Disabled && len(p.Nodes) > 0 })
	if !usable {
		fmt.Fprintln(out, "partitions: {}")
		return out.Flush()
	}
	fmt.Fprintln(out, "partitions:")
	for i := range d.Partitions {
		p := &d.Partitions[i]
		if p.Disabled || len(p.Nodes) == 0 {
			why := d.Remarks[i].Refused
			if why == "" {
				why = "it has no nodes"
			}
			fmt.Fprintf(out, "  # Without %s: %s.\n", file.Printable(p.Name), file.Printable(why))
			continue
		}
		writeLimits(out, p, d.Remarks[i].Unsaid)
	}
	return out.Flush()
}

func writeLimits(out io.Writer, p *file.Partition, unsaid []string) {
	line := func(format string, args ...any) { fmt.Fprintf(out, "    "+format+"\n", args...) }
	fmt.Fprintf(out, "  %s:\n", file.Word(p.Name))
	if p.Preemptible {
		line("# Its jobs may be preempted.")
	}
	if p.Exclusive {
		line("# Its jobs get whole nodes.")
	}
	if len(unsaid) > 0 {
		line("# Not expressed here: %s.", strings.Join(unsaid, "; "))
	}
	var cores, gpus int
	var memory int64
	var types, features []string
	differ := false
	for _, g := range p.Nodes {
		here := 0
		for _, x := range g.Configuration.GPUs {
			here += x.Count
			if x.GRES != "" && !slices.Contains(types, x.GRES) {
				types = append(types, x.GRES)
			}
		}
		for _, f := range g.Features {
			if !slices.Contains(features, f) {
				features = append(features, f)
			}
		}
		cpu := g.Configuration.CPU
		differ = differ || cores > 0 && (cpu.Cores != cores || cpu.Memory != memory || here != gpus)
		cores, memory, gpus = max(cores, cpu.Cores), max(memory, cpu.Memory), max(gpus, here)
	}
	if differ {
		line("# Its nodes differ: not each has the most of everything.")
	}
	if d := p.Configuration.MaxDuration; d > 0 {
		line("max_runtime: %d", d/time.Minute)
	}
	if memory > 0 {
		line("max_mem_mb: %d", memory>>20)
	}
	if cores > 0 {
		line("max_threads: %d", cores)
	}
	if p.MaxNodes > 0 {
		line("max_nodes: %d", p.MaxNodes)
	}
	if gpus > 0 {
		line("max_gpu: %d", gpus)
	}
	if len(types) > 0 {
		line("available_gpu_models: %s", file.List(types))
	}
	if len(features) > 0 {
		slices.Sort(features)
		line("available_constraints: %s", file.List(features))
	}
	if cores == 0 && memory == 0 && gpus == 0 && p.Configuration.MaxDuration == 0 {
		line("supports_mpi: true") // the plugin needs a mapping
	}
}
