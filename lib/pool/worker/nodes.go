package worker

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/executor/proc"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// A task of several nodes has a directory at the first of them, with its list of nodes in the formats
// of several programs, and a program that starts commands at the others as ssh does:
//
//	nodes     one host per line
//	slots     "HOST slots=CPUS", as Open MPI reads it
//	machines  "HOST:CPUS", as MPICH reads it
//	tasks     a host for each CPU, as srun reads it
//	rsh       the program
//	reach     what it needs to know

// Reaching is what the program needs that reaches other nodes.
type Reaching struct {
	Reach wire.Reach  `json:"reach"`
	Nodes []wire.Node `json:"parts"`
	Task  string      `json:"task"` // JOBPOOL_TASK
	Run   wire.Text   `json:"run"`
	Seq   int64       `json:"seq"`
	Pin   bool        `json:"pin"`
	// GPUVar names the GPUs; empty: no node has any.
	GPUVar string `json:"gpu_var,omitempty"`
}

// reachFile is the file of a Reaching, beside the program.
const reachFile = "reach"

func (w *worker) nodesDir(k wire.Key) string {
	return filepath.Join(w.Temp, fmt.Sprintf("task-%d.%d", k.Seq, k.Attempt))
}

// describeNodes creates the directory of a task of several nodes, and adds the variables that name
// its files to the environment.
func (w *worker) describeNodes(r *wire.Run, env []string) ([]string, error) {
	dir := w.nodesDir(r.Key)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var names []string
	files := map[string]*strings.Builder{"nodes": {}, "slots": {}, "machines": {}, "tasks": {}}
	oneJob, jobs := w.setup.Reach.Kind == "srun", map[string]bool{}
	for _, p := range r.Nodes {
		names = append(names, p.Host)
		fmt.Fprintf(files["nodes"], "%s\n", p.Host)
		fmt.Fprintf(files["slots"], "%s slots=%d\n", p.Host, r.Need.CPUs)
		fmt.Fprintf(files["machines"], "%s:%d\n", p.Host, r.Need.CPUs)
		files["tasks"].WriteString(strings.Repeat(p.Host+"\n", r.Need.CPUs))
		jobs[p.Job] = true
		oneJob = oneJob && len(jobs) == 1 && p.Group < 0 // srun addresses only one component
	}
	about, err := json.Marshal(Reaching{
		Reach: w.setup.Reach, Nodes: r.Nodes, Task: w.taskName(r.Key), Run: w.setup.Run, Seq: r.Seq, Pin: w.setup.Pin,
		GPUVar: map[bool]string{true: w.setup.GPUVar}[w.setup.HideGPUs],
	})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	files[reachFile], files["rsh"] = &strings.Builder{}, &strings.Builder{}
	files[reachFile].Write(about)
	path := func(name string) string { return filepath.Join(dir, name) }
	fmt.Fprintf(files["rsh"], "#!/bin/sh\nexec %s reach %s \"$@\"\n", shell.Quote(self), shell.Quote(path(reachFile)))
	for name, text := range files {
		if err := os.WriteFile(path(name), []byte(text.String()), 0o700); err != nil {
			return nil, err
		}
	}
	n, total := strconv.Itoa(len(r.Nodes)), strconv.Itoa(len(r.Nodes)*r.Need.CPUs)
	set := []string{
		"JOBPOOL_NODELIST=" + strings.Join(names, ","), "JOBPOOL_NNODES=" + n,
		"JOBPOOL_NODEFILE=" + path("nodes"), "JOBPOOL_HOSTFILE=" + path("slots"), "JOBPOOL_RSH=" + path("rsh"),
		// Open MPI 4, and 5 (PRRTE). A tree would need the program at all nodes.
		"OMPI_MCA_plm=rsh", "OMPI_MCA_plm_rsh_agent=" + path("rsh"), "OMPI_MCA_plm_rsh_no_tree_spawn=1",
		"OMPI_MCA_orte_default_hostfile=" + path("slots"),
		"PRTE_MCA_plm=ssh", "PRTE_MCA_plm_ssh_agent=" + path("rsh"), "PRTE_MCA_plm_ssh_no_tree_spawn=1",
		"PRTE_MCA_prte_default_hostfile=" + path("slots"),
		// MPICH and what descends of it.
		"HYDRA_HOST_FILE=" + path("machines"), "HYDRA_LAUNCHER=ssh", "HYDRA_LAUNCHER_EXEC=" + path("rsh"), "HYDRA_RMK=user",
		"I_MPI_HYDRA_HOST_FILE=" + path("machines"), "I_MPI_HYDRA_BOOTSTRAP=ssh",
		"I_MPI_HYDRA_BOOTSTRAP_EXEC=" + path("rsh"), "I_MPI_HYDRA_RMK=user",
	}
	if oneJob { // what srun reads; it would otherwise be for all nodes of the job
		each := fmt.Sprintf("%d(x%s)", r.Need.CPUs, n)
		set = append(set, "SLURM_JOB_NODELIST="+strings.Join(names, ","), "SLURM_NODELIST="+strings.Join(names, ","),
			"SLURM_NNODES="+n, "SLURM_JOB_NUM_NODES="+n, "SLURM_NTASKS="+total, "SLURM_NPROCS="+total,
			"SLURM_TASKS_PER_NODE="+each, "SLURM_JOB_CPUS_PER_NODE="+each, "SLURM_HOSTFILE="+path("tasks"),
			"SLURM_DISTRIBUTION=arbitrary", "SLURM_OVERLAP=1", "SLURM_CPU_BIND=none", "SLURM_MEM_PER_NODE=0")
		env = without(env, "SLURM_MEM_PER_CPU=", "SLURM_MEM_PER_GPU=", "SLURM_CPUS_PER_TASK=", "SLURM_NTASKS_PER_NODE=",
			"SLURM_EXACT=", "SLURM_TRES_PER_TASK=", "SLURM_STEP_", "SLURM_EXCLUSIVE=")
	} else {
		set = append(set, "OMPI_MCA_ras=^slurm", "PRTE_MCA_ras=^slurm") // it would ask for the nodes of another job
		switch {
		case w.setup.Reach.Kind != "srun":
			env = without(env, "SLURM_")
		case len(jobs) > 1: // with the variables of one of them, srun would start everything there
			env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
				return strings.HasPrefix(kv, "SLURM_") && !strings.HasPrefix(kv, "SLURM_CONF=")
			})
			set = append(set, "SLURM_JOB_ID="+severalJobs)
		}
	}
	env = append([]string{}, env...)
	for _, kv := range set {
		env = setenv(env, kv)
	}
	return env, nil
}

