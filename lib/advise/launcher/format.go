package launcher

import (
	"fmt"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// Formats are the output formats of Write, and json.
var Formats = []string{"args", "args0", "lines", "script", "env", "json"}

// variables maps options to the SBATCH_ variables from which sbatch also reads them.
var variables = map[string]string{
	"account": "SBATCH_ACCOUNT", "array": "SBATCH_ARRAY_INX", "batch": "SBATCH_BATCH", "clusters": "SBATCH_CLUSTERS",
	"constraint": "SBATCH_CONSTRAINT", "container": "SBATCH_CONTAINER", "core-spec": "SBATCH_CORE_SPEC",
	"cpus-per-gpu": "SBATCH_CPUS_PER_GPU", "distribution": "SBATCH_DISTRIBUTION", "exclusive": "SBATCH_EXCLUSIVE",
	"export": "SBATCH_EXPORT", "gpu-bind": "SBATCH_GPU_BIND", "gpu-freq": "SBATCH_GPU_FREQ", "gpus": "SBATCH_GPUS",
	"gpus-per-node": "SBATCH_GPUS_PER_NODE", "gpus-per-task": "SBATCH_GPUS_PER_TASK", "gres": "SBATCH_GRES",
	"gres-flags": "SBATCH_GRES_FLAGS", "hint": "SBATCH_HINT", "job-name": "SBATCH_JOB_NAME",
	"mem": "SBATCH_MEM_PER_NODE", "mem-bind": "SBATCH_MEM_BIND",
	"mem-per-cpu": "SBATCH_MEM_PER_CPU", "mem-per-gpu": "SBATCH_MEM_PER_GPU", "network": "SBATCH_NETWORK", "open-mode": "SBATCH_OPEN_MODE",
	"partition": "SBATCH_PARTITION", "profile": "SBATCH_PROFILE", "qos": "SBATCH_QOS", "requeue": "SBATCH_REQUEUE",
	"reservation": "SBATCH_RESERVATION", "signal": "SBATCH_SIGNAL", "thread-spec": "SBATCH_THREAD_SPEC",
	"threads-per-core": "SBATCH_THREADS_PER_CORE", "time": "SBATCH_TIMELIMIT",
	"wait-all-nodes": "SBATCH_WAIT_ALL_NODES", "wckey": "SBATCH_WCKEY",
}

// Write formats options in one of Formats other than json. The error says why the format cannot
// express them.
func Write(o sbatch.Options, format string) (string, error) {
	switch format {
	case "args":
		line, err := inLine(o.Args())
		return line + "\n", err
	case "args0":
		if len(o) == 0 {
			return "", nil
		}
		return strings.Join(o.Args(), "\x00") + "\x00", nil
	case "lines":
		return lines("", o.Args()), nil
	case "script":
		args := o.Args()
		for i, option := range o {
			if strings.ContainsAny(option.Value, " \t#\"'\\") {
				args[i] = "--" + option.Name + `="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(option.Value) + `"`
			}
		}
		return lines("#SBATCH ", args), nil
	case "env":
		return environment(o)
	}
	return "", fmt.Errorf("unknown format %q", format)
}

// inLine joins arguments for $(...) and $LFIND_ARGS, where the shell splits words and expands
// patterns. Arguments that the shell would change are an error.
func inLine(args []string) (string, error) {
	for _, arg := range args {
		if strings.ContainsAny(arg, " \t\n*?[]\\") {
			return "", fmt.Errorf("%s would be changed by the shell", shell.Quote(arg))
		}
	}
	return strings.Join(args, " "), nil
}

func lines(prefix string, args []string) string {
	text := ""
	for _, arg := range args {
		text += prefix + arg + "\n"
	}
	return text
}

// environment returns shell commands that set the variables that sbatch reads. Options without
// a variable are put into LFIND_ARGS.
func environment(o sbatch.Options) (string, error) {
	var b strings.Builder
	var rest []string
	for _, option := range o {
		if name := variables[option.Name]; name != "" && !option.Bare {
			fmt.Fprintf(&b, "export %s=%s\n", name, shell.Quote(option.Value))
		} else {
			rest = append(rest, option.Arg())
		}
	}
	line, err := inLine(rest)
	fmt.Fprintf(&b, "export LFIND_ARGS=%s\n", shell.Quote(line))
	return b.String(), err
}
