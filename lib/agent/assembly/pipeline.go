package assembly

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/task"
)

// How many tasks ponos-stop and ponos-start work on at the same time.
const (
	StopJobs  = 8
	StartJobs = 4
)

// Pipeline is an agent in this process: ponos-poll | ponos-stop | ponos-start. When the turns end, what they have passed on is carried
// out first.
func (t Turns) Pipeline(ctx context.Context) error {
	starts, toStart := io.Pipe()
	stops, toStop := io.Pipe()
	t.Stdout = toStop
	ended := make(chan struct{}, 2)
	type action = func(context.Context, *System, task.ID) (task.Outcome, error)
	act := func(kind task.Kind, jobs int, from *io.PipeReader, to io.Writer, do action) {
		o := t.Options
		o.Every = 0
		err := Actions{Options: o, Kind: kind, Jobs: jobs, Stdin: from, Stdout: to, Do: do}.Run(context.WithoutCancel(ctx))
		_ = from.CloseWithError(errors.Join(err, io.ErrClosedPipe))
		if w, ok := to.(io.Closer); ok {
			_ = w.Close()
		}
		ended <- struct{}{} // what has failed was reported, and does not end the turns
	}
	// They begin when there are actions: until then the agent may not be the only one.
	first := make(chan struct{})
	begun := t.Begun
	t.Begun = func() {
		close(first)
		if begun != nil {
			begun()
		}
	}
	go func() {
		<-first
		go act(task.Start, StartJobs, starts, io.Discard, func(ctx context.Context, p *System, id task.ID) (task.Outcome, error) {
			return p.Agent.Start(ctx, id)
		})
		act(task.Stop, StopJobs, stops, toStart, func(ctx context.Context, p *System, id task.ID) (task.Outcome, error) {
			return p.Agent.Stop(ctx, id)
		})
	}()
	err := t.Run(ctx)
	_ = toStop.Close()
	select {
	case <-first:
		<-ended
		<-ended
	default:
	}
	return err
}

// Background is the same agent as programs, in a shell that needs no terminal: it ends when no task is left.
func Background(configFile string, every string) (string, error) {
	var parts []string
	var errs []error
	for _, args := range [][]string{{"poll", "--every", every, "--until-done"}, {"stop"}, {"start"}} {
		words, err := command.Sibling("ponos-" + args[0])
		errs = append(errs, err)
		words = append(words, args[1:]...)
		if configFile != "" {
			words = append(words, "--config", configFile)
		}
		for i := range words {
			words[i] = shell.Quote(words[i])
		}
		parts = append(parts, strings.Join(words, " "))
	}
	return strings.Join(parts, " | "), errors.Join(errs...)
}

// HandOver leaves the tasks that are left to another agent, and says which: the job of Slurm that the configuration describes, or else
// programs that go on without a terminal, and end when no task is left. "": none are left.
func HandOver(ctx context.Context, o Options, every time.Duration) (to string, err error) {
	system, err := Load(ctx, o)
	if err != nil {
		return "", err
	}
	defer func() { system.Close(err) }()
	if left, err := system.Left(); !left || err != nil {
		return "", err
	}
	if system.WantsDaemon() {
		if err := system.CheckNoDaemon(ctx); err != nil {
			return "", err
		}
		job, err := system.SubmitDaemon(ctx, every)
		return "job " + job + " of Slurm", err
	}
	line, err := Background(o.ConfigPath, every.String())
	if err != nil {
		return "", err
	}
	log := filepath.Join(system.Config.StateDir(), "daemon.log")
	return "an agent in the background", command.Detach(command.Cmd{
		Name: "/bin/sh", Args: []string{"-c", "(" + line + ") >/dev/null 2>>" + shell.Quote(log)}, Env: os.Environ(), Dir: "/",
	})
}
