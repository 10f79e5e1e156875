package submit

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/agent/sweep"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// requestFlags are the flags that say what a task needs.
func requestFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "find", Usage: "the task needs `REQUEST`, in the language of lfind"},
		&cli.StringSliceFlag{Name: "sbatch", Usage: "submit the job with the sbatch option `NAME=VALUE`, such as mem=8G; repeatable"},
		&cli.StringFlag{Name: "retry", Usage: "retry the task according to `RULES`, such as 'oom: mem*2 <= 64G, lost'; none: never"},
	}, likeSbatch()...)
}

// likeSbatch are flags for the options of sbatch that people type most, with the short forms that are not those of other flags here.
func likeSbatch() []cli.Flag {
	var all []cli.Flag
	for _, o := range sbatch.All() {
		if o.Typed == "" {
			continue
		}
		f := &cli.StringFlag{Name: o.Name, Usage: fmt.Sprintf("as in sbatch: --sbatch %s=`%s`", o.Name, o.Typed)}
		if o.Short != 0 && !strings.ContainsRune(taken, rune(o.Short)) {
			f.Aliases = []string{string(o.Short)}
		}
		all = append(all, f)
	}
	return all
}

// taken are short forms that other flags have here.
const taken = "cn"

// NotSbatch adds a hint to an error about an option that was given by a letter which sbatch has for another one.
func NotSbatch(args []string, err error) error {
	if !fault.Is(err, fault.Usage) {
		return err
	}
	for _, word := range args[1:] {
		if word == "--" {
			break
		}
		if len(word) < 2 || word[0] != '-' || word[1] == '-' {
			continue
		}
		for _, f := range Flags() {
			names := f.Names()
			if slices.Contains(names, word[1:2]) && sbatch.Short(word[1]) != names[0] && strings.Contains(err.Error(), names[0]) {
				if hint := Instead(word[:2]); hint != "" {
					return fault.Hint(err, fmt.Sprintf("%s is --%s here: %s", word[:2], names[0], hint))
				}
			}
		}
	}
	return err
}

// here are options of sbatch for which a task has its own words.
var here = map[string]string{
	"array":        "for many tasks, give --each FILE, or ::: lists before the command, and for its limit --at-most N",
	sbatch.JobName: "give --name NAME",
	"output":       "the output is kept in the task's log: see ponos-log", "error": "the output is kept in the task's log: see ponos-log",
	"dependency": "to start after a task, give --after TASK", "chdir": "for the directory with the code, give --directory DIR",
	"wrap": "give the command itself, after --: sh -c '...' for a line of a shell", "export": "for variables, give --env-file FILE",
}

// Instead is a hint to an option of sbatch, by its long or short name with dashes: what to give here. "" if there is nothing.
func Instead(option string) string {
	o, meant := sbatch.Typed(option)
	switch {
	case option == "--env":
		return "give --env-file FILE, with lines NAME=VALUE, or run env NAME=VALUE COMMAND"
	case o == nil && meant != "":
		return fmt.Sprintf("did you mean --%s?", meant)
	case o == nil:
		return ""
	case here[o.Name] != "":
		return here[o.Name]
	case o.Use&sbatch.ByTask == 0:
		return ""
	case o.Typed != "":
		return fmt.Sprintf("as in sbatch, give --%s=VALUE", o.Name)
	case o.Form == sbatch.Flag || o.Optional:
		return "for the option of sbatch, give --sbatch " + o.Name
	}
	return fmt.Sprintf("for the option of sbatch, give --sbatch %s=VALUE", o.Name)
}

// numbered is a warning of a name that is a number: perhaps -n of sbatch was meant.
func numbered(c *cli.Context) error {
	given := c.String("name")
	if _, err := strconv.ParseUint(given, 10, 32); err != nil {
		return nil
	}
	return fault.Hint(
		fmt.Errorf("warning: the name of the task is %s, as -n is --name here", given),
		"for the number of tasks of the job, give --ntasks="+given)
}

