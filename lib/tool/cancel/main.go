// Package cancel is the tool ponos-cancel, which stops tasks of a spool.
package cancel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

const name = "ponos-cancel"

// Usage is what the tool does, in a line.
const Usage = "cancel tasks of the spool"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int { return app.Main(run) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name: name, Usage: Usage, ArgsUsage: "[TASK...]",
		Description: "Stops tasks, and prints their ids. Name tasks by id, short id or name, or filter\n" +
			"them; without both, ids come from standard input.",
		Examples: "ponos-cancel train-7\nponos-cancel --group lr\nponos-list --state pending --group lr --ids | ponos-cancel",
		Brief:    map[string][]string{"": {"state", "group", "name", "since", "yes"}},
		Flags: app.TaskFlags(tasklist.States,
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask before cancelling more than one task"}),
		Action: func(c *cli.Context) error { return cancel(c, stdin, stdout, stderr) },
	}.Run(ctx, args, stdin, stdout, stderr)
}

func cancel(c *cli.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	chosen, err := tasklist.Choose(c.String, c.Args().Slice(), stdin)
	if err != nil {
		return err
	}
	if err := chosen.Queue.Writable(); err != nil {
		return err
	}
	errs := chosen.Errs
	var wanted []queue.Summary
	for _, r := range chosen.Found {
		if !r.State.Final() {
			wanted = append(wanted, r)
		} else if len(chosen.Words) > 0 {
			fmt.Fprintf(stderr, "%s: task %s has already ended: %s\n", name, r.ID, r.State)
		}
	}
	if len(wanted) == 0 && len(chosen.Words) == 0 && len(chosen.Found) > 0 {
		fmt.Fprintf(stderr, "%s: nothing to cancel: %s\n", name, tasklist.CountOf(chosen.Found))
	}
	if len(wanted) > 1 && !c.Bool("yes") {
		if err := tasklist.Ask(c.Context, stdin, stderr, name, fmt.Sprintf("cancel %s?", tasklist.CountOf(wanted))); err != nil {
			return err
		}
	}
	out := bufio.NewWriter(stdout)
	for i, err := range chosen.Queue.Cancel(wanted) {
		if err != nil {
			errs = append(errs, fmt.Errorf("task %s (%s): %w", wanted[i].ID, task.Clean(wanted[i].Slug), err))
			continue
		}
		fmt.Fprintln(out, wanted[i].ID)
	}
	return errors.Join(append(errs, out.Flush())...)
}
