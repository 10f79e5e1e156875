// Package reap is the tool vast-reap, which finds and destroys orphaned instances.
package reap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/market/rented"
	"github.com/ponos-tools/ponos/lib/task"
)

const name = "vast-reap"

// Usage is what the tool does, in a line.
const Usage = "find and destroy orphaned instances of this agent"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int { return app.Main(run) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name:  name,
		Usage: Usage,
		Description: "Lists instances with the label of this agent that belong to no running task.\n" +
			"With --destroy, destroys them. Exits with 1 if there are any.",
		Examples: "vast-reap\nvast-reap --destroy --max 3\nvast-reap --agent a1b2c3d4e --older 1h\n" +
			"vast-reap --account\nvast-reap --bill --since 30d",
		Flags: []cli.Flag{
			app.ConfigFlag(),
			&cli.BoolFlag{Name: "destroy", Usage: "destroy the instances that were found"},
			&cli.IntFlag{Name: "max", Value: 10, Usage: "destroy at most `N` instances"},
			&cli.StringFlag{Name: "older", Value: "10m", Usage: "ignore instances younger than `DURATION`"},
			&cli.StringFlag{Name: "agent", Usage: "find instances of the agent `NAME`, whose host is lost"},
			&cli.BoolFlag{Name: "account", Usage: "find all instances of the account with the label of any agent"},
			&cli.BoolFlag{Name: "bill", Usage: "compare the estimated cost of each task with the bill"},
			&cli.StringFlag{Name: "since", Value: "7d", Usage: "with --bill, tasks that ended in the last `DURATION`"},
			app.JSONFlag(),
		},
		Action: func(c *cli.Context) error { return reap(c, stdout, stderr) },
	}.Run(ctx, args, stdin, stdout, stderr)
}

// row is an instance as it is printed.
type row struct {
	Instance  int64   `json:"instance"`
	Label     string  `json:"label"`
	Status    string  `json:"status"`
	Price     float64 `json:"dollars_per_hour"`
	Age       float64 `json:"age_seconds"`
	Reason    string  `json:"reason"`
	Destroyed bool    `json:"destroyed"`
}

func reap(c *cli.Context, stdout, stderr io.Writer) (err error) {
	older, err := unit.Duration(c.String("older"))
	if err != nil {
		return fault.Errorf(fault.Usage, "--older: %w", err)
	}
	if c.Int("max") < 1 {
		return fault.Errorf(fault.Usage, "--max must be at least 1, not %d", c.Int("max"))
	}
	if c.Bool("account") && (c.IsSet("agent") || c.Bool("bill")) || c.Bool("bill") && (c.IsSet("agent") || c.Bool("destroy")) {
		return fault.Errorf(fault.Usage, "--account, --agent and --bill cannot be combined, nor can --bill and --destroy")
	}
	since, err := unit.Duration(c.String("since"))
	if err != nil {
		return fault.Errorf(fault.Usage, "--since: %w", err)
	}
	system, err := assembly.Load(c.Context, assembly.Options{ConfigPath: c.String("config"), Stderr: stderr, Tool: name})
	if err != nil {
		return err
	}
	defer func() { system.Close(err) }()
	r, err := system.Instances()
	if err != nil {
		return err
	}
	if c.Bool("bill") {
		list, err := r.Bills(c.Context, clock.Now().Add(-since))
		if err != nil {
			return err
		}
		groups, err := r.Groups()
		if err != nil {
			return err
		}
		return showBills(list, groups, c.Bool("json"), stdout)
	}
	if c.IsSet("agent") {
		if _, ok := rented.ParseLabel("ponos:" + c.String("agent") + ":x:1"); !ok {
			return fault.Errorf(fault.Usage, "--agent: invalid agent name %q", c.String("agent"))
		}
		r.Agent = c.String("agent")
	}
	var found []rented.Unwanted
	if c.Bool("account") {
		found, err = r.Account(c.Context, older)
	} else {
		found, err = r.Orphaned(c.Context, older)
	}
	if err != nil {
		return err
	}
	if n := r.Odd(); n > 0 {
		fmt.Fprintf(stderr, "%s: warning: %d rows of the list of instances cannot be read, and are omitted\n", name, n)
	}
	if c.IsSet("agent") { // the user says that no other agent has the name
		for i := range found {
			found[i].Untracked = false
		}
	}
	if !c.Bool("destroy") {
		if err := show(rowsOf(found, nil, nil), c.Bool("json"), stdout); err != nil {
			return err
		}
		return left(len(found) + r.Odd())
	}
	chosen := choose(found, c.Int("max"))
	failed := r.Reap(c.Context, chosen)
	if err := show(rowsOf(found, chosen, failed), c.Bool("json"), stdout); err != nil {
		return err
	}
	if err := outcome(found, chosen, failed, r.Agent); err != nil {
		return err
	}
	return left(len(found) + r.Odd())
}

// left is the exit status if there are instances that no task needs, or may be.
func left(n int) error {
	if n == 0 {
		return nil
	}
	return fault.Exit(int(fault.Failed), nil)
}

// choose returns the instances that are to be destroyed: at most so many, and none that another agent
// may have ordered.
func choose(found []rented.Unwanted, most int) (chosen []rented.Unwanted) {
	for _, u := range found {
		if !u.Untracked && len(chosen) < most {
			chosen = append(chosen, u)
		}
	}
	return chosen
}

