package planner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Asker queries Slurm.
type Asker struct {
	Client slurm.Client
	Now    func() time.Time
	UID    func(name string) (id uint32, ok bool) // the number of a user
	Doubts slurm.Doubts                           // records without which Slurm's listings were read
}

// New returns an Asker for the Slurm of this machine.
func New() *Asker {
	a := &Asker{Now: clock.Now, UID: userIDs()}
	a.Client.Odd = a.Doubts.Add
	return a
}

// userIDs returns the numbers of users whom this machine knows. Each is asked for once, as there can be a row for each of thousands of
// jobs, and none after a directory service has not answered.
func userIDs() func(name string) (uint32, bool) {
	type number struct {
		id uint32
		ok bool
	}
	known, silent := map[string]number{}, false
	return func(name string) (uint32, bool) {
		n, asked := known[name]
		if !asked && !silent {
			id, err := nss.UserID(name)
			silent = errors.As(err, new(*command.TimeoutError))
			n = number{id, err == nil}
			known[name] = n
		}
		return n.id, n.ok
	}
}

// Together sends several queries to Slurm concurrently. The first failure ends the others, and is
// returned.
func Together(ctx context.Context, questions ...func(context.Context) error) error {
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

// Listing requests something that Slurm lists.
func Listing[T any](into *T, ask func(context.Context) (T, error)) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		*into, err = ask(ctx)
		return err
	}
}

func (a *Asker) Config(into *slurm.Config) func(context.Context) error {
	return Listing(into, a.Client.Config)
}

func (a *Asker) Partitions(into *[]slurm.Partition) func(context.Context) error {
	return Listing(into, a.Client.Partitions)
}

// appendRow doubles what is full: rows are large, and may be many.
func appendRow[R any](rows []R, row *R) []R {
	if len(rows) == cap(rows) {
		rows = slices.Grow(rows, max(64, len(rows)))
	}
	return append(rows, *row)
}

// Jobs reads the queue row by row; keep decides what stays.
func (a *Asker) Jobs(into *[]slurm.Job, keep func(*slurm.Job) bool, states ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		var jobs []slurm.Job
		err := a.Client.EachJob(ctx, func(j *slurm.Job) error {
			if keep == nil || keep(j) {
				jobs = appendRow(jobs, j)
			}
			return nil
		}, states...)
		*into = jobs
		return err
	}
}

// absent reports whether something of Slurm is not there, or does not answer this user: then what it would tell is not known.
func absent(err error) bool {
	failure, failed := slurm.FailureOf(err)
	return errors.Is(err, slurm.ErrNoAccounting) ||
		failed && slices.Contains([]slurm.Failure{slurm.Refused, slurm.NotInstalled, slurm.NoDatabase}, failure)
}

// FactorKey is how sprio's rows and squeue's belong together.
type FactorKey struct {
	id        uint64
	partition string
}

// FactorRows are sprio's rows, and where each is.
type FactorRows struct {
	Rows []slurm.Factors
	At   map[FactorKey]int32
}

// Find returns the row of a job in a partition, or -1.
func (f *FactorRows) Find(j *slurm.Job) int32 {
	if i, ok := f.At[FactorKey{j.ID, j.Partition}]; ok {
		return i
	}
	return -1
}

// Factors reads sprio. Where sprio is missing, or says that the cluster has no
// factors, why is set and there are none.
func (a *Asker) Factors(into *FactorRows, why *string) func(context.Context) error {
	return func(ctx context.Context) error {
		f := FactorRows{At: map[FactorKey]int32{}}
		err := a.Client.EachFactors(ctx, func(row *slurm.Factors) error {
			k := FactorKey{row.ID, row.Partition}
			if i, ok := f.At[k]; ok { // a job may be listed for several QOSs
				if row.Priority > f.Rows[i].Priority {
					f.Rows[i] = *row
				}
				return nil
			}
			f.At[k] = int32(len(f.Rows))
			f.Rows = appendRow(f.Rows, row)
			return nil
		})
		if absent(err) {
			*why, err, f = fault.Text(err), nil, FactorRows{}
		}
		*into = f
		return err
	}
}
