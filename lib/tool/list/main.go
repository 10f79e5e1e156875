// Package list is the tool ponos-list, which shows the tasks of a spool.
package list

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

const name = "ponos-list"

// Usage is what the tool does, in a line.
const Usage = "list the tasks of the spool"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int { return app.Main(run) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name: name, Usage: Usage, ArgsUsage: "[TASK...]",
		Description: "Lists the tasks of a spool with their states and reasons: those that have not\n" +
			"ended first, and the newest before older ones.",
		Examples: "ponos-list --state unfinished\nponos-list --group lr --table results.tsv\n" +
			"ponos-list --state failed --group lr --ids | ponos-retry",
		Brief:       map[string][]string{"": {"state", "group", "since", "ids", "groups", "long", "watch", "table", "json"}},
		Environment: slurm.CheckEnvironment,
		Flags: app.TaskFlags(tasklist.States,
			&cli.IntFlag{Name: "last", Usage: "only the last `N` tasks that match"},
			&cli.BoolFlag{Name: "all", Usage: "show all rows, not only the first 40"},
			&cli.BoolFlag{Name: "attempts", Usage: "also list earlier attempts of retried tasks"},
			&cli.BoolFlag{Name: "ids", Usage: "print only ids, one per line"},
			&cli.BoolFlag{Name: "names", Usage: "print only names, each once"},
			&cli.BoolFlag{Name: "groups", Usage: "count the tasks of each group"},
			&cli.BoolFlag{Name: "long", Aliases: []string{"l"}, Usage: "print full ids and all times"},
			&cli.BoolFlag{Name: "watch", Aliases: []string{"w"}, Usage: "refresh every 2 s, until Ctrl-C"},
			&cli.StringFlag{Name: "table", Usage: "write parameters, states, times and exit codes to `FILE` (TSV)"},
			&cli.BoolFlag{Name: "files", Usage: "print the paths of the artifacts and kept files of the tasks"},
			&cli.StringFlag{Name: "artifacts", Usage: "create links in `DIR` to the artifacts and kept files of the tasks, by name"},
			&cli.BoolFlag{Name: "null", Aliases: []string{"0"}, Usage: "end the paths of --files and --artifacts with NUL, and quote none"},
			app.JSONFlag(),
		),
		Action: func(c *cli.Context) error { return list(c, stdout, stderr) },
	}.Run(ctx, args, stdin, stdout, stderr)
}

// listing is what the command line requests.
type listing struct {
	c              *cli.Context
	spool          queue.Client
	filter         tasklist.Filter
	stdout, stderr io.Writer
}

// forms cannot be combined.
var forms = []string{"ids", "names", "groups", "long", "table", "files", "artifacts", "json"}

// check returns an error for options that cannot be combined.
func check(isSet func(name string) bool) error {
	given := slices.DeleteFunc(slices.Clone(forms), func(f string) bool { return !isSet(f) })
	switch {
	case len(given) > 1:
		return fault.Errorf(fault.Usage, "--%s and --%s cannot be combined", given[0], given[1])
	case isSet("watch") && len(given) > 0 && given[0] != "long" && given[0] != "groups":
		return fault.Errorf(fault.Usage, "--watch and --%s cannot be combined", given[0])
	case isSet("null") && !isSet("files") && !isSet("artifacts"):
		return fault.Errorf(fault.Usage, "--null needs --files or --artifacts")
	}
	return nil
}

func list(c *cli.Context, stdout, stderr io.Writer) error {
	if err := check(c.IsSet); err != nil {
		return err
	}
	if c.IsSet("last") && c.Int("last") < 1 {
		return fault.Errorf(fault.Usage, "--last must be at least 1, not %d", c.Int("last"))
	}
	l := listing{c: c, stdout: stdout, stderr: stderr}
	var err error
	if l.filter, err = tasklist.NewFilter(c.String, clock.Now()); err != nil {
		return err
	}
	if l.spool, err = tasklist.Open(c.String("config"), c.String("spool")); err != nil {
		return err
	}
	if c.Bool("watch") {
		if !app.IsTerminal(stdout) {
			return fault.Errorf(fault.Usage, "--watch: standard output is not a terminal")
		}
		return l.watch()
	}
	return l.show(stdout, stderr, true)
}

