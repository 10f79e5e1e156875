// Package fairshare is the tool fairshare, which shows who waits in a Slurm queue, why, and where there is
// room: fair share, the pending jobs with where their priorities come from, the
// holes that backfill leaves, the partition in which a job starts soonest, and what
// was used.
package fairshare

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Usage is what the tool does, in a line.
const Usage = "show why jobs wait, when they start, and which gaps are free"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int { return app.Main(run) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// A long queue is read once and kept: collecting garbage while it grows costs
	// more than it frees, until memory gets scarce.
	debug.SetGCPercent(300)
	debug.SetMemoryLimit(softMemory)
	ask := planner.New()
	code := tool(ask, stdout, stderr).Run(ctx, args, stdin, stdout, stderr)
	for _, doubt := range ask.Doubts.Warnings() {
		fmt.Fprintln(stderr, "fairshare: warning: "+app.Sanitize(doubt))
	}
	return code
}

// softMemory is from where on memory is collected more eagerly.
const softMemory = 192 << 20

const (
	userUsage      = "only of these `USERS`, separated by commas"
	partitionUsage = "only in these `PARTITIONS`, separated by commas"
)

func tool(a *planner.Asker, stdout, stderr io.Writer) app.Tool {
	display := func(c *cli.Context, q query, err error) error {
		if err != nil {
			return err
		}
		return show(c, a, q, stdout, stderr)
	}
	return app.Tool{
		Name:  "fairshare",
		Usage: Usage,
		Description: `Without a command, shows your place in the association tree: shares, usage and
fair-share factor, and when the usage will have decayed.`,
		Examples: `fairshare                        my fair share, and when it recovers
fairshare jobs -p gpu            jobs that wait for gpu, in order, and why
fairshare jobs 349               one job: why it waits, and what would help
fairshare holes                  what would start now
fairshare where --gpus=2 job.sh  where this job would start soonest
fairshare when 349               when that job will start
fairshare limits                 my limits, and what is left
fairshare used --since 30d       what I requested and did not use
fairshare history --since 30d    what I used, by day`,
		Brief: map[string][]string{
			"":     {"user", "account", "all", "json", "watch"},
			"jobs": {"partition", "user", "account", "me", "jobs", "format", "noheader", "first", "budget", "json", "watch", "every"},
		},
		Environment: slurm.CheckEnvironment,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "associations of these `USERS`, separated by commas (you)"},
			&cli.StringFlag{Name: "account", Aliases: []string{"A"}, Usage: "these `ACCOUNTS` and all below them"},
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "show the whole tree"},
		}, commonFlags()...),
		Commands: []*cli.Command{
			{
				Name: "jobs", Usage: "list pending jobs in the scheduler's order, or explain one job", ArgsUsage: "[JOB...]",
				Flags: append([]cli.Flag{
					&cli.StringFlag{Name: "partition", Aliases: []string{"p"}, Usage: partitionUsage},
					&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: userUsage},
					&cli.StringFlag{Name: "account", Aliases: []string{"A"}, Usage: "only of these `ACCOUNTS`"},
					&cli.BoolFlag{Name: "me", Usage: "only your own jobs"},
					&cli.StringFlag{Name: "jobs", Aliases: []string{"j"}, Usage: "these `JOBS`, separated by commas, pending or running"},
					app.SomeOf(&cli.StringFlag{
						Name: "format", Aliases: []string{"o"}, Usage: "print these `FIELDS`, separated by commas, without formatting",
					}, fieldNames()...),
					&cli.BoolFlag{Name: "noheader", Usage: "no header with --format"},
					&cli.StringFlag{Name: "first", Aliases: []string{"n"}, Usage: "only the first `N` rows"},
					budgetFlag(),
					&cli.BoolFlag{Name: "past", Usage: "what jobs waited for that have started or ended, from accounting"},
				}, commonFlags()...),
				Action: func(c *cli.Context) error {
					if c.Bool("past") {
						q, err := newPastQuery(a, c)
						return display(c, q, err)
					}
					q, err := newQueueQuery(a, c)
					return display(c, q, err)
				},
			},
			{
				Name: "holes", Usage: "show free gaps around running, planned and reserved jobs",
				Flags: append([]cli.Flag{
					&cli.StringFlag{Name: "partition", Aliases: []string{"p"}, Usage: partitionUsage},
					&cli.StringFlag{Name: "span", Usage: "look this far ahead: a `DURATION` such as 12h or 2d"},
					&cli.StringFlag{Name: "shortest", Value: "1m", Usage: "leave out holes shorter than this `DURATION`"},
					&cli.StringFlag{Name: "margin", Value: "1m", Usage: "the `DURATION` that you need to submit; limits are shorter by it"},
					&cli.BoolFlag{Name: "now", Usage: "only gaps that are free now"},
					&cli.BoolFlag{Name: "list", Usage: "print the list without the chart"},
				}, commonFlags()...),
				Action: func(c *cli.Context) error {
					q, err := newHolesQuery(a, c)
					return display(c, q, err)
				},
			},
			{
				Name: "where", Usage: "find the partition and QoS in which a job starts soonest", ArgsUsage: "[SBATCH-OPTION...] [SCRIPT]",
				SkipFlagParsing: true, // the others are sbatch's
				Flags:           []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print JSON"}},
				Action: func(c *cli.Context) error {
					options, command, err := commandLine(c.Args().Slice())
					switch {
					case err != nil:
						return err
					case helps(options):
						_, err := io.WriteString(stdout, whereHelp)
						return err
					}
					q, err := newWhereQuery(options, command)
					if err != nil {
						return err
					}
					return showWhere(c.Context, a, q, options.Has("json"), stdout)
				},
			},
			{
				Name: "when", Usage: "forecast when a job will start", ArgsUsage: "[JOB... | SBATCH-OPTION... [SCRIPT]]",
				SkipFlagParsing: true, // the others are sbatch's
				Flags: []cli.Flag{
					budgetFlag(),
					&cli.BoolFlag{Name: "score", Usage: "print the accuracy of past forecasts on this cluster"},
					&cli.StringFlag{
						Name: "replay", Usage: "forecast the jobs in `FILE`: output of sacct, or a trace in SWF", TakesFile: true,
					},
					&cli.BoolFlag{Name: "json", Usage: "print JSON"},
				},
				Action: func(c *cli.Context) error {
					ids, options, command, err := whenLine(c.Args().Slice())
					if err != nil {
						return err
					}
					if helps(options) {
						_, err := io.WriteString(stdout, whenHelp)
						return err
					}
					q, err := newWhenQuery(ids, options, command)
					if err != nil {
						return err
					}
					return showWhen(c.Context, a, q, options.Has("json"), stdout)
				},
			},
			{
				Name: "waits", Usage: "show how long jobs waited lately, by partition and size",
				Flags: append([]cli.Flag{
					&cli.StringFlag{Name: "since", Value: "7d", Usage: "jobs that started since `TIME`: a duration such as 7d, or a date"},
					&cli.StringFlag{Name: "partition", Aliases: []string{"p"}, Usage: partitionUsage},
					&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "only these `USERS`"},
					&cli.StringFlag{Name: "account", Aliases: []string{"A"}, Usage: "only these `ACCOUNTS`"},
				}, commonFlags()...),
				Action: func(c *cli.Context) error {
					q, err := newWaitsQuery(a, c)
					return display(c, q, err)
				},
			},
			{
				Name: "limits", Usage: "list the limits that apply, and what is left of each", ArgsUsage: "[USER|ACCOUNT]",
				Flags: commonFlags(),
				Action: func(c *cli.Context) error {
					return display(c, &limitsQuery{ask: a, name: c.Args().First()}, nil)
				},
			},
			{
				Name: "used", Usage: "show what jobs used of what they requested", ArgsUsage: "[JOB...]",
				Flags: append([]cli.Flag{
					&cli.StringFlag{Name: "since", Value: "30d", Usage: "jobs that ran since `TIME`: a duration such as 30d, or a date"},
					&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "only these `USERS`; default: you"},
					&cli.StringFlag{Name: "account", Aliases: []string{"A"}, Usage: "only these `ACCOUNTS`"},
					&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "all users"},
					&cli.StringFlag{Name: "risk", Value: "5%", Usage: "the `PART` of runs that may exceed the advised values"},
				}, commonFlags()...),
				Action: func(c *cli.Context) error {
					q, err := newUsedQuery(a, c)
					return display(c, q, err)
				},
			},
			{
				Name: "history", Usage: "show usage by day, and by user or account",
				Flags: append([]cli.Flag{
					&cli.StringFlag{Name: "since", Value: "30d", Usage: "usage since `TIME`: a duration such as 30d, or a date"},
					&cli.StringFlag{Name: "until", Usage: "usage until `TIME`; default: now"},
					&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "only these `USERS`; default: you"},
					&cli.StringFlag{Name: "account", Aliases: []string{"A"}, Usage: "only these `ACCOUNTS`"},
					&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "all users"},
					app.OneOf(&cli.StringFlag{Name: "by", Value: "user", Usage: "group by `WHOM`: user or account"}, "user", "account"),
					&cli.StringFlag{Name: "tres", Value: "cpu", Usage: "the `RESOURCE` to add up: cpu, gpu, mem, node, billing, ..."},
					app.OneOf(&cli.StringFlag{
						Name: "source", Value: "sacct", Usage: "ask `PROGRAM`: sacct (every job) or sreport (hourly sums)",
					}, "sacct", "sreport"),
					&cli.StringFlag{Name: "top", Value: "6", Usage: "show the first `N`, and the others as one"},
				}, commonFlags()...),
				Action: func(c *cli.Context) error {
					q, err := newHistoryQuery(a, c)
					return display(c, q, err)
				},
			},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				names := []string{"jobs", "holes", "where", "when", "waits", "limits", "used", "history"}
				return unknown("command", c.Args().First(), names)
			}
			q, err := newSharesQuery(a, c)
			return display(c, q, err)
		},
	}
}

func commonFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "json", Usage: "print JSON"},
		&cli.BoolFlag{Name: "watch", Usage: "refresh in place, with changes marked, until interrupted"},
		&cli.StringFlag{Name: "every", Value: "15s", Usage: "refresh after this `DURATION`, at least 5s"},
		&cli.StringFlag{Name: "prometheus", Usage: "write metrics to `FILE`, for node_exporter's textfile collector", TakesFile: true},
	}
}

// defaultBudget is how long a forecast may take.
const defaultBudget = "5s"

func budgetFlag() cli.Flag {
	return &cli.StringFlag{Name: "budget", Value: defaultBudget, Usage: "forecast within this `TIME`; more makes the answer better"}
}

// budget reads the time that a forecast may take.
func budget(text string) (time.Duration, error) {
	d, err := duration("budget", text)
	if err == nil && d < 100*time.Millisecond {
		err = fault.Errorf(fault.Usage, "--budget: %s is too short: at least 100ms", text)
	}
	return d, err
}

// list splits a flag's value at its commas.
func list(value string) []string {
	var names []string
	for name := range strings.SplitSeq(value, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// duration reads the value of a flag.
func duration(flag, value string) (time.Duration, error) {
	d, err := unit.Duration(value)
	if err != nil {
		return 0, fault.Errorf(fault.Usage, "--%s: %w", flag, err)
	}
	return d, nil
}
