package slurm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/remove"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// packedTask is what is seen of a packed task. The job of its pilot is evidence.queue.
type packedTask struct {
	mark  string // of pilots
	pilot string // that has begun it; "" if none has
	note  note   // zero: it has none
	found bool   // the pool has it
	end   packEnd
	why   string // why it is pending
	gone  bool   // the pool does not run it, and its record was removed
	taken bool   // its ticket, of a version before, was taken away
	// restarts is how often a pilot that has ended was requeued and began again.
	restarts int
}

// packedJobs completes the evidence of packed tasks, and submits pilots.
func (r *Runner) packedJobs(ctx context.Context, all []evidence, rows []slurm.Job, offers map[string]input.Keyed) ([]evidence, error) {
	byNumber := map[string]*slurm.Job{}
	for i := range rows {
		if strings.HasPrefix(rows[i].Comment, packMark) {
			byNumber[rows[i].Number()] = &rows[i]
		}
	}
	classes, err := r.packs.classes()
	if err != nil {
		return nil, err
	}
	for _, class := range classes {
		if err := r.packs.collect(class); err != nil {
			return nil, err
		}
	}
	unknown, err := r.packs.unknown(all)
	if err != nil {
		return nil, err
	}
	all = append(all, unknown...)
	why, waiting := map[string]string{}, map[string][]note{}
	for i := range all {
		e := &all[i]
		if !isPacked(e.ref.Job) {
			continue
		}
		p := &packedTask{mark: r.packs.mark(), pilot: pilotOf(e.ref.Job)}
		e.packed = p
		if p.pilot != "" {
			e.queue = byNumber[p.pilot]
		}
		n, ok, err := readNote(e.ref.Dir)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err == nil && !ok {
			err = r.unrecorded(e, byNumber)
		}
		if err != nil || !ok {
			continue
		}
		p.note, p.end = n, readEnd(e.ref.Dir, e.ref.Job)
		if p.pilot != "" && (e.queue == nil || !Alive(e.queue)) {
			p.restarts = pilot.Restarts(r.packs.run(n.Class), p.pilot)
		}
		if _, p.found = offers[n.Offer]; p.pilot == "" && p.found {
			if _, known := why[n.Class]; !known {
				why[n.Class] = r.packs.whyWaits(n.Class, rows)
			}
			p.why = why[n.Class]
			waiting[n.Class] = append(waiting[n.Class], n)
		}
	}
	for _, class := range classes {
		_ = r.fill(ctx, class, waiting[class], rows) // failures are the reasons of tasks
	}
	return all, r.endFormer(rows)
}

// unknown returns evidence of tasks that the agent has put into pools and does not know to have jobs: it was killed, or they have
// removed their own directory meanwhile.
func (p *packs) unknown(known []evidence) (all []evidence, err error) {
	seen := make(map[task.ID]bool, len(known))
	for i := range known {
		seen[known[i].ref.Task] = true
	}
	links := filepath.Join(filepath.Dir(p.Dir), "submitted")
	names, err := entries(links)
	if err != nil {
		return nil, err
	}
	var found map[string]traced // by directories
	for _, name := range names {
		id, err := task.ParseID(name)
		if err != nil || seen[id] {
			continue
		}
		text, _ := os.Readlink(filepath.Join(links, name))
		attempt, _ := strconv.Atoi(text)
		ref := runner.Ref{Task: id, Dir: p.dir(id), Attempt: attempt}
		n, ok, err := readNote(ref.Dir)
		if err == nil && ok && n.Attempt == attempt {
			ref.Job, ref.Submitted = n.job(), n.At
			if owner, err := record.ReadOwner(ref.Dir, attempt); err == nil && isPacked(owner) {
				ref.Job = owner
			}
			all = append(all, evidence{ref: ref})
			continue
		}
		if found == nil {
			if found, err = p.lines(); err != nil {
				return nil, err
			}
		}
		t, ok := found[ref.Dir]
		if !ok || t.seq == 0 {
			continue
		}
		if t.job, t.over, err = p.started(t.class, t.seq); err != nil {
			return nil, err
		}
		if t.job != "" && !t.over {
			ref.Job, ref.Lost = t.job, true
			all = append(all, evidence{ref: ref})
		}
	}
	return all, nil
}