// watch shows the list again and again.
func (l *listing) watch() error {
	for {
		var text, notes strings.Builder
		if err := l.show(&text, &notes, false); err != nil {
			return err
		}
		// A line takes one row.
		rows := screen(app.Rows(l.stdout, text.String()), app.Rows(l.stdout, notes.String()), app.Height(l.stdout))
		if _, err := fmt.Fprintf(l.stdout, "\x1b[H\x1b[2J%s", strings.Join(rows, "")); err != nil {
			return err
		}
		select {
		case <-l.c.Done():
			return context.Cause(l.c.Context)
		case <-time.After(2 * time.Second):
		}
	}
}

// screen is what fits into a height: as many of the first lines as there is room for, and the last ones.
func screen(lines, last []string, height int) []string {
	return append(slices.Clip(lines[:min(len(lines), max(1, height-len(last)-1))]), last...)
}

// show prints what is asked for once.
func (l *listing) show(stdout, stderr io.Writer, warn bool) error {
	all, err := l.spool.List()
	if err != nil {
		return err
	}
	found, errs := choose(all, l.c.Args().Slice(), l.filter, l.c.Bool("attempts"), l.c.Int("last"))
	if warn {
		f := l.filter
		if asked := len(f.States) > 0 || f.Group != "" || f.Name != ""; asked && len(found) == 0 && len(errs) == 0 {
			// None of a time is an answer.
			errs = []error{l.filter.Nothing(all)}
		}
		start := func() string { return tasklist.Start(l.c.String("config"), l.c.String("spool")) }
		if err := tasklist.Unattended(l.spool, start, tasklist.Agents(all, unattended)...); err != nil {
			app.Report(stderr, name, err)
		}
	}
	failures, err := l.spool.Failures()
	if err != nil {
		return err
	}
	for _, group := range slices.Sorted(maps.Keys(failures)) {
		if slices.ContainsFunc(found, func(s queue.Summary) bool { return s.Group == group }) {
			app.Report(stderr, name, fmt.Errorf("warning: the command for the end of group %s did not run: %s", group, failures[group]))
		}
	}
	if len(found) == 0 && len(errs) > 0 {
		return errors.Join(errs...) // a file of an earlier --table stays as it is
	}
	out, summary := bufio.NewWriterSize(stdout, 64<<10), ""
	switch c := l.c; {
	case c.Bool("ids"):
		for _, s := range found {
			_, _ = out.WriteString(string(s.ID) + "\n") // Flush tells
		}
	case c.Bool("names"):
		err = printNames(out, found)
	case c.Bool("groups"):
		err = groups(found).PrintWithin(out, app.Room(l.stdout))
	case c.Bool("json"):
		err = l.json(out, found)
	case c.IsSet("table"):
		err = l.table(c.String("table"), out, found)
	case c.Bool("files"):
		err = l.files(out, found)
	case c.IsSet("artifacts"):
		err = l.artifacts(c.String("artifacts"), out, found)
	default:
		shown := l.first(found)
		l.explain(shown)
		if c.Bool("long") {
			err = long(shown).PrintWithin(out, app.Room(l.stdout))
		} else {
			err = short(shown, clock.Now()).PrintWithin(out, app.Room(l.stdout))
		}
		if len(found) > 1 && !c.Bool("long") {
			summary = tasklist.CountOf(found).String() + "\n"
		}
		if hidden := len(found) - len(shown); hidden > 0 {
			summary = fmt.Sprintf("%s; %d of them are not shown: --all\n", tasklist.CountOf(found), hidden)
		}
	}
	if err := errors.Join(err, out.Flush()); err != nil {
		return err
	}
	fmt.Fprint(stderr, summary)
	if warn && limited(found, all) {
		fmt.Fprintf(stderr, "%s: hint: the limit counts jobs: ponos-start --pack runs many short tasks in one\n", name)
	}
	return errors.Join(errs...)
}

