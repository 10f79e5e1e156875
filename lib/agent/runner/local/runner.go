package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"github.com/google/uuid"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Runner runs tasks as processes of this machine.
type Runner struct {
	Dir      string // where slots and tickets are
	MaxJobs  int
	StopWait time.Duration
	// Worker is the command line that calls Work with Dir and MaxJobs.
	Worker []string
	// Has is what the machine has for jobs.
	Has Machine
	Now func() time.Time
}

// ticket is the file of a job in the task's directory.
type ticket struct {
	Job       string    `json:"job"`
	Attempt   int       `json:"attempt"`
	Submitted time.Time `json:"submitted"`
	Ticket    string    `json:"ticket"`
	Takes     Resources `json:"takes,omitzero"`
}

const (
	slotsDir, waitingDir, takenDir, runningDir = "slots", "waiting", "taken", "running"
	ticketFile                                 = "local.json"
)

// Name is "local".
func (r *Runner) Name() string { return "local" }

func (r *Runner) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return clock.Now()
}

// Check reports whether the directories exist or can be created.
func (r *Runner) Check(context.Context) (runner.Checked, error) { return runner.Checked{}, r.prepare() }

// Preview returns the script: it runs unchanged.
func (r *Runner) Preview(_ context.Context, s runner.Submission) (runner.Preview, error) {
	return runner.Preview{Argv: []string{"bash", s.Script}}, nil
}

// Can returns no abilities.
func (r *Runner) Can() runner.Abilities { return runner.Abilities{} }

// prepare creates missing directories.
func (r *Runner) prepare() error {
	for _, d := range []string{slotsDir, waitingDir, takenDir, runningDir} {
		if err := os.MkdirAll(filepath.Join(r.Dir, d), 0o700); err != nil {
			return err
		}
	}
	return describe(r.Dir, r.Has)
}

func readTicket(dir string) (ticket, error) {
	b, err := os.ReadFile(filepath.Join(dir, ticketFile))
	if err != nil {
		return ticket{}, err
	}
	var t ticket
	if err := json.Unmarshal(b, &t); err != nil || t.Ticket != filepath.Base(t.Ticket) {
		return ticket{}, fmt.Errorf("%s: not a job", filepath.Join(dir, ticketFile))
	}
	return t, nil
}

func (t ticket) write(dir string) error {
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return renameio.WriteFile(filepath.Join(dir, ticketFile), b, 0o600, renameio.WithTempDir(dir))
}

// ticket reads the ticket in the directory of a task. If the job of the task has removed it, it is put
// back: to start a job that runs would be to run the task twice.
func (r *Runner) ticket(dir string) (ticket, error) {
	t, err := readTicket(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return t, err
	}
	has, _, runs, runErr := running(r.Dir, dir)
	switch {
	case runErr != nil:
		return t, runErr
	case !runs:
		return t, err
	case has.Job == "":
		return t, fmt.Errorf("a job of the task is about to begin or to end: %w", lock.ErrHeld)
	}
	return has, has.write(dir)
}