// unrecorded completes the evidence of a task that has removed its own directory, before its end is in that again.
func (r *Runner) unrecorded(e *evidence, byNumber map[string]*slurm.Job) (err error) {
	p := e.packed
	if _, former := os.Stat(filepath.Join(e.ref.Dir, noteFile)); former == nil && isTicket(e.ref.Job) {
		left, err := filepath.Glob(filepath.Join(r.packs.Former, "*", "*", "*."+strings.TrimPrefix(e.ref.Job, ticket)+".*"))
		held, err2 := filepath.Glob(filepath.Join(r.packs.Former, "*", "taken", "*", "*."+strings.TrimPrefix(e.ref.Job, ticket)+".*"))
		p.taken = len(left)+len(held) == 0
		return errors.Join(err, err2)
	}
	if !isTicket(e.ref.Job) {
		class, err := r.packs.classOf(e.ref.Job)
		p.gone = err == nil && class == ""
		if class != "" {
			seq, _ := strconv.ParseInt(strings.Split(e.ref.Job[strings.LastIndexByte(e.ref.Job, '.')+1:], "-")[0], 10, 64)
			_, p.gone, err = r.packs.started(class, seq)
		}
		return err
	}
	t, found, err := r.packs.trace(strings.TrimPrefix(e.ref.Job, ticket))
	switch {
	case err != nil || !found:
	case t.job == "":
		p.found = true
	case !t.over:
		p.pilot, e.instead, e.ref.Job, e.ref.Lost = pilotOf(t.job), e.ref.Job, t.job, true
		e.queue = byNumber[p.pilot]
	}
	return err
}

// endFormer takes away the tickets of a version before, whose tasks are then put into runs. Its pilots run what they have taken.
func (r *Runner) endFormer(rows []slurm.Job) error {
	classes, err := entries(r.packs.Former)
	for _, class := range classes {
		dir := filepath.Join(r.packs.Former, class)
		tickets, _ := filepath.Glob(filepath.Join(dir, "waiting", "*"))
		for _, name := range tickets {
			if e := os.Remove(name); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
		}
		if len(r.packs.pilots(class, rows)) == 0 {
			err = errors.Join(err, remove.All(dir))
		}
	}
	if len(classes) == 0 {
		_ = os.Remove(r.packs.Former)
	}
	return err
}

// number returns the id of the Slurm job that runs the task.
func (e *evidence) number() string {
	if e.packed != nil {
		return e.packed.pilot
	}
	return e.ref.Job
}

