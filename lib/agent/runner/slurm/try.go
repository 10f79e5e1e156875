package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/spelling"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Try asks Slurm whether it would accept a job with the options that a task with these needs gets,
// and submits nothing. It returns the options. An error of kind fault.Usage means that the options
// are refused: permanently if it is runner.ErrRefused, else because of the present nodes.
func (r *Runner) Try(ctx context.Context, n runner.Needs) (sbatch.Options, error) {
	given, err := r.options.forTask(ctx, n, "")
	if err != nil {
		return nil, err
	}
	err = r.client.TestOnly(ctx, slurm.Batch{
		Options: append(given.Args(), "--job-name=ponos-setup", "--output=/dev/null", "--wrap=true"), Env: Environ(os.Environ()),
	})
	if err == nil {
		return given, nil
	}
	switch failed := submitError(err); {
	case errors.Is(failed, runner.ErrFull): // there is no room at this time, but the options are valid
		return given, nil
	case errors.Is(failed, runner.ErrUnmet):
		return given, fault.Errorf(fault.Usage, "%w (the options are %s)", err, given)
	case errors.Is(failed, runner.ErrRefused):
		return given, fault.Hint(fault.Errorf(fault.Usage, "%w (the options are %s)", failed, given), r.nearest(ctx, err, given))
	}
	return given, err
}

var (
	unknownOption = regexp.MustCompile(`unrecognized option '--([A-Za-z0-9_-]+)`)
	optionName    = regexp.MustCompile(`--([a-z][a-z0-9-]+)`)
)

// nearest returns a hint for a name that Slurm does not know, or "".
func (r *Runner) nearest(ctx context.Context, err error, given sbatch.Options) string {
	var e *slurm.Error
	if !errors.As(err, &e) || e.Exit == nil {
		return ""
	}
	if m := unknownOption.FindStringSubmatch(e.Exit.Stderr); m != nil {
		help, err := r.client.Output(ctx, "sbatch", "--help")
		if err != nil {
			return ""
		}
		var names []string
		for _, name := range optionName.FindAllStringSubmatch(string(help), -1) {
			names = append(names, name[1])
		}
		return mean(m[1], names)
	}
	if e.Says("Invalid partition name specified") {
		list, err := r.client.Without(func(error) {}).Partitions(ctx)
		if err != nil {
			return ""
		}
		var names []string
		for _, p := range list {
			names = append(names, p.Name)
		}
		if hint := mean(given.Value("partition"), names); hint != "" {
			return hint
		}
		return "the partitions are " + strings.Join(names, ", ")
	}
	return ""
}

func mean(word string, names []string) string {
	if near := spelling.Nearest(word, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}