// Start adds the job to those that wait, and starts a worker for it.
func (r *Runner) Start(ctx context.Context, s runner.Submission) (runner.Job, error) {
	if err := r.prepare(); err != nil {
		return runner.Job{}, err
	}
	claim := runner.Found
	t, err := r.ticket(s.Dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && t.Attempt < s.Attempt {
		need, needErr := takes(s.Needs, r.Has)
		if needErr != nil {
			return runner.Job{}, fmt.Errorf("%w: %w", runner.ErrRefused, needErr)
		}
		now := r.now()
		job := uuid.NewString()[:13]
		// Names sort by time; the job id tells apart two of the same nanosecond.
		t = ticket{job, s.Attempt, now, fmt.Sprintf("%020d-%s", now.UnixNano(), job), need}
		if err = noteProblem(filepath.Join(s.Dir, jobProblem), nil); err == nil { // of an earlier attempt
			err = t.write(s.Dir)
		}
		claim = runner.Recorded
	}
	if err != nil {
		return runner.Job{}, err
	}
	// The ticket is written even for a job that was found: ponos-start may have been killed before it
	// wrote it. The owner file keeps a job from running twice. A new job runs nowhere, whichever process holds the
	// record of the task.
	if claim != runner.Found || r.observe(runner.Ref{Task: s.Task, Job: t.Job, Dir: s.Dir}).Sight == runner.Traceless {
		ticket := filepath.Join(r.Dir, waitingDir, t.Ticket)
		if err := renameio.WriteFile(ticket, []byte(s.Dir), 0o600, renameio.WithTempDir(r.Dir)); err != nil {
			return runner.Job{}, err
		}
	}
	return runner.Job{Task: s.Task, ID: t.Job, Sight: runner.Waits, Submitted: t.Submitted, Claim: claim}, r.wake()
}

// wake starts a worker, unless all slots are taken.
func (r *Runner) wake() error {
	for slot := range r.MaxJobs {
		held, err := lock.Held(filepath.Join(r.Dir, slotsDir, strconv.Itoa(slot)))
		if err != nil {
			return err
		}
		if !held {
			return command.Detach(command.Cmd{Name: r.Worker[0], Args: r.Worker[1:], Env: environ(os.Environ()), Dir: r.Dir})
		}
	}
	return nil
}

// Jobs reads the files of each known job.
func (r *Runner) Jobs(ctx context.Context, remembered func() ([]runner.Ref, error)) ([]runner.Job, error) {
	if err := r.prepare(); err != nil {
		return nil, err
	}
	known, err := remembered()
	if err != nil {
		return nil, err
	}
	jobs := make([]runner.Job, 0, len(known))
	isKnown := make(map[task.ID]bool, len(known))
	for _, ref := range known {
		isKnown[ref.Task] = true
		jobs = append(jobs, r.observe(ref))
	}
	waiting := false
	for _, place := range []string{waitingDir, takenDir} {
		entries, err := os.ReadDir(filepath.Join(r.Dir, place))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			waiting = waiting || place == waitingDir
			path := filepath.Join(r.Dir, place, e.Name())
			ref, ok := r.readTicket(path)
			if !ok {
				if place == takenDir && r.abandoned(path) {
					if err := ignoreMissing(os.Remove(path)); err != nil {
						return nil, err
					}
				}
				continue
			}
			job := r.observe(ref)
			if !isKnown[ref.Task] {
				isKnown[ref.Task] = true
				jobs = append(jobs, job)
			}
			if place == takenDir && job.Sight.Over() { // its worker was killed
				if err := ignoreMissing(os.Remove(path)); err != nil {
					return nil, err
				}
			}
		}
	}
	err = sweep(r.Dir)
	if waiting { // its worker may have been killed
		err = errors.Join(err, r.wake())
	}
	return jobs, err
}

// abandoned reports whether a worker was killed that had taken a ticket, and the directory of its task
// is gone as well: no worker runs it without that.
func (r *Runner) abandoned(path string) bool {
	dir, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	if _, err := readTicket(string(dir)); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	held, err := lock.Held(recordOf(r.Dir, string(dir)))
	return err == nil && !held
}

// readTicket returns the job of a ticket.
func (r *Runner) readTicket(path string) (runner.Ref, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return runner.Ref{}, false
	}
	dir := string(b)
	id, err := task.ParseID(filepath.Base(dir))
	if err != nil {
		return runner.Ref{}, false
	}
	t, err := r.ticket(dir)
	return runner.Ref{Task: id, Job: t.Job, Dir: dir, Submitted: t.Submitted}, err == nil
}

