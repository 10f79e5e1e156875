// Command ponos-stop stops the tasks that the queue wants stopped.
package main

import (
	"context"
	"io"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent"
	"github.com/ponos-tools/ponos/lib/app"
	"github.com/ponos-tools/ponos/lib/assembly"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/progress"
	"github.com/ponos-tools/ponos/lib/task"
)

const name = "ponos-stop"

func main() { os.Exit(app.Main(run)) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name:      name,
		Usage:     "stop tasks: cancel their jobs, and wait for their end",
		ArgsUsage: "[ID...]",
		Description: "Reads action lines, as ponos-poll prints them, from standard input, or takes the\n" +
			"ids of tasks as arguments. Lines about anything else are passed on.",
		Examples: "ponos-poll | ponos-stop | ponos-start\nponos-stop ID",
		Flags: []cli.Flag{
			app.ConfigFlag(),
			&cli.IntFlag{Name: "jobs", Aliases: []string{"j"}, Value: 8, Usage: "stop `N` tasks at a time"},
			app.VerboseFlag(),
		},
		Action: func(c *cli.Context) error { return stop(c, stdin, stdout, stderr) },
	}.Run(ctx, args, stdin, stdout, stderr)
}

func stop(c *cli.Context, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	if c.Int("jobs") < 1 {
		return fault.Errorf(fault.Usage, "--jobs must be at least 1, not %d", c.Int("jobs"))
	}
	ids, err := agent.ParseIDs(c.Args().Slice())
	if err != nil {
		return err
	}
	if len(ids) == 0 && app.IsTerminal(stdin) {
		return fault.Hint(fault.Errorf(fault.Usage, "no task is named, and standard input is a terminal"), `"ponos-poll | ponos-stop" stops what the queue wants stopped`)
	}
	line := progress.Open(stderr, name)
	defer line.Close()
	stdout, stderr = line.Writer(stdout), line.Writer(stderr)
	parts, err := assembly.Load(c.Context, assembly.Options{ConfigPath: c.String("config"), Verbose: c.Bool("verbose"), Stderr: stderr, Tool: name})
	if err != nil {
		return err
	}
	defer func() { parts.Close(err) }()
	s := &agent.Stream{
		Kind: task.Stop, Jobs: c.Int("jobs"), Do: parts.Agent.Stop, Out: stdout,
		Problem: func(err error) {
			app.Report(stderr, name, err)
			parts.Problem(err)
		},
	}
	if len(ids) > 0 {
		return s.RunIDs(c.Context, ids)
	}
	return s.Run(c.Context, stdin)
}
