// Package worker is the tool ponos-worker, which runs tasks where ponos-start has put them.
package worker

import (
	"context"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/agent/runner/local"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

const name = "ponos-worker"

// Usage is what the tool does, in a line.
const Usage = "run tasks in jobs and on this machine, for ponos-start"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int { return app.Main(run) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name:  name,
		Usage: Usage,
		Description: "ponos-start and the batch scripts of its jobs run this program. You need\n" +
			"not run it yourself.",
		Commands: []*cli.Command{
			{
				Name: "local", Usage: "run the tasks of mode local that wait in a directory", ArgsUsage: "DIR",
				Flags: []cli.Flag{&cli.IntFlag{Name: "jobs", Aliases: []string{"j"}, Usage: "do nothing if `N` workers run already"}},
				Action: func(c *cli.Context) error {
					dir, err := directory(c)
					if err == nil && c.Int("jobs") < 1 {
						err = fault.Errorf(fault.Usage, "--jobs: invalid number %d", c.Int("jobs"))
					}
					if err != nil {
						return err
					}
					return local.Work(dir, c.Int("jobs"))
				},
			},
			{
				Name: "exec", Usage: "run the command of a task, and keep the record of its starts", ArgsUsage: "DIR",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "pool", Usage: "a pool has handed out the start, in a pilot job"},
					&cli.StringFlag{Name: "task", Usage: "the task's `ID`"},
					&cli.StringFlag{Name: "job", Usage: "the `JOB` that runs it"},
					&cli.IntFlag{Name: "restart", Usage: "the job was requeued `N` times"},
					&cli.IntFlag{Name: "attempt", Usage: "`N` of the job's attempt at the task, from 1"},
					&cli.IntFlag{Name: "tried", Usage: "there were `N` attempts before"},
					&cli.StringFlag{Name: "source", Usage: "run in a copy of the directory `SOURCE`"},
					&cli.StringFlag{Name: "place", Usage: "run in the directory `DIR` itself"},
					&cli.StringFlag{Name: "venv", Usage: "with the virtual environment in `DIR`"},
					&cli.Int64Flag{Name: "max-log", Usage: "write at most `N` bytes of the output"},
				},
				Action: func(c *cli.Context) error {
					dir, err := directory(c)
					where := c.String("source") + c.String("place")
					if err == nil && (c.String("task") == "" || c.String("job") == "" || where == "" || c.Int("attempt") < 1) {
						err = fault.Errorf(fault.Usage, "--task, --job, --attempt, and --source or --place are needed")
					}
					if err == nil && c.Int64("max-log") < 0 {
						err = fault.Errorf(fault.Usage, "--max-log: invalid number %d", c.Int64("max-log"))
					}
					if err != nil {
						return err
					}
					run := record.Exec
					if c.Bool("pool") {
						run = record.ExecPooled
					}
					code, err := run(c.Context, record.Task{
						ID: c.String("task"), Dir: dir, Job: c.String("job"), Restart: c.Int("restart"), Attempt: c.Int("attempt"),
						Tried: c.Int("tried"), Source: c.String("source"), Place: c.String("place"), Venv: c.String("venv"),
						MaxLog: c.Int64("max-log"),
					}, stderr)
					if err != nil || code == 0 {
						return err
					}
					return fault.Exit(code, nil)
				},
			},
		},
	}.Run(ctx, args, stdin, stdout, stderr)
}

func directory(c *cli.Context) (string, error) {
	if !c.Args().Present() {
		return "", fault.Errorf(fault.Usage, "the directory is missing")
	}
	return c.Args().First(), nil
}
