package assembly

import (
	"context"
	"errors"

	"github.com/ponos-tools/ponos/lib/config"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/launcher"
	"github.com/ponos-tools/ponos/lib/launcher/request"
)

// Find turns a resource request into options of sbatch, by launchers.yaml or by
// asking Slurm.
func Find(ctx context.Context, spec string) (config.Options, error) {
	found, err := launcher.FindOptions(ctx, launcher.Query{Spec: spec})
	if err != nil {
		return nil, err
	}
	var options config.Options
	for _, o := range found {
		options = append(options, config.Option{Key: o.Name, Name: o.Name, Value: o.Value, Flag: o.Bare})
	}
	return options, nil
}

// CheckRequests reports the resource requests of a configuration that are no good.
func CheckRequests(c config.Config) error {
	var errs []error
	for _, s := range []struct {
		key     string
		options config.Options
	}{
		{"slurm.base", c.Slurm.Base}, {"slurm.daemon", c.Slurm.Daemon}, {"slurm.cpu", c.Slurm.CPU}, {"slurm.gpu", c.Slurm.GPU},
	} {
		if spec, ok := s.options.Get("find"); ok {
			if _, err := request.Parse(spec); err != nil {
				errs = append(errs, fault.Errorf(fault.Usage, "%s: %s.find: %w", c.Path, s.key, err))
			}
		}
	}
	return errors.Join(errs...)
}
