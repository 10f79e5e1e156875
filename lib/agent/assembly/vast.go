package assembly

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/agent"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/market/entry"
	"github.com/ponos-tools/ponos/lib/market/find"
	"github.com/ponos-tools/ponos/lib/market/registry"
	"github.com/ponos-tools/ponos/lib/market/rented"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// vastMode runs tasks on rented machines.
type vastMode struct {
	config config.Config
	runner *rented.Runner
}

func (m *vastMode) place(_ context.Context, _ *System, host string) (string, error) { return host, nil }

func (m *vastMode) can() abilities {
	return abilities{
		check: m.check, instances: m.runner, images: true, otherGPUs: true,
		askInterval: 2 * time.Duration(m.config.Vast.LogInterval),
	}
}

func (m *vastMode) check(_ context.Context, n runner.Needs) error {
	if n.Request.Find == "" {
		return nil
	}
	if _, err := find.Filters(n.Request.Find); err != nil {
		return fault.Errorf(fault.Usage, "the request: %w", err)
	}
	return nil
}

// open sends no requests yet.
func (m *vastMode) open(ctx context.Context, p *System, _ Options) (runner.Runner, error) {
	r, err := NewVast(p.Config, p.log.Logger)
	if err != nil {
		return nil, err
	}
	if r.Agent = p.Config.Vast.Agent; r.Agent == "" {
		name, err := agentName(ctx, p)
		if err != nil {
			return nil, err
		}
		// Its hash: labels are short, and host names are private.
		r.Agent, _, _ = strings.Cut(name, "-")
	}
	m.runner = r
	return r, nil
}

// Instances are the rented machines of an agent.
type Instances struct {
	*rented.Runner
	store *agent.Store
	queue queue.Queue
}

// Instances returns the rented machines of the agent.
func (p *System) Instances() (Instances, error) {
	r := p.mode.can().instances
	if r == nil {
		return Instances{}, fault.Errorf(fault.Usage, "mode is %q: there are instances only in mode \"vast\"", p.Config.Mode)
	}
	return Instances{r, p.Agent.Store, p.Agent.Queue}, nil
}

// Groups returns the groups of tasks that have one, where people fill the queue.
func (i Instances) Groups() (map[task.ID]string, error) {
	q, ok := i.queue.(queue.Filled)
	if !ok {
		return nil, nil
	}
	all, err := q.States()
	groups := map[task.ID]string{}
	for _, s := range all {
		if s.Group != "" {
			groups[s.ID] = s.Group
		}
	}
	return groups, err
}

// Orphaned returns the instances with the agent's label, older than a time, that belong to no task of
// the agent.
func (i Instances) Orphaned(ctx context.Context, older time.Duration) ([]rented.Unwanted, error) {
	return i.Unwanted(ctx, older, func(id task.ID) (string, error) {
		record, err := i.store.Task(id).Read()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return "the agent has no such task", nil
		case record.Reassigned:
			return "the queue does not assign its task to this agent", nil
		}
		return "", err
	})
}

// Carries returns why no order of a rented machine can carry a task to its container.
func Carries(c config.Config, t task.Task) error {
	v := c.Vast
	r := rented.Runner{
		Agent: strings.Repeat("0", 36), Disk: v.Disk, ExtraEnv: v.ExtraEnv, Program: vastEntry(v), Checkpoints: vastCheckpoints(v),
		Limits: rented.Limits{Runtime: time.Duration(v.MaxRuntime)},
	}
	if err := r.Carries(t); err != nil {
		return fault.Hint(fault.Errorf(fault.Usage, "no rented machine can be ordered for the task: %w", err),
			"put what is long into the image, or where the task can fetch it")
	}
	return nil
}

func vastCheckpoints(v config.Vast) rented.Checkpoints {
	return rented.Checkpoints{
		Store: v.Checkpoints, Load: v.CheckpointLoad, Save: v.CheckpointSave, Interval: time.Duration(v.CheckpointInterval),
	}
}

