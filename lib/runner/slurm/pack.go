package slurm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/ponos-tools/ponos/lib/lock"
	"github.com/ponos-tools/ponos/lib/need"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/runner/pack"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/unit"
)

// Packing configures how short tasks run in pilots.
type Packing struct {
	On     bool // start short tasks so; those that were started so are seen and stopped in any case
	Dir    pack.Dir
	State  string   // identity of the state directory
	Worker []string // the command of a pilot, before the directory of its class
}

// packs are the packed tasks of an agent.
type packs struct{ Packing }

// Pack has short tasks run in pilots. Where that is off, tasks that do are still seen.
func (r *Runner) Pack(p Packing) { r.packs = &packs{p} }

const (
	packMark  = "PONOS_PACK="
	pilotName = "ponos.pack" // of jobs; names of the jobs of tasks begin differently
	// maxPacked is how many tasks are started together.
	maxPacked = 1000
)

// mark returns the beginning of the comments of this agent's pilots: the identity of the state
// directory, and a hash of its path, which a directory in its place has as well.
func (p *packs) mark() string {
	sum := sha256.Sum256([]byte(p.Dir.Path))
	return packMark + p.State + "." + hex.EncodeToString(sum[:4]) + "."
}

// strange reports whether a job is a pilot from before the state directory was lost: the tasks in it
// are no longer known.
func (p *packs) strange(row *slurm.Job) bool {
	rest, ok := strings.CutPrefix(row.Comment, packMark)
	if !ok || !Alive(row) {
		return false
	}
	state, rest, _ := strings.Cut(rest, ".")
	path, _, _ := strings.Cut(rest, ".")
	return state != p.State && strings.HasSuffix(p.mark(), "."+path+".")
}

// clear ends the pilots from before the state directory was lost. While there are some, no task is
// started: they may run it.
func (r *Runner) clear(ctx context.Context, rows []slurm.Job) error {
	if r.packs == nil {
		return nil
	}
	var errs []error
	for i := range rows {
		if r.packs.strange(&rows[i]) {
			errs = append(errs, fmt.Errorf("%w: pilot job %s from before the state directory was lost is being cancelled", runner.ErrLater, rows[i].Number()), r.client.Cancel(ctx, rows[i].Number()))
		}
	}
	return errors.Join(errs...)
}

// packable are the options of a task that can be packed: each pilot of its class has them.
var packable = []string{"account", "constraint", "exclude", "nice", "nodelist", "no-requeue", "partition", "prefer", "qos", "requeue", "reservation", "wckey"}

// short returns what a task takes of a pilot, and the pilot, if it can run in one: a task on one node
// without GPUs, with a short time limit.
func (r *Runner) short(given []string) (t pack.Ticket, p pack.Pilot, ok bool) {
	c := r.options.config.Pack
	t.CPUs = 1
	var perCPU float64
	var mem float64
	for _, option := range given {
		name, value, _ := strings.Cut(strings.TrimPrefix(option, "--"), "=")
		var err error
		switch name {
		case "time":
			t.Limit, err = slurm.ParseDuration(value)
		case "cpus-per-task":
			t.CPUs, err = strconv.Atoi(value)
		case "nodes", "ntasks":
			ok = value == "1" || value == "1-1"
			if !ok {
				return t, p, false
			}
		case "mem":
			mem, err = slurm.ParseMemory(value)
			if mem == 0 { // all of the node
				return t, p, false
			}
		case "mem-per-cpu":
			perCPU, err = slurm.ParseMemory(value)
		default:
			if !slices.Contains(packable, name) {
				return t, p, false
			}
			p.Options = append(p.Options, option)
		}
		if err != nil {
			return t, p, false
		}
	}
	if t.Limit <= 0 || t.Limit == slurm.Unlimited || t.Limit > time.Duration(c.Limit) || t.CPUs < 1 || t.CPUs > c.CPUs {
		return t, p, false
	}
	t.Limit = (t.Limit + time.Minute - 1) / time.Minute * time.Minute // as Slurm rounds
	if mem > 0 {
		perCPU = math.Ceil(mem / float64(t.CPUs))
	}
	if perCPU > 0 {
		t.Mem = int64(perCPU*float64(t.CPUs)) << 20
		p.Mem = int64(perCPU*float64(c.CPUs)) << 20
		p.Options = append(p.Options, "--mem="+slurm.FormatMemory(p.Mem))
	}
	p.CPUs, p.Time, p.Linger = c.CPUs, time.Duration(c.Time), time.Duration(c.Linger)
	p.Grace, p.Tasks = r.stopWait/3, r.packs.Dir.Tasks
	p.Options = append(p.Options, "--nodes=1", "--ntasks=1", "--cpus-per-task="+strconv.Itoa(c.CPUs), "--time="+slurm.FormatDuration(p.Time))
	return t, p, true
}

