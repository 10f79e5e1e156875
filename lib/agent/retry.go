package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/base/remove"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// tryAgain begins another attempt of a task whose job has failed, if its rules say so. It reports
// whether the task is tried again; if not, the report may say why. The scheduler has reported the
// end of the job, so two attempts never run side by side. All steps before the record are
// idempotent; the record decides.
func (a *Agent) tryAgain(ctx context.Context, in turn, report *task.Report) (after *Tracked, again bool, err error) {
	d, k, job := in.d, in.k, in.job
	rules, err := need.ParseRules(k.Rules)
	if err != nil || len(rules) == 0 {
		return nil, false, nil
	}
	held, r, now, err := d.hold(&k)
	if held == nil {
		return now, true, err
	}
	defer held.Close()
	end := endOf(job)
	change, again, why := rules.Within(a.LongestTime).Next(end, reasonsOf(r.Attempts))
	if again && r.Lost && a.Store.Submitted(k.Task) > 0 {
		again, why = false, "the directory of the task was removed, and with it the record of its attempts"
	}
	if again {
		r.Changed, why = r.changedBy(change)
		if why == "" && a.Hopeless != nil && len(r.Changed) > 0 {
			why = a.Hopeless(ctx, r.needs())
		}
	}
	if !again || why != "" {
		if why != "" {
			report.Reason += "; it is not tried again: " + why
		}
		return nil, false, nil
	}
	// The task may have been stopped meanwhile, or given to another agent.
	t, err := a.Queue.Task(ctx, k.Task)
	if err == nil {
		t.State, err = a.stateOf(ctx, t)
	}
	switch {
	case forgotten(err):
		held.Close()
		in.hear(err)
		after, err = a.act(ctx, in)
		return after, true, err
	case err != nil:
		return &k, true, err
	case t.State == task.Stopping || t.State.Final():
		return nil, false, nil
	}
	attempt := task.Attempt{
		Number: r.Attempt, Job: k.Job, State: report.State, Reason: task.Clean(report.Reason), ExitCode: report.ExitCode,
		Ended: a.now().UTC(), Retry: end.Name(), Changed: changeOptions(change),
	}
	size, err := a.keepAttempt(ctx, d, r, attempt)
	if err != nil {
		return &k, true, err
	}
	if k.Reported == task.Running {
		if err := a.Queue.Report(ctx, k.Task, task.Report{State: task.Pending, Reason: report.Reason}); err != nil && !forgotten(err) {
			return &k, true, err
		}
	}
	words := fmt.Sprintf("attempt %d, job %s: %s; the task is tried again", r.Attempt, k.Job, report.Reason)
	if len(attempt.Changed) > 0 {
		words += " with " + strings.Join(attempt.Changed, " ")
	}
	log, _, err := a.openLead(d)
	if err != nil {
		return &k, true, err
	}
	log.Say("WARNING", "%s", words)
	r.Attempts = append(r.Attempts, attempt)
	r.release()
	r.Attempt++
	r.Tries, r.Lost, r.LogFrom = 0, false, size
	r.Retry, r.Problem = a.now().Add(pause(len(r.Attempts))), report.Reason
	if err := log.Close(); err != nil {
		return &k, true, err
	}
	if err := d.Write(r); err != nil {
		return &k, true, err
	}
	a.Log.Warn("the task is tried again", "task", k.Task, "job", k.Job, "attempt", r.Attempt, "reason", report.Reason, "changed", r.Changed)
	return nil, true, nil
}

// endOf returns how a job has failed, in the terms of retry rules.
func endOf(job runner.Job) need.End {
	e := need.End{Reason: job.Cause, Memory: job.Had.Memory, Time: job.Had.Time}
	if e.Reason == "" && job.State == task.Failed && job.ExitCode > 0 {
		e.Reason, e.Code = need.Exit, job.ExitCode
	}
	if nodes, err := hostlist.Expand(job.Had.Nodes); err == nil {
		e.Nodes = nodes
	}
	return e
}

func reasonsOf(attempts []task.Attempt) []string {
	var all []string
	for _, a := range attempts {
		all = append(all, a.Retry)
	}
	return all
}

// changedBy returns the options by which the next attempt differs from the first one.
func (r Record) changedBy(c need.Change) (changed []string, why string) {
	changed = slices.Clone(r.Changed)
	for _, option := range changeOptions(c) {
		name, value, _ := strings.Cut(option, "=")
		at := slices.IndexFunc(changed, func(had string) bool { return strings.HasPrefix(had, name+"=") })
		switch {
		case at < 0:
			changed = append(changed, option)
		case name == "exclude":
			before, err := hostlist.Expand(strings.TrimPrefix(changed[at], name+"="))
			if err != nil {
				return nil, fault.Text(err)
			}
			now, err := hostlist.Expand(value)
			if err != nil {
				return nil, fault.Text(err)
			}
			all := append(before, now...)
			slices.Sort(all)
			changed[at] = name + "=" + hostlist.Compress(slices.Compact(all))
		default:
			changed[at] = option
		}
	}
	return changed, ""
}

// changeOptions returns a change as options of sbatch.
func changeOptions(c need.Change) []string {
	var all []string
	if c.Memory > 0 {
		all = append(all, "mem="+slurm.FormatMemory(c.Memory))
	}
	if c.Time > 0 {
		all = append(all, "time="+slurm.FormatDuration(c.Time))
	}
	if len(c.Exclude) > 0 {
		all = append(all, "exclude="+hostlist.Compress(c.Exclude))
	}
	return all
}

// keepAttempt has the queue keep an attempt and its output, and returns the offset at which the
// output of the next attempt begins. A pipe in the place of the output would block the next job.
func (a *Agent) keepAttempt(ctx context.Context, d Dir, r Record, attempt task.Attempt) (size int64, err error) {
	if info, err := os.Lstat(d.file(runner.Output)); err == nil && !info.Mode().IsRegular() {
		if err := remove.All(d.file(runner.Output)); err != nil {
			return 0, err
		}
	}
	f, err := openPart(d, runner.Output)
	var output io.ReadSeeker = strings.NewReader("")
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return 0, err
	default:
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return 0, err
		}
		if size = info.Size(); info.Mode().IsRegular() {
			output = io.NewSectionReader(f, min(r.LogFrom, size), max(0, size-r.LogFrom))
		}
	}
	return size, a.Queue.PutAttempt(ctx, d.id, attempt, output)
}

// seal makes sure that no job of an earlier attempt runs the command again if the scheduler
// requeues it: its journal says that the command has ended.
func (r Record) seal(d Dir) error {
	if len(r.Attempts) == 0 {
		return nil
	}
	for _, attempt := range r.Attempts {
		if attempt.Job == "" {
			continue // it was never prepared
		}
		run, err := record.ReadRun(d.Path, attempt.Job)
		if err != nil {
			return err
		}
		if run.Begun && !run.Ended {
			if err := record.WriteRun(d.Path, attempt.Job, run.Restart, "ended", max(1, run.Code)); err != nil {
				return err
			}
		}
	}
	return nil
}
