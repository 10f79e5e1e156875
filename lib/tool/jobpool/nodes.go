package jobpool

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/pool/machine"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
	"github.com/ponos-tools/ponos/lib/pool/transport"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// place is where the tasks are to run.
type place struct {
	nodes []scheduler.NodeSpec
	kind  transport.Kind
	job   string // Slurm's id, if the nodes are those of a job
	// elastic: the nodes are those of pilots.
	elastic bool
	fixed   int                // --jobs as a number; 0: it is none
	jobs    func(cpus int) int // what --jobs makes of the CPUs of a node; nil: nothing
}

// where finds the nodes out: those named, those of the Slurm job, or this machine.
func where(c *cli.Context, getenv func(string) string) (*place, error) {
	v := &values{c: c}
	jobs := v.jobs()
	slots := jobs.fixed
	via := []string{"auto", "srun", "ssh", "local"}[v.oneOf("via", "auto", "srun", "ssh", "local")]
	if v.err != nil {
		return nil, v.err
	}
	if c.IsSet("via-cmd") {
		if via != "auto" {
			return nil, fault.Errorf(fault.Usage, "--via and --via-cmd cannot be combined")
		}
		if c.String("via-cmd") == "" {
			return nil, fault.Errorf(fault.Usage, "--via-cmd: the command is empty")
		}
		via = "cmd"
	}
	p := &place{kind: transport.Kind(via), jobs: jobs.of, fixed: slots}
	job := getenv("SLURM_JOB_ID")
	named := c.StringSlice("nodes")
	switch {
	case c.Bool("elastic"): // nodes come as pilots tell of them
		p.kind, p.elastic = transport.BySrun, true
	case len(named) > 0 && via == "local":
		return nil, fault.Errorf(fault.Usage, "--nodes and --via local cannot be combined")
	case via == "cmd" && len(named) == 0 && job == "":
		return nil, fault.Errorf(fault.Usage, "--via-cmd needs --nodes outside a Slurm job")
	case via == "srun" && job == "":
		return nil, fault.Errorf(fault.Usage, "--via srun needs a Slurm job, and this is not one")
	case len(named) > 0:
		if err := p.name(named, slots); err != nil {
			return nil, err
		}
		if via == "auto" {
			p.kind = transport.BySSH
			if job != "" && p.inJob(getenv) {
				p.kind = transport.BySrun
			}
		}
		if p.kind == transport.BySrun {
			p.job = job
		}
	case via == "local" || getenv("JOBPOOL_NODE") != "" || job == "" ||
		getenv("SLURM_JOB_NODELIST") == "" && getenv("SLURM_HET_SIZE") == "":
		if via == "ssh" {
			return nil, fault.Errorf(fault.Usage, "--via ssh needs --nodes or a Slurm job")
		}
		n := scheduler.NodeSpec{Name: machine.Hostname(), Slots: slots, Jobs: jobs.of, Local: true, Group: -1}
		cpus, _ := strconv.Atoi(getenv("SLURM_CPUS_ON_NODE"))
		n.Mem, n.MemPerGPU = machine.JobMemory(getenv, "", cpus)
		if n.Slots == 0 && getenv("JOBPOOL_NODE") != "" { // a pool in a task of a pool
			n.Slots, _ = strconv.Atoi(getenv("JOBPOOL_NCPUS"))
		}
		p.nodes = []scheduler.NodeSpec{n}
	default:
		if n, _ := strconv.Atoi(getenv("SLURM_STEP_NUM_TASKS")); n > 1 {
			return nil, fault.Hint(fault.Errorf(fault.Usage, "this is one of %d tasks of a step: each would run everything", n),
				"start jobpool once, in the batch script without srun")
		}
		if err := p.fromJob(getenv, slots); err != nil {
			return nil, err
		}
		p.measure(c.Context, &slurm.Client{}, job)
		p.job = job
		if via == "auto" {
			p.kind = transport.BySrun
		}
	}
	return p, nil
}

// name takes hosts the user has named.
func (p *place) name(lists []string, slots int) error {
	seen := map[string]bool{}
	for _, list := range lists {
		for _, part := range topLevel(list) {
			n, jobs := slots, p.jobs
			if count, rest, ok := strings.Cut(part, "/"); ok {
				var err error
				jobs = nil
				if n, err = strconv.Atoi(count); err != nil || n < 1 {
					return fault.Errorf(fault.Usage, "--nodes: %q is not of the form N/HOST", part)
				}
				part = rest
			}
			if part == ":" {
				p.nodes = append(p.nodes, scheduler.NodeSpec{Name: machine.Hostname(), Slots: n, Jobs: jobs, Local: true, Group: -1})
				continue
			}
			hosts, err := hostlist.Expand(part)
			if err != nil {
				return fault.Errorf(fault.Usage, "--nodes: %w", err)
			}
			for _, host := range hosts {
				if strings.ContainsAny(host, "/ \t\n") || strings.HasPrefix(host, "-") {
					return fault.Errorf(fault.Usage, "--nodes: invalid host name %q", host)
				}
				if seen[host] {
					return fault.Errorf(fault.Usage, "--nodes: %q is given twice", host)
				}
				seen[host] = true
				p.nodes = append(p.nodes, scheduler.NodeSpec{Name: host, Slots: n, Jobs: jobs, Group: -1})
			}
		}
	}
	if len(p.nodes) == 0 {
		return fault.Errorf(fault.Usage, "--nodes: no host is named")
	}
	return nil
}

