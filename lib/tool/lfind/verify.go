package lfind

import (
	"context"
	"errors"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// verifies reports whether Slurm is asked if it accepts an answer: where it was
// asked what there is, unless the flags say otherwise.
func verifies(c *cli.Context, a *launcher.Answer) bool {
	switch {
	case a.Local() || boolean(c, "no-verify"):
		return false
	case boolean(c, "verify"):
		return true
	}
	return a.Launcher.Entry.QuerySlurm
}

// verifier asks Slurm about answers, where the flags say so.
func (s *session) verifier(c *cli.Context, f *file.File) launcher.Verifier {
	return launcher.Verifier{
		Skips:  func(a *launcher.Answer) bool { return !verifies(c, a) },
		Change: func(o *sbatch.Options) error { return override(c, o) },
		Note:   func(format string, args ...any) { s.note(c, "note: "+format, args...) },
		Ask: func(ctx context.Context, a *launcher.Answer, options sbatch.Options) error {
			_, err := s.testOnly(ctx, f, a, options)
			return err
		},
	}
}

// verified returns the answer if Slurm accepts it, and else the next best that it
// does. What it refuses is a rule that the model of the cluster lacks, which is
// noted. Options that --set names are set in what is returned.
func (s *session) verified(
	c *cli.Context, f *file.File, search *launcher.Search, r request.Request, answer *launcher.Answer,
) (*launcher.Answer, error) {
	if err := override(c, &answer.Options); err != nil {
		return nil, err
	}
	v := s.verifier(c, f)
	if len(c.StringSlice("set")) > 0 { // what was set may be what is refused, and goes with every place
		mute := v
		mute.Note = nil
		err := mute.Accepts(c.Context, answer)
		if errors.As(err, new(*launcher.Refusal)) {
			return nil, fault.Hint(fault.Wrap(fault.Unavailable, err), "use another value for --set, or --no-verify")
		}
		v.Unverified(err)
		return answer, c.Err()
	}
	answer, err := v.Verified(c.Context, search, r, answer)
	if errors.As(err, new(*launcher.Refusal)) {
		return nil, fault.Hint(err, "Slurm accepts none of the candidates that match; --no-verify prints the best one without asking")
	}
	return answer, err
}

// testOnly asks when a job with these options would start.
func (s *session) testOnly(ctx context.Context, f *file.File, a *launcher.Answer, options sbatch.Options) (*estimate, error) {
	now := clock.Now()
	e := a.Launcher.Entry
	start, err := launcher.TestOnly(ctx, command.System, launcher.Hostname(f, e.Connector), e.Path, options)
	if err != nil {
		return nil, err
	}
	return &estimate{start.Start, now, start.Nodes, start.Partition, byTestOnly}, nil
}

// closed reports whether Slurm refuses a job as the partition takes none, which the search would have left out
// had it known.
func closed(err error) bool {
	var r *launcher.Refusal
	return errors.As(err, &r) && strings.Contains(r.Words, "Required partition not available")
}
