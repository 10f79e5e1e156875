// Package planner asks Slurm for all that a forecast needs, plans jobs that are given as
// options of sbatch, and keeps and scores its own forecasts.
package planner

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Planner is what Slurm answered for a forecast, and the plan that follows from it.
type Planner struct {
	forecast.Records
	Factors   FactorRows
	NoFactors string // why sprio has none
	// Budget is the time for an answer, with what Slurm takes of it; half of it is for the plan and what follows in any case. 0: no limit.
	Budget time.Duration
	World  *forecast.World
	Plan   *forecast.Plan
	rows   map[rowKey]int // of the world
	began  time.Time

	access  *admission.Cluster // who may use what
	charges *admission.Cluster // by which associations a user's jobs are charged
	silent  error              // why the database did not answer; it is not asked again
}

type rowKey struct {
	label, partition string
}

// ErrNodesHidden reports that Slurm does not show its nodes to this user, so that nothing can be planned.
var ErrNodesHidden = fault.Hint(
	fault.Errorf(fault.Unavailable, "Slurm hides the nodes from you (PrivateData=nodes): nothing can be planned"),
	"fairshare jobs and scontrol show job JOB have the start that Slurm expects")

// nodes requests the nodes. Where Slurm may hide them, a refusal and no nodes are one answer.
func (n *Planner) nodes(a *Asker) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		n.Nodes, err = a.Client.Nodes(ctx)
		if n.Config.Private("nodes") && ctx.Err() == nil && (err == nil && len(n.Nodes) == 0 || slurm.WasRefused(err)) {
			return ErrNodesHidden
		}
		return err
	}
}

// Load queries Slurm for everything that a plan needs, and plans. Limits are known where the
// cluster keeps accounts and shows them.
func (n *Planner) Load(ctx context.Context, a *Asker) error {
	if err := n.query(ctx, a, false); err != nil {
		return err
	}
	return n.Turn(ctx)
}

// LoadToReplay asks also for what changes priorities while time passes.
func (n *Planner) LoadToReplay(ctx context.Context, a *Asker) error {
	if err := n.QueryToReplay(ctx, a); err != nil {
		return err
	}
	return n.Turn(ctx)
}

// QueryToReplay is LoadToReplay without the plan, for which Turn follows.
func (n *Planner) QueryToReplay(ctx context.Context, a *Asker) error { return n.query(ctx, a, true) }

// Turn plans what was queried. ctx ends this plan and those that are made of it.
func (n *Planner) Turn(ctx context.Context) error {
	n.Plan = forecast.NewPlan(n.Over(ctx), n.World, true)
	return ctx.Err()
}

func (n *Planner) query(ctx context.Context, a *Asker, replay bool) error {
	*n = Planner{Budget: n.Budget, began: clock.Now()}
	n.Now, n.UserID = a.Now(), a.UID
	if err := a.Config(&n.Config)(ctx); err != nil {
		return err
	}
	questions := []func(context.Context) error{
		a.Partitions(&n.Partitions), n.nodes(a),
		Listing(&n.Reservations, a.Client.Reservations), Listing(&n.Licenses, a.Client.Licenses),
		a.Jobs(&n.Jobs, nil,
			"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SIGNALING", "STAGE_OUT", "RESIZING", "STOPPED", "SUSPENDED"),
	}
	if n.Config.Accounting() {
		questions = append(questions, a.usages(&n.Usages), n.qos(a))
	}
	if err := Together(ctx, questions...); err != nil {
		return err
	}
	if errors.Is(n.silent, slurm.ErrNoAccounting) { // whatever the configuration names
		n.Config["AccountingStorageType"], n.silent = "", nil
	}
	if len(n.Jobs) > 0 { // else there is nothing more to know of them
		questions = []func(context.Context) error{a.details(&n.Details)}
		if n.Config.Multifactor() {
			questions = append(questions, a.Factors(&n.Factors, &n.NoFactors))
		}
		if replay && n.sharesCount() {
			questions = append(questions, a.shares(&n.Shares))
		}
		if err := Together(ctx, questions...); err != nil {
			return err
		}
	}
	n.PriorityOf = func(j *slurm.Job) (float64, float64) {
		if at := n.Factors.Find(j); at >= 0 {
			return Effective(n.Config, j, n.Factors.Rows[at].Priority), n.Factors.Rows[at].Age.Weighted
		}
		return float64(j.Priority), 0
	}
	n.Records.Over = over(ctx)
	n.World = forecast.NewWorld(n.Records)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if n.Details = nil; replay { // they are many
		n.Factors = FactorRows{}
	}
	n.rows = make(map[rowKey]int, len(n.Jobs))
	for i := range n.Jobs {
		n.rows[rowKey{n.Jobs[i].Label, n.Jobs[i].Partition}] = i
	}
	return ctx.Err()
}

