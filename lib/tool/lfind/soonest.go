package lfind

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// sideBySide limits how many submissions are tried at once: each is work for Slurm's controller.
const sideBySide = 4

// estimate is when a job would start.
type estimate struct {
	at        time.Time
	now       time.Time
	nodes     string
	partition string
	by        string // how that is known: one of the methods
}

// The methods by which a start is known: a plan with run times that were learned, one with
// time limits, and what Slurm says.
const (
	byLearned  = "learned"
	byLimits   = "limits"
	byTestOnly = "test-only"
)

func (e *estimate) wait() time.Duration { return e.at.Sub(e.now) }

func (e *estimate) String() string {
	if e.partition == "" {
		return "would start now on this machine"
	}
	when, how := "now", ""
	// What was learned is of jobs that have to wait: they do not start now, however soon.
	if w := max(e.wait().Round(time.Second), time.Second); w > time.Second || e.by == byLearned {
		when = fmt.Sprintf("in %s, at %s,", unit.FormatDuration(w), e.at.Format("2006-01-02T15:04:05"))
		how = map[string]string{
			byLearned: ", as jobs run here", byLimits: ", if jobs run to their time limits",
			byTestOnly: ", according to sbatch --test-only",
		}[e.by]
	}
	where := "in partition " + e.partition
	if e.nodes != "" {
		where = "on " + e.nodes + " " + where
	}
	return "would start " + when + " " + where + how
}

// forecaster plans jobs on the cluster of a launcher.
type forecaster struct {
	ask     *planner.Asker
	plan    planner.Planner
	history *forecast.History // nil: it was not needed yet
	user    string
	err     error // why it cannot
}

// newForecaster asks a cluster for what a plan needs.
func newForecaster(ctx context.Context, run command.Runner, host, dir, cluster string) *forecaster {
	f := &forecaster{ask: planner.New()}
	f.ask.Client = slurm.Client{Run: launcher.Runner(host, run), Dir: dir, Odd: f.ask.Doubts.Add}
	if cluster != "" {
		f.err = errors.New("plans are made of the cluster of this host only")
		return f
	}
	if host != "" {
		f.err = errors.New("the cluster is on another host, where the user may have another name")
		return f
	}
	if f.user, f.err = nss.Me(); f.err != nil {
		return f
	}
	if f.err = f.plan.LoadToReplay(ctx, f.ask); len(f.plan.Jobs) == 0 {
		f.plan.Shares = []slurm.Share{} // a job competes with nobody
	}
	return f
}

// place plans a job in a partition. What was learned of past jobs is asked for when a job has to wait: without
// accounting nothing is.
func (f *forecaster) place(ctx context.Context, a *launcher.Answer, p *slurm.Partition) (planner.Place, error) {
	known := f.history
	if known == nil {
		known = &forecast.History{}
	}
	place, err := f.plan.Place(ctx, f.ask, f.user, a.Options, p, a.QOS, known)
	if err != nil || f.history != nil || place.Start > 0 && place.Start <= f.plan.Now.Unix() || place.Never != "" {
		return place, err
	}
	runs, _, err := f.ask.Ended(ctx)
	if err != nil {
		return place, err
	}
	f.history = forecast.NewHistory(runs)
	return f.plan.Place(ctx, f.ask, f.user, a.Options, p, a.QOS, f.history)
}

// start is the planner's forecast for an answer; nil: nothing is known. Never is why the job would wait for ever; down,
// that a partition starts no jobs, which --test-only leaves out.
func (f *forecaster) start(ctx context.Context, a *launcher.Answer) (e *estimate, never string, down bool, err error) {
	if f.err != nil {
		return nil, "", false, nil
	}
	may := false // it may start in a partition, or that is not known
	for i := range f.plan.Partitions {
		p := &f.plan.Partitions[i]
		if !slices.Contains(a.Partitions, p.Name) && (len(a.Partitions) > 0 || !p.Default) {
			continue
		}
		place, err := f.place(ctx, a, p)
		if err != nil {
			return nil, "", false, err
		}
		down = down || place.Down
		if place.Never != "" {
			never = place.Never
		}
		may = may || place.Never == ""
		if best := place.Soonest(); best < forecast.Forever && (e == nil || best < e.at.Unix()) {
			e = &estimate{time.Unix(best, 0), f.plan.Now, place.Nodes, p.Name, byLimits}
			if place.Expected > 0 {
				e.nodes, e.by = "", byLearned
			}
		}
	}
	if may {
		never = ""
	}
	return e, never, down, nil
}

// before reports that e is sooner than the other, by more than a second. What jobs did before is
// a guess, so a start that is planned wins against one that is only expected at the same time.
func (e *estimate) before(other *estimate) bool {
	if other.by == byLearned && e.by != byLearned {
		return !e.at.After(other.at)
	}
	return e.at.Before(other.at.Add(-time.Second))
}

