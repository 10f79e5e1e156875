package launcher

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Search is the launchers to search and the conditions of the search.
type Search struct {
	Launchers []*Launcher // in the order of New
	Tags      []string    // only launchers with one of these; empty: all
	Kind      file.Kind   // only launchers of this kind; "": all
	// AllowUnknown: if nothing else matches, use nodes of which it is unknown whether their
	// GPUs match.
	AllowUnknown bool
	Any          bool      // join scarce and exclusive partitions with others
	Now          time.Time // for deadlines
	// Ask queries Slurm for a launcher with query_slurm. It is called at most once for each,
	// when the search reaches it.
	Ask func(context.Context, *Launcher) (*cluster.Snapshot, error)

	asked map[*request.Alternative]*asked // by the alternative of the request
}

// asked is an alternative with Cores and Memory derived from the numbers per GPU, and what was found to be against it where
// nothing matches: Nothing and Explain need not look again.
type asked struct {
	request.Alternative
	refused map[*Launcher][]*candidate
}

// resolve returns what is asked with an alternative.
func (s *Search) resolve(a *request.Alternative) *asked {
	if s.asked[a] == nil {
		if s.asked == nil {
			s.asked = map[*request.Alternative]*asked{}
		}
		s.asked[a] = &asked{Alternative: a.Resolved(), refused: map[*Launcher][]*candidate{}}
	}
	return s.asked[a]
}

// candidates are those of a Slurm launcher; see Launcher.candidates.
func (s *Search) candidates(l *Launcher, a *asked) (matching, all []*candidate) {
	if all := a.refused[l]; all != nil {
		return nil, all
	}
	if matching, all = l.candidates(&a.Alternative); len(matching) == 0 {
		a.refused[l] = all
	}
	return matching, all
}

// skips returns why a launcher is not searched at all, or nil.
func (s *Search) skips(l *Launcher) *Reason {
	switch {
	case l.Entry.Disabled:
		return &Reason{Code: "disabled", format: "the launcher is disabled in the file"}
	case s.Kind != "" && l.Entry.Kind != s.Kind:
		return &Reason{Code: "kind", format: "only launchers of kind %s are allowed", args: []any{s.Kind}}
	case len(s.Tags) > 0 && !slices.ContainsFunc(l.Entry.Tags, func(t string) bool { return slices.Contains(s.Tags, t) }):
		return &Reason{Code: "tags", format: "it has none of the requested tags"}
	}
	return nil
}

// ask queries Slurm, once, for a launcher that needs it.
func (s *Search) ask(ctx context.Context, l *Launcher) error {
	if l.asked || l.Entry.Kind != file.Slurm {
		return l.err
	}
	l.asked = true
	snapshot, err := s.Ask(ctx, l)
	if err == nil {
		l.addSlurm(snapshot)
		return nil
	}
	l.err = err
	return err
}

// unreachable returns the error of a search that ends because Slurm does not answer.
func (l *Launcher) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	err = fault.Wrap(fault.Unavailable, fmt.Errorf("launcher %q: %w", l.Name, err))
	if l.Entry.Cluster != "" {
		return fault.Hint(err, `"sacctmgr show clusters" lists the clusters`)
	}
	return err
}

// passes reports whether the search goes on where Slurm does not answer: another of the clusters that were named may
// match. The answer notes it; without an answer, it is the error.
func (l *Launcher) passes(ctx context.Context) bool { return l.Entry.Cluster != "" && ctx.Err() == nil }

// passed notes in an answer the clusters that do not answer.
func (s *Search) passed(answer *Answer) {
	for _, l := range s.Launchers {
		if l.err != nil && l != answer.Launcher {
			answer.Notes = append(answer.Notes, fmt.Sprintf("cluster %s could not be asked: %s", l.Name, fault.Text(l.err)))
		}
	}
}

// Find returns the best answer, or nil if nothing matches. The alternatives of the request are
// tried in turn, each with all launchers.
func (s *Search) Find(ctx context.Context, r request.Request) (*Answer, error) {
	var missed error
	for i := range r.Alternatives {
		a := s.resolve(&r.Alternatives[i])
		for _, l := range s.Launchers {
			if s.skips(l) != nil {
				continue
			}
			if err := s.ask(ctx, l); err != nil {
				if missed = l.unreachable(ctx, err); l.passes(ctx) {
					continue
				}
				return nil, missed
			}
			if answer := s.find(l, a); answer != nil {
				answer.Alternative = i
				s.passed(answer)
				return answer, nil
			}
		}
	}
	return nil, missed
}

func (s *Search) find(l *Launcher, a *asked) *Answer {
	l.setup(s)
	if l.Entry.Kind == file.Local {
		if no, maybe := l.refuses(&a.Alternative); len(no) > 0 || maybe && !l.allowUnknown {
			return nil
		}
		return l.local(&a.Alternative)
	}
	matching, _ := s.candidates(l, a)
	return l.build(&a.Alternative, matching)
}

// setup takes over what the search accepts.
func (l *Launcher) setup(s *Search) {
	l.allowUnknown, l.now, l.joined = s.AllowUnknown, s.Now, 0
	if s.Any {
		l.joined = classJoined
	}
}

// local returns the answer for a local launcher, with the options that follow from the request
// alone.
func (l *Launcher) local(a *request.Alternative) *Answer {
	answer := &Answer{Launcher: l, Asked: *a}
	if matchNode(&l.machine.figures, a, unreported) == gpu.Unknown {
		answer.Unknown = []string{fmt.Sprintf("launcher %s: %s", l.Name, unknownGPU(l.machine.gpus, a.GPUs))}
	}
	l.common(&answer.Options, a, a.Cores, l.deadline(a))
	return answer
}

// refuses returns the reasons why a local launcher does not match. If there are none, unknown
// reports whether that depends on unknown properties of its GPUs.
func (l *Launcher) refuses(a *request.Alternative) (all []Reason, unknown bool) {
	why := func(code, format string, args ...any) {
		all = append(all, because(code, format, args...))
	}
	unknown = matchNode(&l.machine.figures, a, why) == gpu.Unknown
	known := len(all)
	if a.Nodes > 1 {
		why("nodes", "%d nodes requested, this is one machine", a.Nodes)
	}
	for _, c := range a.Where {
		if !c.Not {
			why("condition", "%s is requested, and it has none", c.Field)
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

// All returns at most limit answers in the order of preference: one for each partition, QoS and
// account, of every alternative and launcher, with which the job could be submitted.
func (s *Search) All(ctx context.Context, r request.Request, limit int) ([]*Answer, error) {
	var all []*Answer
	var missed error
	for i := range r.Alternatives {
		a := s.resolve(&r.Alternatives[i])
		for _, l := range s.Launchers {
			if s.skips(l) != nil {
				continue
			}
			if err := s.ask(ctx, l); err != nil {
				if missed = l.unreachable(ctx, err); l.passes(ctx) {
					continue
				}
				return nil, missed
			}
			for _, answer := range s.findAll(l, a, limit-len(all)) {
				answer.Alternative = i
				s.passed(answer)
				all = append(all, answer)
			}
			if len(all) >= limit {
				return all, nil
			}
		}
	}
	if len(all) == 0 {
		return nil, missed
	}
	return all, nil
}

// findAll returns an answer for each matching partition, QoS and account of a launcher.
func (s *Search) findAll(l *Launcher, a *asked, limit int) []*Answer {
	l.setup(s)
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
	matching, _ := s.candidates(l, a)
	for _, c := range matching {
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
		if answer := l.build(&a.Alternative, by[at]); answer != nil {
			all = append(all, answer)
		}
	}
	return all
}