// severalJobs takes the place of the id of a job where a task has nodes of several. Without any id, srun
// would submit a job of its own; this one it refuses, and prints.
const severalJobs = "the nodes of this task are in several jobs: use mpirun or JOBPOOL_RSH"

// without leaves out the variables that begin so.
func without(env []string, prefixes ...string) []string {
	var out []string
	for _, kv := range env {
		keep := true
		for _, p := range prefixes {
			keep = keep && !strings.HasPrefix(kv, p)
		}
		if keep {
			out = append(out, kv)
		}
	}
	return out
}

// parting is how long processes that a task has started at other nodes may take to end by themselves,
// after its command has.
const parting = 2 * time.Second

// sweep ends the remaining processes of a task whose command has ended elsewhere, and confirms that.
func (w *worker) sweep(k wire.Key) {
	if w.setup.Keep {
		w.out.Send(&wire.Message{Swept: &k})
		return
	}
	mark := "JOBPOOL_TASK=" + w.taskName(k)
	go func() {
		left := func() []int { return proc.WithVariables(mark, "") }
		for range int(parting / (20 * time.Millisecond)) {
			if len(left()) == 0 {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		for range 10 { // on a busy machine, what is killed takes its time to end
			if executor.KillAll(left, func() {}) {
				break
			}
		}
		w.locked(func() { w.out.Send(&wire.Message{Swept: &k}) })
	}()
}
