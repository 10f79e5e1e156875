package slurm

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// limited checks the options of a job against slurm.limits. The limits also hold for what a job gets
// by default: where an option is not given, it is set to the limit.
func (o *options) limited(ctx context.Context, all *sbatch.Options) error {
	l := o.config.Limits
	over := func(format string, args ...any) error {
		return fault.Errorf(fault.Usage, "more than slurm.limits allows: "+format, args...)
	}
	add := func(name, value string) {
		*all = append(*all, sbatch.Option{Name: name, Value: value})
	}
	if most := time.Duration(l.Time); most > 0 {
		text, given := all.Get("time")
		if !given {
			add("time", slurm.FormatDuration(most))
		} else if d, err := slurm.ParseDuration(text); err != nil {
			return fault.Errorf(fault.Usage, "time: %w", err)
		} else if d > most || d == 0 { // 0: no limit
			return over("a time limit of %s; %s at most", text, slurm.FormatDuration(most))
		}
	}
	if l.GPUs > 0 {
		most, err := all.Most()
		if err != nil {
			return fault.Errorf(fault.Usage,
				"slurm.limits limits GPUs, and the options of the job do not say how many it requests: %w", err)
		}
		if most.GPUs > int64(l.GPUs) {
			return over("%d GPUs; %d at most", most.GPUs, l.GPUs)
		}
	}
	if len(l.Partitions) > 0 {
		text, given := all.Get("partition")
		if !given {
			list, err := o.readPartitions(ctx)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(list, func(p slurm.Partition) bool { return p.Default && slices.Contains(l.Partitions, p.Name) }) {
				add("partition", l.Partitions[0])
			}
		}
		for name := range strings.SplitSeq(text, ",") {
			if given && !slices.Contains(l.Partitions, name) {
				return over("partition %s; allowed are %s", name, strings.Join(l.Partitions, ", "))
			}
		}
	}
	if len(l.Accounts) > 0 {
		name, given := all.Get("account")
		if !given {
			add("account", l.Accounts[0])
		} else if !slices.Contains(l.Accounts, name) {
			return over("account %s; allowed are %s", name, strings.Join(l.Accounts, ", "))
		}
	}
	return nil
}
