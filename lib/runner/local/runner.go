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
	"strings"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
	"github.com/google/uuid"

	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/lock"
	"github.com/ponos-tools/ponos/lib/need"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/task"
)

// Runner runs tasks as processes of this machine.
type Runner struct {
	Dir      string // where slots and tickets are
	MaxJobs  int
	StopWait time.Duration
	// Worker is the command line that calls Work with Dir and MaxJobs.
	Worker []string
	// Has is what the machine has for jobs.
	Has Resources
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
	slotsDir, waitingDir, takenDir = "slots", "waiting", "taken"
	ticketFile                     = "local.json"
	jobLock                        = "job.lock"
	pidFile                        = "job.pid"
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
	for _, d := range []string{slotsDir, waitingDir, takenDir} {
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

// Start adds the job to those that wait, and starts a worker for it.
func (r *Runner) Start(ctx context.Context, s runner.Submission) (runner.Job, error) {
	if err := r.prepare(); err != nil {
		return runner.Job{}, err
	}
	adopted := true
	t, err := readTicket(s.Dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && t.Attempt < s.Attempt {
		need, needErr := takes(s.Needs, r.Has)
		if needErr != nil {
			return runner.Job{}, fmt.Errorf("%w: %w", runner.ErrRefused, needErr)
		}
		now := r.now()
		job := uuid.NewString()[:13]
		// Names sort by time; the job id tells apart two of the same nanosecond.
		t = ticket{job, s.Attempt, now, fmt.Sprintf("%020d-%s", now.UnixNano(), job), need}
		var b []byte
		if b, err = json.Marshal(t); err == nil {
			err = renameio.WriteFile(filepath.Join(s.Dir, ticketFile), b, 0o600, renameio.WithTempDir(s.Dir))
		}
		adopted = false
	}
	if err != nil {
		return runner.Job{}, err
	}
	// The ticket is written even for a job that was found: ponos-start may have been killed before it
	// wrote it. The owner file keeps a job from running twice.
	if state := r.observe(runner.Ref{Task: s.Task, Job: t.Job, Dir: s.Dir}); state.Lost {
		if err := renameio.WriteFile(filepath.Join(r.Dir, waitingDir, t.Ticket), []byte(s.Dir), 0o600, renameio.WithTempDir(r.Dir)); err != nil {
			return runner.Job{}, err
		}
	}
	return runner.Job{Task: s.Task, ID: t.Job, State: task.Pending, Submitted: t.Submitted, Adopted: adopted}, r.wake()
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
			if ref, ok := r.readTicket(filepath.Join(r.Dir, place, e.Name())); ok && !isKnown[ref.Task] {
				isKnown[ref.Task] = true
				jobs = append(jobs, r.observe(ref))
			}
		}
	}
	if waiting { // its worker may have been killed
		err = r.wake()
	}
	return jobs, err
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
	t, err := readTicket(dir)
	return runner.Ref{Task: id, Job: t.Job, Dir: dir, Submitted: t.Submitted}, err == nil
}

// observe returns the state of a job by its files.
func (r *Runner) observe(ref runner.Ref) runner.Job {
	job := runner.Job{Task: ref.Task, ID: ref.Job, Submitted: ref.Submitted}
	job.Cancelled = cancelled(ref.Dir, ref.Job)
	if finished(ref, &job, true) {
		return job
	}
	if held, err := lock.Held(filepath.Join(ref.Dir, jobLock)); err == nil && held {
		job.State = task.Running
		return job
	}
	if t, err := readTicket(ref.Dir); err == nil && t.Job == ref.Job {
		if _, err := os.Stat(filepath.Join(r.Dir, waitingDir, t.Ticket)); err == nil {
			job.State, job.Reason = task.Pending, fmt.Sprintf("waiting for room on this machine (local.max_jobs: %d)", r.MaxJobs)
			return job
		}
	}
	if finished(ref, &job, false) { // it ended between the two checks
		return job
	}
	switch {
	case job.Cancelled:
		job.State, job.Reason = task.Error, "the job was cancelled"
	case ref.Missing.Fact():
		job.State, job.Reason = task.Error, "the job is gone without a trace; was the machine restarted?"
	default:
		job.Unknown, job.Lost, job.Reason = true, true, "no trace of the job"
	}
	return job
}

// cancelled reports whether a job was cancelled.
func cancelled(dir, job string) bool {
	_, err := os.Stat(filepath.Join(dir, "cancelled."+job))
	return err == nil
}

// finished fills in the end of a job that has left its exit code. Its script may still be running
// unless it has closed the journal.
func finished(ref runner.Ref, job *runner.Job, lives bool) bool {
	run, err := runner.ReadRun(ref.Dir, ref.Job)
	if err != nil || !run.Over() || lives && !run.Closed {
		return false
	}
	code := run.Code
	job.ExitCode, job.State = code, task.Completed
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
		held, err := lock.Held(filepath.Join(ref.Dir, jobLock))
		switch {
		case err != nil:
			return err
		case !held && job.State.Final(): // a worker that takes it now finds it cancelled
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
			if asked, err = kill(ref.Dir, signal); err != nil {
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

// kill sends a signal to the processes of a job, unless its process id was reused. It reports whether
// it was sent: a job that is about to begin has no process yet.
func kill(dir string, signal syscall.Signal) (bool, error) {
	b, err := os.ReadFile(filepath.Join(dir, pidFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	text, started, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	pid, err := strconv.Atoi(text)
	if err != nil || pid < 2 || command.StartOf(pid) != started {
		return false, nil
	}
	if err := syscall.Kill(-pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return false, fmt.Errorf("process group %d: %w", pid, err)
	}
	return true, nil
}
