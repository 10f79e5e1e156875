package assembly

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/ponos-tools/ponos/lib/config"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/gpu"
	"github.com/ponos-tools/ponos/lib/launcher"
	"github.com/ponos-tools/ponos/lib/launcher/request"
	"github.com/ponos-tools/ponos/lib/spelling"
	"github.com/ponos-tools/ponos/lib/vastai"
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

// VastFind turns a resource request into filters of offers. Of GPUs the market knows
// names of its own, so that it is asked for their memory and capability, and the names of
// what it returns are looked up in the catalogue here.
func VastFind(spec string) (vastai.Filters, error) {
	parsed, err := request.Parse(spec)
	if err != nil {
		return nil, err
	}
	if len(parsed.Alternatives) != 1 {
		return nil, errors.New("want one alternative: offers are ranked by their price")
	}
	a := parsed.Alternatives[0]
	switch {
	case a.Nodes > 1:
		return nil, errors.New("nodes: a task runs on one rented machine")
	case len(a.Where) > 0:
		return nil, fmt.Errorf("%s: machines are not chosen by this; use offer_filters", a.Where[0].Field)
	case len(a.GPUs) > 1:
		return nil, errors.New("the GPUs of a rented machine are alike; want one kind of them")
	case len(a.GPUs) == 0:
		return nil, errors.New("want GPUs: the market rents nothing else")
	}
	var out vastai.Filters
	add := func(field, op string, value any) {
		out = append(out, vastai.Condition{Field: field, Op: op, Value: value, Text: fmt.Sprintf("find %s %s %v", field, op, value)})
	}
	g := a.GPUs[0]
	switch g.Kind {
	case request.CUDA:
		add("gpu_arch", "eq", "nvidia")
	case request.ROCm:
		add("gpu_arch", "eq", "amd")
	case request.AnyGPU:
	default:
		return nil, fmt.Errorf("%s: the market has no such GPUs", g.Kind)
	}
	add("num_gpus", "eq", float64(max(1, g.Count)))
	// The market's megabytes are a little less than a gigabyte's thousandth: cards of 24 GB
	// have 24564 or so.
	megabytes := func(bytes int64) float64 { return float64(bytes) / (1 << 30) * 1000 }
	if g.Memory > 0 {
		add("gpu_ram", "gte", megabytes(g.Memory))
	}
	if g.Model != "" {
		model := gpu.Builtin().Lookup(g.Model)
		if len(model.Models) == 0 {
			hint := ""
			if near := spelling.Nearest(g.Model, gpu.Builtin().Names()); near != "" {
				hint = fmt.Sprintf("; did you mean %q?", near)
			}
			return nil, fmt.Errorf("unknown GPU model %q%s", g.Model, hint)
		}
		if model.Least > 0 {
			add("gpu_ram", "gte", math.Floor(0.95*megabytes(model.Least)))
		}
		if least, most := model.Capability(); least > 0 {
			add("compute_cap", "gte", float64(least)*10)
			add("compute_cap", "lte", float64(most)*10)
		}
		out = append(out, vastai.Condition{Field: "gpu_name", Text: "find " + g.Model, Test: func(have any) bool {
			name, ok := have.(string)
			return ok && gpu.Builtin().Is(name, g.Model) == gpu.Yes
		}})
	}
	if a.Memory > 0 {
		add("cpu_ram", "gte", megabytes(a.Memory))
	}
	if a.Cores > 0 {
		add("cpu_cores_effective", "gte", float64(a.Cores))
	}
	if a.Duration > 0 {
		add("duration", "gte", a.Duration.Seconds())
	}
	return out, nil
}
