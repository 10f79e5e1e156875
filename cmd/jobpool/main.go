// Command jobpool runs many commands inside one allocation: it opens one
// connection to each node, keeps it open, and hands the CPUs out itself.
package main

import (
	"context"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/app"
)

// The main thread of a worker gets the orphans of its tasks, and must not be used
// to start any.
func init() { runtime.LockOSThread() }

func main() { os.Exit(app.Main(run)) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	t := tool()
	t.StopAtArg = takesCommand(args)
	return t.Run(ctx, protect(t, args), stdin, stdout, stderr)
}

func tool() app.Tool {
	return app.Tool{
		Name:      "jobpool",
		Usage:     "run many commands inside one allocation",
		ArgsUsage: "[TEMPLATE [WORD...]] [::: ARG...]",
		Description: `Reads commands from standard input, one a line, and runs them on the CPUs of the Slurm job it is in, on those of
other hosts, or of this machine. With a template, the lines are arguments that take the place of {}.`,
		Examples: `jobpool < commands.txt
ls *.gz | jobpool -k 'zcat {} | wc -l'
jobpool --cpus 4 --resume --run run1 simulate --seed {} ::: 1 2 3
jobpool ctl status`,
		Flags:  runFlags(),
		Action: runAction(false),
		Commands: []*cli.Command{
			{Name: "run", Usage: "run commands, which is what jobpool does without a command", ArgsUsage: "[TEMPLATE [WORD...]] [::: ARG...]", Flags: runFlags(), Action: runAction(false)},
			{Name: "serve", Usage: "keep the pool open for programs that send tasks", Flags: runFlags(), Action: runAction(true)},
			callCommand(),
			ctlCommand(),
			logCommand(),
			{Name: "worker", Hidden: true, Action: workerAction, SkipFlagParsing: true},
		},
	}
}

// takesCommand reports whether what follows the flags is a command with flags of
// its own.
func takesCommand(args []string) bool {
	if len(args) < 2 {
		return true
	}
	return !slices.Contains([]string{"ctl", "log"}, args[1])
}

// protect puts "--" before the command to run, so that nothing in it is taken for
// ours.
func protect(t app.Tool, args []string) []string {
	if !t.StopAtArg || len(args) < 2 {
		return args
	}
	flags, from := t.Flags, 1
	for _, c := range t.Commands {
		if args[1] == c.Name {
			flags, from = c.Flags, 2
			if c.SkipFlagParsing {
				return args
			}
		}
	}
	values := map[string]bool{}
	for _, f := range flags {
		if d, ok := f.(cli.DocGenerationFlag); ok && d.TakesValue() {
			for _, name := range f.Names() {
				values[name] = true
			}
		}
	}
	for i := from; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "--" || arg == "--generate-bash-completion":
			return args
		case len(arg) < 2 || arg[0] != '-':
			return slices.Insert(slices.Clone(args), i, "--")
		case values[strings.TrimLeft(arg, "-")]:
			i++
		case arg[1] != '-' && !strings.Contains(arg, "=") && values[arg[len(arg)-1:]] && !hasValue(values, arg):
			i++ // -qj 4
		}
	}
	return args
}

// hasValue reports whether a cluster of short flags brings the value itself: -j4.
func hasValue(values map[string]bool, arg string) bool {
	for i := 1; i < len(arg)-1; i++ {
		if values[arg[i:i+1]] {
			return true
		}
	}
	return false
}
