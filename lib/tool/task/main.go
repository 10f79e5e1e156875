// Package task is the tool ponos-task, which is for job scripts and for Slurm's prolog and epilog: it
// tells a script about its task and its run, notes how a task is, and saves the
// work of a job that has to give way.
package task

import (
	"context"
	"io"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
)

const name = "ponos-task"

// Usage is what the tool does, in a line.
const Usage = "helper for job scripts, prologs and epilogs"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int {
	// Slurm's signals must not end the process before anybody looks at them.
	early := make(chan os.Signal, 8)
	signal.Notify(early, slices.Collect(maps.Values(signalNames))...)
	return app.Main(func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
		return run(ctx, args, stdin, stdout, stderr, early)
	})
}

// tool is one run of ponos-task.
type tool struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	getenv         func(string) string
	slurm          *slurm.Client
	signals        <-chan os.Signal
	now            func() time.Time
	save, work     []string      // the commands of checkpoint
	timeout        time.Duration // of the first
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, signals <-chan os.Signal) int {
	t := &tool{
		stdin: stdin, stdout: stdout, stderr: stderr, getenv: os.Getenv, now: clock.Now,
		slurm: &slurm.Client{Soon: true}, signals: signals,
	}
	if i := slices.Index(args, "--"); i > 1 {
		switch args[1] {
		case "checkpoint":
			t.save, args = args[i+1:], args[:i]
			if i := slices.Index(t.save, "--"); i >= 0 {
				t.save, t.work = t.save[:i], t.save[i+1:]
			}
		case "run":
			t.work, args = args[i+1:], args[:i]
		}
	}
	return t.app().Run(ctx, args, stdin, stdout, stderr)
}

func (t *tool) app() app.Tool {
	return app.Tool{
		Name:  name,
		Usage: Usage,
		Description: "For job scripts, and for Slurm's prolog and epilog. Tells a job its task and\n" +
			"why it runs, writes notes, and saves and resumes preempted work.",
		Examples: `eval "$(ponos-task env)"
ponos-task note running "on $SLURMD_NODENAME"
exec ponos-task run --until-done --save 'cp a b' -- ./train --resume`,
		Commands: []*cli.Command{
			{
				Name: "env", Usage: "print the task and facts about the job as variables, for eval",
				Flags:  []cli.Flag{app.VerboseFlag()},
				Action: t.env,
			},
			{
				Name: "note", Usage: "append a line about the task to a file", ArgsUsage: "STATE [REASON...]",
				Flags: []cli.Flag{
					&cli.StringFlag{
						Name: "file", Aliases: []string{"f"},
						Usage: "append to `FILE` (default: $PONOS_NOTES, or notes.jsonl in /var/log/ponos or ~/.local/state/ponos)",
					},
					&cli.StringFlag{Name: "task", Usage: "`ID` of the task (default: the mark of the job)"},
				},
				Action: t.note,
			},
			{
				Name: "checkpoint", Usage: "save the work, then requeue the job", ArgsUsage: "-- SAVE... [-- WORK...]",
				Flags: []cli.Flag{
					signalFlag(),
					timeoutFlag(),
					&cli.BoolFlag{Name: "no-requeue", Usage: "save without requeueing the job"},
					app.VerboseFlag(),
				},
				Action: t.checkpoint,
			},
			{
				Name: "run", Usage: "run a command in slices, until it is done", ArgsUsage: "-- WORK...",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "until-done", Usage: "continue in the next slice: an array task, or this job requeued"},
					&cli.StringFlag{Name: "save", Usage: "save with the shell command `CMD` (default: send SIGTERM to WORK)"},
					signalFlag(),
					&cli.StringFlag{Name: "lead", Value: "2m", Usage: "save `TIME` before the time limit; 0: at signals only"},
					&cli.IntFlag{Name: "again", Value: notDone, Usage: "exit status `N` of WORK requests another slice"},
					timeoutFlag(),
					app.VerboseFlag(),
				},
				Action: t.run,
			},
			{Name: "words", Hidden: true, Action: t.words},
		},
	}
}

// signalFlag and timeoutFlag are those of the commands that save.
func signalFlag() cli.Flag {
	return app.EachOf(&cli.StringSliceFlag{
		Name: "signal", Aliases: []string{"s"}, Usage: "save at `SIGNAL` (default: USR1 and TERM)",
	}, signalList...)
}

func timeoutFlag() cli.Flag {
	return &cli.StringFlag{
		Name: "timeout", Aliases: []string{"t"}, Value: "1h",
		Usage: "end the saving command after `TIME`, such as 90s or 5m",
	}
}

// job returns the id of the job that this runs in.
func (t *tool) job() (string, error) {
	id := t.getenv("SLURM_JOB_ID")
	if id == "" {
		return "", fault.Errorf(fault.Usage, "not in a job of Slurm: SLURM_JOB_ID is not set")
	}
	for _, c := range id {
		if c < '0' || c > '9' {
			return "", fault.Errorf(fault.Usage, "invalid SLURM_JOB_ID %q", id)
		}
	}
	// A task of the agent may share a job array with others, and what is done to the raw id is
	// done to all of them.
	if element := t.getenv("PONOS_JOB"); t.getenv("PONOS_JOB_ID") == id && elementID.MatchString(element) {
		return element, nil
	}
	return id, nil
}

// called is what commands of Slurm call the job that this runs in. The last task of an array has the
// id of the array, which to them means all of its tasks.
func (t *tool) called() (string, error) {
	id, err := t.job()
	if index := t.getenv("SLURM_ARRAY_TASK_ID"); err == nil && id == t.getenv("SLURM_ARRAY_JOB_ID") && elementID.MatchString(id+"_"+index) {
		id += "_" + index
	}
	return id, err
}

var elementID = regexp.MustCompile(`^[0-9]+_[0-9]+$`)

// taskID returns the task that the job was marked with, or "".
func (t *tool) taskID() (task.ID, error) {
	for _, variable := range []string{"PONOS_TASK", "SLURM_SPANK_PONOS_TASK", "SPANK_PONOS_TASK"} {
		if s := t.getenv(variable); s != "" {
			id, err := task.ParseID(s)
			if err != nil {
				return "", fault.Errorf(fault.Usage, "%s: %w", variable, err)
			}
			return id, nil
		}
	}
	return "", nil
}
