package jobpool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// noScheduler is what to do between the schedulers of two jobs.
const noScheduler = "no job of the run has the scheduler at this time: try again; if squeue shows none, repeat the command with --resume"

// whyAbsent adds to the error of a request what Slurm says of the jobs of a run that has no scheduler.
func whyAbsent(c *cli.Context, err error) error {
	run := existing(c)
	if !strings.HasSuffix(fault.HintOf(err), noScheduler) {
		return err
	}
	p, e := pilot.Load(run)
	if e != nil || p.Copied(run) {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context, slurm.Soon())
	defer cancel()
	list, e := jobsOf(run, p).List(ctx)
	jobs := list.Have
	if e != nil || slices.ContainsFunc(jobs, func(j pilot.Job) bool { return slurm.Runs(j.State) }) {
		return err
	}
	if len(jobs) == 0 {
		return fault.Hint(fault.Errorf(fault.Unavailable, "the run in %q has no jobs", run), "repeat its command with --resume")
	}
	var waits []string
	for _, j := range jobs {
		waits = append(waits, fmt.Sprintf("%s (%s)", j.ID, j.Reason))
	}
	return fault.Errorf(fault.Unavailable, "the jobs of the run in %q have not started: %s", run, strings.Join(waits, ", "))
}
