package assembly

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/agent/program"
	slurmrunner "github.com/ponos-tools/ponos/lib/agent/runner/slurm"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// slurmMode runs tasks as jobs of a cluster.
type slurmMode struct {
	config   config.Config
	client   *slurm.Client
	runner   *slurmrunner.Runner
	programs *program.Store // those that jobs run
	refusals sync.Map       // answers of refused, by options of sbatch
}

func newSlurmMode(c config.Config) *slurmMode {
	client := &slurm.Client{}
	return &slurmMode{
		config: c, client: client, runner: slurmrunner.New(client, c.Slurm, Find),
		programs: &program.Store{Dir: filepath.Join(c.DataDir, "bin"), Installed: program.Installed},
	}
}

func (m *slurmMode) can() abilities {
	a := abilities{
		where: "on Slurm", why: why, check: m.check, try: m.runner.Try, refused: m.refused, hopeless: m.hopeless,
		otherGPUs: len(m.config.Slurm.GPU) > 0, programs: m.programs,
	}
	if len(m.config.Slurm.Daemon) > 0 {
		a.daemon = &daemon{m.client}
	}
	return a
}

func (m *slurmMode) open(_ context.Context, p *System, o Options) (runner.Runner, error) {
	state := m.config.StateDir()
	m.runner.Tasks = filepath.Join(state, "tasks")
	m.runner.Pack(slurmrunner.Packing{
		On: o.Pack, State: p.state, Programs: m.programs,
		Dir: filepath.Join(state, "pools"), Former: filepath.Join(state, "packs"),
	})
	m.runner.Account(slurmrunner.Accounting{
		File: filepath.Join(state, "accounting.json"), Warn: func(text string) { p.Agent.Log.Warn(text) },
	})
	return m.runner, nil
}

// soonEnough is how long somebody who looks at a list waits for reasons.
const soonEnough = time.Second

func why(ctx context.Context, jobs []string) map[string]string {
	return planner.Why(ctx, planner.New(), soonEnough, jobs...)
}

// refused queries the cluster once for equal options.
func (m *slurmMode) refused(ctx context.Context, n runner.Needs) string {
	options, err := m.runner.Options(ctx, n)
	if err != nil {
		return fault.Text(err)
	}
	refused := sync.OnceValue(func() string { return launcher.Refused(ctx, options) })
	once, _ := m.refusals.LoadOrStore(strings.Join(options.Args(), "\x00"), refused)
	return once.(func() string)() //nolint:forcetypeassert // nothing else is stored
}

func (m *slurmMode) hopeless(ctx context.Context, n runner.Needs) string {
	options, err := m.runner.Options(ctx, n)
	if err != nil {
		return "" // ponos-start reports it
	}
	return launcher.Hopeless(ctx, options)
}

func (m *slurmMode) check(ctx context.Context, n runner.Needs) error {
	ctx, silent, cancel := slurm.Question(ctx, slurm.Soon())
	defer cancel()
	options, err := m.runner.Options(ctx, n)
	_, failed := slurm.FailureOf(err)
	switch {
	case failed: // the error names the command
	case ctx.Err() != nil && silent() != nil: // the search went on without the answer
		return silent()
	case fault.Is(err, fault.Unavailable):
		return nil // nodes are down at this time: the agent asks again, and waits as long as necessary
	}
	if err != nil {
		return err
	}
	if why := launcher.Hopeless(ctx, options); why != "" {
		return fault.Errorf(fault.Failed, "%s (the options are %s)", why, options)
	}
	// Sbatch also checks what the model does not know, such as names and values of options.
	switch _, err := m.runner.Try(ctx, n); {
	case errors.Is(err, runner.ErrRefused):
		return fault.Wrap(fault.Failed, err)
	case slurm.Unreachable(err):
		return fault.Wrap(fault.Unavailable, cmp.Or(silent(), err))
	}
	return nil
}

// place returns the name of the cluster. The controller is asked as long as the agent has no name: see agentName.
func (m *slurmMode) place(ctx context.Context, _ *System, _ string) (string, error) {
	config, err := m.client.Config(ctx)
	return config.Get("ClusterName"), err
}