// NewVast creates the runner of rented machines without the agent's name.
func NewVast(c config.Config, log *slog.Logger) (*rented.Runner, error) {
	v := c.Vast
	filters, err := VastFilters(c)
	if err != nil {
		return nil, err
	}
	api, err := VastAPI(c)
	if err != nil {
		return nil, err
	}
	finds := map[string]vastai.Filters{}
	for pattern, spec := range v.Find {
		if finds[pattern], err = find.Filters(spec); err != nil {
			return nil, fault.Errorf(fault.Usage, "%s: vast_api.find: %q: %w", c.Where("vast_api.find"), spec, err)
		}
		if filters.Has("num_gpus") {
			return nil, fault.Errorf(fault.Usage,
				"%s: vast_api.find: num_gpus is in offer_filters as well; give one of them", c.Where("vast_api.find"))
		}
	}
	var images func(context.Context, string, registry.Contents) (registry.Image, error)
	if v.ImageLookup {
		client := registry.New(v.ImageLogin)
		client.Programs, client.Enough = rented.Programs, rented.Enough
		images = client.Image
	}
	return &rented.Runner{
		Images:  images,
		Program: vastEntry(v),
		API:     api, Dir: filepath.Join(c.StateDir(), "vast"),
		Finds: finds, Translate: find.Filters, Filters: filters, Disk: v.Disk,
		Login: v.ImageLogin, ExtraEnv: v.ExtraEnv, Commands: v.Commands,
		Estimate: vastai.Estimate{Hours: time.Duration(v.ExpectedTime).Hours(), Down: v.Download, Up: v.Upload},
		Limits: rented.Limits{
			PricePerHour: v.MaxPricePerHour, CostPerTask: v.MaxCostPerTask, CostPerDay: v.MaxCostPerDay,
			Instances: v.MaxInstances, CreatesPerHour: v.MaxCreatesPerHour,
			MinCredit: v.MinCredit, Boot: time.Duration(v.BootTimeout), Runtime: time.Duration(v.MaxRuntime),
		},
		Bid: v.Bid, Spot: v.Spot, Retries: v.RetriesOnLoss,
		Checkpoints:  vastCheckpoints(v),
		BillInterval: time.Duration(v.BillInterval),
		Avoid:        time.Duration(v.ShunTime), Settle: time.Duration(v.Settle),
		LogInterval: time.Duration(v.LogInterval), StopWait: time.Duration(v.StopWait), Log: log,
	}, nil
}

// vastEntry is vast-entry as configured, or that of this release.
func vastEntry(v config.Vast) rented.Program {
	p := rented.Program{URL: v.EntryURL, Sums: v.EntrySums, Grace: time.Duration(v.EntryGrace), Destroy: v.EntryEnd == "destroy"}
	if p.URL == "" && entry.ReleaseSums != "" {
		p.URL, p.Sums = entry.ReleaseURL+app.Version+"/vast-entry-linux", entry.ReleaseSums
	}
	return p
}

// VastFilters returns the filters of the configuration.
func VastFilters(c config.Config) (filters vastai.Filters, err error) {
	if c.Vast.OfferFilters.Map != nil {
		filters, err = vastai.ParseMap(c.Vast.OfferFilters.Map)
	} else {
		filters, err = vastai.ParseQuery(c.Vast.OfferFilters.Query)
	}
	if err == nil {
		return filters, nil
	}
	// Every problem, each with its line.
	problems := []error{err}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		problems = all.Unwrap()
	}
	for i, problem := range problems {
		key := filtersKey
		var field *vastai.FieldError
		if errors.As(problem, &field) {
			key += "." + field.Field
		}
		problems[i] = fault.Errorf(fault.Usage, "%s: %s: %w", c.Where(key), filtersKey, problem)
	}
	return nil, errors.Join(problems...)
}

const filtersKey = "vast_api.offer_filters"

// VastAPI returns the client for the configured account.
func VastAPI(c config.Config) (*vastai.Governor, error) {
	v := c.Vast
	key, err := v.Key()
	if err != nil {
		return nil, fault.Errorf(fault.Usage, "%s: vast_api.api_key_file: %w", c.Where("vast_api.api_key_file"), err)
	}
	unit := time.Duration(v.CreateInterval)
	var api vastai.API
	if v.Via == "cli" {
		cli := vastai.NewCLI(command.System, v.URL)
		cli.Wait, cli.Key = unit, key
		api = cli
	} else {
		if key == "" {
			return nil, fault.Errorf(fault.Usage, "%s: vast_api: no key in api_key or api_key_file", c.Where("vast_api"))
		}
		rest := vastai.NewREST(v.URL, key)
		rest.Wait = unit
		api = rest
	}
	g := vastai.NewGovernor(api, accountDir(c, key), unit, clock.Now)
	g.Keep = rented.Kept()
	return g, nil
}

// accountDir returns where all tools of this user share what they know of an account: below the
// user's cache directory, under a hash of the key, from which the key cannot be derived. Without such
// a directory, or where others can write to it, only the agent's own tools share it.
func accountDir(c config.Config, key string) string {
	sum := sha256.Sum256([]byte("ponos market\x00" + c.Vast.URL + "\x00" + key))
	cache, err := os.UserCacheDir()
	if err == nil {
		dir := filepath.Join(cache, "ponos", "market-"+hex.EncodeToString(sum[:8]))
		err = errors.Join(os.MkdirAll(dir, 0o700), place.Dir(dir, os.Geteuid()))
		if err == nil && unix.Access(dir, unix.W_OK) == nil {
			return dir
		}
	}
	return filepath.Join(c.StateDir(), "vast", "market")
}
