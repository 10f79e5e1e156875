// Package retry is the tool ponos-retry, which submits tasks of a spool again that did not complete.
package retry

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/code/source"
	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

const name = "ponos-retry"

// Usage is what the tool does, in a line.
const Usage = "submit failed or stopped tasks again"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int { return app.Main(run) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// What follows "--" is a command, and no task.
	var command []string
	if i := slices.Index(args, "--"); i >= 0 {
		args, command = args[:i], slices.Clip(args[i+1:])
	}
	return app.Tool{
		Name: name, Usage: Usage, ArgsUsage: "[TASK...] [-- COMMAND [ARG...]]",
		Description: "Runs tasks again that have failed or were stopped, as they were or with what\n" +
			"options change, and prints the ids of the new tasks. Name tasks by id, short id\n" +
			"or name, or filter them; without both, ids come from standard input.",
		Examples: "ponos-retry train-7\nponos-retry --group lr --directory . --sbatch mem=16G\n" +
			"ponos-list --state failed --group lr --ids | ponos-retry",
		Brief:       map[string][]string{"": {"state", "group", "name", "directory", "repository", "sbatch", "env-file", "yes"}},
		Environment: slurm.CheckEnvironment,
		Flags: app.TaskFlags(tasklist.States, append(changeFlags(),
			&cli.StringFlag{
				Name: "env-file", Aliases: []string{"e"}, Usage: "set the variables in `FILE`; they are not kept after a task ends",
			},
			&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "do not ask before submitting more than one task"})...),
		Unknown: func(option string) string {
			if option == "--failed" {
				return "only tasks that have failed or were stopped are retried; --state failed leaves out the others"
			}
			return ""
		},
		Action: func(c *cli.Context) error { return retry(c, command, stdin, stdout, stderr) },
	}.Run(ctx, args, stdin, stdout, stderr)
}

func retry(c *cli.Context, command []string, stdin io.Reader, stdout, stderr io.Writer) error {
	ch, err := changeOf(c, command)
	if err != nil {
		return err
	}
	var env map[string]string
	if path := c.String("env-file"); path != "" {
		if env, err = tasklist.ReadEnv(path); err != nil {
			return err
		}
	}
	chosen, err := tasklist.Choose(c.String, c.Args().Slice(), stdin)
	if err != nil {
		return err
	}
	s, found, errs := chosen.Queue, chosen.Found, chosen.Errs
	if len(chosen.Words) == 0 { // a filter means those that can be retried
		found = slices.DeleteFunc(slices.Clone(found), func(r queue.Summary) bool { return !r.State.Final() || r.State == task.Completed })
		if len(found) == 0 && len(chosen.Found) > 0 {
			errs = append(errs, fmt.Errorf("nothing to retry: %s", tasklist.CountOf(chosen.Found)))
		}
	}
	code := source.Named(c.String, c.Bool("dirty"))
	again, refused := plan(s, withChildren(chosen.All, found), env, code == (source.Wanted{}))
	if errs = append(errs, refused...); len(again) == 0 {
		return errors.Join(errs...)
	}
	if len(chosen.Words) == 0 {
		found = withoutChildren(found)
	}
	if err := ch.make(c, s, code, again, found, stderr); err != nil {
		return err
	}
	if len(again) > 1 && !c.Bool("yes") {
		if err := tasklist.Ask(c.Context, stdin, stderr, name, fmt.Sprintf("submit %d tasks again?", len(again))); err != nil {
			return err
		}
	}
	made, err := submit(s, again)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(stdout)
	for _, id := range made {
		fmt.Fprintln(out, id)
	}
	if err := tasklist.Unattended(s, func() string { return starter(c, again) }, ""); err != nil {
		app.Report(stderr, name, err)
	}
	return errors.Join(append(errs, out.Flush())...)
}

// starter is how the agent is started that takes these tasks: by a look at their group, if they have one.
func starter(c *cli.Context, again []queue.Entry) string {
	start, group := tasklist.Start(c.String("config"), c.String("spool")), again[0].Group
	if c.IsSet("spool") || group == "" || slices.ContainsFunc(again, func(e queue.Entry) bool { return e.Group != group }) {
		return start
	}
	look := "ponos run"
	if c.IsSet("config") {
		look += " --config " + shell.Quote(c.String("config"))
	}
	return fmt.Sprintf("%s --group %s, which ends with the tasks; or %s", look, shell.Quote(group), start)
}

// withoutChildren leaves out the tasks that ended because another one of these was not completed: a filter means that one.
func withoutChildren(found []queue.Summary) (own []queue.Summary) {
	has := make(map[task.ID]bool, len(found))
	for _, r := range found {
		has[r.ID] = true
	}
	for _, r := range found {
		if !has[queue.FailedParent(r)] {
			own = append(own, r)
		}
	}
	return own
}

