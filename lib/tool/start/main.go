// Package start is the tool ponos-start, which starts the tasks that the queue wants started.
package start

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
)

const name = "ponos-start"

// Usage is what the tool does, in a line.
const Usage = "start tasks: prepare their code and submit their jobs"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int { return app.Main(run) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name:      name,
		Usage:     Usage,
		ArgsUsage: "[ID...]",
		Description: "Reads action lines, as ponos-poll prints them, from standard input, or takes the\n" +
			"ids of tasks as arguments. Lines that do not start a task are passed on.",
		Examples: "ponos-poll | ponos-stop | ponos-start\n" +
			"ponos-poll | jq -c 'select(.requires_gpu | not)' | ponos-start\nponos-start --dry-run ID",
		Environment: slurm.CheckEnvironment,
		Flags: []cli.Flag{
			app.ConfigFlag(),
			&cli.IntFlag{Name: "jobs", Aliases: []string{"j"}, Value: assembly.StartJobs, Usage: "prepare and submit `N` tasks at a time"},
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "prepare the tasks, and print the jobs without submitting them"},
			&cli.BoolFlag{Name: "pack", Usage: "run short tasks inside shared pilot jobs (Slurm; see slurm.pack)"},
			app.VerboseFlag(),
		},
		Action: func(c *cli.Context) error {
			do := func(ctx context.Context, system *assembly.System, id task.ID) (task.Outcome, error) {
				return system.Agent.Start(ctx, id)
			}
			if c.Bool("dry-run") {
				stdout, stderr := (*progress.Line)(nil).Writer(stdout), (*progress.Line)(nil).Writer(stderr)
				do = func(ctx context.Context, system *assembly.System, id task.ID) (task.Outcome, error) {
					return task.Outcome{}, plan(ctx, system, id, stdout, stderr)
				}
			}
			return assembly.Actions{
				Options: assembly.Options{
					ConfigPath: c.String("config"), Verbose: c.Bool("verbose"), Stderr: stderr, Tool: name, Pack: c.Bool("pack"),
				},
				Kind: task.Start, Jobs: c.Int("jobs"), Args: c.Args().Slice(), Stdin: stdin, Stdout: stdout, Do: do,
			}.Run(c.Context)
		},
	}.Run(ctx, args, stdin, stdout, stderr)
}

// plan prints what would be submitted for a task.
func plan(ctx context.Context, system *assembly.System, id task.ID, stdout, stderr io.Writer) error {
	s, err := system.Agent.Plan(ctx, id)
	if err != nil {
		return err
	}
	p, err := system.Agent.Runner.Preview(ctx, s)
	if err != nil {
		return err
	}
	if why := system.Refused(ctx, s.Needs); why != "" {
		fmt.Fprintf(stderr, "%s: warning: task %s: %s\n", name, id, why)
	}
	if p.Argv == nil {
		_, err = fmt.Fprintf(stdout, "# task %s (%s)\n%s\n", id, s.Label, p.Text)
		return err
	}
	for i := range p.Argv {
		p.Argv[i] = shell.Quote(p.Argv[i])
	}
	script, err := os.ReadFile(s.Script)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "# task %s (%s)\n%s\n\n%s\n",
		id, s.Label, strings.Join(p.Argv, " "), strings.TrimRight(string(script), "\n"))
	return err
}