// Left is the time that is left of the budget.
func (n *Planner) Left() time.Duration { return max(n.Budget-clock.Now().Sub(n.began), n.Budget/2) }

// Over ends what takes more time than there is, and at the end of a command at once.
func (n *Planner) Over(ctx context.Context) func() bool {
	end := clock.Now().Add(n.Left())
	return func() bool { return ctx.Err() != nil || n.Budget > 0 && clock.Now().After(end) }
}

// Effective is the priority of a job by which Slurm orders, where sprio shows the sum of its
// factors: with INCR_ONLY a priority stays when that falls.
func Effective(c slurm.Config, j *slurm.Job, sum float64) float64 {
	if c.PriorityFlag("INCR_ONLY") {
		return max(sum, float64(j.Priority))
	}
	return sum
}

// Row finds the row of a job in a partition, or -1.
func (n *Planner) Row(j *slurm.Job) int {
	if i, ok := n.rows[rowKey{j.Label, j.Partition}]; ok {
		return i
	}
	return -1
}

// sharesCount reports whether priorities depend on fair share.
func (n *Planner) sharesCount() bool {
	return n.Config.Multifactor() && n.Config.Accounting() && n.Config.Weight("FairShare") > 0
}

// shares requests the fair shares. A controller that does not show them, and a machine
// without sshare, leave them unknown.
func (a *Asker) shares(into *[]slurm.Share) func(context.Context) error {
	return func(ctx context.Context) error {
		shares, err := a.Client.Shares(ctx)
		if absent(err) {
			return nil
		}
		*into = shares
		return err
	}
}

// details requests what only records of jobs tell; of the others, one of each user has that one's number.
func (a *Asker) details(into *[]slurm.JobDetail) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		users := map[uint32]bool{}
		*into, err = a.Client.AllJobDetails(ctx, func(d *slurm.JobDetail) bool {
			first := !users[d.UserID] && (d.State == "PENDING" || d.State == "RUNNING")
			if first {
				users[d.UserID] = true
			}
			return first || len(d.Placements) > 0 || d.WholeNodes || d.ExcNodes+d.Licenses+d.GRESPerTask != "" || d.TimeMin > 0
		})
		return err
	}
}

// usages asks what counts against limits. A controller that does not say so leaves them
// unknown.
func (a *Asker) usages(into **slurm.Usages) func(context.Context) error {
	return func(ctx context.Context) error {
		u, err := a.Client.Usages(ctx)
		if absent(err) {
			return nil
		}
		if err == nil {
			*into = &u
		}
		return err
	}
}

// qos requests the limits of QoS; without slurmdbd they are unknown.
func (n *Planner) qos(a *Asker) func(context.Context) error {
	return func(ctx context.Context) error {
		all, err := a.Client.QOS(ctx)
		if absent(err) {
			if !slurm.WasRefused(err) { // else it answers other questions, maybe
				n.silent = err
			}
			return nil
		}
		n.QOS = all
		return err
	}
}

// Unplanned counts the jobs in line, by partition, for which no nodes are kept.
func (n *Planner) Unplanned(partition string) int {
	count := 0
	for i := range n.Jobs {
		switch j := &n.World.Jobs[i]; n.Plan.Results[i].Verdict {
		case forecast.NotReached, forecast.Unplanned, forecast.Beyond:
			if j.Partition == partition && !j.Running {
				count += max(1, j.Tasks)
			}
		}
	}
	return count
}

