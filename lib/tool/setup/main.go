// Package setup is the tool ponos-setup, which checks a configuration and makes an agent ready to work.
package setup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent"
	"github.com/ponos-tools/ponos/lib/agent/assembly"
	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

const name = "ponos-setup"

// Usage is what the tool does, in a line.
const Usage = "check the configuration, and register the agent"

// Main runs the tool as the whole process, and returns its exit status.
func Main() int { return app.Main(run) }

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return app.Tool{
		Name:  name,
		Usage: Usage,
		Description: "Checks configuration, programs and directories, registers with the queue, and\n" +
			"lists the tasks that run. With slurm.daemon, submits the agent as a job.",
		Examples:    "ponos-setup --init ~/ponos\nponos-setup --config ~/ponos/ponos.yaml\nponos-setup --check",
		Environment: slurm.CheckEnvironment,
		Flags: []cli.Flag{
			app.ConfigFlag(),
			&cli.StringFlag{Name: "init", Usage: "write an example configuration to `DIR`, and exit"},
			app.OneOf(&cli.StringFlag{
				Name: "mode", Usage: "with --init, the `MODE` to write: local or slurm (slurm if Slurm answers)",
			}, "local", "slurm"),
			&cli.BoolFlag{Name: "check", Usage: "check only, change nothing"},
			&cli.BoolFlag{Name: "tasks", Usage: "only list the tasks of the agent, from its state directory"},
			&cli.BoolFlag{Name: "no-daemon", Usage: "do not submit the agent as a Slurm job"},
			&cli.StringFlag{Name: "every", Value: "10s", Usage: "the job of the agent takes a turn every `DURATION`"},
			app.JSONFlag(),
			app.VerboseFlag(),
		},
		Action: func(c *cli.Context) error {
			if dir := c.String("init"); dir != "" {
				return initialize(c.Context, dir, c.String("mode"), stdout, stderr)
			}
			if c.IsSet("mode") {
				return fault.Errorf(fault.Usage, "--mode needs --init")
			}
			if c.Bool("tasks") {
				return tasks(c, stdout, stderr)
			}
			return setup(c, stdout, stderr)
		},
	}.Run(ctx, args, stdin, stdout, stderr)
}

// report is what ponos-setup prints.
type report struct {
	Config string     `json:"config"`
	Mode   string     `json:"mode"`
	Queue  string     `json:"queue"`
	Agent  string     `json:"agent,omitempty"`
	Checks []finding  `json:"checks"`
	Tasks  []taskRow  `json:"tasks"`
	Daemon *daemonRow `json:"daemon,omitempty"`
}