// shortTask is how long tasks run at most that are better run in shared jobs.
const shortTask = 5 * time.Minute

// limited reports whether tasks of those found wait for a limit on submitted jobs, although most that have ended were short.
func limited(found, all []queue.Summary) bool {
	if !slices.ContainsFunc(found, func(s queue.Summary) bool { return !s.State.Final() && strings.HasPrefix(s.Reason, "submit limit") }) {
		return false
	}
	short, long := 0, 0
	for _, s := range all {
		switch {
		case !s.State.Final() || s.Started.IsZero():
		case s.Ended.Sub(s.Started) <= shortTask:
			short++
		default:
			long++
		}
	}
	return short > long
}

// rows are how many tasks are shown, unless all are asked for.
const rows = 40

// first are the tasks that a table shows, in its order: those that have not ended, then the others, the newest first.
func (l *listing) first(found []queue.Summary) []queue.Summary {
	shown := slices.Clone(found)
	slices.Reverse(shown)
	slices.SortStableFunc(shown, func(a, b queue.Summary) int {
		switch {
		case a.State.Final() == b.State.Final():
			return 0
		case b.State.Final():
			return -1
		}
		return 1
	})
	if c := l.c; c.Bool("all") || c.Bool("long") || c.Bool("watch") || c.Int("last") > 0 || c.Args().Present() || len(shown) <= rows {
		return shown
	}
	return shown[:rows]
}

// explain says of the jobs that wait what fairshare says of them. What is watched is not asked again and again.
func (l *listing) explain(shown []queue.Summary) {
	if l.c.IsSet("spool") || l.c.Bool("watch") {
		return
	}
	c, err := assembly.Configuration(l.c.String("config"))
	if err != nil {
		return // it was told
	}
	waiting := slices.DeleteFunc(slices.Clone(shown), func(s queue.Summary) bool { return s.State != task.Pending })
	why := assembly.Why(l.c.Context, c, waiting)
	for i, s := range shown {
		if why[s.ID] != "" {
			shown[i].Reason = why[s.ID]
		}
	}
}

// unattended is the age of a task from which its user is warned that no agent takes turns: one
// may just have been started.
const unattended = 10 * time.Second

// choose returns the tasks that words and a filter select, with their earlier attempts if these are
// requested; of them the last ones, or all if last is 0.
func choose(all []queue.Summary, words []string, f tasklist.Filter, attempts bool, last int) (found []queue.Summary, errs []error) {
	switch {
	case !attempts:
		found, errs = tasklist.Select(all, words, f)
	case len(words) == 0:
		found = all
	default:
		found, errs = tasklist.Select(all, words, tasklist.Filter{})
		found = tasklist.Attempts(all, found)
	}
	if attempts {
		found = slices.DeleteFunc(slices.Clone(found), func(s queue.Summary) bool { return !f.Has(s) })
	}
	if last > 0 && len(found) > last {
		found = found[len(found)-last:]
	}
	return found, errs
}

func printNames(out *bufio.Writer, found []queue.Summary) error {
	seen := make(map[string]bool, len(found))
	for _, s := range found {
		if !seen[s.Slug] {
			seen[s.Slug] = true
			if _, err := fmt.Fprintln(out, task.Clean(s.Slug)); err != nil {
				return err
			}
		}
	}
	return nil
}

// short is the table that fits into 80 columns.
func short(found []queue.Summary, now time.Time) *app.Table {
	t := &app.Table{
		Header: []string{"TASK", "NAME", "GROUP", "STATE", "TRY", "AGE", "TIME", "REASON"}, Drop: []string{"TRY", "GROUP"},
		Whole: []string{"TASK", "STATE", "AGE", "TIME"}, OneLine: true,
	}
	if !slices.ContainsFunc(found, func(s queue.Summary) bool { return s.Group != found[0].Group }) {
		t.Omit = append(t.Omit, "GROUP")
	}
	if !slices.ContainsFunc(found, func(s queue.Summary) bool { return s.Attempt > 1 }) {
		t.Omit = append(t.Omit, "TRY")
	}
	for _, s := range found {
		t.Add(s.ID.Short(), task.Clean(s.Slug), s.Group, string(s.State), strconv.Itoa(s.Attempt),
			brief(now.Sub(s.Created)), brief(ran(s, now)), task.Clean(s.Reason))
	}
	return t
}

