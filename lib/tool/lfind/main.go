// Package lfind is the tool lfind, which finds the launcher for a resource request: the options of sbatch,
// or this machine, that give the GPUs, CPUs, memory and time asked for.
package lfind

import (
	"context"
	"io"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/launcher"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Usage is what the tool does, in a line.
const Usage = "find the sbatch options for a resource request"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int {
	// A run has ended before garbage is worth collecting; the limit is for a convert of
	// something enormous.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(512 << 20)
	return app.Main(run)
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := &session{stdin: stdin, stdout: stdout, stderr: stderr}
	args, s.command = cutCommand(args)
	tool := s.tool()
	tool.Unknown = func(option string) string { return foreign(args, option) }
	return tool.Run(ctx, args, stdin, stdout, stderr)
}

// foreign is a hint to an option among args that lfind does not have and sbatch has, or "".
func foreign(args []string, option string) string {
	i := slices.IndexFunc(args, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return name == option
	})
	if i < 0 {
		return request.Option(option, "")
	}
	next := ""
	if i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
		next = args[i+1]
	}
	return request.Option(args[i], next)
}

// cutCommand takes the command of "lfind run SPEC... -- COMMAND..." off, so that
// none of it is taken for a flag of lfind.
func cutCommand(args []string) (rest, command []string) {
	i := slices.Index(args, "--")
	if i < 0 || !slices.Contains(args[:i], "run") {
		return args, nil
	}
	return args[:i], args[i+1:]
}

func (s *session) tool() app.Tool {
	return app.Tool{
		Name:      "lfind",
		Usage:     Usage,
		ArgsUsage: "REQUEST... | @FILE | -",
		Description: `Prints sbatch options that satisfy a resource request, such as
'cuda(mem=14G) * 2 & duration=4 days'. Reads the launchers (partitions and
nodes) from launchers.yaml; without such a file, asks Slurm.

In a request, "&" joins conditions, and "|" separates alternatives:
  cuda(mem=14G) * 2      GPUs with at least that memory; gpu(): any GPU
  cuda(model=[a100, h100], mem=24G..80G, cc>=8.0); slice(mem=10G): a part of one
  cpu(mem=16G, cores=8)  main memory and CPUs of each node
  duration=4 days        time limit; also: deadline=18:00
  nodes=2                number of nodes; also: tasks=4 on each, exclusive
  disk=100G              also: gres(shard) * 4, license(matlab)
  cpus per gpu=8         also: mem per gpu=32G
  partition!=x           also: feature, qos, account, host; with = or !=
  preemptible=no`,
		Examples: `opts=$(lfind 'duration=4 days & cuda(mem=14G) * 2') && sbatch $opts train.sh
{ echo '#!/bin/bash'; lfind --format script 'cpu(cores=8)'; } > job.sh
lfind explain 'cuda(mem=40G) * 8'
lfind convert > ~/.config/ponos/launchers.yaml
lfind run 'cuda() & duration=1h' -- python train.py`,
		Brief:       map[string][]string{"": {"format", "soonest", "tags", "set"}},
		Environment: slurm.CheckEnvironment,
		Flags:       append(searchFlags(), findFlags()...),
		Action:      s.find,
		Commands: []*cli.Command{
			{
				Name: "explain", Usage: "explain why each launcher, partition and QoS matches or not", ArgsUsage: "REQUEST...",
				Flags: append(searchFlags(), jsonFlag,
					&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "print a row for each group of nodes, QoS and account"}),
				Action: s.explain,
			},
			{
				Name: "list", Usage: "list the launchers in the order in which they are tried",
				Flags: append(searchFlags(), jsonFlag), Action: s.list,
			},
			{
				Name: "check", Usage: "check a file, and report each problem with its position", ArgsUsage: "[FILE]",
				Flags: []cli.Flag{configFlag, clustersFlag, jsonFlag}, Action: s.check,
			},
			{
				Name: "probe", Usage: "list nodes whose GPUs are not known, or find out what they are",
				Flags: append(searchFlags(), jsonFlag,
					&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "list all nodes with GPUs, and how these are known"},
					&cli.BoolFlag{Name: "submit", Usage: "submit a job of a minute to one node of each kind"},
					&cli.BoolFlag{Name: "script", Usage: "print the script that records what a node has"},
				),
				Action: s.probe,
			},
			{
				Name: "convert", Usage: "write launchers.yaml from the output of scontrol show nodes", ArgsUsage: "[FILE]",
				Flags: []cli.Flag{
					app.OneOf(&cli.StringFlag{
						Name: "to", Value: "launchers", Usage: "write a file of this `KIND`: launchers or snakemake",
					}, "launchers", "snakemake"),
					&cli.StringFlag{Name: "id", Usage: "`ID` of the launcher", Value: "slurm"},
					&cli.StringSliceFlag{Name: "tags", Aliases: []string{"t"}, Usage: "`TAGS` of the launcher"},
					&cli.BoolFlag{Name: "no-hosts", Usage: "write how many nodes there are, not their names"},
				},
				Action: s.convert,
			},
			{
				Name: "run", Usage: "run a command with the launcher that matches", ArgsUsage: "REQUEST... -- COMMAND [ARG...]",
				Flags: append(searchFlags(),
					setFlag, verifyFlag, noVerifyFlag,
					&cli.BoolFlag{Name: "attach", Aliases: []string{"a"}, Usage: "on Slurm, run with srun on this terminal"},
					&cli.BoolFlag{Name: "no-wait", Usage: "if tokens are not free at once, exit with status 4"},
					&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "print what would be run"},
				),
				Action: s.runCommand,
			},
		},
	}
}

