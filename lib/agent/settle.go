package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// quiet reports whether there is nothing to do for a task, which is the usual case.
func quiet(k *Tracked, job *runner.Job) bool {
	if !job.Sight.Sure() || job.State.Final() || !k.Missing.IsZero() || !k.Absent.IsZero() ||
		job.Restarts != k.Restarts || job.ID != k.Job || len(job.Spare) > 0 {
		return false
	}
	return job.State == k.Reported && (job.State != task.Running || k.output == k.Output) ||
		job.State == task.Pending && k.Reported == ""
}

// rebuild writes the record of a known task again, if the task has removed the files of its own
// directory, and its job script has made that again.
func (a *Agent) rebuild(d Dir, k *Tracked) error {
	entries, err := os.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == recordFile }) {
		return nil
	}
	if err != nil {
		return err
	}
	held, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return nil
	}
	if err != nil {
		return err
	}
	defer held.Close()
	k.Lost = true
	if err := a.sayRemoved(d, k.Job); err != nil {
		return err
	}
	return d.Write(Record{
		ID: k.ID, Slug: k.Slug, Process: k.Process, Rules: k.Rules, Runner: a.Runner.Name(), Reassigned: k.Reassigned,
		Attempt: k.Attempt, Intent: a.now(), Job: k.Job, Submitted: k.Submitted, Lost: true,
	})
}

// sayRemoved tells the user of a task that it has removed the files in its own directory, when the
// agent found a job of it by other means.
func (a *Agent) sayRemoved(d Dir, job string) error {
	log, err := a.openLog(d, headFile)
	if err != nil {
		return err
	}
	log.Say("WARNING", "the files of the agent for this task were removed, and its output with them; job %s has begun it", job)
	return log.Close()
}

// settleOne acts on the job of one task. It returns nil if the task has ended.
func (a *Agent) settleOne(ctx context.Context, k Tracked, job runner.Job, listed bool, patience <-chan struct{}) (*Tracked, error) {
	d := a.Store.Task(k.ID)
	d.reclaim()
	// If the task was stopped and started again since, the cache is of an earlier attempt. The
	// record decides.
	switch r, err := d.Read(); {
	case err == nil && r.Job != "" && r.Job != k.Job:
		k = r.tracked()
		return &k, nil
	case errors.Is(err, fs.ErrNotExist):
		if err := a.rebuild(d, &k); err != nil {
			return &k, err
		}
	}
	// Nothing is published for a task that the queue did not have, unless the queue has it again.
	if !k.Absent.IsZero() {
		switch _, err := a.Queue.Task(ctx, k.ID); {
		case forgotten(err):
			return a.absent(d, k, listed)
		case err != nil:
			return &k, err
		}
		k.Absent = task.Absence{}
	}
	// The job that runs the task is the one that has made itself its owner.
	switch {
	case job.Claim == runner.Renamed:
		if after, err := a.changeJob(d, k, job.ID, k.Submitted); err != nil {
			return after, err
		}
		k.Job, k.Missing, k.Unaccounted = job.ID, task.Absence{}, task.Absence{}
	case job.Claim == runner.Other:
		a.Log.Info("another job runs the task than was recorded", "task", k.ID, "recorded", k.Job, "job", job.ID)
		return a.changeJob(d, k, job.ID, job.Submitted)
	}
	if job.State.Final() {
		owner, err := record.ReadOwner(d.Path, k.Attempt)
		if err != nil {
			return &k, err
		}
		if owner != "" && owner != k.Job {
			return a.changeJob(d, k, owner, time.Time{})
		}
	}
	if trimmer := a.Runner.Can().Trim; trimmer != nil && len(job.Spare) > 0 {
		a.Log.Info("pending jobs of a task that another job runs are cancelled", "task", k.ID, "job", k.Job, "cancelled", job.Spare)
		if err := trimmer.Trim(ctx, k.ID, job.Spare); err != nil {
			return &k, err
		}
	}
	s := decide(k, job, job.Sight == runner.Cancelled && d.StopRequested(), a.now())
	k.Missing, k.Unaccounted = s.missing, s.unaccounted
	if !job.Sight.Sure() {
		return &k, nil
	}
	k.Restarts = job.Restarts
	if s.again {
		return a.submitAgain(ctx, d, k, job.Reason, patience)
	}
	if trimmer := a.Runner.Can().Trim; trimmer != nil && job.Sight == runner.Outlived {
		a.Log.Info("a job whose command has ended is cancelled", "task", k.ID, "job", k.Job)
		if err := trimmer.Trim(ctx, k.ID, []string{k.Job}); err != nil {
			return &k, err
		}
	}
	if s.end {
		if after, again, err := a.tryAgain(ctx, d, k, job, &s.report, listed); again || err != nil {
			return after, err
		}
		return a.upload(ctx, d, k, s.report, listed, patience)
	}
	if a.asks(&k, &job) {
		if after, settled, err := a.ask(ctx, d, k, listed, patience); settled {
			return after, err
		}
	}
	if s.report.State != "" {
		err := a.Queue.Report(ctx, k.ID, s.report)
		if forgotten(err) {
			return a.absent(d, k, listed)
		}
		if err != nil {
			return &k, err
		}
		a.Log.Info("task is "+string(s.report.State), "task", k.ID, "job", k.Job)
		k.Reported, k.Since, k.Absent = s.report.State, a.now(), task.Absence{}
	}
	size, output := logSize(d)
	if size != k.LogSize {
		err := a.putLog(ctx, d)
		if forgotten(err) {
			return a.absent(d, k, listed)
		}
		if err != nil {
			return &k, err
		}
	}
	k.LogSize, k.Output = size, output
	return &k, nil
}

