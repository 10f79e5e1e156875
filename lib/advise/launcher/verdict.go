package launcher

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// Refused returns why Slurm would refuse a job with these options, or accept and never start it; "" if
// no reason is known.
func Refused(ctx context.Context, options sbatch.Options) string {
	model, job, partitions, ok := modelled(ctx, options, World{Refresh: true})
	if !ok {
		return ""
	}
	for _, f := range model.CheckIn(job, partitions) {
		if f.Verdict == admission.No {
			return words(f)
		}
	}
	return ""
}

// passing are findings that may change, or that only hold on this host.
var passing = []string{"partition_state", "reservation", "host"}

// Hopeless returns why a job with these options can never start, even if all nodes are free and up; ""
// if that is unknown. It queries the cluster again before it reports a reason.
func Hopeless(ctx context.Context, options sbatch.Options) string {
	why := ""
	for _, refresh := range []bool{false, true} {
		if why = hopelessNow(ctx, options, World{Refresh: refresh}); why == "" {
			break
		}
	}
	return why
}

func hopelessNow(ctx context.Context, options sbatch.Options, world World) string {
	model, job, partitions, ok := modelled(ctx, options, world)
	snapshot, err := World{}.Cluster(ctx)
	if !ok || err != nil {
		return ""
	}
	if len(partitions) == 0 {
		for _, p := range model.Partitions {
			if p.Default {
				partitions = append(partitions, p.Name)
			}
		}
	}
	why := ""
	for _, name := range partitions {
		job.Partition = name
		found := model.Check(job)
		at := slices.IndexFunc(found, func(f admission.Finding) bool {
			return f.Verdict == admission.No && !slices.Contains(passing, f.Code)
		})
		switch {
		case at >= 0:
			why = words(found[at])
		default:
			lack := lacks(slices.DeleteFunc(slices.Clone(snapshot.Groups), func(g cluster.Group) bool { return !g.Partitions.Has(name) }),
				model.Need(model.Partition(name), job.Smallest()), job.Smallest())
			if lack == "" {
				return ""
			}
			why = fmt.Sprintf("Slurm would refuse the job: partition %s: %s", name, lack)
		}
	}
	return why
}

// lacks says what no node of some groups has for a job, even if it is up and idle, with the node that has most of it;
// "": some node has all.
func lacks(groups []cluster.Group, need admission.Need, job admission.Job) string {
	if slices.ContainsFunc(groups, func(g cluster.Group) bool { return large(g, need, job) }) {
		return ""
	}
	if len(groups) == 0 {
		return "it has no node"
	}
	shown := func(n int64, what string) string {
		if n != 1 {
			what += "s"
		}
		return fmt.Sprintf("%d %s", n, what)
	}
	memory := memoryOf(need, job)
	var asked []string
	for _, r := range []struct {
		asked int64
		of    func(g cluster.Group) int64
		text  func(n int64) string
	}{
		{need.AskedCPUs, func(g cluster.Group) int64 { return int64(g.CPUs) }, func(n int64) string { return shown(n, "CPU") }},
		{
			memory, func(g cluster.Group) int64 { return g.Memory >> 20 },
			func(n int64) string { return unit.ShortSize(n<<20) + " of memory" },
		},
		{job.GPUs, func(g cluster.Group) int64 { return gpus(g.GRES) }, func(n int64) string { return shown(n, "GPU") }},
	} {
		most := slices.MaxFunc(groups, func(a, b cluster.Group) int { return cmp.Compare(r.of(a), r.of(b)) })
		switch n := r.of(most); {
		case r.asked <= 0:
			continue
		case r.asked > n && n == 0:
			return fmt.Sprintf("none of its nodes has %s", r.text(r.asked))
		case r.asked > n:
			node, _, _ := strings.Cut(most.Hosts, ",")
			return fmt.Sprintf("none of its nodes has %s: the largest, %s, has %s", r.text(r.asked), node, r.text(n))
		}
		asked = append(asked, r.text(r.asked))
	}
	if len(job.GPUTypes) > 0 && job.GPUs > 0 { // the types say it too
		asked = asked[:len(asked)-1]
	}
	for kind, n := range job.GPUTypes {
		asked = append(asked, shown(n, "GPU")+" of type "+kind)
	}
	for name, n := range job.GRES {
		asked = append(asked, fmt.Sprintf("gres/%s=%d", name, n))
	}
	slices.Sort(asked[len(asked)-len(job.GPUTypes)-len(job.GRES):])
	return "none of its nodes has all of this: " + strings.Join(asked, ", ")
}

// memoryOf is what a job takes of each node, in MiB.
func memoryOf(need admission.Need, job admission.Job) int64 {
	return max(job.MemMB, job.MemPerCPU*need.AskedCPUs, job.MemPerGPU*job.GPUs)
}

// large reports whether nodes of a group have what a job takes on each, if they are up and idle.
func large(g cluster.Group, need admission.Need, job admission.Job) bool {
	if need.AskedCPUs > int64(g.CPUs) || memoryOf(need, job) > g.Memory>>20 {
		return false
	}
	if _, err := slurm.ParseGRES(g.GRES); err != nil {
		return true // an unknown form
	}
	return job.GPUs <= gpus(g.GRES) && admission.HasGRES(g.GRES, job)
}

// gpus counts the GPUs of a node with some GRES; 0 if it has an unknown form.
func gpus(configured string) (n int64) {
	gres, err := slurm.ParseGRES(configured)
	for _, item := range gres {
		if item.Name == "gpu" && err == nil {
			n += item.Count
		}
	}
	return n
}

// modelled returns the job with options of sbatch, and the cluster's matching nodes.
func modelled(
	ctx context.Context, options sbatch.Options, world World,
) (model *admission.Cluster, job admission.Job, partitions []string, ok bool) {
	snapshot, err := world.Cluster(ctx)
	if err != nil {
		return nil, job, nil, false
	}
	model = snapshot.Admission()
	job, partitions = admission.JobOf(options)
	for _, name := range partitions {
		if model.Partition(name) == nil { // hidden, or sbatch will report it
			return nil, job, nil, false
		}
	}
	return model, job, partitions, true
}

// words formats a finding for people.
func words(f admission.Finding) string {
	if f.Waits {
		return fmt.Sprintf("Slurm would accept the job and never start it: %s: %s", f.Whose, f.Text)
	}
	return fmt.Sprintf("Slurm would refuse the job: %s: %s", f.Whose, f.Text)
}
