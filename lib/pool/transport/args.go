package transport

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// SSH returns the arguments of ssh that run a command on a host.
func SSH(options []string, host, command string) []string {
	args := []string{
		"-T", "-x", "-a", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4",
		"-o", "ControlMaster=no", "-o", "ControlPath=none", "-o", "ClearAllForwardings=yes", "-o", "LogLevel=ERROR",
	}
	return append(append(args, options...), "--", host, command)
}

// Srun returns the arguments of srun that run a command as a step beside all
// others, with everything the job has on a node. With external, that is the kind of
// step which Slurm has for launchers since 23.11; it takes no part of the job away
// from steps that the tasks start, such as those of MPI.
func Srun(options []string, host string, cpus, group int, external bool, command string) []string {
	args := []string{
		"--unbuffered", "--nodes=1", "--ntasks=1", "--nodelist=" + host,
		"--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "--job-name=jobpool",
	}
	if external {
		args = append(args, "--external-launcher")
	} else {
		args = append(args, "--overlap", "--cpu-bind=none", "--mem=0")
		if cpus > 0 {
			args = append(args, cpusOf(cpus))
		}
	}
	if group >= 0 {
		args = append(args, "--het-group="+strconv.Itoa(group))
	}
	return append(append(args, options...), "/bin/sh", "-c", command)
}

func cpusOf(task int) string {
	return sbatch.Option{Name: sbatch.CPUsPerTask, Value: strconv.Itoa(task)}.Arg()
}

// SrunAt returns the arguments of srun that run a command at some nodes of the job, once at
// each.
func SrunAt(hosts []string, cpus int, external bool, command string) []string {
	n := len(hosts)
	options := []string{fmt.Sprintf("--nodes=%d", n), fmt.Sprintf("--ntasks=%d", n), "--ntasks-per-node=1"}
	return Srun(options, strings.Join(hosts, ","), cpus, -1, external, command)
}

// HasExternalLauncher reports whether an srun of that version has the option.
func HasExternalLauncher(version string) bool {
	var year, month int
	n, _ := fmt.Sscanf(version, "%d.%d", &year, &month)
	return n == 2 && (year > 23 || year == 23 && month >= 11)
}

// conflicting variables change the step that srun starts.
var conflicting = []string{
	"SLURM_CPU_BIND", "SLURM_MEM_", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_CPUS_PER_", "SLURM_TRES_PER_TASK", "SLURM_DISTRIBUTION",
	"SLURM_HINT", "SLURM_EXACT", "SLURM_EXCLUSIVE", "SLURM_STEP_", "SLURM_STEPID", "SLURM_GPUS", "SLURM_GPU_BIND", "SLURM_GRES",
	"SLURM_OVERCOMMIT", "SLURM_THREADS_PER_CORE", "SLURM_CORE_SPEC", "SLURM_WAIT", "SLURM_KILL_BAD_EXIT",
	"SLURM_UNBUFFEREDIO", "SLURM_LABELIO",
	"SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE", "SLURM_MULTI_PROG", "SLURM_IMMEDIATE", "SLURM_TIMELIMIT",
	"SLURM_EXPORT_ENV", "SLURM_NNODES", "SLURM_HOSTFILE", "SLURM_ARBITRARY", "SLURM_NETWORK", "SLURM_RELATIVE", "SLURM_PRESERVE_ENV",
	"SLURM_HET_GROUP", "SLURM_BCAST", "SLURM_TASK_PROLOG", "SLURM_TASK_EPILOG", "SLURM_WHOLE", "SLURM_UMASK_", "SLURM_SRUN_",
}

// SrunEnv returns the environment for srun.
func SrunEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return slices.ContainsFunc(conflicting, func(prefix string) bool { return strings.HasPrefix(kv, prefix) })
	})
}

// private variables belong to one login, or to this machine.
var private = []string{
	"PWD=", "OLDPWD=", "SHLVL=", "_=", "HOSTNAME=", "HOST=", "SSH_", "DISPLAY=", "XAUTHORITY=", "XDG_", "DBUS_", "TERM=",
	"TERMCAP=", "TERM_", "LS_COLORS=", "TMPDIR=", "TMUX", "STY=", "WINDOW", "COLUMNS=", "LINES=", "MAIL=",
	"LOGNAME=", "USER=", "HOME=", "SHELL=", "BASH_", "JOBPOOL_",
	"SLURMD_NODENAME=", "SLURM_NODEID=", "SLURM_LOCALID=", "SLURM_PROCID=", "SLURM_TOPOLOGY_ADDR", "SLURM_CPUS_ON_NODE=",
	"CUDA_VISIBLE_DEVICES=", "ROCR_VISIBLE_DEVICES=", "GPU_DEVICE_ORDINAL=", "GOMAXPROCS=", "INVOCATION_ID=", "JOURNAL_STREAM=",
}

// RemoteEnv returns the part of an environment that is valid on another machine.
func RemoteEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return !strings.Contains(kv, "=") || slices.ContainsFunc(private, func(prefix string) bool { return strings.HasPrefix(kv, prefix) })
	})
}

// ToJob returns the arguments of srun that run a command at a node of another job of the
// user, beside all that runs there.
func ToJob(options []string, job, host, command string) []string {
	args := []string{
		"--jobid=" + job, "--unbuffered", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=" + host,
		cpusOf(1), "--cpu-bind=none", "--mem=0",
		"--kill-on-bad-exit=0", "--wait=0", "--export=ALL", "--job-name=jobpool",
	}
	return append(append(args, options...), "/bin/sh", "-c", command)
}

// OtherJob returns the environment for an srun into another job, without variables that describe the
// present one.
func OtherJob(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, "SLURM") && !strings.HasPrefix(kv, "SLURM_CONF=") ||
			strings.HasPrefix(kv, "TMPDIR=") || strings.HasPrefix(kv, "CUDA_VISIBLE_DEVICES=") ||
			strings.HasPrefix(kv, "ROCR_VISIBLE_DEVICES=") || strings.HasPrefix(kv, "GPU_DEVICE_ORDINAL=")
	})
}

// WorkerCommand returns a command line for sh that runs the first existing one of the programs, or
// the one in PATH, with these words.
func WorkerCommand(programs []string, words ...string) string {
	var b strings.Builder
	command := shell.Join(words)
	if len(programs) > 0 {
		b.WriteString("for p in")
		for _, p := range programs {
			b.WriteString(" " + shell.Quote(p))
		}
		b.WriteString(`; do [ -x "$p" ] && exec "$p" ` + command + `; done; `)
	}
	b.WriteString("exec jobpool " + command)
	return b.String()
}

// Via fills a command template with {host} and {worker}.
func Via(template, host, worker string) string {
	worker = "/bin/sh -c " + shell.Quote(worker)
	if !strings.Contains(template, "{worker}") {
		template += " {worker}"
	}
	return strings.NewReplacer("{host}", shell.Quote(host), "{worker}", worker).Replace(template)
}

// CPUsPerNode reads SLURM_JOB_CPUS_PER_NODE: "72(x2),36".
func CPUsPerNode(s string) ([]int, error) {
	var out []int
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		count, times, repeated := strings.Cut(part, "(x")
		n, err := strconv.Atoi(count)
		k := 1
		if err == nil && repeated {
			k, err = strconv.Atoi(strings.TrimSuffix(times, ")"))
		}
		if err != nil || n < 1 || k < 1 || k > 1<<16 || len(out)+k > 1<<17 {
			return nil, fmt.Errorf("invalid list of CPUs %q", s)
		}
		out = append(out, slices.Repeat([]int{n}, k)...)
	}
	return out, nil
}
