package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"
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

// Options are the options of a job that a command line of sbatch requests: those of the script that it names, of variables
// of the environment, and its own.
func Options(args []string) (sbatch.Options, error) {
	line, err := sbatch.Argv(args)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err)
	}
	if len(line.Jobs) > 1 {
		return nil, ErrHeterogeneous
	}
	given := sbatch.Environ(os.LookupEnv).Then(line.Jobs[0]...)
	if len(line.Command) == 0 || line.Command[0] == "-" {
		return given, nil
	}
	info, err := os.Stat(line.Command[0])
	if errors.Is(err, fs.ErrNotExist) {
		return given, nil // sbatch looks in PATH as well
	}
	if err == nil && !info.Mode().IsRegular() { // what can be read once is not there for sbatch
		err = fmt.Errorf("%s is not a regular file", line.Command[0])
	}
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err)
	}
	f, err := os.Open(line.Command[0])
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
	return inScript[0].Then(given...), nil
}

// JobFor is the job that options of sbatch request in a partition, as it would wait in the
// queue after its submission.
func (n *Planner) JobFor(
	ctx context.Context, a *Asker, user string, options sbatch.Options, p *slurm.Partition, qos string,
) (forecast.Job, error) {
	model := admission.Cluster{Partitions: n.Partitions, Nodes: admission.Kinds(n.Nodes), Config: n.Config, User: user}
	model.Known.Config = true
	asked := admission.Narrowest(options, int64(len(n.Nodes)), func(j admission.Job) bool { return n.have(p, model.Need(p, j), j.Nodes) })
	if !n.have(p, model.Need(p, asked), asked.Nodes) {
		asked = n.uneven(p, &model, options, asked)
	}
	need := model.Need(p, asked)
	account, _ := n.Account(user, p) // sbatch is the judge of whether it may be used
	account = cmp.Or(options.Value("account"), account)
	qos = cmp.Or(qos, options.Value("qos"))
	if qos == "" {
		charges, _ := n.Charges(ctx, a, user) // where the database does not answer, it is Slurm's own
		qos = charges.QOSOf(account, p.Name)
	}
	job := forecast.Job{
		Label: "this job", Name: options.Value(sbatch.JobName), User: user, Account: account, QOS: qos,
		Partition: p.Name, Submit: n.Now.Unix(), Accrue: n.Now.Unix(), Nodes: int(max(1, asked.Nodes)),
		Need: forecast.Resources{CPUs: float64(need.CPUs), MemMB: float64(need.MemMB), GPUs: float64(need.GPUs)}, Whole: asked.Exclusive,
		Features: options.Value("constraint"), Licenses: asked.Licenses, Tasks: 1,
	}
	job.Required, _ = hostlist.Expand(options.Value("nodelist"))
	job.Excluded, _ = hostlist.Expand(options.Value("exclude"))
	for kind := range asked.GPUTypes {
		job.GPUType = kind
	}
	job.Gets(model.Least(p, asked))
	if !n.MemoryCounts() {
		job.Need.MemMB = 0
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

// Charges is by which associations the jobs of the user who is planned for are charged, and those of the accounts above them
// where these decide. The database is asked once, and not again when it was silent: what is not known is left out, and the
// error says why.
func (n *Planner) Charges(ctx context.Context, a *Asker, user string) (*admission.Cluster, error) {
	if n.charges != nil {
		return n.charges, n.silent
	}
	n.charges = &admission.Cluster{}
	if !n.Config.Accounting() || n.silent != nil {
		return n.charges, n.silent
	}
	ask := func(name string) (list []slurm.Association) {
		if n.silent == nil {
			list, n.silent = a.Client.Associations(ctx, name)
		}
		elsewhere := func(m slurm.Association) bool { return m.Cluster != n.Config.Get("ClusterName") }
		return slices.DeleteFunc(list, elsewhere)
	}
	n.charges.Associations = ask(user)
	above := func(m slurm.Association) bool { return len(m.QOS) != 1 && m.DefaultQOS == "" }
	// Since 23.02 the accounts of a partition stand for those below them, too.
	if n.silent == nil && (n.Config.AtLeast(23, 2) || slices.ContainsFunc(n.charges.Associations, above)) {
		if n.charges.Accounts = ask(""); n.silent == nil { // some sites show users their own only
			n.charges.Known.Accounts = true
		} else if failure, _ := slurm.FailureOf(n.silent); failure == slurm.Refused {
			n.silent = nil
		}
	}
	return n.charges, n.silent
}

// have reports whether a partition has so many nodes that can each give what is needed when they are empty.
func (n *Planner) have(p *slurm.Partition, need admission.Need, nodes int64) bool {
	for i := range n.Nodes {
		if n.gives(&n.Nodes[i], p, need) {
			nodes--
		}
	}
	return nodes <= 0
}

// gives reports whether a node of a partition can give what is needed when it is empty.
func (n *Planner) gives(node *slurm.Node, p *slurm.Partition, need admission.Need) bool {
	return node.Partitions.Has(p.Name) && need.CPUs <= node.CPUs-node.SpecCPUs && need.GPUs <= node.GPUs &&
		(need.MemMB <= node.MemMB-node.SpecMemMB || !n.MemoryCounts())
}

// uneven is a job that no equal nodes hold as one on the fewest that hold it together: Slurm gives the larger ones more of
// its tasks. Each of them counts with what the smallest gives. The job stays as it is where it does not fit on them either,
// or its options fix what each node has.
func (n *Planner) uneven(p *slurm.Partition, model *admission.Cluster, options sbatch.Options, asked admission.Job) admission.Job {
	a, err := options.Amount()
	if err != nil || !a.Uneven {
		return asked
	}
	units := max(a.Tasks, a.GPUs)
	share := func(k int64) admission.Job { // k of the units on each node
		j := asked
		j.Tasks = max(1, (a.Tasks*k+units-1)/units)
		if a.NodeGPUs == 0 {
			j.GPUs = (a.GPUs*k + units - 1) / units
		}
		return j
	}
	var held []int64 // how many units each node holds
	for i := range n.Nodes {
		node := &n.Nodes[i]
		most := sort.Search(int(min(units, node.CPUs+node.GPUs)), func(k int) bool {
			return !n.gives(node, p, model.Need(p, share(int64(k)+1)))
		})
		if most > 0 {
			held = append(held, int64(most))
		}
	}
	slices.SortFunc(held, func(x, y int64) int { return int(y - x) })
	sum := int64(0)
	for i, k := range held {
		nodes := int64(i) + 1
		if sum += k; sum < units || nodes < a.Nodes {
			continue
		}
		if a.MostNodes > 0 && nodes > a.MostNodes {
			break
		}
		asked = share(k)
		asked.Nodes = nodes
		break
	}
	return asked
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