// growable reports whether a user may add nodes: those of jobs come with them, and a pool of
// this machine alone is not ready for others.
func (p *place) growable() bool {
	return !p.elastic && (p.kind == transport.BySSH || p.kind == transport.ByCmd || p.kind == transport.BySrun)
}

// named are the nodes of lists as of --nodes.
func (p *place) named(lists []string) ([]scheduler.NodeSpec, error) {
	more := &place{kind: p.kind, jobs: p.jobs}
	err := more.name(lists, p.fixed)
	return more.nodes, err
}

// slots is how many tasks of one CPU run at a time, as far as is known before the nodes
// are there: a node of which nothing is known is taken for one like this.
func (p *place) slots() int {
	sum := 0
	for _, n := range p.nodes {
		cpus := cmp.Or(n.Slots, n.Most, runtime.NumCPU())
		if n.Jobs != nil {
			cpus = n.Jobs(cpus)
		}
		sum += max(1, cpus)
	}
	return max(1, sum) // of the nodes of pilots nothing is known
}

// topLevel splits at commas outside brackets.
func topLevel(s string) []string {
	var out []string
	depth, from := 0, 0
	for i, r := range s + "," {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ',' && depth <= 0:
			if part := strings.TrimSpace(s[from:i]); part != "" {
				out = append(out, part)
			}
			from = i + 1
		}
	}
	return out
}

// inJob reports whether all named hosts are nodes of the job.
func (p *place) inJob(getenv func(string) string) bool {
	of := &place{}
	if of.fromJob(getenv, 0) != nil {
		return false
	}
	most := map[string]scheduler.NodeSpec{}
	for _, n := range of.nodes {
		most[n.Name] = n
	}
	for _, n := range p.nodes {
		if _, ok := most[n.Name]; !ok && !n.Local {
			return false
		}
	}
	for i, n := range p.nodes {
		if m, ok := most[n.Name]; ok {
			p.nodes[i].Most, p.nodes[i].Group, p.nodes[i].Local = m.Most, m.Group, m.Local
			p.nodes[i].Mem, p.nodes[i].MemPerGPU = m.Mem, m.MemPerGPU
		}
	}
	return true
}

// fromJob takes the nodes of the Slurm job, of all components if there are some.
func (p *place) fromJob(getenv func(string) string, slots int) error {
	size, _ := strconv.Atoi(getenv("SLURM_HET_SIZE"))
	if size == 0 {
		return p.component(getenv, "", -1, slots)
	}
	for g := range min(size, 1024) {
		if err := p.component(getenv, fmt.Sprintf("_HET_GROUP_%d", g), g, slots); err != nil {
			return err
		}
	}
	return nil
}

func (p *place) component(getenv func(string) string, suffix string, group, slots int) error {
	hosts, err := hostlist.Expand(getenv("SLURM_JOB_NODELIST" + suffix))
	if err != nil {
		return fault.Errorf(fault.Usage, "SLURM_JOB_NODELIST: %w", err)
	}
	cpus, err := transport.CPUsPerNode(getenv("SLURM_JOB_CPUS_PER_NODE" + suffix))
	if err != nil || len(cpus) > 0 && len(cpus) != len(hosts) {
		return fault.Errorf(fault.Usage, "SLURM_JOB_CPUS_PER_NODE: %q does not give the CPUs of %d nodes",
			getenv("SLURM_JOB_CPUS_PER_NODE"+suffix), len(hosts))
	}
	own := getenv("SLURMD_NODENAME")
	for i, host := range hosts {
		n := scheduler.NodeSpec{Name: host, Slots: slots, Jobs: p.jobs, Local: host == own, Group: group}
		if len(cpus) > 0 {
			n.Most = cpus[i]
		}
		n.Mem, n.MemPerGPU = machine.JobMemory(getenv, suffix, n.Most)
		p.nodes = append(p.nodes, n)
	}
	return nil
}

// job asks how the job stands.
func job(ctx context.Context, client *slurm.Client, id string) (scheduler.Job, error) {
	end, suspended, err := client.JobEnd(ctx, id)
	return scheduler.Job{End: end, Suspended: suspended}, err
}

// ends tells when the job ends, now and whenever that is changed.
func ends(ctx context.Context, client *slurm.Client, id string, out chan<- time.Time) {
	for {
		if j, err := job(ctx, client, id); err == nil && !j.End.IsZero() {
			select {
			case out <- j.End:
			case <-ctx.Done():
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(10 * time.Minute):
		}
	}
}

// release gives back the nodes of the job that are not to be kept.
func release(client *slurm.Client, job, dir string) func(context.Context, []string) error {
	return func(ctx context.Context, keep []string) error {
		// scontrol writes a script that sets the environment where it runs.
		_, err := client.Command(ctx, command.Cmd{
			Name: "scontrol", Args: []string{"update", "JobId=" + job, "NodeList=" + hostlist.Compress(keep)}, Dir: dir,
		})
		return err
	}
}

// pinned copies the program into the run directory, so that a later build does
// not get between this scheduler and its workers.
func pinned(dir string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	// The program of all tools is larger than the one that is only jobpool.
	own, err := filepath.EvalSymlinks(filepath.Join(filepath.Dir(self), "jobpool"))
	if err == nil && filepath.Base(self) != "jobpool" && isProgram(own) {
		self = own
	}
	return copyProgram(self, dir)
}
