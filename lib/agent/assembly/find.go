package assembly

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/advise/usage"
	"github.com/ponos-tools/ponos/lib/agent/config"
	slurmrunner "github.com/ponos-tools/ponos/lib/agent/runner/slurm"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
)

// Find converts a resource request into options of sbatch, with launchers.yaml or by querying Slurm.
// What the request does not contain is as learned. Slurm is asked whether it takes the job with them.
func Find(ctx context.Context, spec string, learned usage.Learned, job slurmrunner.Job) (sbatch.Options, error) {
	return launcher.FindOptions(ctx, launcher.Query{Spec: spec, Length: learned.Time, Memory: learned.MemMB << 20, Job: job})
}

// CheckRequests reports the invalid resource requests of a configuration.
func CheckRequests(c config.Config) error {
	var errs []error
	for _, s := range []struct {
		key     string
		options sbatch.Options
	}{
		{"slurm.base", c.Slurm.Base}, {"slurm.daemon", c.Slurm.Daemon}, {"slurm.cpu", c.Slurm.CPU}, {"slurm.gpu", c.Slurm.GPU},
	} {
		if spec, ok := s.options.Get("find"); ok {
			if _, err := request.Parse(spec); err != nil {
				errs = append(errs, fault.Errorf(fault.Usage, "%s: %s.find: %w", c.Path, s.key, err))
			}
		}
	}
	for pattern, spec := range c.Requests {
		if _, err := request.Parse(spec); err != nil {
			errs = append(errs, fault.Errorf(fault.Usage, "%s: requests.%s: %w", c.Path, pattern, err))
		}
	}
	return errors.Join(errs...)
}

// requestOf returns what a task needs: the request of its queue, or else the configured one for its
// slug. Of several patterns, the slug itself counts, or else the longest one.
func requestOf(c config.Config, t task.Task) task.Request {
	if !t.Request.IsZero() || len(c.Requests) == 0 {
		return t.Request
	}
	best := ""
	for _, pattern := range slices.Sorted(maps.Keys(c.Requests)) {
		ok, err := path.Match(pattern, t.Slug)
		if err == nil && ok && (best == "" || pattern == t.Slug || best != t.Slug && len(pattern) > len(best)) {
			best = pattern
		}
	}
	return task.Request{Find: c.Requests[best]}
}
