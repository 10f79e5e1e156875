package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/config"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
)

// mark begins the comment of a task's job.
const mark = "PONOS_TASK="

// Runner runs tasks on a Slurm cluster.
type Runner struct {
	client   *slurm.Client
	uid      int
	stopWait time.Duration
	now      func() time.Time
	listing  listing
	options  *options
}

// New returns a runner for the jobs of this user.
func New(client *slurm.Client, c config.Slurm, find Finder) *Runner {
	r := &Runner{client: client, uid: os.Geteuid(), stopWait: time.Duration(c.StopWait), now: clock.Now}
	r.listing.list = func(ctx context.Context) ([]slurm.Job, error) { return client.Queue(ctx, r.uid) }
	r.options = &options{client: client, config: c, find: find}
	return r
}

// Name is "slurm".
func (r *Runner) Name() string { return "slurm" }

// Check asks whether Slurm's controller answers.
func (r *Runner) Check(ctx context.Context) error { return r.client.Ping(ctx) }

// taskOf returns the task whose job a comment marks.
func taskOf(comment string) (task.ID, bool) {
	rest, ok := strings.CutPrefix(comment, mark)
	if !ok {
		return "", false
	}
	id, err := task.ParseID(strings.TrimSpace(rest))
	return id, err == nil
}

// Jobs asks squeue once, and sacct at most once.
func (r *Runner) Jobs(ctx context.Context, remembered func() ([]runner.Ref, error)) ([]runner.Job, error) {
	var rows []slurm.Job
	var err error
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		rows, err = r.client.Queue(ctx, r.uid)
	}()
	known, knownErr := remembered()
	all := make([]evidence, len(known), len(known)+16)
	byTask := make(map[task.ID]int, len(known))
	for i, ref := range known {
		all[i].ref = ref
		byTask[ref.Task] = i
	}
	<-asked
	if err = errors.Join(err, knownErr); err != nil {
		return nil, err
	}
	now := r.now()
	inQueue := 0
	others := map[task.ID]*slurm.Job{}
	var order []task.ID
	for i := range rows {
		row := &rows[i]
		id, ok := taskOf(row.Comment)
		if !ok {
			continue
		}
		if at, ok := byTask[id]; ok {
			if known[at].Job == row.ID {
				all[at].queue = row
				inQueue++
			}
			continue
		}
		other := others[id]
		if other == nil {
			order = append(order, id)
		}
		if other == nil || better(row, other) {
			others[id] = row
		}
	}
	for _, id := range order {
		row := others[id]
		all = append(all, evidence{ref: runner.Ref{Task: id, Job: row.ID, Submitted: row.Submit}, queue: row})
	}
	for i := range all {
		all[i].now = now
	}

	stillActive, err := r.account(ctx, all)
	if err != nil {
		return nil, err
	}
	if inQueue == 0 && stillActive > 0 && !slices.ContainsFunc(known, func(ref runner.Ref) bool { return !ref.Missing.IsZero() && now.Sub(ref.Missing) > time.Hour }) {
		return nil, fault.Errorf(fault.Unavailable, "squeue: it shows none of %d jobs, but accounting says that %d of them are active", len(known), stillActive)
	}
	jobs := make([]runner.Job, len(all))
	for i := range all {
		jobs[i] = all[i].judge()
	}
	return jobs, nil
}

// better says which of two jobs of a task that is not known is taken up: one that
// is alive rather than one that has ended, and of several alive the first, as that
// is the one that runs the task.
func better(a, b *slurm.Job) bool {
	aliveA, aliveB := Alive(a), Alive(b)
	if aliveA != aliveB {
		return aliveA
	}
	// Ids have no leading zeros, so the shorter one is the smaller one.
	older := len(a.ID) < len(b.ID) || len(a.ID) == len(b.ID) && a.ID < b.ID
	return older == aliveA
}

// Alive reports whether a job has not ended.
func Alive(job *slurm.Job) bool {
	if job.State == "SUSPENDED" {
		return true
	}
	s, ok := state(job.State)
	return !ok || !s.Final()
}

// account adds what accounting knows of the jobs that have ended or vanished, and
// returns how many of the vanished ones it says are alive.
func (r *Runner) account(ctx context.Context, all []evidence) (stillActive int, err error) {
	var ids []string
	for i := range all {
		if all[i].queue == nil || !Alive(all[i].queue) {
			ids = append(ids, all[i].ref.Job)
		}
	}
	records, err := r.client.Account(ctx, ids)
	var missing *command.NotFoundError
	none := errors.Is(err, slurm.ErrNoAccounting) || errors.As(err, &missing)
	if err != nil && ctx.Err() != nil {
		return 0, err
	}
	// Accounting that does not answer is like accounting that lags.
	for i := range all {
		e := &all[i]
		if e.queue != nil && Alive(e.queue) {
			continue
		}
		e.noAccounting = none
		if e.ref.Dir != "" {
			_, e.exit, e.hasExit = runner.ReadExit(e.ref.Dir, e.ref.Job)
		}
		record, ok := records[e.ref.Job]
		if !ok || !e.matches(record) {
			continue
		}
		e.account = &record
		if s, known := state(record.State); e.queue == nil && known && !s.Final() {
			stillActive++
		}
	}
	return stillActive, nil
}

