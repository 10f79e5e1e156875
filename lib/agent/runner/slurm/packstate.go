package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/agent/runner/pack"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// packedTask is what is seen of a packed task. Its pilot's job is evidence.queue.
type packedTask struct {
	mark  string // of pilots
	pilot string // that has taken it; "" if none has
	place pack.Place
	found bool // the ticket exists
	key   string
	why   string // why it is pending
}

// packedJobs completes the evidence of packed tasks, and adds those that are not known.
func (r *Runner) packedJobs(ctx context.Context, all []evidence, rows []slurm.Job, places map[string]pack.Place) ([]evidence, error) {
	byNumber := map[string]*slurm.Job{}
	for i := range rows {
		if strings.HasPrefix(rows[i].Comment, packMark) {
			byNumber[rows[i].Number()] = &rows[i]
		}
	}
	seen := make(map[task.ID]bool, len(all))
	for i := range all {
		seen[all[i].ref.Task] = true
	}
	running := map[string]pack.Place{} // the tickets of tasks that run, by their jobs
	for _, place := range places {
		id := place.Ticket.Task
		dir := r.packs.Dir.Task(id)
		if place.Begun {
			running[place.Job()] = place
		}
		if seen[id] {
			continue
		}
		_, t, ok, err := pack.ReadNote(dir)
		if err != nil {
			continue
		}
		if !ok && place.Begun { // it has removed its own directory, or its end was recorded a moment ago
			seen[id] = true
			t := place.Ticket
			ref := runner.Ref{Task: id, Job: place.Job(), Dir: dir, Submitted: t.At, Attempt: t.Attempt, Lost: true}
			all = append(all, evidence{ref: ref})
			continue
		}
		if !ok || t.Key != place.Ticket.Key { // its task has ended, or has another ticket
			if err := place.Drop(); err != nil {
				return nil, err
			}
			continue
		}
		seen[id] = true
		e := evidence{ref: runner.Ref{Task: id, Job: t.Job(), Dir: dir, Submitted: t.At, Attempt: t.Attempt}}
		owner, err := record.ReadOwner(dir, t.Attempt)
		if err != nil || owner != "" && !pack.IsJob(owner) {
			continue
		}
		if owner != "" {
			e.ref.Job = owner
		}
		all = append(all, e)
	}
	why := map[string]string{}
	for i := range all {
		e := &all[i]
		if !pack.IsJob(e.ref.Job) {
			continue
		}
		p := &packedTask{mark: r.packs.mark(), pilot: pack.PilotOf(e.ref.Job)}
		_, t, ok, err := pack.ReadNote(e.ref.Dir)
		if err == nil && !ok {
			// What stops the task looks for the record. Without a directory, there is nothing to stop yet.
			if place, runs := running[e.ref.Job]; runs && place.Restore(e.ref.Dir) == nil {
				t, ok = place.Ticket, true
			}
		}
		if err == nil && ok {
			p.key = t.Key
			p.place, p.found = places[t.Key]
		}
		if p.pilot == "" && p.found {
			p.pilot = p.place.Pilot
		}
		if p.pilot != "" {
			e.queue = byNumber[p.pilot]
		} else if p.found {
			class := p.place.Class
			if _, known := why[class]; !known {
				why[class] = r.packs.whyWaits(class, rows)
			}
			p.why = why[class]
		}
		e.packed = p
	}
	return all, r.refill(ctx, rows)
}

// whyWaits returns why the tickets of a class are pending.
func (p *packs) whyWaits(class string, rows []slurm.Job) string {
	all := p.pilots(class, rows)
	alive := able(all)
	tries := p.Dir.ReadTries(class)
	switch {
	case len(alive) > 0 && waits(alive[0].State):
		return pilotWaits(alive[0])
	case len(alive) > 0:
		return "it waits for room in a pilot job"
	case len(all) > 0:
		return pilotWaits(all[0])
	case tries.Problem != "":
		return "no pilot job could be submitted: " + tries.Problem
	case tries.Count > 1:
		output := p.Dir.Output(class)
		if _, err := os.Stat(output); errors.Is(err, fs.ErrNotExist) {
			return fmt.Sprintf(
				"%d pilot jobs have begun no task and written no output; see their reasons in sacct, and whether the nodes see %s",
				tries.Count, p.Dir.Class(class))
		}
		return fmt.Sprintf("%d pilot jobs have begun no task; see %s", tries.Count, output)
	}
	return "it waits for a pilot job"
}

// number returns the id of the Slurm job that runs the task.
func (e *evidence) number() string {
	if e.packed != nil {
		return e.packed.pilot
	}
	return e.ref.Job
}

// pilotWaits returns the reason of a task whose pilot is pending.
func pilotWaits(pilot *slurm.Job) string {
	text := "its pilot job " + pilot.Number() + " waits"
	if reason := pendingReason(pilot); reason != "" {
		text += ": " + reason
	}
	return text
}

