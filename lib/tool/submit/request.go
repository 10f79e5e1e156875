package submit

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/agent/sweep"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// requestFlags are the flags that say what a task needs.
func requestFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "find", Usage: "the task needs `REQUEST`, in the language of lfind"},
		&cli.StringSliceFlag{Name: "sbatch", Usage: "submit the job with the sbatch option `NAME=VALUE`, such as mem=8G; repeatable"},
		&cli.StringFlag{Name: "retry", Usage: "retry the task according to `RULES`, such as 'oom: mem*2 <= 64G, lost'; none: never"},
	}
}

// requested reads those flags into a task. In a sweep the request may have placeholders, and
// is checked when they are filled in.
func requested(c *cli.Context, e *spool.Entry, sweep bool) error {
	e.Request = task.Request{Find: c.String("find"), Sbatch: c.StringSlice("sbatch")}
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

// maxMeet limits how many requests the cluster is asked about.
const maxMeet = 16

// meet asks whether requests can be met, where that can be asked: of many, the first ones.
func meet(c *cli.Context, requests []task.Request) error {
	requests = slices.DeleteFunc(requests, task.Request.IsZero)
	if len(requests) == 0 || c.IsSet("spool") {
		return nil
	}
	cfg, err := config.Load(c.String("config"))
	if err != nil {
		return err
	}
	if cfg.Mode != "slurm" && slices.ContainsFunc(requests, func(r task.Request) bool { return len(r.Sbatch) > 0 }) {
		app.Report(c.App.ErrWriter, name, fault.Hint(
			fmt.Errorf("warning: options of sbatch have no effect in mode %s", cfg.Mode),
			"request resources with --find"))
	}
	for _, r := range requests[:min(len(requests), maxMeet)] {
		if err := assembly.CheckNeeds(c.Context, cfg, runner.Needs{GPU: c.Bool("gpu"), Request: r}); err != nil {
			return err
		}
	}
	return nil
}

// template is a request with placeholders.
type template struct {
	find   sweep.Template
	sbatch []sweep.Template
}

func parseRequest(r task.Request, columns []string) (t template, err error) {
	if t.find, err = sweep.Parse(r.Find, columns, spool.CheckParameter); err != nil {
		return t, fault.Errorf(fault.Usage, "--find: %w", err)
	}
	for _, s := range r.Sbatch {
		one, err := sweep.Parse(s, columns, spool.CheckParameter)
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