// matches reports whether a record of accounting is of this job and not of one
// that had its id before or after. Comments are not stored everywhere, nor before
// the end of a job.
func (e *evidence) matches(r slurm.Record) bool {
	if r.Comment != "" {
		return r.Comment == mark+string(e.ref.Task)
	}
	if !strings.HasPrefix(r.Name, namePrefix) {
		return false
	}
	return e.ref.Submitted.IsZero() || r.Submit.IsZero() || r.Submit.Sub(e.ref.Submitted).Abs() < 5*time.Minute
}

// Start submits the job, unless there is one already.
func (r *Runner) Start(ctx context.Context, s runner.Submission) (runner.Job, error) {
	// A job of which the state directory knows nothing is from before that was lost,
	// so tasks that are started together share a look. Where somebody was killed over
	// a task, its submission may still have been on its way then.
	look := r.listing.recent
	if s.Again {
		look = r.listing.fresh
	}
	rows, err := look(ctx)
	if err != nil {
		return runner.Job{}, err
	}
	if row := r.existing(rows, s); row != nil {
		e := evidence{ref: runner.Ref{Task: s.Task, Job: row.ID}, queue: row, now: r.now()}
		job := e.judge()
		job.Adopted = true
		return job, nil
	}
	batch, err := r.Batch(ctx, s)
	if err != nil {
		return runner.Job{}, err
	}
	id, err := r.client.Submit(ctx, batch)
	if err != nil {
		return runner.Job{}, submitError(err)
	}
	return runner.Job{Task: s.Task, ID: id, State: task.Pending, Submitted: r.now()}, nil
}

// existing is the job that an earlier try has submitted.
func (r *Runner) existing(rows []slurm.Job, s runner.Submission) *slurm.Job {
	var found *slurm.Job
	for i := range rows {
		row := &rows[i]
		if row.Comment != mark+string(s.Task) || slices.Contains(s.Before, row.ID) {
			continue
		}
		if found == nil || better(row, found) {
			found = row
		}
	}
	return found
}

// submitError tells the ways apart in which sbatch can fail.
func submitError(err error) error {
	var e *slurm.Error
	if !errors.As(err, &e) || slurm.Unreachable(err) {
		return err
	}
	for _, words := range []string{"MaxSubmit", "GrpSubmit", "temporarily", "try again later", "not available now", "busy"} {
		if strings.Contains(e.Exit.Stderr, words) {
			return fmt.Errorf("%w: sbatch: %s", runner.ErrLater, e.Words())
		}
	}
	return fmt.Errorf("%w: sbatch: %s", runner.ErrRefused, e.Words())
}

// Stop cancels the job and waits until squeue does not show it as alive.
func (r *Runner) Stop(ctx context.Context, ref runner.Ref) error {
	ctx, cancel := context.WithTimeoutCause(ctx, r.stopWait,
		fault.Errorf(fault.Failed, "job %s has not ended within %v of scancel", ref.Job, r.stopWait))
	defer cancel()
	cancelled := false
	for delay := 200 * time.Millisecond; ; delay = min(2*delay, 2*time.Second) {
		rows, err := r.listing.fresh(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(rows, func(row slurm.Job) bool { return row.ID == ref.Job })
		// An odd listing does not show it: scancel knows better.
		if i >= 0 && (rows[i].Comment != mark+string(ref.Task) || !Alive(&rows[i])) || i < 0 && cancelled {
			return nil
		}
		if !cancelled {
			if err := r.client.Cancel(ctx, ref.Job); err != nil {
				return err
			}
			cancelled = true
			delay = 50 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(delay):
		}
	}
}

// Batch is what would be submitted for a task.
func (r *Runner) Batch(ctx context.Context, s runner.Submission) (slurm.Batch, error) {
	given, err := r.options.forTask(ctx, s.GPU)
	if err != nil {
		return slurm.Batch{}, err
	}
	own := []string{
		"--job-name=" + jobName(s.Label),
		"--comment=" + mark + string(s.Task),
		"--output=" + filepath.Join(s.Dir, runner.Output),
		"--open-mode=append",
		"--chdir=" + s.Dir,
	}
	b := slurm.Batch{Options: append(given, own...), Script: s.Script, Env: Environ(os.Environ())}
	b.Hold = s.Hold
	return b, nil
}

const namePrefix = "ponos-"

// jobName is the name of a task's job: plain characters only, for the sake of
// everything that reads the output of squeue.
func jobName(label string) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '-'
	}, label)
	return namePrefix + name[:min(len(name), 60)]
}

// Environ is the part of the agent's environment that its jobs get: what it takes
// to log in and to find Slurm, and nothing that is the agent's own.
func Environ(env []string) []string {
	var kept []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "SLURM_CONF":
			kept = append(kept, v)
		}
	}
	return kept
}
