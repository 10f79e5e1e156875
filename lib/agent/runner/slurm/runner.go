package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/watch"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Runner runs tasks on a Slurm cluster.
type Runner struct {
	// Tasks has the directories of this agent's tasks, in which their jobs run. By that, the jobs of the user's other agents
	// are known; "": all jobs are this agent's.
	Tasks string

	client     *slurm.Client
	uid        int
	stopWait   time.Duration
	now        func() time.Time
	squeue     watch.Watch[*listing]
	options    *options
	arrays     arrays
	stops      stops
	accounting Accounting
	packs      *packs // nil: none
}

// New returns a runner for the jobs of this user.
func New(client *slurm.Client, c config.Slurm, find Finder) *Runner {
	r := &Runner{client: client, uid: os.Geteuid(), stopWait: time.Duration(c.StopWait), now: clock.Now}
	r.squeue.Look = func(ctx context.Context) (*listing, error) {
		rows, _, err := r.queue(ctx)
		l := newListing(rows)
		l.ended = sync.OnceValue(func() map[string]bool { return r.ended(ctx, l) })
		return l, err
	}
	r.stops.cancel, r.squeue.Then = client.Cancel, r.stops.run
	if c.Arrays {
		r.arrays.most = maxElements
	}
	r.options = &options{client: client, config: c, find: find, now: r.now, uid: r.uid}
	return r
}

// Name is "slurm".
func (r *Runner) Name() string { return "slurm" }

// Can cancel jobs without waiting, find past jobs, know limits, and, if arrays or pilots are configured, start
// tasks together.
func (r *Runner) Can() runner.Abilities {
	can := runner.Abilities{Trim: r, Past: r, Limit: r}
	if r.options.config.Arrays || r.packs != nil && r.packs.On {
		can.Batch = r
	}
	return can
}

// taskOf returns the task whose job a comment marks.
func taskOf(comment string) (task.ID, bool) {
	ids := task.Marked(comment)
	if len(ids) != 1 {
		return "", false
	}
	return ids[0], true
}

// Jobs runs squeue once, and sacct at most twice: for the ends of jobs, and for the limits of jobs
// that have failed and may be tried again.
func (r *Runner) Jobs(ctx context.Context, remembered func() ([]runner.Ref, error)) ([]runner.Job, error) {
	var rows []slurm.Job
	var arrays map[string]string
	var err error
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		rows, arrays, err = r.queue(ctx)
	}()
	known, knownErr := remembered()
	all := make([]evidence, len(known), len(known)+16)
	byTask := make(map[task.ID]int, len(known))
	for i, ref := range known {
		all[i].ref = ref
		byTask[ref.Task] = i
	}
	<-asked
	var offers map[string]input.Keyed // read before owners and journals: what leaves it meanwhile has written those
	if r.packs != nil && err == nil {
		offers, err = r.packs.offers()
	}
	if err = errors.Join(err, knownErr); err != nil {
		return nil, err
	}
	now := r.now()
	others := map[task.ID]*slurm.Job{} // of tasks that are not known
	var order []task.ID
	more := map[int][]*slurm.Job{} // of tasks that are known by another job
	for i := range rows {
		row := &rows[i]
		id, ok := taskOf(row.Comment)
		if !ok {
			continue
		}
		if at, ok := byTask[id]; ok {
			if known[at].Job == row.Number() {
				all[at].queue = row
			} else {
				more[at] = append(more[at], row)
			}
			continue
		}
		other := others[id]
		if other == nil {
			order = append(order, id)
		}
		if other == nil || r.strange(row) == r.strange(other) && better(row, other) || !r.strange(row) && r.strange(other) {
			others[id] = row
		}
	}
	for i := range all {
		if all[i].queue == nil || len(more[i]) > 0 {
			// If the owner cannot be read, the recorded job counts.
			if owner, err := record.ReadOwner(all[i].ref.Dir, all[i].ref.Attempt); err == nil {
				submitted := all[i].ref.Submitted
				if all[i].choose(more[i], owner); isPacked(all[i].ref.Job) {
					all[i].ref.Submitted = submitted
				}
			}
		}
	}
	for _, id := range order {
		row := others[id]
		ref := runner.Ref{Task: id, Job: row.Number(), Submitted: slurm.Time(row.Submit)}
		all = append(all, evidence{ref: ref, queue: row, strange: r.strange(row)})
	}
	if r.packs != nil {
		if all, err = r.packedJobs(ctx, all, rows, offers); err != nil {
			return nil, err
		}
	}
	for i := range all {
		all[i].now = now
	}

	if err := r.account(ctx, all, arrays); err != nil {
		return nil, err
	}
	jobs := make([]runner.Job, len(all))
	for i := range all {
		jobs[i] = all[i].judge()
	}
	return jobs, r.had(ctx, all, jobs)
}

