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
func (a *Agent) quiet(k *Tracked, job *runner.Job) bool {
	if k.Reassigned {
		return false
	}
	if job.ID == "" {
		return true
	}
	return decide(a.factsOf(k, job)) == follow && k.Missing.IsZero() && job.Restarts == k.Restarts &&
		(job.Sight != runner.Runs || k.output == k.Output)
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
	return d.Write(Record{Tracked: *k, Runner: a.Runner.Name(), Intent: a.now()})
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

// settleOne does what follows for one task with a job. It returns nil if the task has ended.
func (a *Agent) settleOne(ctx context.Context, k Tracked, job runner.Job, listed bool, patience <-chan struct{}) (*Tracked, error) {
	d := a.Store.Task(k.Task)
	d.reclaim()
	// If the task was stopped and started again since, the cache is of an earlier attempt. The
	// record decides.
	switch r, err := d.Read(); {
	case k.Reassigned:
	case err == nil && r.Job != "" && r.Job != k.Job:
		return &r.Tracked, nil
	case errors.Is(err, fs.ErrNotExist):
		if err := a.rebuild(d, &k); err != nil {
			return &k, err
		}
	}
	x := a.factsOf(&k, &job)
	if x.known == tracked && job.Sight.Over() {
		// The job that runs the task is the one that has made itself its owner.
		owner, err := record.ReadOwner(d.Path, k.Attempt)
		if err != nil {
			return &k, err
		}
		if owner != "" && owner != job.ID {
			job.ID, job.Submitted, x.notes = owner, time.Time{}, x.notes&^renamed|other
		}
		if d.StopRequested() {
			x.notes |= stop
		}
	}
	return a.act(ctx, turn{d: d, k: k, job: job, x: x, listed: listed, patience: patience})
}

// turn is what a turn knows of one task with a job.
type turn struct {
	d        Dir
	k        Tracked
	job      runner.Job
	x        facts
	listed   bool // the queue has listed its actions
	patience <-chan struct{}
	ended    task.State // what the queue says of a task that has ended
}

// hear takes an answer of the queue about the task. That it does not have the task counts only in a turn in which it has
// listed its actions.
func (t *turn) hear(err error) {
	switch {
	case err == nil:
		t.x.word = has
	case forgotten(err) && t.listed:
		t.x.word = lacks
	default:
		t.x.word = mute
	}
}

// act does what the table says, until nothing more follows in this turn.
func (a *Agent) act(ctx context.Context, t turn) (*Tracked, error) {
	d, k, job, was := t.d, &t.k, &t.job, t.k
	v := decide(t.x)
	if v != ask && t.x.known == tracked && t.x.word == has {
		k.Absent = task.Absence{}
	}
	switch v {
	case ask:
		return a.askOf(ctx, t)
	case reset, count:
		k.Missing, k.Unaccounted = looked(*k, job, a.now())
	case miss:
		k.Absent = k.Absent.Again(a.now())
	case leave:
		k.Absent, k.Reassigned = k.Absent.Again(a.now()), true
		a.Log.Warn("the task is not assigned to this agent; its job is left alone", "task", k.Task, "job", k.Job)
		return a.keepTracked(d, was, *k)
	case take:
		k.Reassigned, k.Absent = false, task.Absence{}
		return a.keepTracked(d, was, *k)
	case change:
		a.Log.Info("another job runs the task than was recorded", "task", k.Task, "recorded", k.Job, "job", job.ID)
		k.take(job.ID, job.Submitted)
		return a.keepTracked(d, was, *k)
	case rename: // if it is submitted again, what has only its former name is not adopted
		k.Before = k.Before.And(k.Job)
		k.take(job.ID, k.Submitted)
		if after, err := a.keepTracked(d, was, *k); err != nil || *after != *k {
			return after, err
		}
		t.x.notes &^= renamed
		return a.act(ctx, t)
	case trim:
		a.Log.Info("pending jobs of a task that another job runs are cancelled", "task", k.Task, "job", k.Job, "cancelled", job.Spare)
		if err := a.trim(ctx, k.Task, job.Spare...); err != nil {
			return k, err
		}
		t.x.notes &^= spare
		return a.act(ctx, t)
	case follow, report:
		return a.follow(ctx, t, v == report)
	case again:
		k.Missing, k.Unaccounted, k.Restarts = task.Absence{}, task.Absence{}, job.Restarts
		return a.submitAgain(ctx, d, *k, job.Reason, t.patience)
	case cut, retry, asked, end:
		return a.end(ctx, t, v)
	case finish:
		return nil, a.finish(k.Task)
	case quit, dismiss:
		return a.endJob(ctx, t, v)
	}
	return k, nil
}

// looked returns the absences of a job after one more look.
func looked(k Tracked, job *runner.Job, now time.Time) (missing, unaccounted task.Absence) {
	if job.Sight.Gone() {
		missing = k.Missing.Again(now)
	}
	if job.Sight == runner.Unaccounted {
		unaccounted = k.Unaccounted.Again(now)
	}
	return missing, unaccounted
}

// follow publishes what is new of a job that has not ended, and its state if that is to be reported.
func (a *Agent) follow(ctx context.Context, t turn, tell bool) (*Tracked, error) {
	k := &t.k
	k.Missing, k.Unaccounted, k.Restarts = task.Absence{}, task.Absence{}, t.job.Restarts
	var err error
	if tell {
		r := task.Report{State: t.job.Shows()}
		if r.State == task.Pending {
			r.Reason = t.job.Reason
		}
		if err = a.Queue.Report(ctx, k.Task, r); err == nil {
			a.Log.Info("task is "+string(r.State), "task", k.Task, "job", k.Job)
			k.Reported, k.Since = r.State, a.now()
		}
	}
	size, output := logSize(t.d)
	if err == nil && size != k.LogSize {
		err = a.putLog(ctx, t.d)
	}
	switch {
	case err == nil:
		k.LogSize, k.Output = size, output
		return k, nil
	case forgotten(err):
		t.hear(err)
		return a.act(ctx, t)
	}
	return k, err
}

// end ends a task whose job has ended, unless its rules say otherwise.
func (a *Agent) end(ctx context.Context, t turn, v verdict) (*Tracked, error) {
	d, k, job := t.d, t.k, t.job
	k.Missing, k.Unaccounted, k.Restarts = task.Absence{}, task.Absence{}, job.Restarts
	r := task.Report{State: job.State, Reason: job.Reason, ExitCode: job.ExitCode, Rent: job.Rent}
	switch v {
	case cut:
		a.Log.Info("a job whose command has ended is cancelled", "task", k.Task, "job", k.Job)
		if err := a.trim(ctx, k.Task, k.Job); err != nil {
			return &k, err
		}
		t.job.Sight = runner.Ended
		t.x.seen = seenAs(&t.job, false)
		return a.act(ctx, t)
	case retry:
		if after, again, err := a.tryAgain(ctx, t, &r); again || err != nil {
			return after, err
		}
	case asked:
		r = task.Report{State: task.Stopped, Reason: "stopped at the request of the queue", Rent: job.Rent}
	}
	return a.upload(ctx, d, k, r, t.listed, t.patience)
}

// hold locks a task and reads its record. Without a lock the turn goes on with what it returns of the task: what it knew,
// while another process works on the task, or what the record says, if that is about another job.
func (d Dir) hold(k *Tracked) (*lock.Lock, Record, *Tracked, error) {
	held, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return nil, Record{}, k, nil
	}
	if err != nil {
		return nil, Record{}, k, err
	}
	r, err := d.Read()
	if err == nil && r.Job == k.Job {
		return held, r, k, nil
	}
	held.Close()
	if err == nil {
		k = &r.Tracked
	}
	return nil, r, k, err
}

