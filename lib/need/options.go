package need

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/spelling"
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
func Option(s string) (name, value string, hasValue bool, err error) {
	name, value, hasValue = strings.Cut(s, "=")
	name = strings.ReplaceAll(strings.TrimPrefix(name, "--"), "_", "-")
	shown := task.Clean(name)
	switch {
	case len(s) > maxOption:
		return "", "", false, fmt.Errorf("option %.20q… is longer than %d bytes", shown, maxOption)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return "", "", false, fmt.Errorf("option %q: the value has a control character", shown)
	case name == "requeue" && hasValue && !strings.HasPrefix(value, "expedite"):
		return "", "", false, fmt.Errorf("option %q takes no value but \"expedite\"", shown)
	case slices.Contains(either, name):
	case slices.Contains(bare, name):
		if hasValue {
			return "", "", false, fmt.Errorf("option %q takes no value", shown)
		}
	case !slices.Contains(values, name):
		if near := spelling.Nearest(name, slices.Concat(values, bare, either)); near != "" {
			return "", "", false, fmt.Errorf("option %q is not allowed for a task; did you mean %q?", shown, near)
		}
		return "", "", false, fmt.Errorf("option %q is not allowed for a task: expected a long option of sbatch for resources, such as mem=8G", shown)
	case value == "":
		return "", "", false, fmt.Errorf("option %q lacks a value", shown)
	}
	return name, value, hasValue, nil
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
		name, _, _, err := Option(s)
		if err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("option %q is given twice", name)
		}
		seen[name] = true
	}
	return nil
}
