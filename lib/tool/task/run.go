package task

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// notDone is the exit status of work that was saved and is to continue in another job, where
// nothing here can see to that: EX_TEMPFAIL of sysexits.h.
const notDone = 75

// surelyOver is how long a slice waits for the one before, where Slurm cannot be asked
// whether that has ended: Slurm's KillWait, 30 s, and as long again for caches of NFS.
const surelyOver = 65 * time.Second

// slice is one job, or one task of a job array, of work that takes several.
type slice struct {
	*tool
	c      *cli.Context
	job    string // as commands of Slurm call it; "" outside of Slurm
	array  string // of which it is a task, or ""
	last   bool   // task of the array
	mark   string // file that says that the work of the array has ended
	begun  string // file that names the slice of the array that runs, where squeue is missing
	wanted map[os.Signal]bool
	save   string // shell command, or ""
	lead   time.Duration
	again  int
}

func (t *tool) run(c *cli.Context) error {
	if len(t.work) == 0 || c.NArg() > 0 {
		return fault.Hint(
			fault.Errorf(fault.Usage, "the command to run is missing"),
			`put it after "--": ponos-task run --until-done --save "cp state saved" -- ./train --resume`)
	}
	s := &slice{tool: t, c: c, save: c.String("save"), again: c.Int("again")}
	var err error
	if s.wanted, err = parseSignals(c.StringSlice("signal")); err != nil {
		return err
	}
	if t.timeout, err = unit.Duration(c.String("timeout")); err != nil {
		return fault.Errorf(fault.Usage, "--timeout: %w", err)
	}
	if s.lead, err = unit.Duration(c.String("lead")); err != nil {
		return fault.Errorf(fault.Usage, "--lead: %w", err)
	}
	if s.again < 1 || s.again > 255 {
		return fault.Errorf(fault.Usage, "--again must be from 1 to 255, not %d", s.again)
	}
	if t.getenv("SLURM_JOB_ID") != "" {
		if s.job, err = t.called(); err != nil {
			return err
		}
		if err := s.ofArray(); err != nil {
			return err
		}
	}
	ctx := context.WithoutCancel(c.Context)
	if s.array != "" {
		if err := s.awaitTurn(ctx); err != nil {
			return err
		}
	}
	work, err := command.StartWork(command.Cmd{
		Name: t.work[0], Args: t.work[1:], Stdin: t.stdin, Stdout: t.stdout, Stderr: t.stderr, DieWithParent: true,
	})
	if err != nil {
		return fault.Exit(127, err)
	}
	defer t.recordNode(ctx)()
	err = s.attend(ctx, work)
	if s.array != "" {
		_ = os.Remove(s.begun)
	}
	return err
}

func (s *slice) verbose(format string, args ...any) {
	if s.c.Bool("verbose") {
		fmt.Fprintf(s.stderr, name+": "+format+"\n", args...)
	}
}

