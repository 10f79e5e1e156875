package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/remove"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Start starts a task, unless it has a job or another process works on it. An error means that
// nothing is decided, and that the next turn tries again. A failure that is the task's own fault
// is an outcome, and is reported to the queue.
func (a *Agent) Start(ctx context.Context, id task.ID) (task.Outcome, error) {
	p, err := a.placeOf(ctx)
	if err != nil {
		return task.Outcome{}, err
	}
	defer p.leave()
	if err := a.recoverJobs(ctx); err != nil {
		return task.Outcome{}, err
	}
	d, err := a.Store.Create(id)
	if err != nil {
		return task.Outcome{}, err
	}
	held, err := d.TryLock()
	if errors.Is(err, lock.ErrHeld) {
		return a.outcome("skipped", newRecord(id), "another process works on the task"), nil
	}
	if err != nil {
		_ = os.Remove(d.Path) // if it is empty: the task may be another agent's next
		return task.Outcome{}, err
	}
	defer held.Close()
	o, err := a.start(ctx, d, held, p)
	if err != nil {
		return o, fmt.Errorf("task %s: %w", id, err)
	}
	return o, nil
}

func (a *Agent) outcome(event string, r Record, reason string) task.Outcome {
	return task.Outcome{
		Event: event, ID: r.Task, Slug: task.Clean(r.Label), Runner: a.Runner.Name(), Job: r.Job, Reason: task.Clean(reason),
	}
}

// keptBack says why a start is not considered.
func (a *Agent) keptBack(x request, r Record) task.Outcome {
	switch {
	case x.known == tracked:
		return a.outcome("skipped", r, "the task has a job")
	case x.hitch&pauses != 0:
		return a.outcome("deferred", r, fmt.Sprintf("tried again at %s: %s", r.Retry.Local().Format(time.TimeOnly), r.Problem))
	}
	return a.outcome("skipped", r, "the task is being stopped")
}

