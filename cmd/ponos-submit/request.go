package main

import (
	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/assembly"
	"github.com/ponos-tools/ponos/lib/config"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/launcher/request"
	"github.com/ponos-tools/ponos/lib/need"
	"github.com/ponos-tools/ponos/lib/queue/spool"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/task"
)

// requestFlags are the flags that say what a task needs.
func requestFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "find", Usage: "the task needs `REQUEST`, in the language of lfind"},
		&cli.StringSliceFlag{Name: "sbatch", Usage: "submit it with the option `NAME=VALUE` of sbatch, such as mem=8G; repeatable"},
		&cli.StringFlag{Name: "retry", Usage: "try it again by `RULES`, such as 'oom: mem*2 <= 64G, lost'; or none"},
	}
}

// requested reads those flags into a task.
func requested(c *cli.Context, e *spool.Entry) error {
	e.Request = task.Request{Find: c.String("find"), Sbatch: c.StringSlice("sbatch")}
	if c.IsSet("find") {
		if _, err := request.Parse(e.Request.Find); err != nil {
			return fault.Wrap(fault.Usage, &flagError{"--find", err})
		}
	}
	if err := need.Check(e.Request); err != nil {
		name := "--sbatch"
		if len(e.Request.Sbatch) == 0 {
			name = "--find"
		}
		return fault.Wrap(fault.Usage, &flagError{name, err})
	}
	e.Retry = c.String("retry")
	if _, err := need.ParseRules(e.Retry); err != nil {
		return fault.Wrap(fault.Usage, &flagError{"--retry", err})
	}
	if e.Request.IsZero() || c.IsSet("spool") {
		return nil
	}
	cfg, err := config.Load(c.String("config"))
	if err != nil {
		return err
	}
	return assembly.CheckNeeds(c.Context, cfg, runner.Needs{GPU: c.Bool("gpu"), Request: e.Request})
}

// flagError is an error of a flag's value.
type flagError struct {
	flag string
	err  error
}

func (e *flagError) Error() string { return e.flag + ": " + e.err.Error() }
func (e *flagError) Unwrap() error { return e.err }
