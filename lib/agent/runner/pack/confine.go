package pack

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/machine"
)

// devices returns the GPUs of the pilot, and the variable that names them. If it is not certain which
// ones they are, no task may use any.
func (w *worker) devices() (gpus []pool.GPU, variable string, err error) {
	if w.GPUs == 0 {
		return nil, "", nil
	}
	gpus, variable = machine.GPUs(os.DirFS("/"), os.LookupEnv)
	if len(gpus) != w.GPUs {
		return nil, "", fmt.Errorf("the job has requested %d GPUs, and its environment names %d", w.GPUs, len(gpus))
	}
	return gpus, variable, nil
}

// environ returns the environment of a task, without the variables of the pilot's job: commands that
// act on that job would affect all tasks of the pilot.
func (w *worker) environ(r *running) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case childVar:
			return true
		case "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL":
			return w.GPUs > 0
		case "SLURM_CONF", "SLURM_RESTART_COUNT", "SLURM_CLUSTER_NAME", "SLURMD_NODENAME":
			return false
		}
		return strings.HasPrefix(name, "SLURM_")
	})
	cpus := strconv.Itoa(r.ticket.CPUs)
	env = append(env, "PONOS_JOB="+r.job, "SLURM_CPUS_PER_TASK="+cpus, "SLURM_CPUS_ON_NODE="+cpus)
	if r.ticket.GPUs > 0 {
		env = append(env, w.gpuVariable+"="+strings.Join(r.slot.GPUs, ","), "SLURM_GPUS_ON_NODE="+strconv.Itoa(r.ticket.GPUs))
	}
	return env
}
