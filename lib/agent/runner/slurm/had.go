package slurm

import (
	"context"
	"fmt"

	"github.com/ponos-tools/ponos/lib/advise/usage"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// killed and terminated are the exit codes of a command that was ended by SIGKILL and SIGTERM, as
// Slurm does it. If a script exits with one of them, Slurm reports only the signal, 9.
const killed, terminated = 128 + 9, 128 + 15

// nearly is the part of its memory that a killed job must have used to be taken for one that was
// killed for its memory. Slurm samples usage, and so misses the final peak.
const nearly = 0.9

// maxHad limits the number of jobs in one query.
const maxHad = 1000

// had fills in the limits of jobs that have failed and may be tried again, by one call. Where Slurm
// reports only that a job was killed, the memory that it used shows why.
func (r *Runner) had(ctx context.Context, all []evidence, jobs []runner.Job) error {
	var ids []string
	at := map[string]int{}
	for i := range jobs {
		j := &jobs[i]
		failed := (j.State == task.Error && j.Cause != "" || j.State == task.Failed) &&
			(j.Sight == runner.Ended || j.Sight == runner.Outlived)
		if all[i].packed == nil && all[i].ref.Rules != "" && failed && len(ids) < maxHad {
			ids = append(ids, j.ID)
			at[j.ID] = i
		}
	}
	if len(ids) == 0 {
		return nil
	}
	each := func(c *slurm.Consumed) error {
		i, ok := at[c.Label]
		run := usage.Of(c)
		record := c.Record
		record.ID = c.Label
		// Until the start of a job has reached accounting, its record has its end but not what it had
		// requested.
		if !ok || !all[i].matches(record) || run.End == 0 || run.Limit == 0 {
			return nil
		}
		delete(at, c.Label)
		j := &jobs[i]
		j.Had = runner.Had{Memory: int64(run.MemMB * (1 << 20)), Nodes: c.Hosts}
		if run.Limit != slurm.Unlimited {
			j.Had.Time = max(0, run.Limit)
		}
		wasKilled := j.Cause == need.Lost || j.State == task.Failed && (j.ExitCode == killed || j.ExitCode == killed-128)
		if wasKilled && c.State == "FAILED" && run.MemMB > 0 && run.PeakMB >= nearly*run.MemMB {
			j.Cause = need.OOM
			j.Reason += fmt.Sprintf("; it used %s of its %s of memory", unit.ShortSize(int64(run.PeakMB)<<20), unit.ShortSize(j.Had.Memory))
		}
		return nil
	}
	err := r.accounting.ask(ctx, r.now, func(ctx context.Context) error { return r.client.EachConsumed(ctx, ids, slurm.Period{}, each) })
	if ctx.Err() != nil {
		return err
	}
	for _, i := range at {
		// Accounting lags. What it has not reported after some time, or never reports, is unknown;
		// squeue may still show some of it.
		j, e := &jobs[i], &all[i]
		if q := e.queue; q != nil {
			j.Had.Nodes = q.NodeList
			if q.Limit != slurm.Unlimited {
				j.Had.Time = max(0, q.Limit)
			}
		}
		if e.books != noBooks {
			late := runner.Proof{Looks: saved + 1, For: lag, Why: "the job has ended, and accounting has no record of it yet"}
			*j = runner.Believe(*j, late, e.ref, false, e.now)
		}
	}
	return nil
}