// showPacked says what is shown of a task by its own record, as far as that shows it, then by the pool, and from its pilot.
func (e evidence) showPacked() (runner.Job, runner.Proof) {
	p, sure := e.packed, runner.Proof{}
	job := runner.Job{Task: e.ref.Task, ID: e.ref.Job, Submitted: e.ref.Submitted, Instead: e.instead, Claim: e.claim()}
	if !e.journal {
		job.Sight, job.Reason = runner.Unclear, "the directory of the task cannot be read"
		return job, sure
	}
	alive := e.queue != nil && Alive(e.queue)
	mine := e.owner == e.ref.Job && e.owner != ""
	// Whether it was killed for its memory, the pool says.
	settled := !alive || p.note.Mem == 0 || e.run.Code != killed || p.end.Why != ""
	switch {
	case mine && e.run.Ended && e.run.Closed && settled:
		return e.packedEnd(job), sure
	case isTicket(e.owner):
		job.State, job.Sight, job.Reason = task.Error, runner.Cancelled, "the task was stopped before it began"
		return job, sure
	case mine && (!alive || e.queue.State != "SUSPENDED") && e.requeued():
		// Slurm has ended that start of the pilot, with what ran in it. A later start may have ended since.
		job.State, job.Sight, job.Restarts = task.Error, runner.Unbegun, e.restarts()
		job.Reason = "its pilot job " + p.pilot + " was requeued"
		if e.ref.Lost {
			job.Sight, job.Cause = runner.Ended, need.Lost
		}
		return job, sure
	case mine && (p.end.Why == packKilled || p.end.Why == packLost) && alive:
		if e.queue.State == "SUSPENDED" {
			break
		}
		// Slurm may be about to requeue the pilot.
		done := e.packedEnd(job)
		return done, runner.Proof{Looks: saved, Why: done.Reason}
	case mine && p.end.Why != "" && p.end.Why != packOver && p.end.Why != packLost:
		return e.packedEnd(job), sure
	case e.owner == "" && p.end.Why == packUnbegun:
		return e.packedEnd(job), sure
	}
	if alive {
		job.Sight = e.alive()
		job.Restarts = int(e.queue.Restarts)
		switch {
		case waits(e.queue.State):
			job.Sight, job.Reason = runner.Waits, pilotWaits(e.queue)
		case e.owner == "" && p.gone && e.ref.Lost:
			job.Sight, job.State, job.Cause = runner.Ended, task.Error, need.Lost
			job.Reason = "its pilot job does not run it, and what it recorded was removed"
			return job, runner.Proof{Looks: runner.Fact, Why: job.Reason}
		case e.queue.State == "SUSPENDED":
			job.Reason = "its pilot job " + p.pilot + " is " + pendingReason(e.queue)
		case !mine && !e.ref.Lost:
			job.Sight, job.Reason = runner.Waits, "pilot job "+p.pilot+" begins it"
		}
		return job, sure
	}
	switch {
	case e.owner == "" && p.found && p.pilot == "":
		job.Sight, job.Reason = runner.Waits, p.why
		return job, sure
	case p.taken && e.owner == "":
		job.State, job.Sight, job.Reason = task.Error, runner.Unbegun, "it waited in a pilot job of a version before"
		return job, sure
	case p.pilot == "":
		job.State, job.Sight, job.Reason = task.Error, runner.Unbegun, "no trace of the task in pilot jobs"
		return job, runner.Proof{Looks: runner.Fact, Why: job.Reason}
	}
	return e.pilotGone(job)
}

// requeued reports whether the pilot has left the start in which it began the task.
func (e evidence) requeued() bool {
	return e.restarts() > e.run.Restart && (e.run.Begun || e.queue != nil && waits(e.queue.State))
}

// restarts returns how often the pilot was requeued, as far as is known.
func (e evidence) restarts() int {
	if e.queue == nil {
		return e.packed.restarts
	}
	return max(e.packed.restarts, int(e.queue.Restarts))
}

// packedEnd derives the state of a task that has ended in its pilot.
func (e evidence) packedEnd(job runner.Job) runner.Job {
	end := e.packed.end
	if e.run.Ended && end.Why != packOOM || end.Why == packOver || end.Why == "" {
		return ended(job, "COMPLETED", slurm.Exit{Code: e.run.Code}, "")
	}
	job.Sight, job.State, job.ExitCode = runner.Ended, task.Error, e.run.Code
	job.Had = runner.Had{Nodes: record.Node(e.ref.Dir, e.ref.Job)}
	switch end.Why {
	case packStopped:
		job.Sight, job.Reason = runner.Cancelled, "the task was stopped"
	case packTimeout:
		job.Cause, job.Reason, job.Had.Time = need.Timeout, states["TIMEOUT"].why, time.Duration(end.Limit)
	case packOOM:
		job.Cause, job.Had.Memory = need.OOM, end.Limit
		job.Reason = fmt.Sprintf("%s; it used %s of its %s of memory",
			states["OUT_OF_MEMORY"].why, unit.ShortSize(end.Used), unit.ShortSize(end.Limit))
	case packUnbegun:
		job.Sight, job.Reason = runner.Unbegun, "its job script has ended before it began the command"
	case packLost:
		job.Cause, job.Reason = need.Lost, "the task was lost with its pilot's worker"
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
	if !pilot.Sight.Over() {
		job.Sight, job.Reason = runner.Traceless, "pilot job "+e.packed.pilot+": "+pilot.Reason
		return job, proof
	}
	if e.owner == e.ref.Job && e.run.Ended {
		return e.packedEnd(job), proof
	}
	if pilot.Reason == "" {
		pilot.Reason = "it has ended"
	}
	job.Sight, job.State, job.Reason = runner.Ended, task.Error, "the task was lost with its pilot job "+e.packed.pilot+": "+pilot.Reason
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
