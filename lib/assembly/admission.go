package assembly

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/admission"
	"github.com/ponos-tools/ponos/lib/config"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/launcher"
	asked "github.com/ponos-tools/ponos/lib/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/runner/local"
	slurmrunner "github.com/ponos-tools/ponos/lib/runner/slurm"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Refused returns why Slurm would refuse the jobs of tasks with the options for these needs, or
// accept and never start them; "" if no reason is known. It is only advice: Slurm itself decides. The
// cluster is queried once for equal options.
func (p *System) Refused(ctx context.Context, n runner.Needs) string {
	if p.SlurmRunner == nil {
		return ""
	}
	options, err := p.SlurmRunner.Options(ctx, n)
	if err != nil {
		return err.Error()
	}
	once, _ := p.refusals.LoadOrStore(strings.Join(options, "\x00"), sync.OnceValue(func() string { return refused(ctx, options) }))
	return once.(func() string)() //nolint:forcetypeassert // nothing else is stored
}

func refused(ctx context.Context, options []string) string {
	model, job, partitions, ok := modelled(ctx, options, launcher.World{Refresh: true})
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

// Hopeless returns why a job with a task's needs can never start, even if all nodes are free and up;
// "" if that is unknown.
func (p *System) Hopeless(ctx context.Context, n runner.Needs) string {
	if p.SlurmRunner == nil {
		return ""
	}
	options, err := p.SlurmRunner.Options(ctx, n)
	if err != nil {
		return "" // ponos-start reports it
	}
	return hopeless(ctx, options)
}

// passing are findings that may change, or that only hold on this host.
var passing = []string{"partition_state", "reservation", "host"}

// hopeless queries the cluster again before it reports a reason.
func hopeless(ctx context.Context, options []string) string {
	why := ""
	for _, refresh := range []bool{false, true} {
		if why = hopelessNow(ctx, options, launcher.World{Refresh: refresh}); why == "" {
			break
		}
	}
	return why
}

func hopelessNow(ctx context.Context, options []string, world launcher.World) string {
	model, job, partitions, ok := modelled(ctx, options, world)
	snapshot, err := launcher.World{}.Cluster(ctx)
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
		at := slices.IndexFunc(found, func(f admission.Finding) bool { return f.Verdict == admission.No && !slices.Contains(passing, f.Code) })
		switch {
		case at >= 0:
			why = words(found[at])
		case !slices.ContainsFunc(snapshot.Groups, func(g asked.Group) bool {
			return g.Partitions.Has(name) && large(g, model.Need(model.Partition(name), job), job)
		}):
			why = fmt.Sprintf("Slurm would refuse the job: partition %s: it has no node with the requested CPUs, memory and GPUs on each", name)
		default:
			return ""
		}
	}
	return why
}

// large reports whether nodes of a group have what a job takes on each, if they are up and idle.
func large(g asked.Group, need admission.Need, job admission.Job) bool {
	if need.AskedCPUs > int64(g.CPUs) || job.MemMB > g.Memory>>20 {
		return false
	}
	gres, err := slurm.ParseGRES(g.GRES)
	if err != nil {
		return true // an unknown form
	}
	count := func(of string) (n int64) {
		for _, item := range gres {
			if item.Name == "gpu" && (of == "" || item.Type == of) {
				n += item.Count
			}
		}
		return n
	}
	for of, n := range job.GPUTypes {
		if n > count(of) {
			return false
		}
	}
	return job.GPUs <= count("")
}

// CheckNeeds reports problems with the needs of a task that is to be submitted, according to the
// configuration of its agent and, if Slurm answers in time, to the cluster. An error of kind
// fault.Usage means that they are not allowed, one of kind fault.Failed that nothing can satisfy
// them.
func CheckNeeds(ctx context.Context, c config.Config, n runner.Needs) error {
	if !n.Own() {
		return nil
	}
	switch c.Mode {
	case "vast":
		if n.Request.Find != "" {
			if _, err := VastFind(n.Request.Find); err != nil {
				return fault.Errorf(fault.Usage, "the request: %w", err)
			}
		}
		return nil
	case "local":
		return fault.Wrap(fault.Failed, local.Check(n, machine(c)))
	case "slurm":
	default:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	slurmRunner := slurmrunner.New(&slurm.Client{}, c.Slurm, Find)
	options, err := slurmRunner.Options(ctx, n)
	switch kind := fault.KindOf(err); {
	case err == nil:
	case kind == fault.Usage, kind == fault.Failed:
		return err
	default:
		return nil // the agent asks again, and waits as long as necessary
	}
	if why := hopeless(ctx, options); why != "" {
		return fault.Errorf(fault.Failed, "%s (the options are %s)", why, strings.Join(options, " "))
	}
	// Sbatch also checks what the model does not know, such as names and values of options.
	if _, err := slurmRunner.Try(ctx, n); errors.Is(err, runner.ErrRefused) {
		return fault.Wrap(fault.Failed, err)
	}
	return nil
}

// askTime limits the queries about a task that is to be submitted.
const askTime = 10 * time.Second

// modelled returns the job with options of sbatch, and the cluster's matching nodes.
func modelled(ctx context.Context, options []string, world launcher.World) (model *admission.Cluster, job admission.Job, partitions []string, ok bool) {
	snapshot, err := world.Cluster(ctx)
	if err != nil {
		return nil, job, nil, false
	}
	model = snapshot.Admission()
	job, partitions = admission.JobOf(func(name string) (string, bool) {
		for _, o := range options {
			if value, ok := strings.CutPrefix(o, "--"+name); ok && (value == "" || value[0] == '=') {
				return strings.TrimPrefix(value, "="), true
			}
		}
		return "", false
	})
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