// start does the work of Start under the task's lock.
func (a *Agent) start(ctx context.Context, d Dir, held *lock.Lock, p place) (task.Outcome, error) {
	record, err := a.open(d)
	if err != nil {
		return task.Outcome{}, err
	}
	x := requestOf(task.Start, record)
	x.set(pauses, record.pauses(a.now()) && !a.released(record))
	x.set(stopping, x.follow() == ask && d.StopRequested() && !d.forgetStop(a.now().Add(-staleStop)))
	switch x.follow() {
	case finish:
		return a.outcome("skipped", record, "the task is "+record.Final), a.finish(d.id)
	case keep:
		return a.keptBack(x, record), nil
	}
	t, err := a.Queue.Task(ctx, d.id)
	// The start action may be as old as the turn: the task may have ended since, which the
	// definitions of some queues do not say.
	if err == nil && (record.Attempt > 1 && record.Intent.IsZero() || !record.Retry.IsZero()) {
		t.State, err = a.stateOf(ctx, t)
	}
	x.hear(t, err)
	why, probe := "", false
	if x.word == has {
		if why, probe, err = a.heldBack(t, a.requestOf(t)); err != nil {
			return task.Outcome{}, err
		}
		if x.set(heldBack, why != ""); why == "" {
			err = a.Queue.Claim(ctx, d.id)
			x.hear(t, err)
		}
	}
	attempt, owner := 0, ""
	if x.known == fresh && x.follow() == begin {
		if attempt, owner, err = ownerOf(d, record); err != nil {
			return task.Outcome{}, err
		}
		x.set(owned, owner != "")
		x.set(begun, t.State == task.Running || a.Store.Submitted(d.id) >= record.Attempt)
	}
	if x.word == has && x.hitch&heldBack == 0 {
		a.describe(&record, t)
	}
	switch x.follow() {
	case fail:
		return a.fail(ctx, d, record, err)
	case keep:
		return task.Outcome{}, err
	case forget:
		o := a.outcome("skipped", record, fmt.Sprintf("the task is %s", t.State))
		switch {
		case why != "":
			record.Label = t.Slug
			o = a.outcome("deferred", record, why)
		case x.word&absent != 0:
			o = a.outcome("unknown", record, fault.Text(err))
		}
		return o, a.abandon(d, record)
	case adopt:
		return a.restore(d, record, attempt, owner)
	case trace:
		if o, settled, err := a.trace(ctx, d, record); settled || err != nil {
			return o, err
		}
	}

	log, behind, err := a.openLead(d)
	if err != nil {
		return task.Outcome{}, err
	}
	defer log.Close()
	// A stop that is requested meanwhile ends git and pip.
	working, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go watchStop(working, d, cancel)
	script, err := a.prepare(working, d, t, record, log)
	if errors.Is(context.Cause(working), errStopped) {
		return a.outcome("skipped", record, "the task is being stopped"), nil
	}
	var own *taskError
	var unknown *environment.UnknownError
	switch {
	case errors.As(err, &own) && errors.As(err, new(*environment.BuildError)):
		return a.unpreparable(ctx, d, record, log, own)
	case errors.As(err, &own):
		return a.fail(ctx, d, record, own)
	case errors.As(err, &unknown):
		return a.unprepared(ctx, d, record, unknown, log)
	}
	if errors.Is(err, runner.ErrLater) {
		return a.later(d, record, err)
	}
	if err != nil {
		return task.Outcome{}, err
	}

	record.Code, record.Preparing = script.Env.Source, nil
	if script.Programs != "" {
		record.Program = filepath.Base(script.Programs)
	}

	// From here on, a job may exist.
	again := !record.Intent.IsZero()
	if a.Hopeless != nil && !again && record.needs().Own() {
		if why := a.Hopeless(ctx, record.needs()); why != "" {
			return a.fail(ctx, d, record, errors.New(why))
		}
	}
	if err := record.seal(d); err != nil {
		return task.Outcome{}, err
	}
	record.Intent, record.Runner = a.now(), a.Runner.Name()
	submission := a.submission(d, t, record, held)
	submission.Again, submission.Shared = again, a.shared(script)
	job, err := a.startJob(ctx, d, record, submission, p)
	switch {
	case record.needs().Own() && errors.Is(err, runner.ErrRefused):
		return a.fail(ctx, d, record, err)
	case record.needs().Own() && errors.Is(err, runner.ErrUnmet):
		record.Tries = min(record.Tries+1, unmetTries)
		record.Retry, record.Problem = a.now().Add(pause(record.Tries)), fault.Text(err)
		return a.outcome("deferred", record, fault.Text(err)), d.Write(record)
	case errors.Is(err, runner.ErrFull):
		return a.limited(ctx, record, err)
	case errors.Is(err, runner.ErrRefused), errors.Is(err, runner.ErrUnmet):
		return a.refused(ctx, d, record, err)
	case errors.Is(err, runner.ErrLater):
		return a.later(d, record, err)
	case errors.Is(err, runner.ErrUnsure):
		record.Tries++
		record.Retry, record.Problem = a.now().Add(pause(record.Tries)), fault.Text(err)
		err = fmt.Errorf("%w; the agent searches for its job, and tries again in %s", err, pause(record.Tries))
		return task.Outcome{}, errors.Join(err, d.Write(record))
	case err != nil:
		return task.Outcome{}, err
	}
	if _, refused := a.Store.readBreakers()[kindOf(t.RequiresGPU)]; !refused {
		// The usual case takes no lock.
	} else if err := a.Store.breakers(func(all map[string]breaker) bool {
		b, known := all[kindOf(t.RequiresGPU)]
		if !known || b.Full && !probe || record.needs().Own() && !b.Full {
			return false // it had room, or the needs of one task say nothing about the others
		}
		delete(all, kindOf(t.RequiresGPU))
		return true
	}); err != nil {
		a.Log.Error("the record of refusals cannot be written", "error", err)
	}
	event := "started"
	if job.Claim == runner.Found {
		event = "adopted"
	}
	record.take(job.ID, job.Submitted)
	record.Retry, record.Problem = time.Time{}, ""
	if !behind { // else the job writes to that file now, and names itself in it
		log.Say("INFO", "%s as %s job %s", event, a.Runner.Name(), job.ID)
	}
	if err := a.Store.noteJob(d, record); err != nil {
		return task.Outcome{}, err
	}
	a.Log.Info("task "+event, "task", d.id, "slug", task.Clean(t.Slug), "runner", a.Runner.Name(), "job", job.ID)
	return a.outcome(event, record, ""), nil
}

// stateOf returns the state of a task. It asks the queue if the definition does not have it.
func (a *Agent) stateOf(ctx context.Context, t task.Task) (task.State, error) {
	if t.State != "" {
		return t.State, nil
	}
	return a.Queue.State(ctx, t.ID)
}

