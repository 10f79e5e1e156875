package slurm

import (
	"context"
	"slices"
	"strconv"
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
		n, known := gpus(*all)
		if !known {
			return fault.Errorf(fault.Usage, "slurm.limits limits GPUs, and the options of the job do not say how many it requests")
		}
		if n > l.GPUs {
			return over("%d GPUs; %d at most", n, l.GPUs)
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

// most is the largest count that an option of Slurm is assumed to have.
const most = 1 << 20

// gpus returns how many GPUs a job with these options gets at most, if that can be known.
func gpus(all sbatch.Options) (n int, known bool) {
	known = true
	number := func(name string) int {
		text, given := all.Get(name)
		if !given {
			return 1
		}
		_, last, isRange := strings.Cut(text, "-")
		if !isRange {
			last = text
		}
		count, err := strconv.Atoi(last)
		if err != nil || count < 1 || count > most {
			known = false
			return 1
		}
		return count
	}
	nodes := number("nodes")
	tasks := number("ntasks-per-node") * nodes
	if _, given := all.Get("ntasks"); given {
		tasks = number("ntasks")
	}
	for name, times := range map[string]int{
		"gpus": 1, "gpus-per-node": nodes, "gpus-per-task": tasks, "gpus-per-socket": nodes * number("sockets-per-node"),
		"gres": nodes, "tres-per-task": tasks,
	} {
		text, given := all.Get(name)
		if !given {
			continue
		}
		isList := name == "gres" || name == "tres-per-task"
		for item := range strings.SplitSeq(text, ",") {
			if isList {
				item = strings.TrimPrefix(strings.Replace(strings.TrimPrefix(item, "gres/"), "=", ":", 1), "gres:")
				rest, isGPU := strings.CutPrefix(item, "gpu")
				if !isGPU || rest != "" && rest[0] != ':' {
					continue
				}
				item = strings.TrimPrefix(rest, ":")
			}
			count := 1
			if at := strings.LastIndexByte(item, ':'); item != "" {
				c, err := strconv.Atoi(item[at+1:])
				switch {
				case err == nil && c >= 0 && c <= most:
					count = c
				case at >= 0 || !isList: // "a100" alone means one of them
					known = false
				}
			}
			n += count * times
		}
	}
	return n, known
}
