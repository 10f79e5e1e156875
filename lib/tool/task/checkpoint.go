package task

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Slurm ends all processes of a job at the same time: when the work was ended by
// a signal, ours can arrive a moment later.
const together = 500 * time.Millisecond

// lastWords is how long the work may take to end after the job was requeued.
const lastWords = 10 * time.Second

func (t *tool) checkpoint(c *cli.Context) error {
	if len(t.save) == 0 || c.NArg() > 0 {
		return fault.Hint(
			fault.Errorf(fault.Usage, "the command SAVE is missing"),
			`put it after "--": ponos-task checkpoint -- SAVE... [-- WORK...]`)
	}
	job, err := t.called()
	if err != nil {
		return err
	}
	wanted, err := parseSignals(c.StringSlice("signal"))
	if err != nil {
		return err
	}
	if t.timeout, err = unit.Duration(c.String("timeout")); err != nil {
		return fault.Errorf(fault.Usage, "--timeout: %w", err)
	}
	// What Slurm sends is answered here; the saving must not be interrupted by it.
	ctx := context.WithoutCancel(c.Context)
	if len(t.work) == 0 {
		return t.saveAndRequeue(ctx, c, job)
	}
	work, err := command.StartWork(command.Cmd{
		Name: t.work[0], Args: t.work[1:], Stdin: t.stdin, Stdout: t.stdout, Stderr: t.stderr, DieWithParent: true,
	})
	if err != nil {
		return fault.Exit(127, err)
	}
	defer t.recordNode(ctx)()
	return t.attend(ctx, c, job, work, wanted)
}

// attend waits for the end of the work, or for Slurm's warning.
func (t *tool) attend(ctx context.Context, c *cli.Context, job string, work *command.Work, wanted map[os.Signal]bool) error {
	warned := func(limit <-chan time.Time, ended <-chan struct{}) bool {
		for {
			select {
			case s := <-t.signals:
				if wanted[s] {
					return true
				}
				if err := work.Signal(s.(syscall.Signal)); err != nil {
					app.Report(t.stderr, name, err)
				}
			case <-ended:
				return false
			case <-limit:
				return false
			}
		}
	}
	for {
		isWarned := warned(nil, work.Done())
		if !isWarned {
			if code, err := work.Status(); err != nil || code < 128 || !warned(time.After(together), nil) {
				return fault.Exit(code, err)
			}
		}
		err := t.saveAndRequeue(ctx, c, job)
		switch {
		case err == nil && !c.Bool("no-requeue"):
			if err := t.finish(work); err != nil {
				return err
			}
			return t.leave()
		case err != nil:
			app.Report(t.stderr, name, err)
		}
		// The work may still reach its end, or have done so.
	}
}

// leaving is how long a job that was requeued waits for Slurm to end it.
const leaving = time.Minute

// leave waits until Slurm ends the processes of the job, which it has requeued, and ends as
// they do. A job script that saw this process succeed would take the work for done.
func (t *tool) leave() error {
	for limit := time.After(leaving); ; {
		select {
		case s := <-t.signals:
			if s == syscall.SIGTERM {
				return fault.Exit(128+int(syscall.SIGTERM), nil)
			}
		case <-limit:
			return nil
		}
	}
}

// finish ends the work of a job that continues elsewhere.
func (t *tool) finish(work *command.Work) error {
	if err := work.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-work.Done():
		return nil
	case <-time.After(lastWords):
		return work.Signal(syscall.SIGKILL)
	}
}

// saveAndRequeue runs the saving command and puts the job back into the queue.
// A job that does not run any more is left alone: one that was preempted is
// requeued by Slurm, one that was cancelled must not come back.
func (t *tool) saveAndRequeue(ctx context.Context, c *cli.Context, job string) error {
	verbose := func(format string, args ...any) {
		if c.Bool("verbose") {
			fmt.Fprintf(t.stderr, name+": "+format+"\n", args...)
		}
	}
	_, err := command.System.Run(ctx, command.Cmd{
		Name: t.save[0], Args: t.save[1:], Stdout: t.stdout, Stderr: t.stderr, Timeout: t.timeout,
	})
	if err != nil {
		return fmt.Errorf("saving: %w", err)
	}
	verbose("saved")
	if c.Bool("no-requeue") {
		return nil
	}
	state, err := t.slurm.State(ctx, job)
	if err != nil {
		return err
	}
	if !slurm.Runs(state) {
		verbose("job %s is %s: it is not requeued", job, strings.ToLower(state))
		return nil
	}
	if err := t.slurm.Requeue(ctx, job); err != nil {
		return fault.Hint(err, `is the job submitted with "--requeue"?`)
	}
	verbose("job %s is requeued", job)
	return nil
}

// signalNames are signals that a job may be warned by. SIGURG is left out, which the
// runtime of Go sends to itself.
var signalNames = map[string]os.Signal{
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "INT": syscall.SIGINT,
	"QUIT": syscall.SIGQUIT, "ALRM": syscall.SIGALRM, "CONT": syscall.SIGCONT, "XCPU": syscall.SIGXCPU, "PWR": syscall.SIGPWR,
}

var signalList = slices.Sorted(maps.Keys(signalNames))

func parseSignals(names []string) (map[os.Signal]bool, error) {
	if len(names) == 0 {
		names = []string{"USR1", "TERM"}
	}
	wanted := map[os.Signal]bool{}
	var problems []error
	for _, n := range names {
		s, ok := signalNames[strings.TrimPrefix(strings.ToUpper(n), "SIG")]
		if !ok {
			problems = append(problems, fault.Errorf(fault.Usage, "--signal: invalid value %q: expected one of %s",
				n, strings.Join(signalList, ", ")))
		}
		wanted[s] = true
	}
	return wanted, errors.Join(problems...)
}
