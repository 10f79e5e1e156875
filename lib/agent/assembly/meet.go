package assembly

import (
	"context"
	"fmt"
	"slices"

	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// maxMeet limits how many requests the cluster is asked about.
const maxMeet = 16

// Meet asks whether the needs of tasks that are to be submitted can be met, where that can be asked: of many, those of
// the first ones. It warns of options that have no effect, and of what it could not ask. Errors are those of CheckNeeds.
func Meet(ctx context.Context, c config.Config, all []runner.Needs, warn func(error)) error {
	all = slices.DeleteFunc(slices.Clone(all), func(n runner.Needs) bool { return n.Request.IsZero() })
	if modeOf(c).can().try == nil && slices.ContainsFunc(all, func(n runner.Needs) bool { return len(n.Request.Sbatch) > 0 }) {
		warn(fault.Hint(
			fmt.Errorf("warning: options of sbatch have no effect in mode %s", c.Mode), "request resources with --find"))
	}
	for _, n := range all[:min(len(all), maxMeet)] {
		err := CheckNeeds(ctx, c, n)
		if fault.Is(err, fault.Unavailable) {
			warn(fault.Hint(
				fmt.Errorf("warning: whether the cluster can run the task was not checked: %w", err),
				"the task is submitted; it waits while Slurm does not answer, and ends as error if Slurm then refuses it"))
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
