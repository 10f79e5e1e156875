package main

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

	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/launcher"
	"github.com/ponos-tools/ponos/lib/launcher/file"
	"github.com/ponos-tools/ponos/lib/launcher/request"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/unit"
)

// maxAsked bounds how many submissions are tried for one request, and sideBySide
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
}

func (e *estimate) wait() time.Duration { return e.at.Sub(e.now) }

func (e *estimate) String() string {
	when := "now"
	if w := e.wait().Round(time.Second); w > time.Second {
		when = fmt.Sprintf("in %s, at %s,", unit.FormatDuration(w), e.at.Format("2006-01-02T15:04:05"))
	}
	if e.partition == "" {
		return "would start " + when + " on this machine"
	}
	return fmt.Sprintf("would start %s on %s in partition %s", when, e.nodes, e.partition)
}

// soonest returns the launcher that would start the job first; of several that
// would at the same time, the one that the search prefers.
func (s *session) soonest(c *cli.Context, f *file.File, search *launcher.Search, r request.Request) (*launcher.Answer, *estimate, error) {
	answers, err := search.All(c.Context, r, maxAsked)
	if err != nil || len(answers) == 0 {
		return nil, nil, err
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
			return nil, nil, err
		}
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			outcomes[i].start, outcomes[i].err = testOnly(c.Context, launcher.Hostname(f, a.Launcher.Entry.Connector), a)
		})
	}
	wait.Wait()
	best := -1
	var refused error
	for i, o := range outcomes {
		switch {
		case o.err != nil:
			if refused == nil || slurm.Unreachable(o.err) {
				refused = o.err
			}
		case best < 0 || o.start.at.Before(outcomes[best].start.at.Add(-time.Second)):
			best = i
		}
	}
	if best < 0 {
		return nil, nil, refused
	}
	return answers[best], outcomes[best].start, nil
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
			words := strings.TrimSpace(strings.ReplaceAll(stderr.String(), "\n", "; "))
			err = fault.Wrap(fault.Unavailable, &refusal{strings.Join(a.Options.Args(), " "), strings.TrimSuffix(words, ";"), slurm.TestRefusal(stderr.String())})
		}
		return nil, err
	}
	start, err := slurm.ParseStartEstimate(stderr.String())
	if err != nil {
		return nil, err
	}
	return &estimate{start.Start, now, start.Nodes, start.Partition}, nil
}

// refusal is what sbatch --test-only says of a job that Slurm does not take.
type refusal struct{ options, said, words string }

func (r *refusal) Error() string { return "sbatch --test-only " + r.options + ": " + r.said }

// program is the path of one of Slurm's commands for an answer.
func program(a *launcher.Answer, name string) string {
	if dir := a.Launcher.Entry.Path; dir != "" {
		return path.Join(dir, name)
	}
	return name
}
