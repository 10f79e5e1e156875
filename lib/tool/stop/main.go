// Package stop is the tool ponos-stop, which stops the tasks that the queue wants stopped.
package stop

import (
	"context"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
)

const name = "ponos-stop"

// Usage is what the tool does, in a line.
const Usage = "stop tasks: cancel their jobs, and wait until they end"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int { return app.Main(run) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name:      name,
		Usage:     Usage,
		ArgsUsage: "[ID...]",
		Description: "Reads action lines, as ponos-poll prints them, from standard input, or takes the\n" +
			"ids of tasks as arguments. Other lines, such as starts, are passed on.",
		Examples:    "ponos-poll | ponos-stop | ponos-start\nponos-stop ID",
		Environment: slurm.CheckEnvironment,
		Flags: []cli.Flag{
			app.ConfigFlag(),
			&cli.IntFlag{Name: "jobs", Aliases: []string{"j"}, Value: assembly.StopJobs, Usage: "stop `N` tasks at a time"},
			app.VerboseFlag(),
		},
		Action: func(c *cli.Context) error {
			return assembly.Actions{
				Options: assembly.Options{ConfigPath: c.String("config"), Verbose: c.Bool("verbose"), Stderr: stderr, Tool: name},
				Kind:    task.Stop, Jobs: c.Int("jobs"), Args: c.Args().Slice(), Stdin: stdin, Stdout: stdout,
				Do: func(ctx context.Context, system *assembly.System, id task.ID) (task.Outcome, error) {
					return system.Agent.Stop(ctx, id)
				},
			}.Run(c.Context)
		},
	}.Run(ctx, args, stdin, stdout, stderr)
}
