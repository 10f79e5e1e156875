package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"os/user"
	"strings"
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
	mark   string // ends a row of squeue; nobody can foresee it
}

func newAsker() *asker {
	b := make([]byte, 8)
	_, _ = rand.Read(b)
	return &asker{now: clock.Now, mark: hex.EncodeToString(b)}
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

func (a *asker) output(ctx context.Context, name string, args ...string) (io.Reader, error) {
	out, err := a.client.Output(ctx, 0, name, args...)
	if err != nil {
		return nil, err
	}
	return bytes.NewReader(out), nil
}

// read asks for something small.
func read[T any](a *asker, into *T, parse func(io.Reader) (T, error), name string, args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := a.output(ctx, name, args...)
		if err != nil {
			return err
		}
		v, err := parse(out)
		if err != nil {
			return err
		}
		*into = v
		return nil
	}
}

func (a *asker) config(into *slurm.SchedConfig) func(context.Context) error {
	return read(a, into, slurm.ParseSchedConfig, "scontrol", slurm.SchedConfigArgs()...)
}

func (a *asker) partitions(into *[]slurm.Partition) func(context.Context) error {
	return read(a, into, slurm.ParsePartitions, "scontrol", append([]string{"--all"}, slurm.PartitionsArgs()...)...)
}

func (a *asker) nodes(into *[]slurm.NodeUse) func(context.Context) error {
	return read(a, into, slurm.ParseNodeUse, "scontrol", slurm.NodeUseArgs()...)
}

func (a *asker) reservations(into *[]slurm.Reservation) func(context.Context) error {
	return read(a, into, slurm.ParseReservations, "scontrol", slurm.ReservationArgs()...)
}

// jobs reads the queue row by row; keep decides what stays.
func (a *asker) jobs(into *[]slurm.QueueJob, keep func(*slurm.QueueJob) bool, states ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		var jobs []slurm.QueueJob
		err := a.client.Stream(ctx, func(r io.Reader) error {
			return slurm.ScanQueueJobs(r, a.mark, func(j *slurm.QueueJob) error {
				if keep == nil || keep(j) {
					jobs = append(jobs, *j)
				}
				return nil
			})
		}, "squeue", slurm.QueueJobsArgs(a.mark, states...)...)
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
func (f *factorRows) find(j *slurm.QueueJob) int32 {
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
		err := a.client.Stream(ctx, func(r io.Reader) error {
			return slurm.ScanSprio(r, func(row *slurm.Factors) error {
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
		}, "sprio", slurm.SprioArgs()...)
		var e *slurm.Error
		if err != nil && ctx.Err() == nil && (missing(err) || errors.As(err, &e) && !slurm.Unreachable(err)) {
			*why, err, f = err.Error(), nil, factorRows{}
		}
		*into = f
		return err
	}
}

func missing(err error) bool {
	return err != nil && strings.HasSuffix(err.Error(), "program not found")
}

// shares reads sshare, for which the cluster must have accounting.
func (a *asker) shares(into *[]slurm.Share) func(context.Context) error {
	return read(a, into, slurm.ParseShares, "sshare", slurm.ShareArgs()...)
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
