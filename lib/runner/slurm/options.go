package slurm

import (
	"context"
	"strings"
	"sync"

	"github.com/ponos-tools/ponos/lib/config"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// A Finder returns the options of sbatch for a resource request.
type Finder func(ctx context.Context, request string) (config.Options, error)

// options makes the options of sbatch for tasks. The configuration and the
// partitions are looked at once in the life of a tool.
type options struct {
	client *slurm.Client
	config config.Slurm
	find   Finder

	mu       sync.Mutex
	made     [2][]string
	isMade   [2]bool
	spot     map[string]bool
	spotRead bool
}

func (o *options) forTask(ctx context.Context, gpu bool) ([]string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i, section, key := 0, o.config.CPU, "slurm.cpu"
	if gpu {
		i, section, key = 1, o.config.GPU, "slurm.gpu"
	}
	if !o.isMade[i] {
		resolved, err := Resolve(ctx, o.find, "slurm.base", o.config.Base)
		if err != nil {
			return nil, err
		}
		more, err := Resolve(ctx, o.find, key, section)
		if err != nil {
			return nil, err
		}
		all := resolved.With(more)
		if err := o.requeueOnSpot(ctx, &all); err != nil {
			return nil, err
		}
		for _, option := range all {
			o.made[i] = append(o.made[i], option.Arg())
		}
		o.isMade[i] = true
	}
	return append([]string(nil), o.made[i]...), nil
}

// Resolve replaces the key "find" by the options of the launcher found.
func Resolve(ctx context.Context, find Finder, key string, o config.Options) (config.Options, error) {
	request, ok := o.Get("find")
	if !ok {
		return o, nil
	}
	if find == nil {
		return nil, fault.Errorf(fault.Usage, "%s.find: resource requests are not part of this build", key)
	}
	found, err := find(ctx, request)
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), &findError{key, err})
	}
	// What stands beside "find" is said more plainly, and wins.
	for _, option := range o {
		if option.Name != "find" {
			found = found.With(config.Options{option})
		}
	}
	return found, nil
}

type findError struct {
	key string
	err error
}

func (e *findError) Error() string { return e.key + ".find: " + e.err.Error() }
func (e *findError) Unwrap() error { return e.err }

// requeueOnSpot adds --requeue where a partition's jobs can be preempted, unless
// the configuration speaks of it.
func (o *options) requeueOnSpot(ctx context.Context, all *config.Options) error {
	for _, option := range *all {
		if option.Name == "requeue" || option.Name == "no-requeue" {
			return nil
		}
	}
	partitions, named := all.Get("partition")
	if !o.spotRead {
		list, err := o.client.Partitions(ctx)
		if err != nil {
			return err
		}
		o.spot, o.spotRead = map[string]bool{}, true
		for _, p := range list {
			o.spot[p.Name] = p.Preemptible()
			if p.Default {
				o.spot[""] = p.Preemptible()
			}
		}
	}
	if !named {
		partitions = ""
	}
	for name := range strings.SplitSeq(partitions, ",") {
		if o.spot[name] {
			*all = append(*all, config.Option{Key: "requeue", Name: "requeue", Flag: true})
			return nil
		}
	}
	return nil
}
