package main

import (
	"context"
	"os/user"
	"strconv"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// asker asks Slurm.
type asker struct {
	client slurm.Client
	now    func() time.Time
	uid    func(name string) (id uint32, ok bool)
}

func newAsker() *asker { return &asker{now: clock.Now, uid: userID} }

// userID is the number of a user whom this machine knows.
func userID(name string) (uint32, bool) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, false
	}
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(id), err == nil
}

// together runs several questions to Slurm at once. The first that fails ends
// the others, and is what is told.
func together(ctx context.Context, questions ...func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var once sync.Once
	var first error
	var wait sync.WaitGroup
	for _, ask := range questions {
		if ask == nil {
			continue
		}
		wait.Go(func() {
			if err := ask(ctx); err != nil {
				once.Do(func() { first = err; cancel() })
			}
		})
	}
	wait.Wait()
	return first
}

// listing asks for something that Slurm lists.
func listing[T any](into *T, ask func(context.Context) (T, error)) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		*into, err = ask(ctx)
		return err
	}
}

func (a *asker) config(into *slurm.Config) func(context.Context) error {
	return listing(into, a.client.Config)
}

func (a *asker) partitions(into *[]slurm.Partition) func(context.Context) error {
	return listing(into, a.client.Partitions)
}

// jobs reads the queue row by row; keep decides what stays.
func (a *asker) jobs(into *[]slurm.Job, keep func(*slurm.Job) bool, states ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		var jobs []slurm.Job
		err := a.client.EachJob(ctx, func(j *slurm.Job) error {
			if keep == nil || keep(j) {
				jobs = append(jobs, *j)
			}
			return nil
		}, states...)
		*into = jobs
		return err
	}
}

// factorKey is how sprio's rows and squeue's belong together.
type factorKey struct {
	id        uint64
	partition string
}

// factorRows are sprio's rows, and where each is.
type factorRows struct {
	rows []slurm.Factors
	at   map[factorKey]int32
}

// find returns the row of a job in a partition, or -1.
func (f *factorRows) find(j *slurm.Job) int32 {
	if i, ok := f.at[factorKey{j.ID, j.Partition}]; ok {
		return i
	}
	return -1
}

// factors reads sprio. Where sprio is missing, or says that the cluster has no
// factors, why is set and there are none.
func (a *asker) factors(into *factorRows, why *string) func(context.Context) error {
	return func(ctx context.Context) error {
		f := factorRows{at: map[factorKey]int32{}}
		err := a.client.EachFactors(ctx, func(row *slurm.Factors) error {
			k := factorKey{row.ID, row.Partition}
			if i, ok := f.at[k]; ok { // a job may be listed for several QOSs
				if row.Priority > f.rows[i].Priority {
					f.rows[i] = *row
				}
				return nil
			}
			f.at[k] = int32(len(f.rows))
			f.rows = append(f.rows, *row)
			return nil
		})
		if failure, failed := slurm.FailureOf(err); failed && ctx.Err() == nil && (failure == slurm.Refused || failure == slurm.NotInstalled) {
			*why, err, f = err.Error(), nil, factorRows{}
		}
		*into = f
		return err
	}
}

func noAccounting(view string) error {
	return fault.Hint(fault.Errorf(fault.Unavailable, "%s needs slurmdbd, and this cluster runs without it", view),
		"without slurmdbd there are: fairshare jobs, fairshare holes, fairshare where")
}

// me is the name of the user who asks.
func me() (string, error) {
	u, err := user.Current()
	if err != nil {
		return "", err
	}
	return u.Username, nil
}
