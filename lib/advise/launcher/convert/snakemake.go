package convert

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
)

// WriteSnakemake writes the file of partitions that Snakemake's executor for Slurm takes (--slurm-partition-config): the
// limits of each partition that the user can use. What a job may have at most is what the largest node has; where nodes
// differ, a comment says so.
func WriteSnakemake(w io.Writer, s *cluster.Snapshot, o Options) error {
	out := bufio.NewWriter(w)
	all := partitions(s, o)
	usable := slices.ContainsFunc(all, func(p launcher.Described) bool { return p.Refused == "" && len(p.Groups) > 0 })
	if !usable {
		fmt.Fprintln(out, "partitions: {}")
		return out.Flush()
	}
	fmt.Fprintln(out, "partitions:")
	for i := range all {
		p := &all[i]
		if p.Refused != "" || len(p.Groups) == 0 {
			fmt.Fprintf(out, "  # Without %s: %s.\n", strings.Map(printable, p.Name), strings.Map(printable, firstOf(p.Refused, "it has no nodes")))
			continue
		}
		writeLimits(out, p)
	}
	return out.Flush()
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func writeLimits(out io.Writer, p *launcher.Described) {
	line := func(format string, args ...any) { fmt.Fprintf(out, "    "+format+"\n", args...) }
	fmt.Fprintf(out, "  %s:\n", word(p.Name))
	if p.Preemptible {
		line("# Its jobs may be preempted.")
	}
	if p.Exclusive {
		line("# Its jobs get whole nodes.")
	}
	if len(p.Unsaid) > 0 {
		line("# Not expressed here: %s.", strings.Join(p.Unsaid, "; "))
	}
	var cores, gpus int
	var memory int64
	var types, features []string
	differ := false
	for _, g := range p.Groups {
		here := 0
		for _, x := range g.GPUs {
			here += x.Count
			if x.Type != "" && !slices.Contains(types, x.Type) {
				types = append(types, x.Type)
			}
		}
		for _, f := range g.Features {
			if !slices.Contains(features, f) {
				features = append(features, f)
			}
		}
		differ = differ || cores > 0 && (g.Cores != cores || g.Memory != memory || here != gpus)
		cores, memory, gpus = max(cores, g.Cores), max(memory, g.Memory), max(gpus, here)
	}
	if differ {
		line("# Its nodes differ: not each has the most of everything.")
	}
	if d := p.MaxDuration; d > 0 {
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
		line("available_gpu_models: %s", list(types))
	}
	if len(features) > 0 {
		slices.Sort(features)
		line("available_constraints: %s", list(features))
	}
	if cores == 0 && memory == 0 && gpus == 0 && p.MaxDuration == 0 {
		line("supports_mpi: true") // the plugin needs a mapping
	}
}