// requested reads those flags into a task. In a sweep the request may have placeholders, and
// is checked when they are filled in.
func requested(c *cli.Context, e *queue.Entry, sweep bool) error {
	e.Request = task.Request{Find: c.String("find"), Sbatch: c.StringSlice("sbatch")}
	for _, o := range sbatch.All() {
		if o.Typed == "" || !c.IsSet(o.Name) {
			continue
		}
		value := c.String(o.Name)
		option, err := sbatch.Setting(o.Name, &value)
		if err == nil && !sweep {
			err = option.Check()
		}
		if err != nil {
			return fault.Wrap(fault.Usage, &flagError{"--" + o.Name, cmp.Or(errors.Unwrap(err), err)})
		}
		e.Request.Sbatch = append(e.Request.Sbatch, o.Name+"="+value)
	}
	if c.IsSet("find") && e.Request.Find == "" {
		_, err := request.Parse("")
		return fault.Wrap(fault.Usage, &flagError{"--find", err})
	}
	e.Retry = c.String("retry")
	if _, err := need.ParseRules(e.Retry); err != nil {
		return fault.Wrap(fault.Usage, &flagError{"--retry", err})
	}
	if sweep {
		return nil
	}
	if err := checkRequest(e.Request); err != nil {
		return err
	}
	return meet(c, []task.Request{e.Request})
}

// checkRequest checks what a request says.
func checkRequest(r task.Request) error {
	if r.Find != "" {
		if _, err := request.Parse(r.Find); err != nil {
			return fault.Wrap(fault.Usage, &flagError{"--find", err})
		}
	}
	if err := need.Check(r); err != nil {
		name := "--sbatch"
		if len(r.Sbatch) == 0 {
			name = "--find"
		}
		return fault.Wrap(fault.Usage, &flagError{name, err})
	}
	if err := need.CheckValues(r); err != nil {
		return fault.Wrap(fault.Usage, &flagError{"--sbatch", err})
	}
	return nil
}

// meet asks whether requests can be met, where that can be asked.
func meet(c *cli.Context, requests []task.Request) error {
	if c.IsSet("spool") || !slices.ContainsFunc(requests, func(r task.Request) bool { return !r.IsZero() }) {
		return nil
	}
	cfg, err := assembly.Configuration(c.String("config"))
	if err != nil {
		return err
	}
	var all []runner.Needs
	for _, r := range requests {
		all = append(all, runner.Needs{GPU: c.Bool("gpu"), Request: r})
	}
	return assembly.Meet(c.Context, cfg, all, func(err error) { app.Report(c.App.ErrWriter, c.App.Name, err) })
}

// template is a request with placeholders.
type template struct {
	find   sweep.Template
	sbatch []sweep.Template
}

func parseRequest(r task.Request, columns []string) (t template, err error) {
	if t.find, err = sweep.Parse(r.Find, columns, queue.CheckParameter); err != nil {
		return t, fault.Errorf(fault.Usage, "--find: %w", err)
	}
	for _, s := range r.Sbatch {
		one, err := sweep.Parse(s, columns, queue.CheckParameter)
		if err != nil {
			return t, fault.Errorf(fault.Usage, "--sbatch: %w", err)
		}
		t.sbatch = append(t.sbatch, one)
	}
	return t, nil
}

func (t template) fill(row []string) task.Request {
	r := task.Request{Find: t.find.Fill(row)}
	for _, s := range t.sbatch {
		r.Sbatch = append(r.Sbatch, s.Fill(row))
	}
	return r
}

// templates are those that may use a column.
func (t template) templates() []sweep.Template { return append([]sweep.Template{t.find}, t.sbatch...) }

// flagError is an error of a flag's value.
type flagError struct {
	flag string
	err  error
}

func (e *flagError) Error() string { return e.flag + ": " + e.err.Error() }
func (e *flagError) Unwrap() error { return e.err }