// ofArray finds out whether the job is a task of an array, whose next task is the next
// slice.
func (s *slice) ofArray() error {
	array, index := s.getenv("SLURM_ARRAY_JOB_ID"), s.getenv("SLURM_ARRAY_TASK_ID")
	if array == "" || index == "" || !s.c.Bool("until-done") {
		return nil
	}
	if _, err := strconv.ParseUint(array, 10, 64); err != nil {
		return fault.Errorf(fault.Usage, "invalid SLURM_ARRAY_JOB_ID %q", array)
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	s.array, s.last = array, index == s.getenv("SLURM_ARRAY_TASK_MAX")
	s.mark, s.begun = filepath.Join(dir, "ponos-run."+array+".done"), filepath.Join(dir, "ponos-run."+array+".slice")
	return nil
}

// readMark returns the exit status of the work, if it has ended in another slice.
func (s *slice) readMark() (code int, over bool, err error) {
	b, err := os.ReadFile(s.mark)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	code, err = strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || code < 0 || code > 255 {
		return 0, false, fault.Errorf(fault.Failed, "%s: not an exit status", s.mark)
	}
	return code, true, nil
}

// awaitTurn waits until the slice can begin. If the work is done, the error holds its exit status.
func (s *slice) awaitTurn(ctx context.Context) error {
	if err := s.isDone(); err != nil {
		return err
	}
	if err := s.awaitPrevious(ctx); err != nil {
		return err
	}
	return s.isDone() // meanwhile
}

// isDone is an error with the exit status of the work if it has ended in another slice.
func (s *slice) isDone() error {
	code, over, err := s.readMark()
	if err == nil && over {
		s.verbose("the work has ended in an earlier slice")
		return fault.Exit(code, nil)
	}
	return err
}

// awaitPrevious waits until no slice that began before this one has processes left: Slurm begins
// the next task of an array while it still ends those of the one before.
func (s *slice) awaitPrevious(ctx context.Context) error {
	told := false
	for began := clock.Now(); ; time.Sleep(time.Second) {
		slices, err := s.slurm.Slices(ctx, s.array, s.getenv("SLURM_JOB_ID"))
		var missing *command.NotFoundError
		switch {
		case errors.As(err, &missing):
			if _, err := os.Lstat(s.begun); err != nil || clock.Since(began) > surelyOver {
				return os.WriteFile(s.begun, []byte(s.job+"\n"), 0o600)
			}
		case err != nil:
			app.Report(s.stderr, name, fmt.Errorf("tried again: %w", err))
			time.Sleep(10 * time.Second)
		case len(slices.Before) == 0:
			return nil
		case !told:
			s.verbose("waiting for the end of job %s, an earlier slice", slices.Before[0])
			told = true
		}
		select {
		case sig := <-s.signals:
			if sig == syscall.SIGTERM {
				return fault.Exit(128+int(syscall.SIGTERM), nil)
			}
		default:
		}
	}
}

// left is the time that the job has, and whether that is known and bounded.
func (s *slice) left(ctx context.Context) (time.Duration, bool) {
	if s.job == "" {
		return 0, false
	}
	if d, err := s.slurm.TimeLeft(ctx, s.job); err == nil {
		return d, d != slurm.Unlimited
	}
	end, err := strconv.ParseInt(s.getenv("SLURM_JOB_END_TIME"), 10, 64)
	return clock.Until(time.Unix(end, 0)), err == nil && end > 0
}

// soon is when to save, of the time that the job has: early enough for the lead that is
// asked for, but not before half of it is over.
func soon(left, lead time.Duration) time.Duration { return max(left-lead, left/2) }

// attend waits for the end of the work or for a reason to save.
func (s *slice) attend(ctx context.Context, work *command.Work) error {
	var alarm <-chan time.Time
	arm := func() {
		alarm = nil
		if left, ok := s.left(ctx); ok && s.lead > 0 && left > time.Second {
			alarm = time.After(soon(left, s.lead))
		}
	}
	arm()
	for {
		why := ""
		select {
		case sig := <-s.signals:
			if !s.wanted[sig] {
				if err := work.Signal(sig.(syscall.Signal)); err != nil {
					app.Report(s.stderr, name, err)
				}
				continue
			}
			why = sig.String()
		case <-alarm:
			if left, ok := s.left(ctx); !ok || left > 2*s.lead+time.Minute {
				arm() // the limit was extended
				continue
			}
			why = "the time limit"
		case <-work.Done():
			code, err := work.Status()
			if err != nil || code < 128 || !s.late() && !s.ending(ctx) {
				return s.ended(ctx, code, err)
			}
			why = "a signal that ended the work"
		}
		s.verbose("saving, because of %s", why)
		over, err := s.saved(ctx, work)
		switch {
		case over:
			code, err := work.Status()
			return s.ended(ctx, code, err)
		case err == nil:
			return s.goOn(ctx)
		}
		// The work may still reach its end, or be saved at the next warning.
		app.Report(s.stderr, name, fmt.Errorf("saving: %w", err))
		arm()
	}
}

// late reports whether a signal to save at arrives right after the work was ended by one.
func (s *slice) late() bool {
	for limit := time.After(together); ; {
		select {
		case sig := <-s.signals:
			if s.wanted[sig] {
				return true
			}
		case <-limit:
			return false
		}
	}
}

// ending reports whether Slurm is ending the job, and so its signal may have ended the work.
func (s *slice) ending(ctx context.Context) bool {
	if s.job == "" {
		return false
	}
	state, err := s.slurm.State(ctx, s.job)
	return err == nil && !slurm.Runs(state)
}

// saved has the state saved and ends the work. Without a command for it, the work saves
// by itself when it is asked to end. It reports whether the work ended by itself meanwhile.
func (s *slice) saved(ctx context.Context, work *command.Work) (over bool, err error) {
	if s.save != "" {
		_, err := command.System.Run(ctx, command.Cmd{
			Name: "sh", Args: []string{"-c", s.save}, Stdout: s.stdout, Stderr: s.stderr, Timeout: s.timeout,
		})
		if err != nil {
			return false, err
		}
		s.verbose("saved")
		if work.Ended() {
			return endedByItself(work), nil
		}
		return false, s.finish(work)
	}
	if work.Ended() { // at the same time as the signal came
		return endedByItself(work), nil
	}
	if err := work.Signal(syscall.SIGTERM); err != nil {
		return false, err
	}
	select {
	case <-work.Done():
	case <-time.After(s.timeout):
		return false, errors.Join(fmt.Errorf("the work has not ended within %v of SIGTERM", s.timeout), work.Signal(syscall.SIGKILL))
	}
	return false, nil
}

// endedByItself reports whether work that has ended was not ended by a signal.
func endedByItself(work *command.Work) bool {
	code, err := work.Status()
	return err != nil || code < 128
}

// ended is the end of work that ended by itself.
func (s *slice) ended(ctx context.Context, code int, err error) error {
	if err == nil && code == s.again {
		s.verbose("WORK requests another slice")
		return s.goOn(ctx)
	}
	if s.array == "" || err != nil {
		return fault.Exit(code, err)
	}
	if err := renameio.WriteFile(s.mark, fmt.Appendln(nil, code), 0o600, renameio.WithTempDir(filepath.Dir(s.mark))); err != nil {
		app.Report(s.stderr, name, fmt.Errorf("cannot tell the other slices that the work is done: %w", err))
	}
	// Those that are left find the mark; without them the queue is shorter.
	var missing *command.NotFoundError
	if err := s.slurm.CancelPending(ctx, s.array); err != nil && !errors.As(err, &missing) {
		app.Report(s.stderr, name, fmt.Errorf("warning: the slices that wait: %w", err))
	}
	return fault.Exit(code, nil)
}

// goOn sees to the next slice of work that was saved: the next task of the array, which
// waits already; or this job, requeued. Where neither is possible, the exit status says
// that the work is not done.
func (s *slice) goOn(ctx context.Context) error {
	switch {
	case !s.c.Bool("until-done") || s.job == "":
		return fault.Exit(notDone, nil)
	case s.array != "" && !s.last:
		if slices, err := s.slurm.Slices(ctx, s.array, s.getenv("SLURM_JOB_ID")); err == nil && !slices.Waiting && !s.ending(ctx) {
			return fault.Exit(notDone, fmt.Errorf("the work is not done, and no task of job array %s is left to continue it", s.array))
		}
		s.verbose("the next array task continues")
		return nil
	}
	again, err := s.requeue(ctx)
	var missing *command.NotFoundError
	switch {
	case errors.As(err, &missing):
		s.verbose("without scontrol, job %s cannot be requeued from here", s.job)
		return fault.Exit(notDone, nil)
	case !again:
		return fault.Exit(notDone, err)
	}
	s.verbose("job %s is requeued", s.job)
	return s.leave()
}

// A controller that is restarted is away for a minute or so: it is asked again after this pause, and
// for so long, unless Slurm ends the job before.
const (
	askAgain  = 3 * time.Second
	askingFor = time.Hour
)

// requeue requeues the job, and reports whether that is done: not if Slurm is ending the job.
func (s *slice) requeue(ctx context.Context) (done bool, err error) {
	told := false
	for limit := time.After(askingFor); ; {
		state, err := s.slurm.State(ctx, s.job)
		if err == nil && !slurm.Runs(state) {
			s.verbose("job %s is %s: it is not requeued", s.job, strings.ToLower(state))
			return false, nil
		}
		if err == nil {
			err = fault.Hint(s.slurm.Requeue(ctx, s.job), `is the job submitted with "--requeue"?`)
		}
		if why, _ := slurm.FailureOf(err); err == nil || why != slurm.NoAnswer {
			return err == nil, err
		}
		if !told {
			app.Report(s.stderr, name, fmt.Errorf("tried again: %w", err))
			told = true
		}
		for pause := time.After(askAgain); pause != nil; {
			select {
			case sig := <-s.signals:
				if sig == syscall.SIGTERM {
					return false, err
				}
			case <-limit:
				return false, err
			case <-pause:
				pause = nil
			}
		}
	}
}