// MemoryCounts reports whether memory is handed out to jobs on this cluster.
func (n *Planner) MemoryCounts() bool {
	return strings.Contains(strings.ToUpper(n.Config.Get("SelectTypeParameters")), "MEMORY")
}

// MemoryPerCPU returns the most MiB that a job may request with each CPU; 0: no limit.
func (n *Planner) MemoryPerCPU(p *slurm.Partition) float64 {
	if p.MaxMemPerCPU.Set {
		return float64(p.MaxMemPerCPU.Max)
	}
	return n.Config.Number("MaxMemPerCPU")
}

// PreemptMode is what happens to a job of the partition that is preempted.
func (n *Planner) PreemptMode(p *slurm.Partition) string {
	if p.PreemptMode != "" {
		return p.PreemptMode
	}
	return cmp.Or(n.Config.Get("PreemptMode"), "OFF")
}

// GPUType is the type of the GPUs of these nodes, if the partition has several
// types and these nodes only one.
func (n *Planner) GPUType(p *slurm.Partition, nodes []string) string {
	here := n.gpuTypes(func(node *slurm.Node) bool { return slices.Contains(nodes, node.Name) })
	all := n.gpuTypes(func(node *slurm.Node) bool { return node.Partitions.Has(p.Name) })
	if len(all) < 2 || len(here) != 1 {
		return ""
	}
	return here[0]
}

// GPUTypes are the types of the GPUs of these nodes.
func (n *Planner) GPUTypes(nodes []string) []string {
	return n.gpuTypes(func(node *slurm.Node) bool { return slices.Contains(nodes, node.Name) })
}

func (n *Planner) gpuTypes(of func(*slurm.Node) bool) []string {
	kinds := map[string]bool{}
	for i := range n.World.Nodes {
		if of(&n.Nodes[i]) {
			for kind := range n.World.Nodes[i].GPUs {
				kinds[kind] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(kinds))
}

// Threads is the number of CPUs of a core on these nodes: jobs get whole cores.
func (n *Planner) Threads(nodes []string) float64 {
	t := 1.0
	for i := range n.Nodes {
		if slices.Contains(nodes, n.Nodes[i].Name) {
			t = max(t, float64(n.Nodes[i].ThreadsPerCore))
		}
	}
	return t
}

// Model is what is known of who may use what.
func (n *Planner) Model(name string, memberships []slurm.Association) *admission.Cluster {
	m := &admission.Cluster{
		Partitions: n.Partitions, Nodes: admission.Kinds(n.Nodes), Associations: memberships, Config: n.Config, User: name,
	}
	m.Known.Config, m.Known.Accounting = true, true
	m.Host, _ = os.Hostname()
	if groups, err := nss.Groups(); err == nil {
		m.Groups, m.Known.Groups = groups, true
	}
	return m
}

// accounts are those that a user may charge, as far as the controller tells: the default one first.
func (n *Planner) accounts(name string) (accounts []string) {
	if n.Usages == nil {
		return nil
	}
	for i := range n.Usages.Associations {
		a := &n.Usages.Associations[i]
		if a.User == name && a.Cluster == n.Config.Get("ClusterName") && !slices.Contains(accounts, a.Account) {
			if accounts = append(accounts, a.Account); a.Default {
				last := len(accounts) - 1
				accounts[0], accounts[last] = accounts[last], accounts[0]
			}
		}
	}
	return accounts
}

// tree are the accounts with those above them: a partition for an account is for those
// below it, too.
func (n *Planner) tree() (accounts []slurm.Association) {
	if n.Usages == nil {
		return nil
	}
	for i := range n.Usages.Associations {
		if a := &n.Usages.Associations[i]; a.User == "" && a.Cluster == n.Config.Get("ClusterName") {
			accounts = append(accounts, slurm.Association{Cluster: a.Cluster, Account: a.Account, Parent: a.Parent})
		}
	}
	return accounts
}

// Account is the one that a user charges in a partition if none is named and it is one of
// several; "" if none is known. refusal says why the user may not use the partition.
func (n *Planner) Account(name string, p *slurm.Partition) (account, refusal string) {
	if n.access == nil {
		n.access = n.Model(name, nil)
		n.access.Accounts, n.access.Known.Accounting = n.tree(), false
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