// class returns the name of a class of pilots.
func class(p pack.Pilot) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %v", p.Options, p.Linger))
	return hex.EncodeToString(sum[:6])
}

// packed returns how a submission is packed, if it is.
func (r *Runner) packed(ctx context.Context, s runner.Submission) (t pack.Ticket, p pack.Pilot, ok bool) {
	if r.packs == nil || !r.packs.On || s.Shared == nil || s.GPU {
		return t, p, false
	}
	given, err := r.options.forTask(ctx, s.Needs, s.Label)
	if err != nil {
		return t, p, false
	}
	return r.short(given)
}

// startPacked starts tasks in the pilots of a class: it creates a ticket for each, and submits the
// pilots that they need.
func (r *Runner) startPacked(ctx context.Context, all []runner.Submission, p pack.Pilot) []runner.Started {
	results := make([]runner.Started, len(all))
	fail := func(err error) []runner.Started {
		for i := range results {
			if results[i].Err == nil && results[i].Job.ID == "" {
				results[i].Err = err
			}
		}
		return results
	}
	list := r.listing.recent
	if slices.ContainsFunc(all, func(s runner.Submission) bool { return s.Again }) {
		list = r.listing.fresh
	}
	rows, err := list(ctx)
	if err == nil {
		err = r.clear(ctx, rows)
	}
	name := class(p)
	if err == nil {
		err = r.packs.Dir.Make(name, p)
	}
	if err != nil {
		return fail(err)
	}
	made := map[int]pack.Ticket{}
	for i, s := range all {
		if row := r.existing(rows, s); row != nil {
			results[i].Job = r.adopted(s, row)
			continue
		}
		job, found, err := r.packs.existing(s)
		if found || err != nil {
			results[i] = runner.Started{Job: job, Err: err}
			continue
		}
		t, _, ok := r.packed(ctx, s)
		if !ok { // it no longer fits a pilot
			results[i].Err = fmt.Errorf("%w: its options have changed", runner.ErrLater)
			continue
		}
		t.At, t.Key, t.Attempt, t.Task = r.now(), uuid.NewString()[:8], s.Attempt, s.Task
		if err = s.Shared.Alone(); err == nil {
			err = r.packs.Dir.Put(name, t, s.Dir)
		}
		if results[i].Err = err; err == nil {
			made[i] = t
			results[i].Job = runner.Job{Task: s.Task, ID: t.Job(), State: task.Pending, Submitted: t.At}
		}
	}
	err = r.fill(ctx, name, rows)
	if !settled(err) {
		return results // a pilot may have been submitted; if not, the next turn does it
	}
	for i, t := range made {
		gone, err2 := r.packs.Dir.Withdraw(name, t)
		if err2 == nil && gone {
			results[i] = runner.Started{Err: fmt.Errorf("the pilot job of %d CPUs (slurm.pack): %w", p.CPUs, err)}
		}
	}
	return results
}

// existing returns the job of a task that was packed before, in this attempt.
func (p *packs) existing(s runner.Submission) (job runner.Job, found bool, err error) {
	if p == nil {
		return job, false, nil
	}
	n, t, ok, err := pack.ReadNote(s.Dir)
	if err != nil || !ok || t.Attempt != s.Attempt || slices.Contains(s.Before, t.Job()) || pack.Cancelled(s.Dir, t.Key) {
		return job, false, err
	}
	job = runner.Job{Task: s.Task, ID: t.Job(), State: task.Pending, Submitted: t.At, Adopted: true}
	owner, err := runner.ReadOwner(s.Dir, s.Attempt)
	if err != nil || owner != "" {
		job.ID = owner
		return job, err == nil && pack.IsJob(owner) && !slices.Contains(s.Before, owner), err
	}
	holder, err := p.Dir.Holder(s.Dir)
	if err != nil || slices.ContainsFunc(s.Before, func(b string) bool { return holder != "" && pack.PilotOf(b) == holder }) {
		return job, false, err // that pilot has ended without beginning it
	}
	if holder == "" {
		if !p.On {
			waits, err := p.Dir.Waits(n.Class, t)
			return job, waits, err
		}
		err = p.Dir.Again(n.Class, t)
	}
	return job, err == nil, err
}