// choose decides which of a task's jobs counts, given those that squeue shows beside the recorded
// one: the owner, even if another one was recorded; without an owner, a job that is alive.
func (e *evidence) choose(more []*slurm.Job, owner string) {
	job, row := e.ref.Job, e.queue
	if owner != "" {
		job = owner
	}
	if row == nil || row.Number() != job {
		row = nil
		for _, other := range append(more, e.queue) {
			switch {
			case other == nil:
			case owner != "" && other.Number() == owner:
				row = other
			case owner == "" && Alive(other) && !e.ref.Before.Has(other.Number()) && (row == nil || better(other, row)):
				row, job = other, other.Number()
			}
		}
	}
	if owner != "" {
		for _, other := range append(more, e.queue) {
			if other == nil || other.Number() == owner {
				continue
			}
			if s, ok := state(other.State); ok && s == task.Pending {
				e.spare = append(e.spare, other.Number())
			}
		}
	}
	if job == e.ref.Job {
		e.queue = row
		return
	}
	e.instead = e.ref.Job
	e.ref.Job, e.ref.Submitted, e.ref.Missing, e.ref.Unaccounted, e.queue = job, time.Time{}, task.Absence{}, task.Absence{}, row
	if row != nil {
		e.ref.Submitted = slurm.Time(row.Submit)
	}
}

// strange reports whether a job of a task was submitted from the data_dir of another agent.
func (r *Runner) strange(row *slurm.Job) bool {
	return r.Tasks != "" && row.WorkDir != "" && row.WorkDir != r.Tasks && filepath.Dir(row.WorkDir) != r.Tasks
}

// better reports which of two jobs of an unknown task is adopted: a job that is alive rather than one
// that has ended, and of several alive the first, as that is the one that runs the task.
func better(a, b *slurm.Job) bool {
	aliveA, aliveB := Alive(a), Alive(b)
	if aliveA != aliveB {
		return aliveA
	}
	return (a.ID < b.ID) == aliveA
}

// Alive reports whether a job has not ended.
func Alive(job *slurm.Job) bool {
	if job.State == "SUSPENDED" {
		return true
	}
	s, ok := state(job.State)
	return !ok || !s.Final()
}

// account adds what accounting knows of the jobs that have ended or vanished. Arrays has the comments
// of the arrays that squeue shows.
func (r *Runner) account(ctx context.Context, all []evidence, arrays map[string]string) error {
	var ids []string
	for i := range all {
		id := all[i].number()
		if all[i].unknown() {
			continue // most are of tasks that have ended; another one is asked about once it is known
		}
		if id != "" && (all[i].queue == nil || !Alive(all[i].queue)) && (all[i].packed == nil || !slices.Contains(ids, id)) {
			ids = append(ids, id)
		}
	}
	var records map[string]slurm.Record
	var err error
	if len(ids) > 0 {
		err = r.accounting.ask(ctx, r.now, func(ctx context.Context) (err error) {
			records, err = r.client.Account(ctx, ids)
			return err
		})
	}
	says := answered
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return err
	case noAccounting(err):
		says = noBooks
	default:
		says = silent
	}
	shown := map[string]bool{} // arrays, by their ids
	for id := range records {
		array, _, _ := strings.Cut(id, "_")
		shown[array] = true
	}
	// Accounting that does not answer is treated like accounting that lags.
	for i := range all {
		e := &all[i]
		if e.queue != nil && Alive(e.queue) {
			// If there are thousands, one in ten at a time.
			if e.packed != nil || e.queue.State == "RUNNING" && e.ref.Dir != "" &&
				(len(all) < 200 || !e.ref.Missing.IsZero() || uint64(e.now.Minute()%10) == e.queue.ID%10) {
				e.readJournal()
			}
			continue
		}
		e.books = says
		if e.ref.Dir != "" {
			e.readJournal()
		}
		// After a crash and restart, Slurm may reuse ids: the comment shows that it is the same
		// array.
		array, _, isElement := strings.Cut(e.number(), "_")
		e.siblings = isElement && shown[array] && e.queue == nil && commentOf(e.ref.Job, arrays[array]) == task.Marks(e.ref.Task)
		record, ok := e.recordIn(records)
		if !ok {
			continue
		}
		if known, ok := state(record.State); record.Listed && (!ok || !known.Final()) {
			continue // accounting has no record of a pending element
		}
		e.account = &record
	}
	return nil
}

