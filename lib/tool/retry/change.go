package retry

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/agent/code/source"
	"github.com/ponos-tools/ponos/lib/agent/sweep"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// changeFlags are the flags of what tasks get anew.
func changeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "directory", Aliases: []string{"d"}, Usage: "run code of `DIR`, as it is now"},
		&cli.StringFlag{Name: "repository", Aliases: []string{"r"}, Usage: "run code of the git repository `URL` (or path)"},
		&cli.StringFlag{Name: "revision", Usage: "check out `REV`: a commit, tag or branch (HEAD)"},
		&cli.BoolFlag{Name: "dirty", Usage: "include uncommitted changes"},
		&cli.StringFlag{Name: "find", Usage: "the tasks need `REQUEST`, in the language of lfind"},
		&cli.StringSliceFlag{Name: "sbatch", Usage: "submit the jobs with the sbatch option `NAME=VALUE`, such as mem=8G; repeatable"},
	}
}

// change is what tasks get anew when they are retried, beside code. The zero value changes nothing.
type change struct {
	find    string   // "": each task keeps its own
	sbatch  []string // replace options of the same name
	command []string // nil: each task keeps its own
}

// changeOf reads the command line.
func changeOf(c *cli.Context, command []string) (change, error) {
	if c.IsSet("find") && c.String("find") == "" {
		_, err := request.Parse("")
		return change{}, fault.Errorf(fault.Usage, "--find: %w", err)
	}
	if command != nil && (len(command) == 0 || command[0] == "") {
		return change{}, fault.Errorf(fault.Usage, "no command after --")
	}
	ch := change{find: c.String("find"), sbatch: c.StringSlice("sbatch"), command: command}
	return ch, source.Named(c.String, c.Bool("dirty")).Check()
}

// make applies what the command line changes to the tasks that are to be submitted, of which a user has chosen some.
func (ch change) make(
	c *cli.Context, s queue.Client, code source.Wanted, again []queue.Entry, found []queue.Summary, stderr io.Writer,
) error {
	chosen := make(map[task.ID]bool, len(found))
	for _, r := range found {
		chosen[r.ID] = true
	}
	if err := ch.apply(again, chosen); err != nil {
		return err
	}
	if err := ch.meet(c, again, stderr); err != nil {
		return err
	}
	if code == (source.Wanted{}) {
		for _, warning := range aged(c.Context, again) {
			app.Report(stderr, name, warning)
		}
		return nil
	}
	for _, e := range again {
		if chosen[e.RetryOf] && e.Image != "" {
			return fault.Errorf(fault.Usage, "task %s runs the image %s unchanged: code cannot be put into it",
				e.RetryOf, task.Clean(e.Image))
		}
	}
	looked := map[string]bool{}
	for _, e := range again {
		if script := source.Script(e.Command); chosen[e.RetryOf] && script != "" && !looked[script] {
			looked[script] = true
			if err := code.Absent(c.Context, e.Command); err != nil {
				return err
			}
		}
	}
	// Last, as it may take a while: all else is right.
	made, uncommitted, err := code.Make(c.Context, s)
	if err != nil {
		return err
	}
	if err := source.Uncommitted(uncommitted); err != nil {
		app.Report(stderr, name, err)
	}
	give(again, chosen, made)
	return nil
}

// apply changes what the chosen tasks need and run.
func (ch change) apply(again []queue.Entry, chosen map[task.ID]bool) error {
	for i := range again {
		e := &again[i]
		if !chosen[e.RetryOf] {
			continue
		}
		if err := ch.rest(e); err != nil {
			return fault.Errorf(fault.Usage, "task %s (%s): %w", e.RetryOf, task.Clean(e.Slug), err)
		}
	}
	return nil
}

// give gives the chosen tasks new code, and also tasks that follow them, if theirs was that of a chosen one.
func give(again []queue.Entry, chosen map[task.ID]bool, code task.Source) {
	var old []task.Source
	for _, e := range again {
		if chosen[e.RetryOf] && e.Source != (task.Source{}) && !slices.ContainsFunc(old, e.Source.Same) {
			old = append(old, e.Source)
		}
	}
	for i := range again {
		if e := &again[i]; chosen[e.RetryOf] || slices.ContainsFunc(old, e.Source.Same) {
			code.Environment = e.Source.Environment
			e.Source = code
		}
	}
}