// rowsOf are the instances as they are printed, after those that were chosen were destroyed; failed are
// those of them that remain.
func rowsOf(found, chosen []rented.Unwanted, failed map[int64]error) []row {
	rows := []row{}
	for _, u := range found {
		line := row{u.Instance.ID, u.Instance.Label, u.Instance.Actual, u.Instance.Price, u.Age.Seconds(), u.Reason, false}
		if slices.ContainsFunc(chosen, func(other rented.Unwanted) bool { return other.Instance.ID == u.Instance.ID }) {
			line.Destroyed = failed[u.Instance.ID] == nil
		}
		rows = append(rows, line)
	}
	return rows
}

// outcome is the error after instances were to be destroyed: those that failed, or why others were not chosen.
func outcome(found, chosen []rented.Unwanted, failed map[int64]error, agent string) error {
	untracked := 0
	for _, u := range found {
		if u.Untracked {
			untracked++
		}
	}
	switch {
	case len(failed) > 0:
		// One request may have ended several, and its error is that of each.
		var failures []error
		for _, id := range slices.Sorted(maps.Keys(failed)) {
			if !slices.ContainsFunc(failures, func(err error) bool { return err.Error() == failed[id].Error() }) {
				failures = append(failures, failed[id])
			}
		}
		return errors.Join(failures...)
	case untracked > 0:
		return fault.Hint(
			fault.Errorf(fault.Failed,
				"%d of %d instances were not ordered from this data_dir, and are not touched: another agent may have the same name",
				untracked, len(found)),
			fmt.Sprintf("if none has, destroy them with \"vast-reap --agent %s --destroy\"", agent))
	case len(found) > len(chosen):
		return fault.Errorf(fault.Failed, "%d of %d instances were destroyed, as --max says", len(chosen), len(found))
	}
	return nil
}

func show(rows []row, asJSON bool, stdout io.Writer) error {
	if asJSON {
		return app.PrintJSON(stdout, rows)
	}
	if len(rows) == 0 {
		return nil
	}
	// What is needed to decide comes first: the label alone is wider than half a terminal.
	t := app.Table{
		Header: []string{"INSTANCE", "STATUS", "$/HOUR", "AGE", "DESTROYED", "WHY", "LABEL"},
		Right:  []string{"INSTANCE", "$/HOUR", "AGE"}, Drop: []string{"STATUS", "AGE"},
	}
	left, price := 0, 0.0
	for _, i := range rows {
		done := "no"
		if i.Destroyed {
			done = "yes"
		} else {
			left++
			price += i.Price
		}
		t.Add(fmt.Sprint(i.Instance), i.Status, fmt.Sprintf("%.4f", i.Price), age(i.Age), done, i.Reason, i.Label)
	}
	if err := t.Print(stdout); err != nil || left == 0 {
		return err
	}
	_, err := fmt.Fprintf(stdout, "\n%d left, at $%.4f an hour.\n", left, price)
	return err
}

// billed is a task as --bill prints it.
type billed struct {
	Task      task.ID    `json:"task"`
	Slug      string     `json:"slug"`
	Group     string     `json:"group,omitempty"`
	Attempt   int        `json:"attempt"`
	Machine   int64      `json:"machine"`
	GPU       string     `json:"gpu"`
	State     string     `json:"state"`
	Instances []int64    `json:"instances"`
	Estimated float64    `json:"estimated_dollars"`
	Billed    *float64   `json:"billed_dollars"`
	Ended     *time.Time `json:"ended"`
}

// showBills shows estimates and bills side by side.
func showBills(list []rented.Bill, groups map[task.ID]string, asJSON bool, stdout io.Writer) error {
	rows := []billed{}
	t := app.Table{
		Header: []string{"TASK", "NAME", "GROUP", "ATTEMPT", "STATE", "INSTANCES", "ESTIMATED $", "BILLED $"},
		Right:  []string{"ATTEMPT", "INSTANCES", "ESTIMATED $", "BILLED $"},
	}
	estimated, total, missing := 0.0, 0.0, 0
	for _, b := range list {
		state, cell := string(b.State), "-"
		if state == "" {
			state = "running"
		}
		line := billed{b.Task, b.Slug, groups[b.Task], b.Attempt, b.Machine, b.GPU, state, b.Instances, b.Estimated, b.Billed, nil}
		if !b.Ended.IsZero() {
			line.Ended = &b.Ended
		}
		rows = append(rows, line)
		if b.Billed != nil {
			cell = fmt.Sprintf("%.4f", *b.Billed)
			total += *b.Billed
			estimated += b.Estimated
		} else {
			missing++
		}
		t.Add(b.Task.Short(), cmp.Or(task.Clean(b.Slug), "-"), cmp.Or(task.Clean(groups[b.Task]), "-"), fmt.Sprint(b.Attempt), state,
			fmt.Sprint(len(b.Instances)), fmt.Sprintf("%.4f", b.Estimated), cell)
	}
	if asJSON {
		return app.PrintJSON(stdout, rows)
	}
	if len(rows) == 0 {
		return nil
	}
	if err := t.Print(stdout); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(stdout, "\nBilled $%.4f for what was estimated as $%.4f.\n", total, estimated); err != nil || missing == 0 {
		return err
	}
	_, err := fmt.Fprintf(stdout, "Not billed yet: %d.\n", missing)
	return err
}

// age is a time in two units at most.
func age(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d <= 0:
		return "?"
	case d >= 24*time.Hour:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