// ran is how long a task has run; negative if it has not.
func ran(s queue.Summary, now time.Time) time.Duration {
	switch {
	case s.Started.IsZero():
		return -1
	case !s.State.Final():
		return max(0, now.Sub(s.Started))
	}
	return max(0, s.Ended.Sub(s.Started))
}

// brief is a duration in one unit or two.
func brief(d time.Duration) string {
	s := int64(d / time.Second)
	switch {
	case d < 0:
		return "-"
	case s < 60:
		return strconv.FormatInt(s, 10) + "s"
	case s < 3600:
		return twoUnits(s/60, 'm', s%60, 's')
	case s < 86400:
		return twoUnits(s/3600, 'h', s/60%60, 'm')
	}
	return twoUnits(s/86400, 'd', s/3600%24, 'h')
}

// twoUnits is brief's %d%c%02d%c, which is made for each task twice.
func twoUnits(n int64, unit byte, part int64, of byte) string {
	const digits = "0123456789"
	var b [24]byte
	return string(append(strconv.AppendInt(b[:0], n, 10), unit, digits[part/10], digits[part%10], of))
}

// long is the table with all that a listing knows.
func long(found []queue.Summary) *app.Table {
	t := &app.Table{Header: []string{"TASK", "NAME", "STATE", "GROUP", "TRY", "SUBMITTED", "STARTED", "ENDED", "EXIT", "REASON"},
		Drop: []string{"STARTED", "TRY", "EXIT", "GROUP", "ENDED", "SUBMITTED"}, Whole: []string{"TASK"}}
	for _, s := range found {
		exit := "-"
		if s.State == task.Completed || s.State == task.Failed {
			exit = fmt.Sprint(s.ExitCode)
		}
		t.Add(string(s.ID), task.Clean(s.Slug), string(s.State), orDash(s.Group), fmt.Sprint(s.Attempt),
			at(s.Created), at(s.Started), at(s.Ended), exit, task.Clean(s.Reason))
	}
	return t
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func at(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

// groups counts tasks by their groups.
func groups(found []queue.Summary) *app.Table {
	by, all := map[string]*tasklist.Count{}, tasklist.CountOf(found)
	var order []string
	for _, s := range found {
		n := by[s.Group]
		if n == nil {
			n = &tasklist.Count{By: map[task.State]int{}}
			order, by[s.Group] = append(order, s.Group), n
		}
		n.Total++
		n.By[s.State]++
	}
	states := []task.State{task.Pending, task.Running, task.Completed, task.Failed, task.Error, task.Stopped}
	if all.By[task.Stopping] > 0 {
		states = slices.Insert(states, 2, task.Stopping)
	}
	t := &app.Table{Header: []string{"GROUP", "TASKS"}, Right: []string{"TASKS"}}
	name := func(s task.State) string { return strings.ToUpper(string(s)) }
	for _, s := range states {
		t.Header, t.Right = append(t.Header, name(s)), append(t.Right, name(s))
	}
	for _, s := range []task.State{task.Stopped, task.Error, task.Running, task.Pending, task.Failed, task.Completed} {
		if all.By[s] == 0 { // a state that no task is in
			t.Drop = append(t.Drop, name(s))
		}
	}
	for _, g := range order {
		n := by[g]
		cells := []string{orDash(g), fmt.Sprint(n.Total)}
		for _, s := range states {
			cells = append(cells, fmt.Sprint(n.By[s]))
		}
		t.Add(cells...)
	}
	return t
}
