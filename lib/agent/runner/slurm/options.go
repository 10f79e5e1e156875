package slurm

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/usage"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// A Finder returns the options of sbatch for a resource request. Where the request does not specify
// time or memory, they are as learned, if anything was learned. Job returns the options of the whole job with those that
// were found.
type Finder func(ctx context.Context, request string, learned usage.Learned, job Job) (sbatch.Options, error)

// Job returns the options of a whole job from those that were found for its request.
type Job func(found sbatch.Options) sbatch.Options

// options returns the options of sbatch for tasks. The configuration and the partitions are read once
// in the life of a tool.
type options struct {
	client *slurm.Client
	config config.Slurm
	find   Finder
	now    func() time.Time
	uid    int // of the jobs to learn from
	past   past
	packed func(since time.Time) ([]usage.Run, error) // how packed tasks have run; nil: there are none
	warn   func(text string)                          // nil: nobody is warned

	mu             sync.Mutex
	made           [2]sbatch.Options
	isMade         [2]bool
	found          map[asked]answer
	partitions     []slurm.Partition
	partitionsRead bool
}

// asked is a request, with what was learned for it and what its job gets besides.
type asked struct {
	request string
	learned usage.Learned
	beside  string
}

// answer is the result of a task's request.
type answer struct {
	at      time.Time
	options sbatch.Options
}

// answerServes is how long an answer to a request is reused: many tasks of one turn have the same
// request.
const answerServes = time.Minute

// forTask returns the options of a task's job: those of the configuration, then what jobs of that
// name have taught and what its request finds, then its own options, and finally the changes of this
// attempt. The error is of kind fault.Usage if options exceed slurm.limits, and of kind fault.Failed
// if nothing satisfies the request.
func (o *options) forTask(ctx context.Context, n runner.Needs, name string) (sbatch.Options, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all, err := o.configured(ctx, n.GPU)
	if err != nil {
		return nil, err
	}
	learned := o.learned(ctx, name)
	if n.Request.Find == "" {
		all = withLearned(all, learned)
	}
	if n.Own() {
		if all, err = o.own(ctx, all, n, learned); err != nil {
			return nil, err
		}
	}
	if err := o.limited(ctx, &all); err != nil {
		return nil, err
	}
	if err := o.requeueOnSpot(ctx, &all); err != nil {
		return nil, err
	}
	return all, nil
}

// configured returns the options of the configuration.
func (o *options) configured(ctx context.Context, gpu bool) (sbatch.Options, error) {
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
		o.made[i], o.isMade[i] = resolved.With(more...), true
	}
	return slices.Clone(o.made[i]), nil
}

// own replaces what is configured by what the task itself needs.
func (o *options) own(ctx context.Context, all sbatch.Options, n runner.Needs, learned usage.Learned) (sbatch.Options, error) {
	asks, err := need.Options(n.Request.Sbatch)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err)
	}
	changed, err := need.Options(n.Changed)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err)
	}
	with := func(all sbatch.Options) sbatch.Options { return all.With(asks...).With(changed...) }
	if n.Request.Find == "" {
		return with(all), nil
	}
	job := func(found sbatch.Options) sbatch.Options { return with(all.WithoutPlace().With(found...)) }
	found, err := o.solve(ctx, n.Request.Find, learned, job)
	if fault.Is(err, fault.Unavailable) { // says nothing about the request
		return nil, err
	}
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), &findError{"the request", err})
	}
	return job(found), nil
}

// solve finds options for a request.
func (o *options) solve(ctx context.Context, request string, learned usage.Learned, job Job) (sbatch.Options, error) {
	key := asked{request, learned, job(nil).String()}
	if known, ok := o.found[key]; ok && o.now().Sub(known.at).Abs() < answerServes {
		return known.options, nil
	}
	if o.find == nil {
		return nil, fault.Errorf(fault.Usage, "resource requests are not part of this build")
	}
	found, err := o.find(ctx, request, learned, job)
	if err != nil {
		return nil, err
	}
	if o.found == nil || len(o.found) > 1000 {
		o.found = map[asked]answer{}
	}
	o.found[key] = answer{o.now(), found}
	return found, nil
}

// Resolve replaces the key "find" by the options of the launcher found.
func Resolve(ctx context.Context, find Finder, key string, o sbatch.Options) (sbatch.Options, error) {
	request, ok := o.Get("find")
	if !ok {
		return o, nil
	}
	if find == nil {
		return nil, fault.Errorf(fault.Usage, "%s.find: resource requests are not part of this build", key)
	}
	job := func(found sbatch.Options) sbatch.Options {
		beside := slices.DeleteFunc(slices.Clone(o), func(option sbatch.Option) bool { return option.Name == "find" })
		return found.With(beside...) // which are more explicit, and win
	}
	found, err := find(ctx, request, usage.Learned{}, job)
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), &findError{key + ".find", err})
	}
	return job(found), nil
}

type findError struct {
	key string
	err error
}

func (e *findError) Error() string { return e.key + ": " + e.err.Error() }
func (e *findError) Unwrap() error { return e.err }

// requeueOnSpot adds --requeue where jobs of a partition can be preempted, unless the configuration
// has an option for it.
func (o *options) requeueOnSpot(ctx context.Context, all *sbatch.Options) error {
	if all.Says("requeue") {
		return nil
	}
	list, err := o.readPartitions(ctx)
	if err != nil {
		return err
	}
	for name := range strings.SplitSeq(all.Value("partition"), ",") {
		preempted := func(p slurm.Partition) bool {
			return p.Preemptible() && (p.Name == name || name == "" && p.Default)
		}
		if slices.ContainsFunc(list, preempted) {
			*all = append(*all, sbatch.Option{Name: "requeue"})
			return nil
		}
	}
	return nil
}

// readPartitions returns the partitions, which are read once.
func (o *options) readPartitions(ctx context.Context) ([]slurm.Partition, error) {
	if !o.partitionsRead {
		var doubts slurm.Doubts
		list, err := o.client.Without(doubts.Add).Partitions(ctx)
		if err != nil {
			return nil, err
		}
		for _, doubt := range doubts.Warnings() {
			if o.warn != nil {
				o.warn(doubt)
			}
		}
		o.partitions, o.partitionsRead = list, true
	}
	return o.partitions, nil
}