// changeJob records another job as the one that runs a task. Submitted is zero if that time is
// unknown.
func (a *Agent) changeJob(d Dir, k Tracked, job string, submitted time.Time) (*Tracked, error) {
	k.Job, k.Submitted, k.Missing, k.Unaccounted = job, submitted, task.Absence{}.Again(a.now()), task.Absence{}
	return &k, a.updateRecord(d, func(r *Record) { r.Job, r.Submitted = job, submitted })
}

// submitAgain releases a task whose job has provably not begun: ponos-start submits it again,
// after a pause that grows. It returns nil then.
func (a *Agent) submitAgain(ctx context.Context, d Dir, k Tracked, reason string, patience <-chan struct{}) (*Tracked, error) {
	held, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return &k, nil
	}
	if err != nil {
		return &k, err
	}
	defer held.Close()
	r, err := d.Read()
	if err != nil {
		return &k, err
	}
	if r.Job != k.Job {
		k = r.tracked()
		return &k, nil
	}
	if r.Tries++; r.Tries >= maxSubmissions {
		held.Close()
		reason = fmt.Sprintf("%d jobs of the task did not begin its command; the last one: %s", r.Tries, reason)
		return a.upload(ctx, d, k, task.Report{State: task.Error, Reason: reason}, true, patience)
	}
	// The queue offers the start of a pending task again.
	if k.Reported == task.Running {
		if err := a.Queue.Report(ctx, k.ID, task.Report{State: task.Pending, Reason: reason}); err != nil && !forgotten(err) {
			return &k, err
		}
	}
	// A job that has ended may have claimed the task before it failed to begin it.
	if owner, err := record.ReadOwner(d.Path, k.Attempt); err != nil {
		return &k, err
	} else if owner == k.Job {
		if err := os.Remove(d.file(record.Owner(k.Attempt))); err != nil {
			return &k, err
		}
	}
	// The scheduler may list the job for some time.
	if !slices.Contains(r.Before, k.Job) {
		r.Before = append(r.Before, k.Job)
	}
	r.Job, r.Submitted, r.Retry, r.Problem = "", time.Time{}, a.now().Add(pause(r.Tries)), reason
	log, _, err := a.openLead(d)
	if err != nil {
		return &k, err
	}
	log.Say("WARNING", "job %s: %s; the task is submitted again", k.Job, reason)
	if err := log.Close(); err != nil {
		return &k, err
	}
	if err := d.Write(r); err != nil {
		return &k, err
	}
	a.Log.Warn("the task is submitted again", "task", k.ID, "job", k.Job, "reason", reason)
	return nil, nil
}

