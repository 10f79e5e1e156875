// Package jobpool is the tool jobpool, which runs many commands inside one allocation: it opens one
// connection to each node, keeps it open, and hands the CPUs out itself.
package jobpool

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// Usage is what the tool does, in a line.
const Usage = "run many commands inside one allocation"

// Main runs the tool as the whole process, and returns its exit status. It is called with the main
// thread locked, by an init: that thread of a worker gets the orphans of its tasks, and must not be
// used to start any; so it does nothing at all.
func Main() int {
	code := make(chan int)
	go func() { code <- app.Main(run) }()
	return <-code
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	t := tool()
	t.StopAtArg = takesCommand(args)
	return t.Run(ctx, args, stdin, stdout, stderr)
}

// brief are the options of a run that are used most.
var brief = []string{
	"arg-file", "cpus", "gpus", "mem", "timeout", "jobs", "nodes", "output", "keep-order", "quiet", "dry-run", "run", "resume",
	"retry-failed", "retries", "halt",
}

// ofTask are options of sbatch for which a task of a pool has its own.
var ofTask = map[string]string{
	sbatch.CPUsPerTask: "for the CPUs of each task, give --cpus N", "gpus-per-task": "for the GPUs of each task, give --gpus N",
	"ntasks": "for the number of tasks at a time, give --jobs N", "time": "for the time of each task, give --timeout TIME",
}

// instead is a hint to an option of sbatch: what to give here. "" if there is nothing.
func instead(option string) string {
	o, _ := sbatch.Typed(option)
	switch {
	case o == nil:
		return ""
	case ofTask[o.Name] != "":
		return ofTask[o.Name]
	case o.Use&sbatch.ByPool == 0:
		return ""
	case o.Form == sbatch.Flag || o.Optional:
		return fmt.Sprintf("for the jobs of a pool, give --alloc-sbatch=--%s", o.Name)
	}
	return fmt.Sprintf("for the jobs of a pool, give --alloc-sbatch=--%s=VALUE", o.Name)
}

func tool() app.Tool {
	return app.Tool{
		Name:      "jobpool",
		Usage:     Usage,
		ArgsUsage: "[TEMPLATE [WORD...]] [::: ARG...]",
		Description: `Runs commands, the lines of standard input, on the CPUs of the Slurm job in
which it runs, of other hosts, or of this machine. With a TEMPLATE, lines are
arguments for {}, as are words behind :::, and lines of files behind ::::.`,
		Examples: `jobpool < commands.txt
ls *.gz | jobpool -k 'zcat {} | wc -l'
jobpool --cpus 4 --resume --run run1 simulate --seed {} :::: seeds.txt
jobpool ctl status`,
		Brief: map[string][]string{
			"":      {"jobs", "keep-order", "resume", "retries", "timeout", "alloc"},
			"run":   brief,
			"serve": {"cpus", "gpus", "mem", "jobs", "run", "min-nodes", "retries", "quiet", "status"},
		},
		Environment: slurm.CheckEnvironment,
		Unknown:     instead,
		Flags:       runFlags(),
		Action:      runAction(false),
		Commands: []*cli.Command{
			{
				Name: "run", Usage: "run commands (the default)", ArgsUsage: "[TEMPLATE [WORD...]] [::: ARG...]",
				Flags: runFlags(), Action: runAction(false),
			},
			{Name: "serve", Usage: "keep a pool running for programs that submit tasks", Flags: runFlags(), Action: runAction(true)},
			ofOwnRun(callCommand()),
			ofOwnRun(ctlCommand()),
			ofOwnRun(logCommand()),
			{Name: "worker", Hidden: true, Action: workerAction, SkipFlagParsing: true},
			{
				Name: "pilot", Hidden: true, Action: pilotAction,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "run"}, &cli.BoolFlag{Name: "node"}, &cli.IntFlag{Name: "cpus"},
					&cli.Int64Flag{Name: "mem"}, &cli.Int64Flag{Name: sbatch.MemPerGPU},
				},
			},
			{Name: "reach", Hidden: true, Action: reachAction, SkipFlagParsing: true},
			{Name: "bridge", Hidden: true, Action: bridgeAction, SkipFlagParsing: true},
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
