package task

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
)

// env prints what a script should know of its run. A failure leaves nothing on
// standard output, so that a script does not continue with half of it.
func (t *tool) env(c *cli.Context) error {
	job, err := t.job()
	if err != nil {
		return err
	}
	id, err := t.taskID()
	if err != nil {
		return err
	}
	restarts, err := t.restarts()
	if err != nil {
		return err
	}
	preempted := "no"
	if restarts > 0 {
		runs, err := t.slurm.EarlierRuns(c.Context, job)
		switch {
		case err != nil || len(runs) == 0:
			if preempted = "unknown"; c.Bool("verbose") {
				app.Report(t.stderr, name, errors.Join(errors.New("accounting does not show why the job was requeued"), err))
			}
		case runs[len(runs)-1] == "PREEMPTED":
			preempted = "yes"
		}
	}
	var out strings.Builder
	set := func(name, value string) { fmt.Fprintf(&out, "export %s=%s\n", name, shell.Quote(value)) }
	if id != "" {
		set("PONOS_TASK", string(id))
	}
	set("PONOS_JOB", job)
	set("PONOS_RESTARTS", strconv.Itoa(restarts))
	set("PONOS_PREEMPTED", preempted)
	_, err = fmt.Fprint(t.stdout, out.String())
	return err
}

// restarts is how often the job was requeued.
func (t *tool) restarts() (int, error) {
	s := t.getenv("SLURM_RESTART_COUNT")
	if s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0, fault.Errorf(fault.Usage, "invalid SLURM_RESTART_COUNT %q", s)
	}
	return n, nil
}
