package launcher

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/gpu"
	"github.com/ponos-tools/ponos/lib/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/launcher/file"
	"github.com/ponos-tools/ponos/lib/launcher/request"
)

// Search is what is searched, and how.
type Search struct {
	Launchers []*Launcher // as New orders them
	Tags      []string    // only launchers that have one of these; none: all
	Kind      file.Kind   // only launchers of this kind; "": all
	// AllowUnknown: nodes of which it is not known whether their GPUs are those asked
	// for are taken where no others match.
	AllowUnknown bool
	Now          time.Time // for deadlines
	// Ask queries Slurm, for launchers with query_slurm. It is called once
	// for each, when the search comes to it.
	Ask func(context.Context, *file.Entry) (*cluster.Snapshot, error)
}

// skips is why a launcher is not searched at all, or nil.
func (s *Search) skips(l *Launcher) *Reason {
	switch {
	case l.Entry.Disabled:
		return &Reason{"disabled", "the launcher is disabled in the file"}
	case s.Kind != "" && l.Entry.Kind != s.Kind:
		return &Reason{"kind", fmt.Sprintf("only launchers of kind %s are allowed", s.Kind)}
	case len(s.Tags) > 0 && !slices.ContainsFunc(l.Entry.Tags, func(t string) bool { return slices.Contains(s.Tags, t) }):
		return &Reason{"tags", "it has none of the requested tags"}
	}
	return nil
}

// ask lets Slurm complete a launcher that wants it.
func (s *Search) ask(ctx context.Context, l *Launcher) error {
	if l.asked || l.Entry.Kind != file.Slurm {
		return l.err
	}
	l.asked = true
	snapshot, err := s.Ask(ctx, l.Entry)
	if err == nil {
		l.addSlurm(snapshot)
		return nil
	}
	l.err = err
	return err
}

// unreachable is the error of a search that Slurm's silence ends.
func (l *Launcher) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return fault.Wrap(fault.Unavailable, fmt.Errorf("launcher %q: %w", l.Name, err))
}

// Find returns the best answer, or nil if there is none. The request's
// alternatives are tried in turn, each with all launchers.
func (s *Search) Find(ctx context.Context, r request.Request) (*Answer, error) {
	for i := range r.Alternatives {
		a := resolved(&r.Alternatives[i])
		for _, l := range s.Launchers {
			if s.skips(l) != nil {
				continue
			}
			if err := s.ask(ctx, l); err != nil {
				return nil, l.unreachable(ctx, err)
			}
			if answer := s.find(l, a); answer != nil {
				answer.Alternative = i
				return answer, nil
			}
		}
	}
	return nil, nil
}

// resolved is an alternative with the numbers per GPU worked out.
func resolved(a *request.Alternative) *request.Alternative {
	r := a.Resolved()
	return &r
}

func (s *Search) find(l *Launcher, a *request.Alternative) *Answer {
	l.allowUnknown, l.now = s.AllowUnknown, s.Now
	if l.Entry.Kind == file.Local {
		if no, maybe := l.refuses(a); len(no) > 0 || maybe && !l.allowUnknown {
			return nil
		}
		return l.local(a)
	}
	return l.build(a, l.candidates(a, nil))
}

// local is the answer of a local launcher. Its options are those that a job would
// need anywhere.
func (l *Launcher) local(a *request.Alternative) *Answer {
	answer := &Answer{Launcher: l, Asked: *a}
	if matchNode(&l.machine.figures, a, nil) == gpu.Unknown {
		answer.Unknown = []string{fmt.Sprintf("launcher %s: %s", l.Name, unknownGPU(l.machine.gpus, a.GPUs))}
	}
	l.common(&answer.Options, a, a.Cores, l.deadline(a))
	return answer
}

// refuses is why a local launcher does not match, and whether it may match, but what
// its GPUs are is not known; then that is the only reason.
func (l *Launcher) refuses(a *request.Alternative) (all []Reason, unknown bool) {
	why := func(code, format string, args ...any) {
		all = append(all, Reason{code, fmt.Sprintf(format, args...)})
	}
	unknown = matchNode(&l.machine.figures, a, why) == gpu.Unknown
	known := len(all)
	if a.Nodes > 1 {
		why("nodes", "%d nodes requested, this is one machine", a.Nodes)
	}
	for _, c := range a.Where {
		if !c.Not {
			why("condition", "a %s is requested, and it has none", c.Field)
		}
	}
	for _, x := range a.GRES {
		why("gres", "gres %s is requested, and it has none", x.Name)
	}
	for _, x := range a.Licenses {
		why("license", "license %s is requested, and it has none", x.Name)
	}
	if l.misses(a, a.Duration) {
		why("deadline", "it cannot end by the deadline")
	}
	if unknown && len(all) == known {
		l.unknown++
		return nil, true
	}
	return all, false
}

// All returns every answer there is: for each alternative and launcher each
// partition, QoS and account with which the job could be submitted, at most limit
// of them, in the order in which Find prefers them.
func (s *Search) All(ctx context.Context, r request.Request, limit int) ([]*Answer, error) {
	var all []*Answer
	for i := range r.Alternatives {
		a := resolved(&r.Alternatives[i])
		for _, l := range s.Launchers {
			if s.skips(l) != nil {
				continue
			}
			if err := s.ask(ctx, l); err != nil {
				return nil, l.unreachable(ctx, err)
			}
			for _, answer := range s.findAll(l, a, limit-len(all)) {
				answer.Alternative = i
				all = append(all, answer)
			}
			if len(all) >= limit {
				return all, nil
			}
		}
	}
	return all, nil
}

// findAll returns an answer for each partition, QoS and account that matches.
func (s *Search) findAll(l *Launcher, a *request.Alternative, limit int) []*Answer {
	l.allowUnknown, l.now = s.AllowUnknown, s.Now
	if l.Entry.Kind == file.Local {
		if answer := s.find(l, a); answer != nil {
			return []*Answer{answer}
		}
		return nil
	}
	type place struct {
		partition    *partition
		qos, account string
	}
	var places []place
	by := map[place][]*candidate{}
	for _, c := range l.candidates(a, nil) {
		at := place{c.group.partition, c.choice.qos, c.choice.account}
		if by[at] == nil {
			places = append(places, at)
		}
		by[at] = append(by[at], c)
	}
	var all []*Answer
	for _, at := range places {
		if len(all) >= limit {
			break
		}
		if answer := l.build(a, by[at]); answer != nil {
			all = append(all, answer)
		}
	}
	return all
}