// recoverJobs makes sure that jobs from before the creation of the state directory were looked
// for. ponos-poll does that first of all; a task that is started by name may come before. One
// query is enough for all tasks that are started together.
func (a *Agent) recoverJobs(ctx context.Context) error {
	if a.Runner.Can().Past == nil || a.Store.recovered() {
		return nil
	}
	a.recovering.Lock()
	defer a.recovering.Unlock()
	for try := 0; ; try++ {
		if a.Store.recovered() {
			return nil
		}
		_, err := a.Adopt(ctx)
		if a.Store.recovered() {
			return nil // other errors are for ponos-poll to report
		}
		if !fault.Is(err, fault.Busy) || try == recoverTries {
			return err
		}
		select { // ponos-poll is doing it
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// recoverTries limits how long to wait for a turn of another process: about 30 s.
const recoverTries = 150

// heldBack returns why a task is not to be tried now, or "", and whether it is tried although its kind is held.
func (a *Agent) heldBack(t task.Task, needs task.Request) (why string, probe bool, err error) {
	if b, known := a.Store.readBreakers()[kindOf(t.RequiresGPU)]; !known || !b.Full && !needs.IsZero() {
		return "", false, nil
	}
	err = a.Store.breakers(func(all map[string]breaker) bool {
		b, ok, tried := all[kindOf(t.RequiresGPU)].pass(a.now())
		switch probe = tried; {
		case ok:
			all[kindOf(t.RequiresGPU)] = b
			return b.held()
		case b.Full:
			why = "held: " + b.limit()
		default:
			why = fmt.Sprintf("held: %d tasks in a row were refused: %s; the next one is tried at %s",
				b.Count, b.Reason, b.Next.Local().Format(time.TimeOnly))
		}
		return false
	})
	return why, probe, err
}

// later records why the runner has no room for a task at this time.
func (a *Agent) later(d Dir, record Record, why error) (task.Outcome, error) {
	o, text := a.outcome("deferred", record, fault.Text(why)), fault.Text(why)
	if record.Problem == text && !record.Retry.IsZero() {
		return o, nil
	}
	record.Problem, record.Retry = text, a.now()
	return o, d.Write(record)
}

// limited has the tasks of a kind wait for room, as a limit on submitted jobs has refused one.
func (a *Agent) limited(ctx context.Context, record Record, why error) (task.Outcome, error) {
	kind, limits := kindOf(record.RequiresGPU), a.refusing(ctx, record.needs(), why.Error())
	var b breaker
	err := a.Store.breakers(func(all map[string]breaker) bool {
		b = refusedByLimit(why.Error(), limits, all[kind], a.now())
		all[kind] = b
		return true
	})
	if err != nil {
		return task.Outcome{}, errors.Join(why, err)
	}
	return a.outcome("deferred", record, "held: "+b.limit()), nil
}

// refusing is limits for a refusal. Submissions that are refused at the same time share an answer.
func (a *Agent) refusing(ctx context.Context, n runner.Needs, refusal string) []runner.Limit {
	a.refusals.Lock()
	defer a.refusals.Unlock()
	of := fmt.Sprintf("%+v %s", n, refusal)
	if age := a.now().Sub(a.refusals.at); a.refusals.of != of || age < 0 || age >= sharedRefusal {
		a.refusals.limits = a.limits(ctx, n, refusal)
		a.refusals.of, a.refusals.at = of, a.now()
	}
	return a.refusals.limits
}

// sharedRefusal is how long the limits after a refusal hold for equal refusals: less than a turn, in which there is room again.
const sharedRefusal = 2 * time.Second

// limits asks the runner for the limits that a refusal may be of; nil if it cannot tell.
func (a *Agent) limits(ctx context.Context, n runner.Needs, refusal string) []runner.Limit {
	limiter := a.Runner.Can().Limit
	if limiter == nil {
		return nil
	}
	limits, err := limiter.Limits(ctx, n, refusal)
	if err != nil {
		a.Log.Info("the limits on submitted jobs are not known", "error", err)
	}
	return limits
}

// count makes room in the semaphores of kinds that a limit holds, if tasks of them are to be started. The runner is asked at
// most each fullPause, as its answer may be large; in between, each task that has ended makes room for one.
func (a *Agent) count(ctx context.Context, starts map[string]bool, ended int) error {
	known, since := map[string][]runner.Limit{}, a.now().Sub(a.counted)
	ask := since < 0 || since >= fullPause
	for kind, b := range a.Store.readBreakers() {
		if b.Full && starts[kind] {
			known[kind] = nil
			if b.Of != "" && ask {
				a.counted = a.now()
				known[kind] = a.limits(ctx, runner.Needs{GPU: kind == kindOf(true)}, b.Reason)
			}
		}
	}
	if len(known) == 0 {
		return nil
	}
	return a.Store.breakers(func(all map[string]breaker) bool {
		changed := false
		for kind, limits := range known {
			if b, ok := all[kind]; ok && b.Full {
				all[kind] = b.counted(limits, ended)
				changed = changed || all[kind] != b
			}
		}
		return changed
	})
}

// refused counts a job that the runner refuses. The task ends, unless tasks of its kind are held
// for the same reason. Then it waits, as does a task for which there are no nodes.
func (a *Agent) refused(ctx context.Context, d Dir, record Record, why error) (task.Outcome, error) {
	kind, counts := kindOf(record.RequiresGPU), true
	var b breaker
	err := a.Store.breakers(func(all map[string]breaker) bool {
		b, counts = all[kind].refused(why.Error(), a.now())
		all[kind] = b
		return true
	})
	if err != nil {
		return task.Outcome{}, errors.Join(why, err)
	}
	o := a.outcome("deferred", record, "held: "+why.Error())
	if counts && errors.Is(why, runner.ErrRefused) {
		if o, err = a.fail(ctx, d, record, why); err != nil {
			return o, err
		}
	}
	if counts && b.held() {
		hint := fmt.Sprintf(
			`correct slurm.base and slurm.%s in the configuration; "ponos-start --dry-run ID" prints what is submitted`, kind)
		if a.WhyRefused != nil {
			if known := a.WhyRefused(ctx, record.needs()); known != "" {
				hint = known + "; " + hint
			}
		}
		err = fault.Hint(
			fault.Errorf(fault.Unavailable,
				"%w; %d tasks in a row were refused: submission of %s tasks is held, except for one from time to time as a test",
				why, b.Count, kind),
			hint)
	}
	return o, err
}

// unmetTries limits the pause between two tries of a task for whose needs there are no nodes at
// this time.
const unmetTries = 3

// requestOf returns what a task needs beside what is configured for all.
func (a *Agent) requestOf(t task.Task) task.Request {
	if a.Request == nil {
		return t.Request
	}
	return a.Request(t)
}

// describe records the name and needs of a task.
func (a *Agent) describe(r *Record, t task.Task) {
	r.Label, r.Process, r.RequiresGPU = t.Slug, t.Process, t.RequiresGPU
	r.Request, r.Rules, r.Keep = a.requestOf(t), t.Retry, t.Keep
	if r.Rules == "" {
		r.Rules = a.Retry
	}
}

// needs returns what decides on the resources of the task's job.
func (r Record) needs() runner.Needs {
	return runner.Needs{GPU: r.RequiresGPU, Request: r.Request, Changed: r.Changed}
}

// ownerOf returns the job that has begun a task, and the attempt; "": none has, or one of an attempt that is over.
func ownerOf(d Dir, known Record) (attempt int, job string, err error) {
	attempt, job, err = record.LastOwner(d.Path)
	if known.Before.Has(job) {
		job = ""
	}
	return attempt, job, err
}

// restore records the job that has begun a task of which there is no record: the task has removed the
// files of its own directory, and its job script has restored the owner.
func (a *Agent) restore(d Dir, known Record, attempt int, job string) (task.Outcome, error) {
	if err := a.sayRemoved(d, job); err != nil {
		return task.Outcome{}, err
	}
	known.Attempt, known.Intent, known.Runner = attempt, a.now(), a.Runner.Name()
	known.take(job, a.now())
	known.Lost = true
	return a.outcome("adopted", known, ""), d.Write(known)
}

// trace looks for the job of a task that was submitted, although this agent has no record of it: the
// queue reports the task as running and the state directory was lost, or the directory of the task was
// removed. The task may have run already, so it is not submitted. If no job is found in several turns,
// the task ends as an error.
func (a *Agent) trace(ctx context.Context, d Dir, record Record) (o task.Outcome, settled bool, err error) {
	ref, err := a.jobOf(ctx, d, record)
	switch {
	case err != nil:
		return o, false, err
	case ref.Job != "" && a.Store.Submitted(d.id) > 0:
		record.Job = ref.Job
		return a.outcome("deferred", record, "its record is lost; the next turn adopts its job"), true, nil
	case ref.Job != "":
		return o, false, nil // it is adopted when the task is submitted
	}
	record.Missing = record.Missing.Again(a.now())
	if !record.Missing.Fact() {
		o = a.outcome("deferred", record, "the task was submitted, and its record is lost; its job is being searched for")
		return o, true, d.Write(record)
	}
	why := errors.New("the task was running when the agent's state was lost, and no trace is left of its job")
	if a.Store.Submitted(d.id) > 0 {
		why = errors.New("the directory of the task was removed after it was submitted, and no trace is left of its job")
	}
	o, err = a.fail(ctx, d, record, why)
	return o, true, err
}

func (a *Agent) submission(d Dir, t task.Task, record Record, held *lock.Lock) runner.Submission {
	s := runner.Submission{
		Task: t.ID, Label: t.Label(), Dir: d.Path, Script: d.file(scriptFile), Needs: record.needs(),
		Attempt: record.Attempt, Before: record.Before.All(),
	}
	if a.Runner.Can().Remote != nil {
		s.Script, s.Image = "", t.Image
	}
	if held != nil {
		s.Hold = held.File()
	}
	return s
}

// open reads the record of a task, or begins one. A task that has ended and that the queue
// requests to start again was restarted: it gets another attempt.
func (a *Agent) open(d Dir) (Record, error) {
	record, err := d.Read()
	if !errors.Is(err, fs.ErrNotExist) {
		return record, err
	}
	record = newRecord(d.id)
	record.Dir = d.Path
	before, ok, err := a.Store.Finished(d.id)
	if err != nil {
		return record, err
	}
	if ok {
		record.Attempt = before.Attempt + 1
		record.Before = before.Before.And(before.Job)
	}
	record.Attempt = max(record.Attempt, a.Store.Submitted(d.id))
	return record, nil
}

// abandon removes the directory of a task that does not belong to this agent, unless a job may
// exist: the next turn of ponos-poll finds that.
func (a *Agent) abandon(d Dir, record Record) error {
	if !record.Intent.IsZero() {
		return nil
	}
	return errors.Join(remove.All(d.Path), a.Store.forgetSubmitted(d.id))
}

// fail ends a task that cannot be started.
func (a *Agent) fail(ctx context.Context, d Dir, record Record, why error) (task.Outcome, error) {
	if err := d.Write(record); err != nil {
		return task.Outcome{}, err
	}
	reason := why.Error()
	err := a.publishEnd(ctx, d, noArtifacts, task.Report{State: task.Error, Reason: reason})
	if forgotten(err) && record.Intent.IsZero() {
		err = a.abandon(d, record)
	}
	return a.outcome("failed", record, reason), err
}

// staleStop is the age from which a stop mark is taken to be left over from a killed ponos-stop,
// if the queue requests the start of the task.
const staleStop = 10 * time.Minute

var errStopped = errors.New("the task is being stopped")

// watchStop cancels the preparation of a task as soon as a stop is requested.
func watchStop(ctx context.Context, d Dir, cancel context.CancelCauseFunc) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if d.StopRequested() {
				cancel(errStopped)
				return
			}
		}
	}
}

