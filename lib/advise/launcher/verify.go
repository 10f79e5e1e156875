package launcher

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// Refusal is what sbatch --test-only says of a job that Slurm does not take.
type Refusal struct {
	Options string // of the job
	Said    string // the reason
	Words   string // all that sbatch printed
	err     *slurm.Error
}

func (r *Refusal) Error() string { return "sbatch --test-only " + r.Options + ": " + r.Words }
func (r *Refusal) Unwrap() error { return r.err }

// TestOnly asks Slurm on a host ("": this one) when a job with these options would start. The commands of Slurm are in dir, or
// in PATH if that is "". Where Slurm does not take the job, the error has a *Refusal.
func TestOnly(ctx context.Context, run command.Runner, host, dir string, options sbatch.Options) (slurm.StartEstimate, error) {
	client := slurm.Client{Run: Runner(host, run), Dir: dir}
	var stderr bytes.Buffer
	_, err := client.Command(ctx, command.Cmd{
		Name: "sbatch", Args: append([]string{"--test-only"}, options.Args()...), Stderr: &stderr,
		Stdin: strings.NewReader("#!/bin/sh\n:\n"),
	})
	var exit *command.ExitError
	if !errors.As(err, &exit) {
		if err != nil {
			return slurm.StartEstimate{}, err
		}
		return slurm.ParseStartEstimate(stderr.String())
	}
	exit.Stderr = stderr.String()
	if failed := slurm.Refusal("sbatch", exit); failed.Failure == slurm.Refused {
		words := strings.TrimSuffix(strings.TrimSpace(strings.ReplaceAll(stderr.String(), "\n", "; ")), ";")
		err = fault.Wrap(fault.Unavailable, &Refusal{options.String(), slurm.TestRefusal(stderr.String()), words, failed})
	}
	return slurm.StartEstimate{}, err
}

// maxVerified limits how many places Slurm is asked about where it refuses the best.
const maxVerified = 8

// Verifier asks Slurm whether it takes what a search finds, by rules that the model of the cluster lacks:
//
//	taken, or Slurm does not answer in its time ──► the answer
//	refused by a plugin of the site ── next form ──► the answer in the first form that is taken
//	refused otherwise, or in all forms ────────────► the next best candidate, at most maxVerified
type Verifier struct {
	// Ask returns an error with a *Refusal if Slurm does not take a job with these options for an answer. Other errors are
	// those of a Slurm that does not answer, which refuses nothing.
	Ask func(ctx context.Context, a *Answer, options sbatch.Options) error
	// Skips, unless nil, reports whether Slurm is not asked about an answer.
	Skips func(a *Answer) bool
	// Given are options that the job has besides, which no other form replaces.
	Given sbatch.Options
	// Change, unless nil, changes the options of each candidate.
	Change func(*sbatch.Options) error
	// Note, unless nil, is called for each refusal, with a text.
	Note func(format string, args ...any)
}

// slurmsOwn are what Slurm itself says, and not a plugin of the site: another form of the job would not help.
var slurmsOwn = []string{
	"node configuration", "partition configuration", "accounting/QOS", "Required partition", "Invalid account", "Invalid qos",
	"Invalid partition", "Access/permission", "Requested time limit", "Node count", "group not permitted",
}

// Verified returns the answer of a search if Slurm takes it or does not answer, and else the next best for which this holds.
// The error has the *Refusal of the best if Slurm takes none.
func (v Verifier) Verified(ctx context.Context, s *Search, r request.Request, answer *Answer) (*Answer, error) {
	asking, _, cancel := slurm.Question(ctx, slurm.Patience())
	defer cancel()
	first := v.Accepts(asking, answer)
	if !v.refused(first) {
		return answer, ctx.Err()
	}
	tried := []string{answer.Options.String()}
	others, err := s.All(ctx, r, MaxCompared)
	if err != nil {
		return nil, err
	}
	for _, other := range others {
		if v.Change != nil {
			if err := v.Change(&other.Options); err != nil {
				return nil, err
			}
		}
		line := other.Options.String()
		if slices.Contains(tried, line) {
			continue
		}
		if len(tried) == maxVerified {
			break
		}
		tried = append(tried, line)
		if !v.refused(v.Accepts(asking, other)) {
			return other, ctx.Err()
		}
	}
	return nil, fault.Wrap(fault.Unavailable, first)
}

// MaxCompared limits the candidates that are compared for one request.
const MaxCompared = 64

// Accepts asks about an answer, and then about its other forms, of which the first that Slurm takes replaces its options. It
// returns nil if Slurm takes the job, or is not asked; a *Refusal; or why Slurm does not answer.
func (v Verifier) Accepts(ctx context.Context, a *Answer) error {
	if v.Skips != nil && v.Skips(a) {
		return nil
	}
	asking, _, cancel := slurm.Question(ctx, slurm.Patience())
	defer cancel()
	err := v.ask(asking, a, a.Options)
	var no *Refusal
	if !errors.As(err, &no) {
		return err
	}
	if !slices.ContainsFunc(slurmsOwn, func(words string) bool { return strings.Contains(no.Words, words) }) {
		for _, form := range a.Forms(v.Given) {
			if v.ask(asking, a, form) == nil {
				v.note("Slurm takes the job only in this form: %s", no.Said)
				a.Options = form
				return nil
			}
		}
	}
	v.note("Slurm refuses partition %s, by a rule that lfind does not know: %s", strings.Join(a.Partitions, ","), no.Said)
	return no
}

// refused reports whether Slurm refuses a job, by what Accepts returned. A job about which Slurm does not answer may be taken.
func (v Verifier) refused(err error) bool {
	if errors.As(err, new(*Refusal)) {
		return true
	}
	v.Unverified(err)
	return false
}

// Unverified notes, unless err is nil, that an answer is used although Slurm did not say that it takes it.
func (v Verifier) Unverified(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		v.note("whether Slurm takes the job was not checked: %s", fault.Text(err))
	}
}

// ask returns nil if Slurm takes an answer with these options; a *Refusal; or why it does not answer.
func (v Verifier) ask(ctx context.Context, a *Answer, options sbatch.Options) error {
	err := v.Ask(ctx, a, options)
	var no *Refusal
	if !errors.As(err, &no) {
		return err
	}
	// Of a job of several nodes of which some are reserved for others now, --test-only says that it can never be; sbatch
	// takes it, and it waits.
	if r := a.Reserved(); r != nil && a.Asked.Nodes > 1 && strings.Contains(no.Words, "Requested node configuration is not available") {
		v.note("nodes of partition %s are reserved (%s) until %s: the job may wait for them",
			strings.Join(a.Partitions, ","), r.Name, slurm.Time(r.End).Format("2006-01-02T15:04:05"))
		return nil
	}
	return no
}

func (v Verifier) note(format string, args ...any) {
	if v.Note != nil {
		v.Note(format, args...)
	}
}
