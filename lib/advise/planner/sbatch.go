package planner

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/advise/priority"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// maxScript limits how much of a script is read.
const maxScript = 1 << 20

// ErrHeterogeneous refuses what would be planned as its first component alone.
var ErrHeterogeneous = fault.Errorf(fault.Usage, "heterogeneous jobs are not planned: give the options of one component")

// Options are the options of a command line of sbatch and, where it names a script, of the script.
func Options(args []string) (sbatch.Options, error) {
	line, err := sbatch.Argv(args)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err)
	}
	if len(line.Jobs) > 1 {
		return nil, ErrHeterogeneous
	}
	given := line.Jobs[0]
	if len(line.Command) == 0 || line.Command[0] == "-" {
		return given, nil
	}
	f, err := os.Open(line.Command[0])
	if errors.Is(err, fs.ErrNotExist) {
		return given, nil // sbatch looks in PATH as well, and is asked first
	}
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxScript))
	if err != nil {
		return nil, err
	}
	inScript, err := sbatch.Script(string(text))
	if err != nil {
		return nil, fault.Errorf(fault.Usage, "%s: %w", line.Command[0], err)
	}
	if len(inScript) > 1 {
		return nil, ErrHeterogeneous
	}
	return inScript[0].With(given...), nil
}

// JobFor is the job that options of sbatch request in a partition, as it would wait in the
// queue after its submission.
func (n *Planner) JobFor(
	ctx context.Context, a *Asker, user string, options sbatch.Options, p *slurm.Partition, qos string,
) (forecast.Job, error) {
	model := admission.Cluster{Partitions: n.Partitions, Config: n.Config, User: user}
	model.Known.Config = true
	asked := admission.Narrowest(options, int64(len(n.Nodes)), func(j admission.Job) bool { return n.have(p, model.Need(p, j), j.Nodes) })
	need := model.Need(p, asked)
	account, _ := n.Account(user, p) // sbatch is the judge of whether it may be used
	job := forecast.Job{
		Label: "this job", Name: options.Value("job-name"), User: user,
		Account: cmp.Or(options.Value("account"), account), QOS: cmp.Or(qos, cmp.Or(options.Value("qos"), "normal")),
		Partition: p.Name, Submit: n.Now.Unix(), Accrue: n.Now.Unix(), Nodes: int(max(1, asked.Nodes)),
		Need: forecast.Resources{CPUs: float64(need.CPUs), MemMB: float64(need.MemMB), GPUs: float64(need.GPUs)}, Whole: asked.Exclusive,
		Features: options.Value("constraint"), Licenses: asked.Licenses, Tasks: 1,
	}
	if !n.MemoryCounts() {
		job.Need.MemMB = 0
	}
	job.Required, _ = hostlist.Expand(options.Value("nodelist"))
	job.Excluded, _ = hostlist.Expand(options.Value("exclude"))
	for kind := range asked.GPUTypes {
		job.GPUType = kind
	}
	limit := asked.Time
	if limit == 0 {
		limit = p.DefaultTime
	}
	if limit == 0 || limit == slurm.Unlimited || p.MaxTime > 0 && p.MaxTime != slurm.Unlimited && limit > p.MaxTime {
		limit = p.MaxTime
	}
	if job.Limit = int64(limit / time.Second); limit == slurm.Unlimited || limit <= 0 {
		job.Limit = forecast.Forever
	}
	var err error
	if job.Priority, err = n.expectedPriority(ctx, a, &job, p); err != nil {
		return job, err
	}
	return n.World.Bound(job), nil
}

// have reports whether a partition has so many nodes that can each give what is needed when they are empty.
func (n *Planner) have(p *slurm.Partition, need admission.Need, nodes int64) bool {
	for i := range n.Nodes {
		node := &n.Nodes[i]
		if node.Partitions.Has(p.Name) && need.CPUs <= node.CPUs-node.SpecCPUs && need.GPUs <= node.GPUs &&
			(need.MemMB <= node.MemMB-node.SpecMemMB || !n.MemoryCounts()) {
			nodes--
		}
	}
	return nodes <= 0
}

// expectedPriority is what priority Slurm would give a job: by its factors, where they
// count, or else the lowest, after all that wait.
func (n *Planner) expectedPriority(ctx context.Context, a *Asker, j *forecast.Job, p *slurm.Partition) (float64, error) {
	if !n.Config.Multifactor() {
		lowest := 1e9
		for i := range n.Jobs {
			if n.Jobs[i].Pending() && n.Jobs[i].Priority > 0 {
				lowest = min(lowest, float64(n.Jobs[i].Priority))
			}
		}
		return lowest - 1, nil
	}
	ask := priority.Ask{
		Nodes: float64(j.Nodes), CPUs: float64(j.Nodes) * j.Need.CPUs, ClusterNodes: float64(len(n.Nodes)),
		LimitMinutes: float64(j.Limit) / 60,
		Size: priority.SizeOptions{
			FavorSmall: n.Config.Get("PriorityFavorSmall") == "Yes", RelativeToTime: n.Config.PriorityFlag("SMALL_RELATIVE_TO_TIME"),
		},
		JobFactor: float64(p.JobFactor), InPartition: p.TRES,
		TRES: map[string]float64{
			"cpu": float64(j.Nodes) * j.Need.CPUs, "mem": float64(j.Nodes) * j.Need.MemMB,
			"gres/gpu": float64(j.Nodes) * j.Need.GPUs, "node": float64(j.Nodes),
		},
	}
	for i := range n.Nodes {
		ask.ClusterCPUs += float64(n.Nodes[i].CPUs)
	}
	for i := range n.Partitions {
		ask.LargestJobFactor = max(ask.LargestJobFactor, float64(n.Partitions[i].JobFactor))
	}
	for i := range n.QOS {
		if ask.LargestQOS = max(ask.LargestQOS, float64(n.QOS[i].Priority)); n.QOS[i].Name == j.QOS {
			ask.QOS = float64(n.QOS[i].Priority)
		}
	}
	if n.sharesCount() {
		if n.Shares == nil {
			if err := a.shares(&n.Shares)(ctx); err != nil {
				return 0, err
			}
			if n.Shares == nil {
				n.Shares = []slurm.Share{} // they have been asked for
			}
		}
		for _, s := range n.Shares {
			if s.User == j.User && (s.Account == j.Account || j.Account == "") && s.HasFactor {
				ask.FairShare = s.FairShare
			}
		}
	}
	return priority.Expected(Weights(n.Config), ask), nil
}

// Weights are the weights of the factors.
func Weights(c slurm.Config) priority.Weights {
	return priority.Weights{
		Age: c.Weight("Age"), Assoc: c.Weight("Assoc"), FairShare: c.Weight("FairShare"), JobSize: c.Weight("JobSize"),
		Partition: c.Weight("Partition"), QOS: c.Weight("QOS"), TRES: c.TRESWeights(),
	}
}