// upload starts to publish the end of a task whose job has ended. It returns nil if that finished
// while the turn waited.
func (a *Agent) upload(ctx context.Context, d Dir, k Tracked, r task.Report, listed bool, patience <-chan struct{}) (*Tracked, error) {
	var gone atomic.Bool // the queue does not have the task
	over, err := a.runUpload(ctx, k.ID, patience, func() (bool, error) { return a.publishUnlessHeld(ctx, d, k, r, listed, &gone) })
	if over {
		return nil, err
	}
	if gone.Load() && listed {
		k.Absent = k.Absent.Again(a.now())
	}
	return &k, err
}

// publishUnlessHeld publishes the end of a task whose job has ended, unless ponos-stop holds its
// lock. It reports whether the task has ended.
func (a *Agent) publishUnlessHeld(ctx context.Context, d Dir, k Tracked, r task.Report, listed bool, gone *atomic.Bool) (bool, error) {
	held, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return false, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return a.finishedElsewhere(k.ID)
	}
	if err != nil {
		return false, err
	}
	defer held.Close()
	err = a.publishEnd(ctx, d, k.Process, r)
	if forgotten(err) {
		if listed && k.Absent.Again(a.now()).Fact() {
			return true, a.finish(k.ID)
		}
		gone.Store(true)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if a.Ended != nil && r.Cost > 0 {
		o := a.outcome("ended", Record{ID: k.ID, Slug: k.Slug, Job: k.Job}, r.Reason)
		o.State, o.Cost = r.State, r.Cost
		a.Ended(o)
	}
	return true, nil
}

// finishedElsewhere reports whether another process has moved a task's directory away. If it is
// nowhere, the state directory was replaced or lost.
func (a *Agent) finishedElsewhere(id task.ID) (bool, error) {
	if _, ok, err := a.Store.Finished(id); ok || err != nil {
		return ok, err
	}
	return false, fault.Errorf(fault.Unavailable, "its directory %q is gone", a.Store.Task(id).Path)
}

// absent counts a turn in which the queue did not have a task whose job runs. After enough of
// them, the job is no longer tracked.
func (a *Agent) absent(d Dir, k Tracked, listed bool) (*Tracked, error) {
	if !listed {
		return &k, nil
	}
	k.Absent = k.Absent.Again(a.now())
	if !k.Absent.Fact() {
		return &k, nil
	}
	k.Reassigned = true
	a.Log.Warn("the task is not assigned to this agent; its job is left alone", "task", k.ID, "job", k.Job)
	return &k, a.updateRecord(d, func(r *Record) { r.Reassigned = true })
}

// watchReassigned tracks the job of a reassigned task for as long as the runner lists it. When the
// job has ended, the queue is asked once more: it may have given the task back to this agent. A
// job that costs money is stopped if the queue still does not give its task to this agent.
func (a *Agent) watchReassigned(ctx context.Context, k Tracked, job runner.Job, listed bool) (*Tracked, error) {
	over := job.State.Final() || job.Sight.Gone() && k.Missing.Again(a.now()).Fact()
	if !over && (a.Runner.Can().Price == nil || job.ID == "" || !job.Sight.Sure()) {
		missing := task.Absence{}
		if job.Sight.Gone() {
			missing = k.Missing.Again(a.now())
		}
		k.Missing = missing
		return &k, nil
	}
	d := a.Store.Task(k.ID)
	_, err := a.Queue.Task(ctx, k.ID)
	if err == nil {
		k.Reassigned, k.Absent = false, task.Absence{}
		return &k, a.updateRecord(d, func(r *Record) { r.Reassigned = false })
	}
	if !forgotten(err) {
		return &k, nil
	}
	if !listed {
		return &k, nil
	}
	if over {
		return nil, a.finish(k.ID)
	}
	held, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return &k, nil
	}
	if err != nil {
		return &k, err
	}
	defer held.Close()
	a.Log.Warn("the task is not assigned to this agent; its job is cancelled", "task", k.ID, "job", k.Job)
	err = a.Runner.Stop(ctx, runner.Ref{Task: k.ID, Job: k.Job, Dir: d.Path, Submitted: k.Submitted})
	if err != nil {
		return &k, err
	}
	return nil, a.finish(k.ID)
}

func (a *Agent) updateRecord(d Dir, change func(*Record)) error {
	r, err := d.Read()
	if err != nil {
		return err
	}
	change(&r)
	return d.Write(r)
}