// soonest returns the launcher that would start the job first. If a partition starts no jobs, what is known
// of the cluster is out of date: launchers for which that one was preferred are not among the answers.
func (s *session) soonest(c *cli.Context, f *file.File, search *launcher.Search, r request.Request) (*launcher.Answer, *estimate, error) {
	answer, start, down, err := s.first(c, f, search, r)
	if !down || boolean(c, "refresh") {
		return answer, start, err
	}
	if f, search, err = s.loadFrom(c, true); err != nil {
		return nil, nil, err
	}
	answer, start, _, err = s.first(c, f, search, r)
	return answer, start, err
}

// first returns the launcher that would start the job first; of several that would at the same time, the
// one that the search prefers. Down: a partition that matches starts no jobs.
func (s *session) first(
	c *cli.Context, f *file.File, search *launcher.Search, r request.Request,
) (answer *launcher.Answer, start *estimate, down bool, err error) {
	answers, err := search.All(c.Context, r, launcher.MaxCompared)
	if err != nil || len(answers) == 0 {
		return nil, nil, false, err
	}
	if len(answers) == launcher.MaxCompared {
		s.note(c, "note: only the first %d launchers, partitions and QoS that match are compared", launcher.MaxCompared)
	}
	type outcome struct {
		start   *estimate
		err     error
		asked   bool  // Slurm has accepted it, unless it does not answer
		silence error // how it does not answer, about what is planned
	}
	outcomes := make([]outcome, len(answers))
	clusters := map[[3]string]*forecaster{}
	for i, a := range answers {
		if err := override(c, &a.Options); err != nil {
			return nil, nil, false, err
		}
		if a.Local() {
			now := clock.Now()
			outcomes[i] = outcome{start: &estimate{at: now, now: now}, asked: true}
			continue
		}
		name, _ := a.Options.Get("clusters")
		at := [3]string{launcher.Hostname(f, a.Launcher.Entry.Connector), a.Launcher.Entry.Path, name}
		if clusters[at] == nil {
			clusters[at] = newForecaster(c.Context, s.slurm, at[0], at[1], name)
			if err := clusters[at].err; err != nil && (boolean(c, "verbose") || errors.As(err, new(*command.TimeoutError))) {
				s.note(c, "warning: starts are those of sbatch --test-only: %v", fault.Text(err))
			}
			for _, doubt := range clusters[at].ask.Doubts.Warnings() {
				s.note(c, "warning: %s", doubt)
			}
		}
		start, never, shut, err := clusters[at].start(c.Context, a)
		if err != nil {
			return nil, nil, false, err
		}
		down = down || shut
		if outcomes[i].start = start; never != "" {
			outcomes[i].err = fault.Errorf(fault.Failed, "partition %s: %s", strings.Join(a.Partitions, ","), never)
		}
	}
	// Slurm says whether it takes the job, the planner when it starts: --test-only leaves out backfill, and that
	// jobs end before their limits. Where there is no plan, it says both.
	asking, _, cancel := slurm.Question(c.Context, slurm.Patience())
	defer cancel()
	ask := func(i int) {
		o := &outcomes[i]
		var start *estimate
		v := launcher.Verifier{Ask: func(ctx context.Context, a *launcher.Answer, options sbatch.Options) (err error) {
			start, err = s.testOnly(ctx, f, a, options)
			return err
		}}
		err := v.Accepts(asking, answers[i])
		o.asked = true
		switch {
		case errors.As(err, new(*launcher.Refusal)):
			o.err = fault.Wrap(fault.Unavailable, err)
		case o.start == nil:
			o.start, o.err = start, err
		default:
			o.silence = err
		}
	}
	slots := make(chan struct{}, sideBySide)
	var wait sync.WaitGroup
	for i := range outcomes {
		if outcomes[i].start == nil && outcomes[i].err == nil {
			wait.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				ask(i)
			})
		}
	}
	wait.Wait()
	for {
		best := -1
		var refused error
		for i, o := range outcomes {
			switch {
			case o.err != nil:
				down = down || closed(o.err)
				if refused == nil || slurm.Unreachable(o.err) {
					refused = o.err
				}
			case best < 0 || o.start.before(outcomes[best].start):
				best = i
			}
		}
		switch {
		case c.Err() != nil:
			return nil, nil, down, c.Err()
		case best < 0:
			return nil, nil, down, refused
		case outcomes[best].asked:
			s.verifier(c, f).Unverified(outcomes[best].silence)
			return answers[best], outcomes[best].start, down, nil
		}
		ask(best)
	}
}

// program is the path of one of Slurm's commands for an answer.
func program(a *launcher.Answer, name string) string {
	if dir := a.Launcher.Entry.Path; dir != "" {
		return path.Join(dir, name)
	}
	return name
}