// observe returns the state of a job by its files.
func (r *Runner) observe(ref runner.Ref) runner.Job {
	job := runner.Job{Task: ref.Task, ID: ref.Job, Submitted: ref.Submitted}
	if finished(ref, &job, true) {
		return job
	}
	// The worker of an earlier attempt may still hold the record.
	if has, _, runs, err := running(r.Dir, ref.Dir); err == nil && runs && (has.Job == "" || has.Job == ref.Job) {
		job.Sight = runner.Runs
		return job
	}
	if t, err := readTicket(ref.Dir); err == nil && t.Job == ref.Job {
		if _, err := os.Stat(filepath.Join(r.Dir, waitingDir, t.Ticket)); err == nil {
			job.Sight, job.Reason = runner.Waits, fmt.Sprintf("waiting for room on this machine (local.max_jobs: %d)", r.MaxJobs)
			if why := problem(filepath.Join(r.Dir, workerProblem)); why != "" {
				job.Reason = "the worker failed: " + why
			}
			return job
		}
	}
	if finished(ref, &job, false) { // it ended between the two checks
		return job
	}
	job.Sight, job.State, job.Reason = runner.Ended, task.Error, "the job is gone without a trace; was the machine restarted?"
	switch why := problem(filepath.Join(ref.Dir, jobProblem)); {
	case cancelled(ref.Dir, ref.Job):
		job.Sight, job.Reason = runner.Cancelled, "the job was cancelled"
		return job
	case why != "":
		job.Reason = "the worker could not run the job: " + why
	}
	return runner.Believe(job, runner.Proof{Looks: runner.Fact, Why: "no trace of the job"}, ref, false, r.now())
}

// cancelled reports whether a job was cancelled.
func cancelled(dir, job string) bool {
	_, err := os.Stat(filepath.Join(dir, "cancelled."+job))
	return err == nil
}

// finished fills in the end of a job that has left its exit code. Its script may still be running
// unless it has closed the journal.
func finished(ref runner.Ref, job *runner.Job, lives bool) bool {
	run, err := record.ReadRun(ref.Dir, ref.Job)
	if err != nil || !run.Over() || lives && !run.Closed {
		return false
	}
	job.Sight = runner.Ended
	if cancelled(ref.Dir, ref.Job) {
		job.Sight = runner.Cancelled
	}
	code := run.Code
	job.ExitCode, job.State = code, task.Completed
	if run.Cut && code == 0 {
		job.State, job.Reason, job.Cause = task.Error, record.Interrupted, need.Lost
	}
	if code != 0 {
		job.State, job.Reason = task.Failed, fmt.Sprintf("exit code %d", code)
		if code > 128 && code < 192 {
			job.Reason = fmt.Sprintf("ended by signal %d", code-128)
		}
		if e, ok := exceeded(ref.Dir, ref.Job); ok {
			job.State, job.Reason, job.Cause, job.Had.Memory = task.Error, e.String(), need.OOM, e.Limit
		}
	}
	return true
}

// Stop removes a pending job's ticket, or ends the processes of a running one: by SIGTERM, and by
// SIGKILL after a third of the time.
func (r *Runner) Stop(ctx context.Context, ref runner.Ref) error {
	if err := os.WriteFile(filepath.Join(ref.Dir, "cancelled."+ref.Job), nil, 0o600); err != nil {
		return err
	}
	if t, err := readTicket(ref.Dir); err == nil && t.Job == ref.Job {
		switch err := os.Remove(filepath.Join(r.Dir, waitingDir, t.Ticket)); {
		case err == nil:
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	start := clock.Now()
	asked := false
	for {
		job := r.observe(ref)
		held, err := lock.Held(recordOf(r.Dir, ref.Dir))
		switch {
		case err != nil:
			return err
		case !held && job.Sight.Over(): // a worker that takes it now finds it cancelled
			return nil
		case clock.Since(start) > r.StopWait:
			return fmt.Errorf("job %s has not ended within %v of SIGTERM", ref.Job, r.StopWait)
		}
		signal := syscall.Signal(0)
		if clock.Since(start) > r.StopWait/3 {
			signal = syscall.SIGKILL
		} else if !asked {
			signal = syscall.SIGTERM
		}
		if signal != 0 {
			if asked, err = kill(r.Dir, ref.Dir, signal); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
