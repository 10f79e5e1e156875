package record

import (
	"context"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/task/runner"
)

// ExecPooled is Exec for a start that a pool has handed out in a job of its own, which is that of t. A pool may hand a task out
// again: each start is a job PILOT.SEQ or PILOT.SEQ-ATTEMPT, so that only one owns the task. The code is 0 for the pool where
// nothing is left to do: another start owns the task, or the end of the command is in its record.
func ExecPooled(ctx context.Context, t Task, log io.Writer) (code int, err error) {
	output, err := runner.OpenOutput(t.Dir)
	if err != nil {
		return 1, err
	}
	for _, fd := range []int{1, 2} {
		if err := unix.Dup3(int(output.Fd()), fd, 0); err != nil {
			return 1, err
		}
	}
	output.Close()
	t.Job += "." + os.Getenv("JOBPOOL_SEQ")
	if attempt := os.Getenv("JOBPOOL_ATTEMPT"); attempt != "1" {
		t.Job += "-" + attempt
	}
	t.Peak = true
	if err := pooledEnv(); err != nil {
		return 1, err
	}
	if code, err = Exec(ctx, t, log); err != nil || code == 0 {
		return code, err
	}
	// Whether it was killed for its memory, only the pool can tell.
	if run, err := ReadRun(t.Dir, t.Job); err == nil && run.Over() && code != sigkill {
		return 0, nil
	}
	return code, nil
}

const sigkill = 128 + int(unix.SIGKILL)

// pooledEnv takes the variables of the pilot's job away: commands that act on that job would affect all its tasks.
func pooledEnv() error {
	keep := []string{"SLURM_CONF", "SLURM_RESTART_COUNT", "SLURM_CLUSTER_NAME", "SLURMD_NODENAME", "JOBPOOL_TASK", "JOBPOOL_NODE"}
	set := map[string]string{"SLURM_CPUS_PER_TASK": os.Getenv("JOBPOOL_NCPUS"), "SLURM_CPUS_ON_NODE": os.Getenv("JOBPOOL_NCPUS")}
	if gpus := os.Getenv("JOBPOOL_GPUS"); gpus != "" {
		set["SLURM_GPUS_ON_NODE"] = strconv.Itoa(strings.Count(gpus, ",") + 1)
	}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		of := slices.ContainsFunc([]string{"SLURM_", "JOBPOOL_", "PARALLEL_"}, func(p string) bool { return strings.HasPrefix(name, p) })
		if of && !slices.Contains(keep, name) {
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
	}
	for name, value := range set {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}