var (
	configFlag = &cli.StringFlag{
		Name: "config", Aliases: []string{"c"}, Usage: "read launchers from `FILE`, or launchers.yaml in a directory",
	}
	clustersFlag = &cli.StringSliceFlag{Name: "clusters", Aliases: []string{"M"}, Usage: "search these `CLUSTERS` of Slurm, and no file"}
	jsonFlag     = &cli.BoolFlag{Name: "json", Usage: "print JSON"}
	setFlag      = &cli.StringSliceFlag{Name: "set", Usage: "set or replace the option `NAME=VALUE`; an empty value removes it"}
)

// Whether Slurm is asked if it accepts what was found.
var (
	verifyFlag   = &cli.BoolFlag{Name: "verify", Usage: "ask Slurm whether it accepts the answer (default without launchers.yaml)"}
	noVerifyFlag = &cli.BoolFlag{Name: "no-verify", Usage: "do not ask Slurm whether it accepts the answer"}
)

// searchFlags are the flags of all commands that search.
func searchFlags() []cli.Flag {
	return []cli.Flag{
		configFlag,
		&cli.StringSliceFlag{Name: "tags", Aliases: []string{"t"}, Usage: "only launchers with one of these `TAGS`"},
		app.OneOf(&cli.StringFlag{Name: "kind", Usage: "only launchers of this `KIND`: slurm or local"}, "slurm", "local"),
		clustersFlag,
		&cli.StringFlag{Name: "learn", Usage: "take missing time and memory from your earlier runs of the job `NAME`"},
		&cli.StringFlag{Name: "risk", Usage: "the `PART` of runs that may exceed the learned values", Value: "5%"},
		&cli.BoolFlag{Name: "allow-unknown", Usage: "if nothing else matches, take nodes whose GPUs are not known"},
		&cli.BoolFlag{Name: "any", Usage: "join partitions of whole nodes and those for special jobs with the others"},
		&cli.BoolFlag{Name: "refresh", Usage: "ask Slurm again, without the cache of the last minutes"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print no warnings or notes"},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "also report warnings about the file, and a missing one"},
	}
}

func findFlags() []cli.Flag {
	return []cli.Flag{
		app.OneOf(&cli.StringFlag{
			Name: "format", Aliases: []string{"f"}, Value: "args",
			Usage: "print as `FORMAT`: args, args0, lines, script, env or json",
		}, launcher.Formats...),
		jsonFlag,
		setFlag,
		verifyFlag,
		noVerifyFlag,
		&cli.BoolFlag{Name: "soonest", Usage: "of all matches, choose the one that would start first"},
	}
}
