// Package poll is the tool ponos-poll, which is one turn of the agent, or one after the other.
package poll

import (
	"context"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
)

const name = "ponos-poll"

// Usage is what the tool does, in a line.
const Usage = "report job states to the queue, and print its actions"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int {
	// Most turns have ended before their garbage matters.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	// With very many tasks, it does.
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(80 << 20)
	}
	return app.Main(run)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name:  name,
		Usage: Usage,
		Description: "Reports states and logs of running tasks, and prints the queue's actions as\n" +
			"JSON lines: one turn, or with --every one after the other.",
		Examples:    "ponos-poll | ponos-stop | ponos-start\nponos-poll --every 10s | ponos-stop | ponos-start",
		Environment: slurm.CheckEnvironment,
		Flags: []cli.Flag{
			app.ConfigFlag(),
			&cli.StringFlag{Name: "every", Aliases: []string{"e"}, Usage: "take a turn every `DURATION`, such as 10s or 1m"},
			&cli.BoolFlag{Name: "until-done", Usage: "with --every: exit when no task is left in the spool"},
			app.VerboseFlag(),
		},
		Action: func(c *cli.Context) error { return poll(c, stdout, stderr) },
	}.Run(ctx, args, stdin, stdout, stderr)
}

func poll(c *cli.Context, stdout, stderr io.Writer) (err error) {
	t := assembly.Turns{
		Options: assembly.Options{ConfigPath: c.String("config"), Verbose: c.Bool("verbose"), Stderr: stderr, Tool: name}, Stdout: stdout,
	}
	if c.IsSet("every") {
		if t.Every, err = unit.Duration(c.String("every")); err != nil || t.Every < time.Second {
			return fault.Errorf(fault.Usage,
				"--every: invalid value %q: expected a duration of at least 1s, such as 10s", c.String("every"))
		}
	}
	if !c.Bool("until-done") {
		return t.Run(c.Context)
	}
	if t.Every == 0 {
		return fault.Errorf(fault.Usage, "--until-done needs --every")
	}
	return t.UntilDone(c.Context)
}