// pilots returns the pilots of a class that are alive and were not dismissed.
func (p *packs) pilots(class string, rows []slurm.Job) (alive []*slurm.Job) {
	for i := range rows {
		if rows[i].Comment == p.mark()+class && Alive(&rows[i]) && !p.Dir.Dismissed(class, rows[i].Number()) {
			alive = append(alive, &rows[i])
		}
	}
	return alive
}

// sweep removes what pilots that have ended have left, and cancels dismissed pilots that are still in
// the queue.
func (r *Runner) sweep(ctx context.Context, class string, rows []slurm.Job) error {
	var errs []error
	states := map[string]string{}
	for i := range rows {
		if rows[i].Comment == r.packs.mark()+class && Alive(&rows[i]) {
			states[rows[i].Number()] = rows[i].State
		}
	}
	pilots, err := r.packs.Dir.Pilots(class)
	for _, pilot := range pilots {
		switch state, alive := states[pilot]; {
		case !alive:
			r.packs.Dir.Forget(class, pilot)
		case state == "PENDING" && r.packs.Dir.Dismissed(class, pilot):
			errs = append(errs, r.client.Cancel(ctx, pilot))
		}
	}
	return errors.Join(append(errs, err)...)
}

// fill submits the pilots that the pending tasks of a class need, if there are fewer, and cancels
// those that are not needed. Rows are those of squeue. If Slurm refuses some pilots, that is an error
// only if there is no other one that can run the tasks.
func (r *Runner) fill(ctx context.Context, class string, rows []slurm.Job) error {
	held, err := lock.Try(r.packs.Dir.Lock(class))
	if errors.Is(err, lock.ErrHeld) {
		return nil // another tool is doing it
	}
	if err != nil {
		return err
	}
	defer held.Close()
	swept := r.sweep(ctx, class, rows)
	waiting, err := r.packs.Dir.Waiting(class)
	if err != nil {
		return err
	}
	p, err := r.packs.Dir.ReadPilot(class)
	if err != nil {
		return err
	}
	wanted := 0
	if len(waiting) > 0 {
		var work time.Duration // of CPUs
		for _, t := range waiting {
			work += t.Limit * time.Duration(t.CPUs)
		}
		wanted = min(r.options.config.Pack.Jobs, 1+int((work-1)/(p.Time*time.Duration(p.CPUs))))
	}
	alive := r.packs.pilots(class, rows)
	tries := r.packs.Dir.ReadTries(class)
	// Rows may lack what was submitted a moment ago.
	if r.packs.Dir.Submitted(class, 2*young) {
		return nil
	}
	if len(alive) >= wanted {
		return errors.Join(swept, r.dismiss(ctx, class, alive, wanted, p.Linger))
	}
	if r.now().Sub(tries.At).Abs() < packPause(tries.Count) {
		return nil
	}
	if len(r.packs.Worker) == 0 {
		return errors.New("ponos-start is neither beside this tool nor in PATH")
	}
	for n := len(alive); n < wanted; n++ {
		b := slurm.Batch{
			Options: append(slices.Clone(p.Options), "--job-name="+pilotName, "--comment="+r.packs.mark()+class,
				"--output="+r.packs.Dir.Output(class), "--open-mode=append", "--chdir="+r.packs.Dir.Class(class)),
			Env: Environ(os.Environ()), Text: pack.Script(append(slices.Clone(r.packs.Worker), r.packs.Dir.Class(class))), Hold: []*os.File{held.File()},
		}
		tries = pack.Tries{Count: tries.Count + 1, At: r.now()}
		if err := r.packs.Dir.Note(class, tries); err != nil {
			return err
		}
		if _, err = r.client.Submit(ctx, b); err != nil {
			err = submitError(err)
			tries.Problem = err.Error()
			noted := r.packs.Dir.Note(class, tries)
			if n > 0 && settled(err) {
				return noted
			}
			return errors.Join(err, noted)
		}
	}
	return nil
}

