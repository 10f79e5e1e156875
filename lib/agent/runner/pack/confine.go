package pack

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/executor/cgroup"
	"github.com/ponos-tools/ponos/lib/executor/proc"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/machine"
)

// devices returns the GPUs of the pilot, and the variable that names them. If it is not certain which
// ones they are, no task may use any.
func (w *worker) devices() (gpus []pool.GPU, variable string, err error) {
	if w.GPUs == 0 {
		return nil, "", nil
	}
	gpus, variable = machine.GPUs(os.DirFS("/"), os.Getenv)
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

// confine has a job script start in a cgroup of its own, if its memory is limited and a cgroup is
// delegated to the pilot. Otherwise its memory is measured.
func (w *worker) confine(r *running, c *command.Cmd) {
	if !w.divides || r.ticket.Mem == 0 {
		return
	}
	g := w.parent.Group(r.job, r.ticket.Mem)
	if g.Make() != nil {
		return
	}
	r.group = &g
	c.Name, c.Args = "sh", g.Enter(append([]string{c.Name}, c.Args...)...)
}

// memory notes how much memory a task uses, and reports whether it has used more than it requested.
func (r *running) memory(members []int) (excess bool) {
	if r.group != nil && cgroup.Entered(r.session.PID(), r.job) {
		return r.group.Killed()
	}
	used := proc.Used(members, r.enough())
	r.used.Store(max(r.used.Load(), used))
	return used > r.enough()
}

// enough is the memory that a task has requested, in bytes.
func (r *running) enough() int64 {
	if r.ticket.Mem == 0 {
		return math.MaxInt64
	}
	return r.ticket.Mem
}

// endMemory notes what only the kernel knows of a task that has ended.
func (r *running) endMemory() {
	if r.group != nil && r.end.Why == "" && r.group.Killed() {
		r.end = r.exceeded()
	}
}

// peak is the most memory that a task is known to have used, in bytes.
func (r *running) peak() int64 {
	used := r.used.Load()
	if r.group != nil {
		used = max(used, r.group.Peak())
	}
	return used
}

// leave removes the cgroup of a task. Processes that were killed are in it for a moment.
func (r *running) leave() {
	if r.group == nil {
		return
	}
	for range 20 {
		if r.group.Remove() == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (r *running) exceeded() End {
	return End{Why: OOM, Used: max(r.peak(), r.ticket.Mem), Limit: r.ticket.Mem}
}

// killMembers kills the processes of a task, and spares the job script, which records the result of the
// command.
func (r *running) killMembers(members []int) {
	for _, pid := range members {
		if pid != r.session.PID() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}