// unknown reports whether only squeue has named the task.
func (e *evidence) unknown() bool { return e.ref.Dir == "" && e.queue != nil && e.packed == nil }

// recordIn returns the record of the job.
func (e *evidence) recordIn(records map[string]slurm.Record) (slurm.Record, bool) {
	record, ok := records[e.number()]
	if _, isElement := index(e.number()); isElement && record.Comment == "" {
		record.Comment = submitted(record)
		ok = ok && record.Comment != ""
	}
	return record, ok && e.matches(record)
}

// noAccounting reports whether an error of sacct is that of a cluster without accounting, or without the program.
func noAccounting(err error) bool {
	var missing *command.NotFoundError
	return errors.Is(err, slurm.ErrNoAccounting) || errors.As(err, &missing)
}

// readJournal reads what the job script has recorded. What cannot be read is unknown; it does not
// mean that the job has not begun.
func (e *evidence) readJournal() {
	run, err := record.ReadRun(e.ref.Dir, e.ref.Job)
	owner, ownerErr := record.ReadOwner(e.ref.Dir, e.ref.Attempt)
	if err != nil || ownerErr != nil {
		return
	}
	e.journal, e.run, e.owner = true, run, owner
}

// matches reports whether a record of accounting is of this job and not of an earlier or later one
// with the same id. Comments are not stored on all clusters, nor before the end of a job.
func (e *evidence) matches(r slurm.Record) bool {
	if e.packed != nil {
		return strings.HasPrefix(r.Comment, e.packed.mark) || r.Comment == "" && r.Name == pilotName
	}
	if r.Comment != "" {
		return commentOf(r.ID, r.Comment) == task.Marks(e.ref.Task)
	}
	_, isElement := index(e.ref.Job)
	if !strings.HasPrefix(r.Name, namePrefix) || e.ref.Label != "" && !isElement && r.Name != jobName(e.ref.Label) {
		return false
	}
	return e.ref.Submitted.IsZero() || r.Submit == 0 || slurm.Time(r.Submit).Sub(e.ref.Submitted).Abs() < 5*time.Minute
}

// Start submits the job, unless there is one already.
func (r *Runner) Start(ctx context.Context, s runner.Submission) (runner.Job, error) {
	// Jobs that the state directory does not know are from before it was lost, so tasks that are
	// started together share one query. If an earlier try was killed, its submission may still have
	// been on its way at that time.
	list := r.recent
	if s.Again {
		list = r.squeue.Fresh
	}
	l, err := list(ctx)
	if err != nil {
		return runner.Job{}, err
	}
	if err := r.clear(ctx, l.rows); err != nil {
		return runner.Job{}, err
	}
	if row := l.existing(s); row != nil {
		return r.adopted(s, row), nil
	}
	if job, found, err := r.packs.existing(s, nil); found || err != nil {
		return job, err
	}
	batch, err := r.batch(ctx, s)
	if err != nil {
		if kind := fault.KindOf(err); s.Own() && (kind == fault.Usage || kind == fault.Failed) {
			err = fmt.Errorf("%w: %w", runner.ErrRefused, err)
		}
		return runner.Job{}, err
	}
	id, err := r.client.Submit(ctx, batch)
	if err == nil {
		return runner.Job{Task: s.Task, ID: id, Sight: runner.Waits, Submitted: r.now()}, nil
	}
	if ctx.Err() != nil {
		return runner.Job{}, err
	}
	err = submitError(err)
	if !errors.Is(err, runner.ErrUnsure) {
		return runner.Job{}, err
	}
	// It may have been submitted: a later query shows it.
	l, listErr := r.squeue.Fresh(ctx)
	if listErr != nil {
		return runner.Job{}, err
	}
	if row := l.existing(s); row != nil {
		return r.adopted(s, row), nil
	}
	return runner.Job{}, err
}