// Plan prepares a task in a temporary directory and returns what would be given to the runner. It
// reports nothing to the queue.
func (a *Agent) Plan(ctx context.Context, id task.ID) (runner.Submission, error) {
	p, err := a.placeOf(ctx)
	if err != nil {
		return runner.Submission{}, err
	}
	defer p.leave()
	t, err := a.Queue.Task(ctx, id)
	if err != nil {
		return runner.Submission{}, fmt.Errorf("task %s: %w", id, err)
	}
	if t.State.Final() {
		return runner.Submission{}, fault.Errorf(fault.Failed, "task %s is %s", id, t.State)
	}
	d, err := a.Store.Create(id)
	if err != nil {
		return runner.Submission{}, err
	}
	held, err := d.Lock(ctx)
	if err != nil {
		return runner.Submission{}, err
	}
	defer held.Close()
	record, err := a.open(d)
	if err != nil {
		return runner.Submission{}, err
	}
	log, err := a.openLog(d, "dry-run.log")
	if err != nil {
		return runner.Submission{}, err
	}
	defer log.Close()
	a.describe(&record, t)
	script, err := a.prepare(ctx, d, t, record, log)
	if err == nil {
		err = script.write()
	}
	if err != nil {
		return runner.Submission{}, fmt.Errorf("task %s: %w", id, err)
	}
	return a.submission(d, t, record, nil), nil
}
