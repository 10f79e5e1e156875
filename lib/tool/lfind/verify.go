package lfind

import (
	"errors"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// maxVerified limits how many places Slurm is asked about where it refuses the best.
const maxVerified = 8

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

// verified returns the answer if Slurm accepts it, and else the next best that it
// does. What it refuses is a rule that the model of the cluster lacks, which is
// noted. Options that --set names are set in what is returned.
func (s *session) verified(
	c *cli.Context, f *file.File, search *launcher.Search, r request.Request, answer *launcher.Answer,
) (*launcher.Answer, error) {
	if err := override(c, &answer.Options); err != nil || !verifies(c, answer) {
		return answer, err
	}
	refused, err := s.accepts(c, f, answer)
	if refused == nil {
		return answer, err
	}
	if len(c.StringSlice("set")) > 0 { // what was set may be what is refused, and goes with every place
		return nil, fault.Hint(refused, "use another value for --set, or --no-verify")
	}
	first := refused
	tried := []string{answer.Options.String()}
	s.noteRefused(c, answer, refused)
	others, err := search.All(c.Context, r, maxAsked)
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		if err := override(c, &other.Options); err != nil {
			return nil, err
		}
		line := other.Options.String()
		if slices.Contains(tried, line) {
			continue
		}
		if len(tried) == maxVerified {
			break
		}
		tried = append(tried, line)
		if !verifies(c, other) {
			return other, nil
		}
		if refused, err = s.accepts(c, f, other); err != nil {
			return nil, err
		}
		if refused == nil {
			return other, nil
		}
		s.noteRefused(c, other, refused)
	}
	return nil, fault.Hint(first, "Slurm accepts none of the candidates that match; --no-verify prints the best one without asking")
}

// slurmsOwn are what Slurm itself says, and not a plugin of the site: another form of the job would not help.
var slurmsOwn = []string{
	"node configuration", "partition configuration", "accounting/QOS", "Required partition", "Invalid account", "Invalid qos",
	"Invalid partition", "Access/permission", "Requested time limit", "Node count", "group not permitted",
}

// accepts asks Slurm whether it would take a job with the options of an answer, or else with another form of them,
// which then replaces them: refused is its reason if not. A Slurm that does not answer refuses nothing.
func (s *session) accepts(c *cli.Context, f *file.File, a *launcher.Answer) (refused, err error) {
	refused, err = s.acceptsForm(c, f, a)
	var no *refusal
	if !errors.As(refused, &no) || slices.ContainsFunc(slurmsOwn, func(words string) bool { return strings.Contains(no.said, words) }) {
		return refused, err
	}
	for _, form := range a.Forms() {
		b := *a
		b.Options = form
		if again, err := s.acceptsForm(c, f, &b); again == nil {
			if err == nil {
				s.note(c, "note: Slurm takes the job only in this form: %s", no.words)
			}
			a.Options = form
			return nil, err
		}
	}
	return refused, nil
}

// acceptsForm is accepts for the options as they are.
func (s *session) acceptsForm(c *cli.Context, f *file.File, a *launcher.Answer) (refused, err error) {
	_, err = testOnly(c.Context, launcher.Hostname(f, a.Launcher.Entry.Connector), a)
	var no *refusal
	switch {
	case err == nil || c.Err() != nil:
		return nil, err
	case errors.As(err, &no):
		// Of a job of several nodes of which some are reserved for others now,
		// --test-only says that it can never be; sbatch takes it, and it waits.
		if r := a.Reserved(); r != nil && a.Asked.Nodes > 1 && strings.Contains(no.words, "Requested node configuration is not available") {
			s.note(c, "note: nodes of partition %s are reserved (%s) until %s: the job may wait for them",
				strings.Join(a.Partitions, ","), r.Name, slurm.Time(r.End).Format("2006-01-02T15:04:05"))
			return nil, nil
		}
		return err, nil
	}
	if boolean(c, "verbose") {
		s.note(c, "warning: the answer could not be verified: %v", fault.Text(err))
	}
	return nil, nil
}

func (s *session) noteRefused(c *cli.Context, a *launcher.Answer, refused error) {
	var no *refusal
	if errors.As(refused, &no) {
		s.note(c, "note: Slurm refuses partition %s, by a rule that lfind does not know: %s", strings.Join(a.Partitions, ","), no.words)
	}
}