// withChildren adds the tasks that ended because one of these was not completed: they wait
// again.
func withChildren(all, found []queue.Summary) []queue.Summary {
	children := map[task.ID][]queue.Summary{}
	for _, r := range all {
		if parent := queue.FailedParent(r); parent != "" && !r.Retried {
			children[parent] = append(children[parent], r)
		}
	}
	found = slices.Clone(found)
	chosen := make(map[task.ID]bool, len(found))
	for _, r := range found {
		chosen[r.ID] = true
	}
	for i := 0; i < len(found); i++ {
		for _, child := range children[found[i].ID] {
			if !chosen[child.ID] && !found[i].Retried && found[i].State.Final() {
				chosen[child.ID] = true
				found = append(found, child)
			}
		}
	}
	return found
}

// plan makes the tasks that do others again, the oldest first, and each behind those that it waits
// for. Errors are of tasks that cannot be retried. With keepCode they run the code that they had.
func plan(s queue.Client, found []queue.Summary, env map[string]string, keepCode bool) (again []queue.Entry, errs []error) {
	slices.SortStableFunc(found, func(a, b queue.Summary) int { return a.Created.Compare(b.Created) })
	left := make(map[task.ID]queue.Summary, len(found))
	for _, r := range found {
		left[r.ID] = r
	}
	chosen := map[task.ID]bool{}
	var decide func(r queue.Summary)
	decide = func(r queue.Summary) {
		if _, ok := left[r.ID]; !ok {
			return
		}
		delete(left, r.ID)
		e, err := s.Read(r)
		for i := 0; i < len(e.After) && err == nil; i++ {
			// A parent may be younger than its child: its last attempt, or a task of a host whose clock is ahead.
			if e.After[i], err = s.Latest(e.After[i]); err == nil {
				decide(left[e.After[i]])
			}
		}
		if err == nil {
			e, err = next(s, e, r, env, chosen, keepCode)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("task %s (%s): %w", r.ID, task.Clean(r.Slug), err))
			return
		}
		chosen[r.ID] = true
		again = append(again, e)
	}
	for _, r := range found {
		decide(r)
	}
	return again, errs
}

// next is the task that does another one again. That must be over: as long as its run may
// go on, the agent does not say so. It comes after the last attempts of others.
func next(
	s queue.Client, e queue.Entry, r queue.Summary, env map[string]string, chosen map[task.ID]bool, keepCode bool,
) (queue.Entry, error) {
	switch {
	case !e.State.Final():
		return e, fault.Hint(fmt.Errorf("it is %s", e.State), "ponos-cancel stops it; it can be retried when it has ended")
	case e.State == task.Completed:
		return e, errors.New("it has completed, and only what failed or was stopped is retried")
	case r.Retried:
		id, err := s.Latest(r.ID)
		if err != nil {
			return e, err
		}
		return e, fault.Hint(fmt.Errorf("it has already been retried, as task %s", id), "retry that one")
	}
	if keepCode && e.Source.Archive != "" {
		if _, err := os.Stat(e.Source.Archive); errors.Is(err, fs.ErrNotExist) {
			return e, fault.Hint(errors.New("its code was removed from the spool"), "--directory or --repository gives it other code")
		}
	}
	var missing []string
	for _, v := range e.Variables {
		if _, ok := env[v]; !ok {
			missing = append(missing, v)
		}
	}
	if len(missing) > 0 {
		return e, fault.Hint(
			fmt.Errorf("its variables are not kept: %s", task.Clean(strings.Join(missing, ", "))),
			"pass them again with --env-file")
	}
	for _, parent := range e.After {
		if p, err := s.Find(parent); err == nil && p.State.Final() && p.State != task.Completed && !chosen[parent] {
			return e, fault.Hint(
				fmt.Errorf("the task that it waits for, %s (%s), ended as %s", parent, task.Clean(p.Slug), p.State),
				"retry that one too")
		}
	}
	e.RetryOf, e.Attempt, e.Attempts = e.ID, e.Tries()+1, nil
	e.ID, e.State, e.Reason, e.ExitCode, e.Agent, e.Job, e.Variables = "", task.Pending, "", 0, "", "", nil
	e.Created, e.Started, e.Ended = clock.Now().UTC(), time.Time{}, time.Time{}
	if env != nil {
		e.Env = env
	}
	return e, nil
}

// submit submits tasks again, parents before their children, and returns the ids of those
// that are new.
func submit(s queue.Client, again []queue.Entry) ([]task.ID, error) {
	var made []task.ID
	for len(again) > 0 {
		// As many as wait for none of the others.
		waiting := map[task.ID]bool{}
		for _, e := range again {
			waiting[e.RetryOf] = true
		}
		var now, later []queue.Entry
		for _, e := range again {
			if slices.ContainsFunc(e.After, func(id task.ID) bool { return waiting[id] }) {
				later = append(later, e)
				continue
			}
			for i, parent := range e.After {
				last, err := s.Latest(parent)
				if err != nil {
					return made, err
				}
				e.After[i] = last
			}
			now = append(now, e)
		}
		if len(now) == 0 {
			return made, errors.New("these tasks wait for each other")
		}
		b, err := s.Retry(now)
		if err != nil {
			return made, err
		}
		made = append(made, b.IDs...)
		again = later
	}
	return made, nil
}
