package slurm

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/watch"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// withdraw takes a task that no pilot has begun: it makes the ticket the owner, so that each start finds another one.
func withdraw(dir string, n note) (done bool, err error) {
	err = os.Symlink(n.job(), filepath.Join(dir, record.Owner(n.Attempt)))
	if errors.Is(err, fs.ErrExist) {
		owner, err := record.ReadOwner(dir, n.Attempt)
		return isTicket(owner), err
	}
	return err == nil, err
}

// stopPacked ends the task of a directory in its pilot, and waits for its end. The pilot and its
// other tasks continue.
func (r *Runner) stopPacked(ctx context.Context, ref runner.Ref) error {
	if r.packs == nil || ref.Dir == "" {
		return nil
	}
	n, ok, err := readNote(ref.Dir)
	if err != nil {
		return err
	}
	owner := ref.Job
	if ok {
		if done, err := withdraw(ref.Dir, n); done || err != nil {
			return err
		}
		if owner, err = record.ReadOwner(ref.Dir, n.Attempt); err != nil {
			return err
		}
	} else if isTicket(ref.Job) {
		t, _, err := r.packs.trace(strings.TrimPrefix(ref.Job, ticket))
		if err != nil {
			return err
		}
		owner, n.Class = t.job, t.class
	}
	if pilotOf(owner) == "" {
		return nil
	}
	if n.Class == "" {
		if n.Class, err = r.packs.classOf(owner); n.Class == "" || err != nil {
			return err
		}
	}
	seq, _, _ := strings.Cut(owner[strings.LastIndexByte(owner, '.')+1:], "-")
	if err := input.Withdraw(r.packs.run(n.Class), []string{seq}); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	state := ""
	late := func(err error) error {
		switch {
		case err == nil, state == "", !errors.Is(ctx.Err(), context.DeadlineExceeded):
			return err
		case state == "SUSPENDED":
			return fault.Errorf(fault.Failed, "pilot job %s is suspended: the task ends when the job continues", pilotOf(owner))
		}
		return fault.Errorf(fault.Failed, "pilot job %s has not ended the task within %v", pilotOf(owner), r.stopWait)
	}
	return late(r.squeue.Until(ctx, func(l *listing) (watch.Next, error) {
		if err := r.packs.collect(n.Class); err != nil {
			return watch.Over, err
		}
		run, err := record.ReadRun(ref.Dir, owner)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil || run.Over() || readEnd(ref.Dir, owner).Why != "" {
			return watch.Over, err
		}
		if !ok { // it has removed its own directory
			if number, err := strconv.ParseInt(seq, 10, 64); err == nil {
				if _, over, err := r.packs.started(n.Class, number); over || err != nil {
					return watch.Over, err
				}
			}
		}
		row := l.ofID[pilotOf(owner)]
		if row == nil || !strings.HasPrefix(row.Comment, packMark) {
			alive, err := r.pilotAlive(ctx, pilotOf(owner))
			if err != nil || !alive {
				return watch.Over, err
			}
			state = "?"
			return watch.Later, nil
		}
		if state = row.State; waits(row.State) || !Alive(row) {
			return watch.Over, nil // the link of the owner keeps it from beginning again
		}
		return watch.Later, nil
	}))
}

// pilotAlive asks Slurm for a pilot that a listing lacks, as that may be wrong.
func (r *Runner) pilotAlive(ctx context.Context, pilot string) (bool, error) {
	shown, err := r.client.JobDetails(ctx, pilot)
	return slices.ContainsFunc(shown, func(job slurm.JobDetail) bool {
		return strings.HasPrefix(job.Comment, packMark) && Alive(&slurm.Job{State: job.State})
	}), err
}