// rest changes the request and the command of a task.
func (ch change) rest(e *queue.Entry) (err error) {
	fill := filler(e.Parameters)
	if ch.find != "" {
		var parsed request.Request
		if e.Request.Find, err = fill(ch.find); err == nil {
			parsed, err = request.Parse(e.Request.Find)
		}
		if err != nil {
			return fmt.Errorf("--find: %w", err)
		}
		e.Request.Sbatch = slices.DeleteFunc(slices.Clone(e.Request.Sbatch), func(option string) bool {
			return replaced(option, parsed)
		})
	}
	if len(ch.sbatch) > 0 {
		options, err := filled(ch.sbatch, fill)
		if err == nil {
			err = need.Check(task.Request{Sbatch: options})
		}
		if err == nil {
			e.Request, err = need.Override(e.Request, options)
		}
		if err == nil {
			err = need.CheckValues(e.Request)
		}
		if err != nil {
			return fmt.Errorf("--sbatch: %w", err)
		}
	}
	if ch.command != nil {
		if e.Command, err = filled(ch.command, fill); err != nil {
			return err
		}
		e.Worker = ""
	}
	return nil
}

// replaced reports whether a new request takes the place of an option of an earlier submission, which would come before it: one that
// says what the job gets, or how long, if the request says that.
func replaced(option string, r request.Request) bool {
	o, err := need.Option(option)
	if err != nil {
		return false
	}
	if o.Name == "time" {
		return !slices.ContainsFunc(r.Alternatives, func(a request.Alternative) bool { return a.Duration == 0 })
	}
	return sbatch.Lookup(o.Name).Allocates
}

// filler fills placeholders in with the parameters of a task. One without parameters was not made by a sweep, and has none.
func filler(parameters map[string]string) func(word string) (string, error) {
	if len(parameters) == 0 {
		return func(word string) (string, error) { return word, nil }
	}
	columns := slices.Sorted(maps.Keys(parameters))
	row := make([]string, len(columns))
	for i, c := range columns {
		row[i] = parameters[c]
	}
	return func(word string) (string, error) {
		t, err := sweep.Parse(word, columns, queue.CheckParameter)
		return t.Fill(row), err
	}
}

func filled(words []string, fill func(word string) (string, error)) (all []string, err error) {
	for _, w := range words {
		if w, err = fill(w); err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, nil
}

// meet asks whether the cluster can run the tasks, if their requests have changed.
func (ch change) meet(c *cli.Context, again []queue.Entry, stderr io.Writer) error {
	if c.IsSet("spool") || ch.find == "" && len(ch.sbatch) == 0 {
		return nil
	}
	cfg, err := assembly.Configuration(c.String("config"))
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	var all []runner.Needs
	for _, e := range again {
		if key := fmt.Sprint(e.RequiresGPU, e.Request); !seen[key] {
			seen[key] = true
			all = append(all, runner.Needs{GPU: e.RequiresGPU, Request: e.Request})
		}
	}
	return assembly.Meet(c.Context, cfg, all, func(err error) { app.Report(stderr, name, err) })
}

// maxAged limits how many directories are compared.
const maxAged = 8

// aged are warnings of directories that have other contents than the code of tasks that keep it.
func aged(ctx context.Context, again []queue.Entry) (warnings []error) {
	var seen []task.Source
	for _, e := range again {
		if e.Source.Directory == "" || slices.ContainsFunc(seen, e.Source.Same) {
			continue
		}
		if seen = append(seen, e.Source); len(seen) > maxAged {
			break
		}
		if changed, err := source.Changed(ctx, e.Source); err != nil || !changed {
			continue // what cannot be read is not what the task runs
		}
		option := "--directory " + shell.Quote(e.Source.Directory)
		if e.Source.Repository != "" {
			option = "--repository " + shell.Quote(e.Source.Directory) + ", with --dirty if it is not committed,"
		}
		warnings = append(warnings, fault.Hint(
			fmt.Errorf("warning: %s has changed, and the tasks run the code of their submission", task.Clean(e.Source.Directory)),
			option+" runs what is there now"))
	}
	return warnings
}
