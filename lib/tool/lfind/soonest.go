package lfind

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
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
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// maxAsked limits how many submissions are tried for one request, and sideBySide
// how many of them at once: each is work for Slurm's controller.
const (
	maxAsked   = 64
	sideBySide = 4
)

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
	history *forecast.History
	user    string
	err     error // why it cannot
}

// newForecaster asks a cluster for what a plan needs. Without accounting nothing is
// learned.
func newForecaster(ctx context.Context, host, dir, cluster string) *forecaster {
	f := &forecaster{ask: planner.New()}
	f.ask.Client = slurm.Client{Run: launcher.Runner(host, command.System), Dir: dir, Odd: f.ask.Doubts.Add}
	var runs []forecast.Past
	if cluster != "" {
		f.err = errors.New("plans are made of the cluster of this host only")
		return f
	}
	if host != "" {
		f.err = errors.New("the cluster is on another host, where the user may have another name")
		return f
	}
	if f.user, f.err = planner.Me(); f.err != nil {
		return f
	}
	load := func(ctx context.Context) error { return f.plan.LoadToReplay(ctx, f.ask) }
	f.err = planner.Together(ctx, load, func(ctx context.Context) (err error) {
		runs, _, err = f.ask.Ended(ctx)
		return err
	})
	f.history = forecast.NewHistory(runs)
	return f
}

// start replaces what sbatch --test-only says by the planner's own forecast. Never is why
// the job would wait for ever; down, that a partition starts no jobs, which --test-only leaves out.
func (f *forecaster) start(ctx context.Context, a *launcher.Answer, e *estimate) (never string, down bool, err error) {
	if f.err != nil {
		return "", false, nil
	}
	partitions := a.Partitions
	if len(partitions) == 0 {
		partitions = []string{e.partition}
	}
	best := int64(forecast.Forever)
	for _, name := range partitions {
		p := f.plan.Partition(name)
		if p == nil {
			continue
		}
		place, err := f.plan.Place(ctx, f.ask, f.user, a.Options, p, a.QOS, f.history)
		if err != nil {
			return "", false, err
		}
		down = down || place.Down
		if never = place.Never; place.Soonest() < best {
			best = place.Soonest()
			e.at, e.now, e.nodes, e.partition, e.by = time.Unix(best, 0), f.plan.Now, place.Nodes, name, byLimits
			if place.Expected > 0 {
				e.nodes, e.by = "", byLearned
			}
		}
	}
	if best < forecast.Forever {
		never = ""
	}
	return never, down, nil
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
	answers, err := search.All(c.Context, r, maxAsked)
	if err != nil || len(answers) == 0 {
		return nil, nil, false, err
	}
	if len(answers) == maxAsked {
		s.note(c, "note: only the first %d launchers, partitions and QoS that match are compared", maxAsked)
	}
	type outcome struct {
		start *estimate
		err   error
	}
	outcomes := make([]outcome, len(answers))
	slots := make(chan struct{}, sideBySide)
	var wait sync.WaitGroup
	for i, a := range answers {
		if err := override(c, &a.Options); err != nil {
			return nil, nil, false, err
		}
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			outcomes[i].start, outcomes[i].err = testOnly(c.Context, launcher.Hostname(f, a.Launcher.Entry.Connector), a)
		})
	}
	wait.Wait()
	// Slurm says whether it takes the job, the planner when it starts: --test-only leaves out
	// backfill, and that jobs end before their limits.
	clusters := map[[3]string]*forecaster{}
	for i, a := range answers {
		if outcomes[i].err != nil || a.Local() {
			down = down || closed(outcomes[i].err)
			continue
		}
		name, _ := a.Options.Get("clusters")
		at := [3]string{launcher.Hostname(f, a.Launcher.Entry.Connector), a.Launcher.Entry.Path, name}
		if clusters[at] == nil {
			if clusters[at] = newForecaster(c.Context, at[0], at[1], name); clusters[at].err != nil && boolean(c, "verbose") {
				s.note(c, "warning: starts are those of sbatch --test-only: %v", clusters[at].err)
			}
			for _, doubt := range clusters[at].ask.Doubts.Warnings() {
				s.note(c, "warning: %s", doubt)
			}
		}
		never, shut, err := clusters[at].start(c.Context, a, outcomes[i].start)
		if err != nil {
			return nil, nil, false, err
		}
		down = down || shut
		if never != "" {
			outcomes[i].err = fault.Errorf(fault.Failed, "partition %s: %s", strings.Join(a.Partitions, ","), never)
		}
	}
	best := -1
	var refused error
	for i, o := range outcomes {
		switch {
		case o.err != nil:
			if refused == nil || slurm.Unreachable(o.err) {
				refused = o.err
			}
		case best < 0 || o.start.before(outcomes[best].start):
			best = i
		}
	}
	if best < 0 {
		return nil, nil, down, refused
	}
	return answers[best], outcomes[best].start, down, nil
}

// testOnly asks when a job with the options of an answer would start.
func testOnly(ctx context.Context, host string, a *launcher.Answer) (*estimate, error) {
	now := clock.Now()
	if a.Local() {
		return &estimate{at: now, now: now}, nil
	}
	args := append([]string{"--test-only"}, a.Options.Args()...)
	client := slurm.Client{Run: launcher.Runner(host, command.System), Dir: a.Launcher.Entry.Path}
	var stderr bytes.Buffer
	_, err := client.Command(ctx, command.Cmd{
		Name: "sbatch", Args: args, Stderr: &stderr,
		Stdin: strings.NewReader("#!/bin/sh\n:\n"),
	})
	if err != nil {
		var exit *command.ExitError
		if errors.As(err, &exit) {
			exit.Stderr = stderr.String()
			if slurm.Unreachable(&slurm.Error{Command: "sbatch", Exit: exit}) {
				return nil, err
			}
			words := strings.TrimSuffix(strings.TrimSpace(strings.ReplaceAll(stderr.String(), "\n", "; ")), ";")
			err = fault.Wrap(fault.Unavailable, &refusal{a.Options.String(), words, slurm.TestRefusal(stderr.String())})
		}
		return nil, err
	}
	start, err := slurm.ParseStartEstimate(stderr.String())
	if err != nil {
		return nil, err
	}
	return &estimate{start.Start, now, start.Nodes, start.Partition, byTestOnly}, nil
}

// refusal is what sbatch --test-only says of a job that Slurm does not take.
type refusal struct{ options, said, words string }

// closed reports whether Slurm refuses a job as the partition takes none, which the search would have left out
// had it known.
func closed(err error) bool {
	var r *refusal
	return errors.As(err, &r) && strings.Contains(r.said, "Required partition not available")
}

func (r *refusal) Error() string { return "sbatch --test-only " + r.options + ": " + r.said }

// program is the path of one of Slurm's commands for an answer.
func program(a *launcher.Answer, name string) string {
	if dir := a.Launcher.Entry.Path; dir != "" {
		return path.Join(dir, name)
	}
	return name
}
