package need

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/spelling"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
)

// Limits of a request.
const (
	maxFind    = 4096 // bytes
	maxOptions = 64
	maxOption  = 1024 // bytes
)

// values are the options of sbatch that a task may have, and that take a value. What
// names, marks and places a job, and its output and environment, are the agent's.
var values = []string{
	"account", "acctg-freq", "batch", "bb", "begin", "cluster-constraint", "constraint", "core-spec", "cores-per-socket", "cpu-freq",
	"cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot", "dependency", "distribution", "exclude", "extra", "extra-node-info",
	"gpu-bind", "gpu-freq", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "hint", "licenses",
	"mail-type", "mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu", "mincpus", "network", "nice", "nodelist",
	"nodes", "ntasks", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-node", "ntasks-per-socket", "partition", "power", "prefer",
	"priority", "profile", "qos", "reservation", "segment", "signal", "sockets-per-node", "switches", "thread-spec",
	"threads-per-core", "time", "time-min", "tmp", "tres-bind", "tres-per-task", "wckey",
}

// bare are those without a value, either those that may have one.
var (
	bare   = []string{"contiguous", "no-requeue", "overcommit", "spread-job", "stepmgr", "use-min-nodes"}
	either = []string{"exclusive", "oversubscribe", "nvmps", "requeue"}
)

// Option reads an option of sbatch as a task has it: NAME=VALUE, or NAME of one without a
// value; "_" is "-", and dashes in front are left out.
func Option(s string) (o sbatch.Option, err error) {
	o = sbatch.Parse(s)
	shown := task.Clean(o.Name)
	switch {
	case len(s) > maxOption:
		err = fmt.Errorf("option %.20q... is longer than %d bytes", shown, maxOption)
	case strings.ContainsFunc(o.Value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		err = fmt.Errorf("option %q: the value has a control character", shown)
	case o.Name == "requeue" && !o.Bare && !strings.HasPrefix(o.Value, "expedite"):
		err = fmt.Errorf("option %q takes no value but \"expedite\"", shown)
	case slices.Contains(either, o.Name):
	case slices.Contains(bare, o.Name):
		if !o.Bare {
			err = fmt.Errorf("option %q takes no value", shown)
		}
	case !slices.Contains(values, o.Name):
		if near := spelling.Nearest(o.Name, slices.Concat(values, bare, either)); near != "" {
			err = fmt.Errorf("option %q is not allowed for a task; did you mean %q?", shown, near)
		} else {
			err = fmt.Errorf("option %q is not allowed for a task: expected a long option of sbatch for resources, such as mem=8G", shown)
		}
	case o.Value == "":
		err = fmt.Errorf("option %q lacks a value", shown)
	case SignalsScript(o):
		err = errors.New("option \"signal\": " + OnlyScript + "; ponos-task run saves before the time limit")
	}
	return o, err
}

// OnlyScript is why an option that SignalsScript is not for tasks.
const OnlyScript = "with B: only the job script gets the signal, and not the command"

// SignalsScript reports whether an option has Slurm send a warning signal to the batch script. The job
// script of a task does not pass it to the command.
func SignalsScript(o sbatch.Option) bool {
	prefix, _, found := strings.Cut(o.Value, ":")
	return o.Name == "signal" && found && strings.ContainsAny(prefix, "Bb")
}

// Check checks the bounds of a request, and the names of its options. What it asks for is
// checked when it is solved.
func Check(r task.Request) error {
	switch {
	case len(r.Find) > maxFind:
		return fmt.Errorf("the request is longer than %d bytes", maxFind)
	case strings.ContainsFunc(r.Find, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return errors.New("the request has a control character")
	case len(r.Sbatch) > maxOptions:
		return fmt.Errorf("%d options of sbatch, more than %d", len(r.Sbatch), maxOptions)
	}
	seen := map[string]bool{}
	for _, s := range r.Sbatch {
		o, err := Option(s)
		if err != nil {
			return err
		}
		if seen[o.Name] {
			return fmt.Errorf("option %q is given twice", o.Name)
		}
		seen[o.Name] = true
	}
	return nil
}
