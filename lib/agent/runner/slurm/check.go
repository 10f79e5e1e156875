package slurm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/agent/program"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// What a program of 64 bits needs to start, with some room.
const (
	leastSpace     = 1 << 30 // bytes of address space
	leastProcesses = 64      // of the user, threads included
)

const (
	see  = "see MACHINES in ponos-install(7)"
	wait = "tasks may wait and not begin: " + see
)

// Check reports whether Slurm's controller answers, and warns of what keeps jobs from beginning their commands.
func (r *Runner) Check(ctx context.Context) (checked runner.Checked, err error) {
	if err := r.client.Ping(ctx); err != nil || r.packs == nil {
		return checked, err
	}
	programs, err := r.packs.Programs.Installed()
	if err != nil {
		return checked, err
	}
	if nodes, err := r.client.Nodes(ctx); err == nil {
		checked.Warnings = withoutProgram(r.inUse(ctx, nodes), programs)
	}
	if c, err := r.client.Config(ctx); err == nil {
		_, small := programs["i686"]
		checked.Warnings = append(checked.Warnings, limits(c, small, func(resource int) uint64 {
			var l unix.Rlimit
			if unix.Getrlimit(resource, &l) != nil {
				return unix.RLIM_INFINITY
			}
			return l.Cur
		})...)
	}
	return checked, nil
}

// inUse returns the nodes of the partitions that are configured, or all.
func (r *Runner) inUse(ctx context.Context, nodes []slurm.Node) (used []slurm.Node) {
	var partitions []string
	for _, gpu := range []bool{false, true} {
		o, err := r.Options(ctx, runner.Needs{GPU: gpu})
		if err != nil || o.Value("partition") == "" {
			return nodes
		}
		partitions = append(partitions, strings.Split(o.Value("partition"), ",")...)
	}
	for _, n := range nodes {
		if slices.ContainsFunc(partitions, n.Partitions.Has) {
			used = append(used, n)
		}
	}
	return used
}

// withoutProgram warns of nodes whose machines no program is for.
func withoutProgram(nodes []slurm.Node, programs map[string]program.Programs) (warnings []string) {
	lacking := map[string][]string{}
	for _, n := range nodes {
		if _, ok := programs[n.Arch]; !ok && n.Arch != "" {
			lacking[n.Arch] = append(lacking[n.Arch], n.Name)
		}
	}
	for _, arch := range slices.Sorted(maps.Keys(lacking)) {
		warnings = append(warnings, fmt.Sprintf("no task can begin on %s, as there is no ponos-worker for %s: %s",
			hostlist.Compress(lacking[arch]), arch, see))
	}
	return warnings
}

// limits warns of limits under which the program that runs a task does not start. Small says that there is one for 32 bits.
func limits(c slurm.Config, small bool, soft func(resource int) uint64) (warnings []string) {
	if n := soft(unix.RLIMIT_AS); passesOn(c, "AS") && n < leastSpace && !small {
		warnings = append(warnings, fmt.Sprintf("jobs get the limit of address space of this shell (ulimit -v), %s: %s",
			unit.FormatSize(int64(n)), wait))
	}
	percent, _ := strconv.ParseFloat(strings.TrimSuffix(c.Get("VSizeFactor"), " percent"), 64) // 0: off
	if percent > 0 && !small {
		warnings = append(warnings, fmt.Sprintf("VSizeFactor limits address space to %g %% of a job's memory: below %s, %s",
			percent, unit.FormatSize(int64(leastSpace*100/percent)), wait))
	}
	if n := soft(unix.RLIMIT_NPROC); passesOn(c, "NPROC") && n < leastProcesses {
		warnings = append(warnings, fmt.Sprintf("jobs get the limit of processes of this shell (ulimit -u), %d: %s", n, wait))
	}
	return warnings
}

// passesOn reports whether jobs get a limit of the process that submits them.
func passesOn(c slurm.Config, limit string) bool {
	given, except := c["PropagateResourceLimits"], c.Get("PropagateResourceLimitsExcept")
	has := func(list, word string) bool {
		return slices.ContainsFunc(strings.Split(list, ","), func(w string) bool { return strings.EqualFold(strings.TrimSpace(w), word) })
	}
	if except != "" {
		return !has(except, limit) && !has(except, "ALL")
	}
	return given == "" || given == "(null)" || has(given, "ALL") || has(given, limit)
}