// showPacked says what is shown of a task by its own files, as far as they show it, and from its
// pilot. A task that has not begun may be given to another pilot at any time, as the owner link
// decides which one begins it; but that link is removed only when the pilot that created it is surely
// gone.
func (e evidence) showPacked() (runner.Job, runner.Proof) {
	p, dir, sure := e.packed, e.ref.Dir, runner.Proof{}
	job := runner.Job{Task: e.ref.Task, ID: e.ref.Job, Submitted: e.ref.Submitted, Instead: e.instead, Claim: e.claim()}
	if !e.journal {
		job.Sight, job.Reason = runner.Unclear, "the directory of the task cannot be read"
		return job, sure
	}
	end := pack.ReadEnd(dir, e.ref.Job) // its pilot still has the ticket of a task that is being ended
	alive := e.queue != nil && Alive(e.queue)
	// The pilot may learn only after the end of a task that its memory was not enough.
	settled := !alive || !p.found || p.place.Ticket.Mem == 0
	if e.owner == e.ref.Job && (e.run.Ended && e.run.Closed && settled || end.Why != "" && !p.found) {
		return e.packedEnd(job, end), sure
	}
	if alive {
		job.State, _ = e.alive()
		job.Restarts = int(e.queue.Restarts)
		switch {
		case waits(e.queue.State): // it was requeued
			job.State, job.Reason = task.Pending, pilotWaits(e.queue)
		case e.owner == "" && e.ref.Lost && (!p.found || !p.place.Begun):
			// It has removed its directory, and its pilot does not run it.
			job.State, job.Cause = task.Error, need.Lost
			job.Reason = "its pilot job does not run it, and what it recorded was removed"
			return job, runner.Proof{Looks: runner.Fact, Why: job.Reason}
		case e.owner == "" && !e.ref.Lost || job.State == task.Pending:
			job.State, job.Reason = task.Pending, "pilot job "+p.pilot+" begins it"
		}
		if e.queue.State == "SUSPENDED" {
			job.Reason = "its pilot job " + p.pilot + " is " + pendingReason(e.queue)
		}
		return job, sure
	}
	switch {
	case e.owner == "" && p.found && !p.place.Taken:
		job.State, job.Reason = task.Pending, p.why
		return job, sure
	case e.owner == "" && p.key != "" && pack.Cancelled(dir, p.key):
		job.State, job.Sight, job.Reason = task.Error, runner.Cancelled, "the task was stopped before it began"
		return job, sure
	case p.pilot == "":
		job.State, job.Sight, job.Reason = task.Error, runner.Unbegun, "no trace of the task in pilot jobs"
		return job, runner.Proof{Looks: runner.Fact, Why: job.Reason}
	}
	return e.pilotGone(job)
}

// packedEnd derives the state of a task that has ended in its pilot.
func (e evidence) packedEnd(job runner.Job, end pack.End) runner.Job {
	if end.Why == "" || e.run.Ended && end.Why != pack.OOM {
		return ended(job, "COMPLETED", slurm.Exit{Code: e.run.Code}, "")
	}
	job.State, job.ExitCode = task.Error, e.run.Code
	job.Had = runner.Had{Nodes: record.Node(e.ref.Dir, e.ref.Job)}
	switch end.Why {
	case pack.Stopped:
		job.Sight, job.Reason = runner.Cancelled, "the task was stopped"
	case pack.Timeout:
		job.Cause, job.Reason, job.Had.Time = need.Timeout, states["TIMEOUT"].why, time.Duration(end.Limit)
	case pack.OOM:
		job.Cause, job.Had.Memory = need.OOM, end.Limit
		job.Reason = fmt.Sprintf("%s; it used %s of its %s of memory",
			states["OUT_OF_MEMORY"].why, unit.ShortSize(end.Used), unit.ShortSize(end.Limit))
	case pack.Unbegun:
		job.Sight, job.Reason = runner.Unbegun, "its job script has ended before it began the command"
	default:
		job.Cause, job.Reason = need.Lost, "the job was killed while its command ran"
	}
	return job
}

// pilotGone is what is shown of a task whose pilot is not alive in squeue.
func (e evidence) pilotGone(job runner.Job) (runner.Job, runner.Proof) {
	sub := e
	sub.packed, sub.instead, sub.ref.Job, sub.owner = nil, "", e.packed.pilot, e.packed.pilot
	sub.run = record.Run{Begun: true} // it has no end
	pilot, proof := sub.show()
	if proof.Why != "" {
		proof.Why = "pilot job " + e.packed.pilot + ": " + proof.Why
	}
	if !pilot.Sight.Sure() || !pilot.State.Final() {
		job.Sight, job.Reason = max(runner.Traceless, pilot.Sight), "pilot job "+e.packed.pilot+": "+pilot.Reason
		return job, proof
	}
	if end := pack.ReadEnd(e.ref.Dir, e.ref.Job); e.owner == e.ref.Job && (e.run.Ended || end.Why != "") {
		return e.packedEnd(job, end), proof
	}
	if pilot.Reason == "" {
		pilot.Reason = "it has ended"
	}
	job.State, job.Reason = task.Error, "the task was lost with its pilot job "+e.packed.pilot+": "+pilot.Reason
	if job.Cause = need.Lost; pilot.Cause == need.Node {
		job.Cause = need.Node
	}
	job.Had.Nodes = record.Node(e.ref.Dir, e.ref.Job)
	switch {
	case e.owner == "" && !e.ref.Lost:
		job.Sight = runner.Unbegun
	case pilot.Sight == runner.Unbegun && e.owner == e.ref.Job && e.run.Cut && !e.ref.Lost:
		// The last start of the pilot, which Slurm had requeued, did not begin. With the start before, the
		// command was asked to end, and has ended: it does not still run on a node that failed.
		job.Sight = runner.Unbegun
	case !e.run.Begun && !e.ref.Lost:
		// Another host's file system may show later what the script has written.
		job.Sight = runner.Unbegun
		proof = proof.And(runner.Proof{Looks: runner.Fact, Why: job.Reason})
	}
	return job, proof
}

// waits reports whether a job in a state is in the queue and has no processes.
func waits(state string) bool {
	return state == "PENDING" || state == "REQUEUE_HOLD" || state == "SPECIAL_EXIT"
}
