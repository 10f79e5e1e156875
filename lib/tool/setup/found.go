package setup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// found is what a first configuration needs to know of a cluster.
type found struct {
	account  string // "": none is needed, or none is known
	cpu, gpu string // partitions; gpu "": none has GPUs
	cpuTime  time.Duration
	gpuTime  time.Duration
}

// find asks Slurm, if it is there, which partitions and account this user's tasks could go
// to. The error says why there is none.
func find(ctx context.Context, c *slurm.Client) (found, error) {
	if err := c.Ping(ctx); err != nil {
		return found{}, err
	}
	partitions, err := c.Partitions(ctx)
	if err != nil {
		return found{}, err
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return found{}, err
	}
	account := ""
	if me, err := nss.Me(); err == nil {
		account, _ = c.DefaultAccount(ctx, me) // a cluster without accounting has none
	}
	return choose(partitions, nodes, account)
}

// choose takes the default partition, or the first one that is open to the account, rather one that
// does not preempt; for GPUs the first of those that have some.
func choose(partitions []slurm.Partition, nodes []slurm.Node, account string) (found, error) {
	f := found{account: account}
	open := slices.DeleteFunc(slices.Clone(partitions), func(p slurm.Partition) bool {
		return p.State != "UP" || p.Hidden || p.RootOnly || p.NeedsResv || slices.Contains(p.DenyAccounts, account) ||
			p.AllowAccounts != nil && !slices.Contains(p.AllowAccounts, account)
	})
	rank := func(p slurm.Partition) int {
		switch {
		case p.Default:
			return 0
		case p.Preemptible():
			return 2
		}
		return 1
	}
	slices.SortStableFunc(open, func(a, b slurm.Partition) int { return rank(a) - rank(b) })
	if len(open) == 0 {
		return f, fmt.Errorf("no partition is open to account %q", account)
	}
	f.cpu, f.cpuTime = open[0].Name, limit(open[0])
	for _, p := range open {
		if !p.Preemptible() && slices.ContainsFunc(nodes, func(n slurm.Node) bool { return n.GPUs > 0 && n.Partitions.Has(p.Name) }) {
			f.gpu, f.gpuTime = p.Name, limit(p)
			break
		}
	}
	return f, nil
}

const day = 24 * time.Hour

// limit is the time limit of tasks: a day, or what the partition allows.
func limit(p slurm.Partition) time.Duration {
	if p.MaxTime <= 0 || p.MaxTime == slurm.Unlimited {
		return day
	}
	return min(day, p.MaxTime)
}

// section is the part of the configuration for Slurm. What the cluster does not have stands there as a comment.
func (f found) section() string {
	var base, cpu, gpu, daemon sbatch.Options
	base.Set("account", cmp.Or(f.account, "research"))
	cpu.Set("partition", f.cpu)
	cpu.SetInt(sbatch.CPUsPerTask, 1)
	cpu.SetTime("time", f.cpuTime)
	gpu.Set("partition", cmp.Or(f.gpu, "gpu"))
	gpu.Set("gres", "gpu:1")
	gpu.SetTime("time", cmp.Or(f.gpuTime, 20*time.Hour))
	daemon.Set("partition", f.cpu)
	daemon.SetTime("time", day)

	return "# Options of sbatch: for all jobs (base), and for tasks without and with a GPU.\nslurm:\n" +
		entry("base", base, f.account != "") + entry("cpu", cpu, true) + entry("gpu", gpu, f.gpu != "") +
		"# The agent itself as a Slurm job:\n" + entry("daemon", daemon, false)
}

// entry is a line of YAML with options, or a comment that becomes one without its mark.
func entry(key string, options sbatch.Options, holds bool) string {
	pairs := make([]string, len(options))
	for i, o := range options {
		pairs[i] = fmt.Sprintf("%s: %q", o.Name, o.Value)
	}
	mark := ""
	if !holds {
		mark = "#"
	}
	return fmt.Sprintf("%s  %s: {%s}\n", mark, key, strings.Join(pairs, ", "))
}
