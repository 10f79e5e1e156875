package assembly

import (
	"context"
	"path/filepath"
	"strconv"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/agent/program"
	"github.com/ponos-tools/ponos/lib/agent/runner/local"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/market/rented"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// A mode is where the tasks of an agent run. Each builds itself.
type mode interface {
	// place returns where the agent's jobs can be found: on this host, or in all of a cluster.
	place(ctx context.Context, p *System, host string) (string, error)
	// open builds the runner, once the state directory exists.
	open(ctx context.Context, p *System, o Options) (runner.Runner, error)
	// can returns what the mode can do. The instances are known when it is open.
	can() abilities
}

// abilities are what only some modes can do; nil: this one cannot.
type abilities struct {
	where string // for people; "": its name says it
	// near: tasks run on this machine, and asking what they do costs next to nothing.
	near bool
	// check reports problems with the needs of a task that is to be submitted.
	check func(context.Context, runner.Needs) error
	// try asks whether a job would be accepted, and returns its options.
	try func(context.Context, runner.Needs) (sbatch.Options, error)
	// refused and hopeless return why a job would be refused, or never start; "" if it is unknown.
	refused, hopeless func(context.Context, runner.Needs) string
	// why says why jobs wait, as far as that is known soon.
	why         func(ctx context.Context, jobs []string) map[string]string
	daemon      *daemon        // the agent as a job
	programs    *program.Store // see agent.Agent
	instances   *rented.Runner
	images      bool          // tasks are images, and nothing else is
	otherGPUs   bool          // tasks may get GPUs that are not of this machine
	askInterval time.Duration // see agent.Agent
}

// localMode runs tasks on this machine.
type localMode struct{ config config.Config }

func (m localMode) place(_ context.Context, _ *System, host string) (string, error) { return host, nil }

func (m localMode) can() abilities {
	check := func(_ context.Context, n runner.Needs) error {
		return fault.Wrap(fault.Failed, local.Check(n, machine(m.config)))
	}
	return abilities{where: "on this machine", near: true, check: check}
}

func (m localMode) open(_ context.Context, _ *System, _ Options) (runner.Runner, error) {
	c := m.config
	worker, err := command.Sibling("ponos-worker")
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(c.StateDir(), "local")
	return &local.Runner{
		Dir: dir, MaxJobs: c.Local.MaxJobs, Has: machine(c), StopWait: time.Duration(c.Local.StopWait),
		Worker: append(worker, "local", "--jobs", strconv.Itoa(c.Local.MaxJobs), dir),
	}, nil
}

// machine returns what this machine has for jobs; the configuration takes precedence.
func machine(c config.Config) local.Machine {
	memory, _ := unit.Size(c.Local.Memory) // it was checked; "" is 0
	return local.NewMachine(c.Local.CPUs, memory, c.Local.GPUs)
}
