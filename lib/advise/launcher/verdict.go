package launcher

import (
	"context"
	"fmt"
	"slices"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
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
		case !slices.ContainsFunc(snapshot.Groups, func(g cluster.Group) bool {
			return g.Partitions.Has(name) && large(g, model.Need(model.Partition(name), job.Smallest()), job.Smallest())
		}):
			why = fmt.Sprintf(
				"Slurm would refuse the job: partition %s: it has no node with the requested CPUs, memory and GPUs on each", name)
		default:
			return ""
		}
	}
	return why
}

// large reports whether nodes of a group have what a job takes on each, if they are up and idle.
func large(g cluster.Group, need admission.Need, job admission.Job) bool {
	if need.AskedCPUs > int64(g.CPUs) || max(job.MemMB, job.MemPerCPU*need.AskedCPUs, job.MemPerGPU*job.GPUs) > g.Memory>>20 {
		return false
	}
	gres, err := slurm.ParseGRES(g.GRES)
	if err != nil {
		return true // an unknown form
	}
	total := int64(0)
	for _, item := range gres {
		if item.Name == "gpu" {
			total += item.Count
		}
	}
	return job.GPUs <= total && admission.HasGRES(g.GRES, job)
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