// adopted returns a job that was found when its task was to be submitted.
func (r *Runner) adopted(s runner.Submission, row *slurm.Job) runner.Job {
	job := evidence{ref: runner.Ref{Task: s.Task, Job: row.Number()}, queue: row, now: r.now()}.judge()
	job.Claim = runner.Found
	return job
}

// submitError classifies the error of a submission: refused, by a known message of Slurm; no room; no
// nodes; or any other, after which there may be a job.
func submitError(err error) error {
	for _, known := range []struct {
		is  bool
		err error
	}{{slurm.AtLimit(err), runner.ErrFull}, {slurm.Unavailable(err), runner.ErrUnmet}, {slurm.RefusedJob(err), runner.ErrRefused}} {
		var e *slurm.Error
		if known.is && errors.As(err, &e) {
			return fmt.Errorf("%w: sbatch: %s", known.err, e.Words())
		}
	}
	return &unsureError{err}
}

// unsureError is the error of a submission that leaves open whether there is a job.
type unsureError struct{ err error }

func (e *unsureError) Error() string   { return e.err.Error() }
func (e *unsureError) Unwrap() []error { return []error{e.err, runner.ErrUnsure} }

// Trim cancels jobs that wait although another one owns their task.
func (r *Runner) Trim(ctx context.Context, _ task.ID, jobs []string) error {
	jobs = slices.DeleteFunc(slices.Clone(jobs), isPacked) // scancel would take it for a job step of the pilot
	if len(jobs) == 0 {
		return nil
	}
	return r.client.Cancel(ctx, jobs...)
}

// Past queries accounting once for the user's jobs since a time. A job belongs to a task by its
// comment, if the cluster stores comments, or by its directory; an element of an array by the comment
// that is part of its command line, and the directory.
func (r *Runner) Past(ctx context.Context, since time.Time, dir func(task.ID) string) ([]runner.Job, error) {
	records, err := r.client.Past(ctx, r.uid, since)
	if noAccounting(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	last := map[task.ID]slurm.Record{}
	var order []task.ID
	for _, record := range records {
		for _, job := range slurm.Elements(record.ID) {
			id, ok := pastTask(job, record, dir)
			if !ok {
				continue
			}
			record.ID = job
			latest, found := last[id]
			if !found {
				order = append(order, id)
			}
			if !found || record.Submit >= latest.Submit {
				last[id] = record
			}
		}
	}
	jobs := make([]runner.Job, 0, len(order))
	for _, id := range order {
		record := last[id]
		jobs = append(jobs, runner.Job{Task: id, ID: record.ID, Sight: runner.Past, Submitted: slurm.Time(record.Submit)})
	}
	return jobs, nil
}

// Options returns the options of sbatch for tasks, as configured or as found for a resource request.
func (r *Runner) Options(ctx context.Context, n runner.Needs) (sbatch.Options, error) {
	return r.options.forTask(ctx, n, "")
}

// Preview returns the call of sbatch.
func (r *Runner) Preview(ctx context.Context, s runner.Submission) (runner.Preview, error) {
	b, err := r.batch(ctx, s)
	return runner.Preview{Argv: append([]string{"sbatch"}, b.Argv()...)}, err
}

// batch returns what would be submitted for a task.
func (r *Runner) batch(ctx context.Context, s runner.Submission) (slurm.Batch, error) {
	given, err := r.options.forTask(ctx, s.Needs, s.Label)
	if err != nil {
		return slurm.Batch{}, err
	}
	b := batch(given, jobName(s.Label), task.Marks(s.Task), s.Dir, s.Dir)
	b.Script = s.Script
	if s.Hold != nil {
		b.Hold = []*os.File{s.Hold}
	}
	return b, nil
}

// batch returns a job with these options that runs in one directory and writes its output to another.
func batch(given sbatch.Options, name, comment, output, dir string) slurm.Batch {
	return slurm.Batch{Options: append(given.Args(), "--job-name="+name, "--comment="+comment,
		"--output="+filepath.Join(output, runner.Output), "--open-mode=append", "--chdir="+dir), Env: Environ(os.Environ())}
}

const namePrefix = "ponos-"

// jobName returns the name of a task's job: plain characters only, for everything that parses the
// output of squeue.
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

// Environ returns the part of the agent's environment that its jobs get: what is needed to log in and
// to find Slurm, but none of the agent's own variables.
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