// dismiss cancels the pilots in the queue that are more than wanted, once the tickets of the class
// have not changed for as long as a running pilot waits for tasks.
func (r *Runner) dismiss(ctx context.Context, class string, alive []*slurm.Job, wanted int, linger time.Duration) error {
	waiting := slices.DeleteFunc(alive, func(row *slurm.Job) bool { return row.State != "PENDING" })
	if len(waiting) <= wanted {
		return nil
	}
	if quiet, err := r.packs.Dir.Quiet(class, linger); err != nil || !quiet {
		return err
	}
	var errs []error
	for _, row := range waiting[wanted:] {
		// A pilot that has begun meanwhile is left alone; one that begins after this ends by itself.
		dismissed, err := r.packs.Dir.Dismiss(class, row.Number())
		if dismissed {
			err = r.client.Cancel(ctx, row.Number())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// packPause returns how long no more pilots are submitted after so many of which none has begun a
// task.
func packPause(tries int) time.Duration {
	if tries == 0 {
		return 0
	}
	return min(10*time.Second<<min(tries-1, 10), 10*time.Minute)
}

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
	seen := make(map[task.ID]bool, len(all))
	for i := range all {
		seen[all[i].ref.Task] = true
	}
	for _, place := range places {
		id := place.Ticket.Task
		dir := r.packs.Dir.Task(id)
		if seen[id] {
			continue
		}
		_, t, ok, err := pack.ReadNote(dir)
		if err != nil {
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
		owner, err := runner.ReadOwner(dir, t.Attempt)
		if err != nil || owner != "" && !pack.IsJob(owner) {
			continue
		}
		if owner != "" {
			e.ref.Job = owner
		}
		all = append(all, e)
	}
	byNumber := map[string]*slurm.Job{}
	why := map[string]string{}
	for i := range rows {
		if strings.HasPrefix(rows[i].Comment, packMark) {
			byNumber[rows[i].Number()] = &rows[i]
		}
	}
	for i := range all {
		e := &all[i]
		if !pack.IsJob(e.ref.Job) {
			continue
		}
		p := &packedTask{mark: r.packs.mark(), pilot: pack.PilotOf(e.ref.Job)}
		if _, t, ok, err := pack.ReadNote(e.ref.Dir); err == nil && ok {
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

// refill submits pilots for the pending tickets. Failures are reported as the reasons of tasks.
func (r *Runner) refill(ctx context.Context, rows []slurm.Job) error {
	classes, err := r.packs.Dir.Classes()
	if err != nil {
		return err
	}
	for _, class := range classes {
		_ = r.fill(ctx, class, rows)
	}
	return nil
}

// whyWaits returns why the tickets of a class are pending.
func (p *packs) whyWaits(class string, rows []slurm.Job) string {
	alive := p.pilots(class, rows)
	tries := p.Dir.ReadTries(class)
	switch {
	case len(alive) > 0 && alive[0].State == "PENDING":
		return fmt.Sprintf("its pilot job %s waits: %s", alive[0].Number(), pendingReason(alive[0]))
	case len(alive) > 0:
		return "it waits for room in a pilot job"
	case tries.Problem != "":
		return "no pilot job could be submitted: " + tries.Problem
	case tries.Count > 1:
		return fmt.Sprintf("%d pilot jobs have begun no task; see %s", tries.Count, p.Dir.Output(class))
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

// judgePacked derives the state of a task from its own files, as far as they show it, and from its
// pilot. A task that has not begun may be given to another pilot at any time, as the owner link
// decides which one begins it; but that link is removed only when the pilot that created it is surely
// gone.
func (e evidence) judgePacked() runner.Job {
	p, dir := e.packed, e.ref.Dir
	job := runner.Job{Task: e.ref.Task, ID: e.ref.Job, Submitted: e.ref.Submitted, Instead: e.instead, Renamed: pack.IsTicket(e.instead)}
	if !e.journal {
		job.Unknown, job.Reason = true, "the directory of the task cannot be read"
		return job
	}
	end := pack.ReadEnd(dir, e.ref.Job) // its pilot still has the ticket of a task that is being ended
	if e.owner == e.ref.Job && (e.run.Ended && e.run.Closed || end.Why != "" && !p.found) {
		return e.packedEnd(job, end)
	}
	if e.queue != nil && Alive(e.queue) {
		job.State, _ = e.alive()
		job.Restarts = int(e.queue.Restarts)
		if e.owner == "" || job.State == task.Pending {
			job.State, job.Reason = task.Pending, "pilot job "+p.pilot+" begins it"
		}
		return job
	}
	switch {
	case e.owner == "" && p.found && !p.place.Taken:
		job.State, job.Reason = task.Pending, p.why
		return job
	case e.owner == "" && p.key != "" && pack.Cancelled(dir, p.key):
		job.State, job.Cancelled, job.Reason = task.Error, true, "the task was stopped before it began"
		return job
	case p.pilot == "":
		job.Unknown, job.Lost, job.Reason = true, true, "no trace of the task in pilot jobs"
		if e.ref.Missing.Fact() {
			job.Unknown, job.Lost, job.State, job.NotBegun = false, false, task.Error, true
		}
		return job
	}
	return e.pilotGone(job)
}

// packedEnd derives the state of a task that has ended in its pilot.
func (e evidence) packedEnd(job runner.Job, end pack.End) runner.Job {
	if end.Why == "" || e.run.Ended && end.Why != pack.OOM {
		return ended(job, "COMPLETED", slurm.Exit{Code: e.run.Code}, "")
	}
	job.State, job.ExitCode = task.Error, e.run.Code
	job.Had = runner.Had{Nodes: runner.Node(e.ref.Dir, e.ref.Job)}
	switch end.Why {
	case pack.Stopped:
		job.Cancelled, job.Reason = true, "the task was stopped"
	case pack.Timeout:
		job.Cause, job.Reason, job.Had.Time = need.Timeout, why("TIMEOUT"), time.Duration(end.Limit)
	case pack.OOM:
		job.Cause, job.Had.Memory = need.OOM, end.Limit
		job.Reason = fmt.Sprintf("%s; it used %s of its %s of memory", why("OUT_OF_MEMORY"), unit.ShortSize(end.Used), unit.ShortSize(end.Limit))
	case pack.Unbegun:
		job.NotBegun, job.Reason = true, "its job script has ended before it began the command"
	default:
		job.Cause, job.Reason = need.Lost, "the job was killed while its command ran"
	}
	return job
}

// pilotGone derives the state of a task whose pilot is not alive in squeue.
func (e evidence) pilotGone(job runner.Job) runner.Job {
	sub := e
	sub.packed, sub.instead, sub.ref.Job, sub.owner = nil, "", e.packed.pilot, e.packed.pilot
	sub.run = runner.Run{Begun: true} // it has no end
	pilot := sub.judge()
	if pilot.Unknown || !pilot.State.Final() {
		job.Unknown, job.Lost, job.Unaccounted, job.Reason = true, true, pilot.Unaccounted, "pilot job "+e.packed.pilot+": "+pilot.Reason
		return job
	}
	if end := pack.ReadEnd(e.ref.Dir, e.ref.Job); e.owner == e.ref.Job && (e.run.Ended || end.Why != "") {
		return e.packedEnd(job, end)
	}
	if pilot.Reason == "" {
		pilot.Reason = "it has ended"
	}
	job.State, job.Reason = task.Error, "the task was lost with its pilot job "+e.packed.pilot+": "+pilot.Reason
	if job.Cause = need.Lost; pilot.Cause == need.Node {
		job.Cause = need.Node
	}
	job.Had.Nodes = runner.Node(e.ref.Dir, e.ref.Job)
	switch {
	case e.owner == "":
		job.NotBegun = true
	case !e.run.Begun && !e.ref.Lost && !e.ref.Missing.Fact():
		// Another host's file system may show later what the script has written.
		job.Unknown, job.Lost, job.Cause = true, true, ""
	case !e.run.Begun && !e.ref.Lost:
		job.NotBegun = true
	}
	return job
}

// waits reports whether a job in a state is in the queue and has no processes.
func waits(state string) bool {
	return state == "PENDING" || state == "REQUEUE_HOLD" || state == "SPECIAL_EXIT"
}

// stopPacked ends the task of a directory in its pilot, and waits for its end. The pilot and its
// other tasks continue.
func (r *Runner) stopPacked(ctx context.Context, ref runner.Ref) error {
	if r.packs == nil || ref.Dir == "" {
		return nil
	}
	for delay := 200 * time.Millisecond; ; delay = min(2*delay, 2*time.Second) {
		gone, err := r.packs.Dir.Cancel(ref.Dir)
		if gone || err != nil {
			return err
		}
		pilot, err := r.packs.Dir.Holder(ref.Dir)
		if err != nil || pilot == "" {
			return err
		}
		rows, err := r.listing.fresh(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(rows, func(row slurm.Job) bool {
			return row.Number() == pilot && strings.HasPrefix(row.Comment, packMark)
		})
		if i >= 0 && waits(rows[i].State) {
			return nil // it was requeued, and reads the request to stop when it begins
		}
		if i < 0 {
			// Slurm has forgotten the pilot, or the listing is wrong.
			shown, err := r.client.JobDetails(ctx, pilot)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(shown, func(job slurm.JobDetail) bool {
				return strings.HasPrefix(job.Comment, packMark) && Alive(&slurm.Job{State: job.State})
			}) {
				return nil
			}
		} else if !Alive(&rows[i]) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(delay):
		}
	}
}
