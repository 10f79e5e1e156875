package main

import (
	"context"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/admission"
	"github.com/ponos-tools/ponos/lib/forecast"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// planner is what Slurm was asked for a forecast, and the plan that follows from it.
type planner struct {
	forecast.Records
	world *forecast.World
	plan  *forecast.Plan
	rows  map[rowKey]int // of the world

	shares []slurm.Share      // once they were asked for
	access *admission.Cluster // who may use what
}

type rowKey struct {
	label, partition string
}

// load asks Slurm for everything, and plans. Limits are known where the cluster keeps
// accounts and shows them.
func (n *planner) load(ctx context.Context, a *asker) error {
	*n = planner{}
	n.Now, n.UserID = a.now(), a.uid
	var factors factorRows
	var noFactors string
	if err := a.config(&n.Config)(ctx); err != nil {
		return err
	}
	questions := []func(context.Context) error{
		a.partitions(&n.Partitions), listing(&n.Nodes, a.client.Nodes), listing(&n.Reservations, a.client.Reservations), listing(&n.Licenses, a.client.Licenses),
		listing(&n.Details, func(ctx context.Context) ([]slurm.JobDetail, error) { return a.client.JobDetails(ctx, "") }),
		a.jobs(&n.Jobs, nil, "PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "RESIZING", "STOPPED"),
	}
	if n.Config.Multifactor() {
		questions = append(questions, a.factors(&factors, &noFactors))
	}
	if n.Config.Accounting() {
		questions = append(questions, a.usages(&n.Usages), a.qos(&n.QOS))
	}
	if err := together(ctx, questions...); err != nil {
		return err
	}
	n.PriorityOf = func(j *slurm.Job) (float64, float64) {
		if at := factors.find(j); at >= 0 {
			return factors.rows[at].Priority, factors.rows[at].Age.Weighted
		}
		return float64(j.Priority), 0
	}
	n.world = forecast.NewWorld(n.Records)
	n.plan = forecast.NewPlan(n.world, true)
	n.rows = make(map[rowKey]int, len(n.Jobs))
	for i := range n.Jobs {
		n.rows[rowKey{n.Jobs[i].Label, n.Jobs[i].Partition}] = i
	}
	return nil
}

// row finds the row of a job in a partition, or -1.
func (n *planner) row(j *slurm.Job) int {
	if i, ok := n.rows[rowKey{j.Label, j.Partition}]; ok {
		return i
	}
	return -1
}

// usages asks what counts against limits. A controller that does not say so leaves them
// unknown.
func (a *asker) usages(into **slurm.Usages) func(context.Context) error {
	return func(ctx context.Context) error {
		u, err := a.client.Usages(ctx)
		if failure, failed := slurm.FailureOf(err); failed && failure == slurm.Refused {
			return nil
		}
		if err == nil {
			*into = &u
		}
		return err
	}
}

// qos asks for the limits of QoS; without slurmdbd they are unknown.
func (a *asker) qos(into *[]slurm.QOS) func(context.Context) error {
	return func(ctx context.Context) error {
		all, err := a.client.QOS(ctx)
		if failure, failed := slurm.FailureOf(err); failed && (failure == slurm.NoDatabase || failure == slurm.Refused) {
			return nil
		}
		*into = all
		return err
	}
}

// unplanned counts the jobs in line, by partition, for which no nodes are kept.
func (n *planner) unplanned(partition string) int {
	count := 0
	for i := range n.Jobs {
		switch j := &n.world.Jobs[i]; n.plan.Results[i].Verdict {
		case forecast.NotReached, forecast.Unplanned, forecast.Beyond:
			if j.Partition == partition && !j.Running {
				count += max(1, j.Tasks)
			}
		}
	}
	return count
}

// memoryCounts reports whether memory is handed out to jobs on this cluster.
func (n *planner) memoryCounts() bool {
	return strings.Contains(strings.ToUpper(n.Config.Get("SelectTypeParameters")), "MEMORY")
}

// memoryPerCPU is the most MiB that a job may ask for with each CPU; 0 is no
// limit.
func (n *planner) memoryPerCPU(p *slurm.Partition) float64 {
	if p.MaxMemPerCPU.Set {
		return float64(p.MaxMemPerCPU.Max)
	}
	most, err := parseNumber(n.Config.Get("MaxMemPerCPU"))
	if err != nil {
		return 0
	}
	return most
}

// preemptMode is what happens to a job of the partition that is preempted.
func (n *planner) preemptMode(p *slurm.Partition) string {
	if p.PreemptMode != "" {
		return p.PreemptMode
	}
	return or(n.Config.Get("PreemptMode"), "OFF")
}

// gpuType is the type of the GPUs of these nodes, if the partition has several
// types and these nodes only one.
func (n *planner) gpuType(p *slurm.Partition, nodes []string) string {
	inPartition, here := map[string]bool{}, map[string]bool{}
	for i := range n.world.Nodes {
		u := &n.world.Nodes[i]
		for kind := range u.GPUs {
			if n.Nodes[i].Partitions.Has(p.Name) {
				inPartition[kind] = true
			}
			if slices.Contains(nodes, u.Name) {
				here[kind] = true
			}
		}
	}
	if len(inPartition) < 2 || len(here) != 1 {
		return ""
	}
	for kind := range here {
		return kind
	}
	return ""
}

// threads is the number of CPUs of a core on these nodes: jobs get whole cores.
func (n *planner) threads(nodes []string) float64 {
	t := 1.0
	for i := range n.Nodes {
		if slices.Contains(nodes, n.Nodes[i].Name) {
			t = max(t, float64(n.Nodes[i].ThreadsPerCore))
		}
	}
	return t
}

func integer(f float64) string { return strconv.FormatInt(int64(f), 10) }

// model is what is known of who may use what.
func (n *planner) model(name string, memberships []slurm.Association) *admission.Cluster {
	m := &admission.Cluster{Partitions: n.Partitions, Associations: memberships, Config: n.Config, User: name}
	m.Known.Config, m.Known.Accounting = true, true
	m.Host, _ = os.Hostname()
	if u, err := user.Current(); err == nil {
		ids, err := u.GroupIds()
		m.Known.Groups = err == nil
		for _, id := range ids {
			g, err := user.LookupGroupId(id)
			if m.Known.Groups = m.Known.Groups && err == nil; m.Known.Groups {
				m.Groups = append(m.Groups, g.Name)
			}
		}
	}
	return m
}

// accounts are those that a user may charge, as far as the controller tells.
func (n *planner) accounts(name string) (accounts []string) {
	if n.Usages == nil {
		return nil
	}
	for i := range n.Usages.Associations {
		if a := &n.Usages.Associations[i]; a.User == name && a.Cluster == n.Config.Get("ClusterName") && !slices.Contains(accounts, a.Account) {
			accounts = append(accounts, a.Account)
		}
	}
	return accounts
}

// account is the one that a user charges in a partition if none is named and it is one of
// several; "" if none is known. refusal says why the user may not use the partition.
func (n *planner) account(name string, p *slurm.Partition) (account, refusal string) {
	if n.access == nil {
		n.access = n.model(name, nil)
		n.access.Known.Accounting = false
	}
	for _, f := range n.access.Access(p) {
		if f.Verdict == admission.No {
			return "", f.Text
		}
	}
	accounts := n.accounts(name)
	for _, a := range accounts {
		if n.access.MayCharge(p, a) != admission.No {
			return a, ""
		}
	}
	if len(accounts) > 0 {
		return "", "the partition takes none of your accounts (" + strings.Join(accounts, ", ") + ")"
	}
	return "", ""
}