// keepTracked records what a turn has decided about a task with a job. While another process works on the task, nothing changes.
func (a *Agent) keepTracked(d Dir, was, k Tracked) (*Tracked, error) {
	held, r, now, err := d.hold(&was)
	if held == nil {
		return now, err
	}
	defer held.Close()
	r.Tracked = k
	return &k, d.Write(r)
}

// submitAgain releases a task whose job has provably not begun: ponos-start submits it again,
// after a pause that grows. It returns nil then.
func (a *Agent) submitAgain(ctx context.Context, d Dir, k Tracked, reason string, patience <-chan struct{}) (*Tracked, error) {
	held, r, now, err := d.hold(&k)
	if held == nil {
		return now, err
	}
	defer held.Close()
	run, err := record.ReadRun(d.Path, k.Job)
	if err != nil {
		return &k, err
	}
	if r.Tries++; run.Begun { // with its pilot, which was requeued: as a job of its own, it may be so again and again
		r.Tries = 0
	}
	if r.Tries >= maxSubmissions {
		held.Close()
		reason = fmt.Sprintf("%d jobs of the task did not begin its command; the last one: %s", r.Tries, reason)
		return a.upload(ctx, d, k, task.Report{State: task.Error, Reason: reason}, true, patience)
	}
	// The queue offers the start of a pending task again.
	if k.Reported == task.Running {
		if err := a.Queue.Report(ctx, k.Task, task.Report{State: task.Pending, Reason: reason}); err != nil && !forgotten(err) {
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
	r.release() // the scheduler may list the job for some time
	r.Retry, r.Problem = a.now().Add(pause(r.Tries)), reason
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
	a.Log.Warn("the task is submitted again", "task", k.Task, "job", k.Job, "reason", reason)
	return nil, nil
}

// upload starts to publish the end of a task whose job has ended. It returns nil if that finished
// while the turn waited.
func (a *Agent) upload(ctx context.Context, d Dir, k Tracked, r task.Report, listed bool, patience <-chan struct{}) (*Tracked, error) {
	var gone atomic.Bool // the queue does not have the task
	over, err := a.runUpload(ctx, k.Task, patience, func() (bool, error) { return a.publishUnlessHeld(ctx, d, k, r, listed, &gone) })
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
	if err != nil {
		return a.overElsewhere(k.Task, err)
	}
	defer held.Close()
	err = a.publishEnd(ctx, d, k.Process, r)
	if forgotten(err) {
		x := a.factsOf(&k, &runner.Job{ID: k.Job, Sight: runner.Ended, End: runner.End{State: r.State}})
		if x.word = lacks; listed && decide(x) == finish {
			return true, a.finish(k.Task)
		}
		gone.Store(true)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if a.Ended != nil && r.Cost > 0 {
		o := a.outcome("ended", Record{Tracked: k}, r.Reason)
		o.State, o.Cost = r.State, r.Cost
		a.Ended(o)
	}
	return true, nil
}

// overElsewhere reports whether an error about a task says that another process has ended the task meanwhile, and moved its
// directory away. If that is nowhere, the state directory was replaced or lost.
func (a *Agent) overElsewhere(id task.ID, err error) (bool, error) {
	path := a.Store.Task(id).Path
	if _, statErr := os.Stat(path); !errors.Is(err, fs.ErrNotExist) || !errors.Is(statErr, fs.ErrNotExist) {
		return false, err
	}
	if _, ok, err := a.Store.Finished(id); ok || err != nil {
		return ok, err
	}
	return false, fault.Errorf(fault.Unavailable, "its directory %q is gone", path)
}
