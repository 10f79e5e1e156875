// Package cancel is the tool ponos-cancel, which stops tasks of a spool.
package cancel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/app"
	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/queue/spool"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/tasklist"
)

const name = "ponos-cancel"

// Usage is what the tool does, in a line.
const Usage = "cancel tasks of the spool"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int { return app.Main(run) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name: name, Usage: Usage, ArgsUsage: "[TASK...]",
		Description: "Tasks are named by ids, short ids, names, or filters; without any of these, by\nids on standard input. The ids of tasks that it cancels are printed.",
		Examples:    "ponos-cancel train-7\nponos-cancel --group lr\nponos-list --state pending --group lr --ids | ponos-cancel",
		Brief:       map[string][]string{"": {"state", "group", "name", "since", "yes"}},
		Flags: append(append([]cli.Flag{app.ConfigFlag(), app.SpoolFlag()}, app.FilterFlags(tasklist.States)...),
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask before more than one is cancelled"}),
		Action: func(c *cli.Context) error { return cancel(c, stdin, stdout, stderr) },
	}.Run(ctx, args, stdin, stdout, stderr)
}

func cancel(c *cli.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	filter, err := tasklist.NewFilter(c.String("state"), c.String("group"), c.String("name"), c.String("since"), c.String("until"), clock.Now())
	if err != nil {
		return err
	}
	words, err := tasklist.Words(c.Args().Slice(), filter, stdin)
	if err != nil {
		return err
	}
	s, err := tasklist.Open(c.String("config"), c.String("spool"))
	if err != nil {
		return err
	}
	all, err := s.Look()
	if err != nil || len(words) == 0 && filter.Empty() {
		return err
	}
	found, errs := tasklist.Select(all, words, filter)
	var wanted []spool.Summary
	for _, r := range found {
		if !r.State.Final() {
			wanted = append(wanted, r)
		} else if len(words) > 0 {
			fmt.Fprintf(stderr, "%s: task %s is over already: %s\n", name, r.ID, r.State)
		}
	}
	if len(wanted) > 1 && !c.Bool("yes") {
		if err := tasklist.Ask(c.Context, stdin, stderr, name, fmt.Sprintf("cancel %s?", tasklist.CountOf(wanted))); err != nil {
			return err
		}
	}
	out := bufio.NewWriter(stdout)
	for i, err := range s.RequestStops(wanted) {
		if err != nil {
			errs = append(errs, fmt.Errorf("task %s (%s): %w", wanted[i].ID, task.Clean(wanted[i].Slug), err))
			continue
		}
		fmt.Fprintln(out, wanted[i].ID)
	}
	return errors.Join(append(errs, out.Flush())...)
}