type taskRow struct {
	ID     string `json:"id"`
	Slug   string `json:"slug,omitempty"`
	Job    string `json:"job"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

type daemonRow struct {
	Job string `json:"job"`
	Log string `json:"log"`
}

func setup(c *cli.Context, stdout, stderr io.Writer) (err error) {
	every, err := unit.Duration(c.String("every"))
	if err != nil || every < time.Second {
		return fault.Errorf(fault.Usage, "--every: invalid value %q: expected a duration of at least 1s, such as 10s", c.String("every"))
	}
	cfg, err := assembly.Options{ConfigPath: c.String("config"), Stderr: stderr, Tool: name}.Read()
	if err != nil {
		return err
	}
	if err := assembly.CheckRequests(cfg); err != nil {
		return err
	}
	r := report{Config: cfg.Path, Mode: cfg.Mode, Queue: cfg.Queue, Tasks: []taskRow{}}
	r.checkLocal(c.Context, cfg)
	if !c.Bool("check") {
		err = r.prepare(c, cfg, every, stderr)
	}
	if c.Err() != nil { // checks that were interrupted found nothing
		return context.Cause(c.Context)
	}
	for _, check := range r.Checks {
		if check.Warning {
			fmt.Fprintf(stderr, "%s: warning: %s: %s\n%[1]s: hint: %[4]s\n", name, check.Name, check.Detail, check.Hint)
		}
	}
	if printErr := r.print(stdout, c.Bool("json")); err == nil {
		err = printErr
	}
	if err != nil {
		return err
	}
	return failures(r.Checks)
}

// failures are the errors of the checks that failed.
func failures(checks []finding) error {
	var errs []error
	for _, check := range checks {
		if !check.OK {
			if check.err == nil {
				check.err = fault.Errorf(fault.Usage, "%s: %s", check.Name, strings.TrimPrefix(check.Detail, check.Name+": "))
			}
			errs = append(errs, fault.Hint(check.err, check.Hint))
		}
	}
	return errors.Join(errs...)
}

// checkLocal checks what can be seen without Slurm's controller and the queue.
func (r *report) checkLocal(ctx context.Context, cfg config.Config) {
	r.Checks = []finding{{Name: "configuration", OK: true, Detail: cfg.Path}}
	var programs, python []finding
	var wg sync.WaitGroup
	wg.Go(func() { programs = checkPrograms(ctx, command.System, cfg) })
	wg.Go(func() { python = checkPython(ctx, command.System, cfg) })
	wg.Wait()
	r.Checks = slices.Concat(r.Checks, programs, python, checkDirectories(cfg))
}

// check notes how a check went, and reports whether it went well.
func (r *report) check(what, detail string, err error) bool {
	c := finding{Name: what, OK: err == nil, Detail: detail, err: err}
	if err != nil {
		c.Detail, c.Hint = fault.Text(err), fault.HintOf(err)
	}
	r.Checks = append(r.Checks, c)
	return c.OK
}

// failed reports whether a check has failed.
func (r *report) failed() bool {
	return slices.ContainsFunc(r.Checks, func(c finding) bool { return !c.OK })
}

// prepare makes the agent ready, or submits it as a job. What fails there is told at the end, after all else was checked;
// nothing is begun without what it needs.
func (r *report) prepare(c *cli.Context, cfg config.Config, every time.Duration, stderr io.Writer) (err error) {
	if r.failed() {
		return nil
	}
	system, err := assembly.New(c.Context, cfg, assembly.Options{Verbose: c.Bool("verbose"), Stderr: stderr, Tool: name, Create: true})
	if err != nil {
		return err
	}
	defer func() { system.Close(err) }()
	if _, err := system.Guard(c.Context, false, 0); err != nil {
		return err
	}
	if err := system.CheckNoDaemon(c.Context); err != nil {
		return err
	}
	checked, err := system.Agent.Runner.Check(c.Context)
	if r.check(system.Agent.Runner.Name(), cmp.Or(checked.Detail, "ready"), err) {
		for _, warning := range checked.Warnings {
			fmt.Fprintf(stderr, "%s: warning: %s\n", name, warning)
		}
		for _, t := range []struct {
			kind string
			gpu  bool
		}{{"tasks without GPU (slurm.base, slurm.cpu)", false}, {"tasks with GPU (slurm.base, slurm.gpu)", true}} {
			if why := system.Refused(c.Context, runner.Needs{GPU: t.gpu}); why != "" {
				fmt.Fprintf(stderr, "%s: warning: %s: %s\n", name, t.kind, why)
			}
		}
		r.checkSubmission(c.Context, system)
	}
	if system.WantsDaemon() && !c.Bool("no-daemon") {
		if r.failed() {
			return nil
		}
		job, err := system.SubmitDaemon(c.Context, every)
		if err != nil {
			return err
		}
		r.Daemon = &daemonRow{job, system.DaemonLog()}
		return nil
	}
	identity, err := system.Agent.Queue.Register(c.Context)
	if r.check("queue", fmt.Sprintf("registered as agent %s", identity.Agent), err) {
		r.Agent = identity.Agent
	}
	if r.failed() {
		return nil
	}
	running, err := system.Agent.Adopt(c.Context)
	for _, k := range running {
		r.Tasks = append(r.Tasks, row(k))
	}
	return errors.Join(err, system.Tidy(c.Context))
}

func row(k agent.Running) taskRow {
	return taskRow{ID: string(k.Task), Slug: k.Label, Job: k.Job, State: string(k.State), Reason: k.Reason}
}

func (r *report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return app.PrintJSON(w, r)
	}
	checks := app.Table{Header: []string{"CHECK", "RESULT", "DETAIL"}}
	for _, c := range r.Checks {
		result := "ok"
		switch {
		case !c.OK:
			result = "FAILED"
		case c.Warning:
			result = "warning"
		}
		checks.Add(c.Name, result, c.Detail)
	}
	if err := checks.Print(w); err != nil {
		return err
	}
	if r.Daemon != nil {
		_, err := fmt.Fprintf(w, "\nThe agent is job %s of Slurm; its log is %s\n", r.Daemon.Job, r.Daemon.Log)
		return err
	}
	if len(r.Tasks) == 0 {
		return nil
	}
	tasks := app.Table{Header: []string{"TASK", "SLUG", "JOB", "STATE", "REASON"}, Whole: []string{"TASK"}}
	for _, t := range r.Tasks {
		tasks.Add(t.ID, t.Slug, t.Job, t.State, t.Reason)
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return tasks.Print(w)
}
