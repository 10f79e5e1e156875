package assembly

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/config"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/registry"
	vastrunner "github.com/ponos-tools/ponos/lib/runner/vast"
	"github.com/ponos-tools/ponos/lib/vastai"
)

// newVast puts the runner of rented machines together. It asks nobody yet.
func newVast(ctx context.Context, p *Parts) (*vastrunner.Runner, error) {
	r, err := NewVast(p.Config, p.log.Logger)
	if err != nil {
		return nil, err
	}
	if r.Agent = p.Config.Vast.Agent; r.Agent == "" {
		name, err := agentName(ctx, p)
		if err != nil {
			return nil, err
		}
		// Its hash: labels are short, and host names nobody's business.
		r.Agent, _, _ = strings.Cut(name, "-")
	}
	return r, nil
}

// NewVast is the runner of rented machines without the agent's name.
func NewVast(c config.Config, log *slog.Logger) (*vastrunner.Runner, error) {
	v := c.Vast
	filters, err := VastFilters(c)
	if err != nil {
		return nil, err
	}
	api, err := VastAPI(c)
	if err != nil {
		return nil, err
	}
	var images func(context.Context, string) (registry.Image, error)
	var contents func(context.Context, string, registry.Contents) (registry.Contents, error)
	if v.ImageLookup {
		client := registry.New(v.ImageLogin)
		images = client.Image
		contents = func(ctx context.Context, name string, known registry.Contents) (registry.Contents, error) {
			return client.Contents(ctx, name, vastrunner.Programs, vastrunner.Enough, known)
		}
	}
	return &vastrunner.Runner{
		Images: images, Contents: contents,
		Switch: vastrunner.Switch{URL: v.SwitchURL, Sum: v.SwitchSum, Grace: time.Duration(v.SwitchGrace)},
		API:    api, Dir: filepath.Join(c.StateDir(), "vast"), Filters: filters, Disk: v.Disk, Login: v.ImageLogin, ExtraEnv: v.ExtraEnv, Commands: v.Commands,
		Estimate: vastai.Estimate{Hours: time.Duration(v.ExpectedTime).Hours(), Down: v.Download, Up: v.Upload},
		Limits: vastrunner.Limits{
			PricePerHour: v.MaxPricePerHour, CostPerTask: v.MaxCostPerTask, Instances: v.MaxInstances, CreatesPerHour: v.MaxCreatesPerHour,
			CreditFloor: v.CreditFloor, Boot: time.Duration(v.BootTimeout), Runtime: time.Duration(v.MaxRuntime),
		},
		Shun: time.Duration(v.ShunTime), Spacing: time.Duration(v.CreateInterval), Settle: time.Duration(v.Settle),
		LogInterval: time.Duration(v.LogInterval), StopWait: time.Duration(v.StopWait), Log: log,
	}, nil
}

// VastFilters are the filters of the configuration.
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

// VastAPI is the transport of the configuration.
func VastAPI(c config.Config) (vastai.API, error) {
	v := c.Vast
	key, err := v.Key()
	if err != nil {
		return nil, fault.Errorf(fault.Usage, "%s: vast_api.api_key_file: %w", c.Where("vast_api.api_key_file"), err)
	}
	if v.Via == "cli" {
		cli := vastai.NewCLI(command.System, v.URL)
		cli.Wait, cli.Key = time.Duration(v.CreateInterval), key
		return cli, nil
	}
	if key == "" {
		return nil, fault.Errorf(fault.Usage, "%s: vast_api: there is no key in api_key or api_key_file", c.Where("vast_api"))
	}
	rest := vastai.NewREST(v.URL, key)
	rest.Wait = time.Duration(v.CreateInterval)
	return rest, nil
}
