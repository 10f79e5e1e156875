package slurm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/ponos-tools/ponos/lib/agent/program"
	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/agent/runner/pack"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/watch"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Packing configures how short tasks run in pilots.
type Packing struct {
	On       bool // start short tasks so; those that were started so are seen and stopped in any case
	Dir      pack.Dir
	State    string // identity of the state directory
	Programs *program.Store
}

// packs are the packed tasks of an agent.
type packs struct{ Packing }

// Pack has short tasks run in pilots. Where that is off, tasks that do are still seen.
func (r *Runner) Pack(p Packing) {
	if p.Programs == nil {
		p.Programs = &program.Store{}
	}
	p.Programs.Named = p.named
	r.packs = &packs{p}
	r.options.packed = p.Dir.Runs
}

const (
	packMark  = "PONOS_PACK="
	pilotName = "ponos.pack" // of jobs; names of the jobs of tasks begin differently
	// maxPacked is how many tasks are started together.
	maxPacked = 1000
)

// program returns the directory of the programs of a class's pilots: those with which it was made, if they are there.
func (p *packs) program(pilot pack.Pilot) (bin string, err error) {
	if bin = filepath.Join(p.Programs.Dir, pilot.Program); pilot.Program != "" {
		if _, err := os.Stat(bin); err == nil {
			return bin, nil
		}
	}
	return p.Programs.Place()
}

// named returns the digests of the programs that pilots run.
func (p Packing) named() (digests []string, err error) {
	classes, err := p.Dir.Classes()
	for _, class := range classes {
		pilot, readErr := p.Dir.ReadPilot(class)
		if readErr != nil {
			return nil, readErr
		}
		digests = append(digests, pilot.Program)
	}
	return digests, err
}

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
			errs = append(errs,
				fmt.Errorf("%w: pilot job %s from before the state directory was lost is being cancelled",
					runner.ErrLater, rows[i].Number()),
				r.client.Cancel(ctx, rows[i].Number()))
		}
	}
	return errors.Join(errs...)
}

// short returns what a task takes of a pilot, and the pilot, if it can run in one: a task on one node
// with a short time limit.
func (r *Runner) short(given sbatch.Options) (t pack.Ticket, p pack.Pilot, ok bool) {
	c := r.options.config
	a, err := given.Amount()
	if err != nil || a.Nodes != 1 || a.MostNodes > 1 || a.Tasks != 1 || a.AllMemory || a.Exclusive ||
		len(a.Kinds) > 1 || len(a.Others) > 0 {
		return t, p, false
	}
	var gpu *sbatch.Option
	for i, option := range given {
		known := sbatch.Lookup(option.Name)
		switch {
		case known == nil || known.Use&(sbatch.ByClass|sbatch.ByPack) == 0:
			return t, p, false
		case known.Use&sbatch.ByClass != 0 && !option.Off:
			p.Options = append(p.Options, option.Arg())
		case option.GPUs() && gpu != nil:
			return t, p, false
		case option.GPUs():
			gpu = &given[i]
		}
	}
	if t.Limit, err = slurm.ParseDuration(given.Value("time")); err != nil {
		return t, p, false
	}
	t.CPUs, t.GPUs = int(a.CPUs), int(a.GPUs)
	p.CPUs, p.Time, p.Linger = c.Pack.CPUs, time.Duration(c.Pack.Time), time.Duration(c.Pack.Linger)
	if most := time.Duration(c.Limits.Time); most > 0 {
		p.Time = min(p.Time, most)
	}
	if t.GPUs > 0 {
		p.GPUs = c.Pack.GPUs
		if most := c.Limits.GPUs; most > 0 {
			p.GPUs = min(p.GPUs, most)
		}
		p.CPUs = p.GPUs / t.GPUs * t.CPUs // no more tasks than this have room
	}
	if t.Limit <= 0 || t.Limit == slurm.Unlimited || t.Limit > time.Duration(c.Pack.Limit) ||
		t.CPUs < 1 || t.CPUs > p.CPUs || t.GPUs > p.GPUs {
		return t, p, false
	}
	t.Limit = (t.Limit + time.Minute - 1) / time.Minute * time.Minute // as Slurm rounds
	if t.Limit+pack.Spare > p.Time {
		return t, p, false
	}
	var takes sbatch.Options
	if a.MemMB > 0 {
		perCPU := (a.MemMB-1)/a.CPUs + 1 // whole MiB, as in Slurm
		t.Mem, p.Mem = perCPU*a.CPUs<<20, perCPU*int64(p.CPUs)<<20
		takes = append(takes, sbatch.Option{Name: "mem", Value: slurm.FormatMemory(p.Mem)})
	}
	if p.GPUs > 0 {
		takes = append(takes, gpu.Times(int64(p.GPUs)))
	}
	takes = append(takes, sbatch.Option{Name: "nodes", Value: "1"}, sbatch.Option{Name: "ntasks", Value: "1"},
		sbatch.Option{Name: sbatch.CPUsPerTask, Value: strconv.Itoa(p.CPUs)},
		sbatch.Option{Name: "time", Value: slurm.FormatDuration(p.Time)})
	p.Options = append(p.Options, takes.Args()...)
	p.Grace, p.Tasks = r.stopWait/3, r.packs.Dir.Tasks
	return t, p, true
}

// class returns the name of a class of pilots.
func class(p pack.Pilot) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %v %s", p.Options, p.Linger, p.Program))
	return hex.EncodeToString(sum[:6])
}

// packed returns how a submission is packed, if it is.
func (r *Runner) packed(ctx context.Context, s runner.Submission) (t pack.Ticket, p pack.Pilot, ok bool) {
	if r.packs == nil || !r.packs.On || s.Shared == nil {
		return t, p, false
	}
	given, err := r.options.forTask(ctx, s.Needs, s.Label)
	if err != nil {
		return t, p, false
	}
	t, p, ok = r.short(given)
	if bin, err := r.packs.Programs.Place(); err == nil { // without, it was said when the task was prepared
		p.Program = filepath.Base(bin)
	}
	// The options may get a GPU by another way, as by a partition, and pilots share that.
	return t, p, ok && (t.GPUs > 0 || !s.GPU)
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
	list := r.recent
	if slices.ContainsFunc(all, func(s runner.Submission) bool { return s.Again }) {
		list = r.squeue.Fresh
	}
	l, err := list(ctx)
	if err == nil {
		err = r.clear(ctx, l.rows)
	}
	if err != nil {
		return fail(err)
	}
	name := class(p)
	use, err := r.packs.Dir.Use()
	if err != nil {
		return fail(err)
	}
	if err := r.packs.Dir.Make(name, p); err != nil {
		return fail(errors.Join(err, use.Close()))
	}
	made := map[int]pack.Ticket{}
	for i, s := range all {
		if row := l.existing(s); row != nil {
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
			err = r.packs.Dir.Put(name, t, s.Dir, jobName(s.Label))
		}
		if results[i].Err = err; err == nil {
			made[i] = t
			results[i].Job = runner.Job{Task: s.Task, ID: t.Job(), State: task.Pending, Submitted: t.At}
		}
	}
	err = errors.Join(use.Close(), r.fill(ctx, name, l.rows))
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
	job = runner.Job{Task: s.Task, ID: t.Job(), State: task.Pending, Submitted: t.At, Claim: runner.Found}
	owner, err := record.ReadOwner(s.Dir, s.Attempt)
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
		if err = p.Dir.Again(n.Class, t); errors.Is(err, fs.ErrNotExist) {
			return job, false, nil // the class was removed: it had no pilots
		}
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

// able returns those of a class's pilots that can take tasks: all but those that are suspended, or held until somebody releases them.
func able(pilots []*slurm.Job) []*slurm.Job {
	return slices.DeleteFunc(slices.Clone(pilots), func(row *slurm.Job) bool {
		return row.State == "SUSPENDED" || waits(row.State) && (row.State != "PENDING" || row.Held())
	})
}

// unusedClass is how long a class is kept that is not used: longer than slurm.learn needs its records.
const unusedClass = 2 * learnFrom

// sweep removes what pilots that Slurm has forgotten have left, and a class that is no longer used, and
// cancels dismissed pilots that are still in the queue. Pilots that Slurm does not show as running are
// ended: on a node that it cannot reach, their processes would go on taking tasks.
func (r *Runner) sweep(ctx context.Context, class string, rows []slurm.Job) error {
	var errs []error
	states := map[string]string{}
	starts := map[string]int{} // what the next start of a pilot is that does not run
	for i := range rows {
		row := &rows[i]
		if row.Comment != r.packs.mark()+class {
			continue
		}
		switch alive := Alive(row); {
		case !alive:
			starts[row.Number()] = int(row.Restarts) + 1
		case waits(row.State):
			starts[row.Number()] = int(row.Restarts)
			fallthrough
		default:
			states[row.Number()] = row.State
		}
	}
	pilots, err := r.packs.Dir.Pilots(class)
	for _, pilot := range pilots {
		kept := false
		if start := starts[pilot]; start > 0 {
			var err error
			kept, err = r.packs.Dir.Supersede(class, pilot, start)
			errs = append(errs, err)
		}
		switch state, alive := states[pilot]; {
		case kept && !alive: // until Slurm has forgotten it
		case !alive && starts[pilot] == 0 && !r.packs.Dir.Dismissed(class, pilot):
			errs = append(errs, r.forget(ctx, class, pilot))
		case !alive:
			r.packs.Dir.Forget(class, pilot)
		case state == "PENDING" && r.packs.Dir.Dismissed(class, pilot):
			errs = append(errs, r.client.Cancel(ctx, pilot))
		}
	}
	errs = append(errs, err, r.packs.Dir.Prune(class))
	if len(states) == 0 {
		_, err := r.packs.Dir.Remove(class, unusedClass)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// forget removes what a pilot that the listing lacks has left, once its time is up. Until then, on a
// node that Slurm could not reach when it ended the job, the pilot may still run: it is ended wherever
// it is. The listing may be older than the pilot, so Slurm is asked once.
func (r *Runner) forget(ctx context.Context, class, pilot string) error {
	since, marked, err := r.packs.Dir.Superseded(class, pilot, pack.AllStarts)
	switch {
	case err != nil:
		return err
	case marked:
		p, err := r.packs.Dir.ReadPilot(class)
		if err == nil && since > p.Time+p.Linger {
			r.packs.Dir.Forget(class, pilot)
		}
		return err
	}
	if alive, err := r.pilotAlive(ctx, pilot); alive || err != nil {
		return err
	}
	_, err = r.packs.Dir.Supersede(class, pilot, pack.AllStarts)
	return err
}

// pilotAlive asks Slurm for a pilot that a listing lacks, as that may be wrong.
func (r *Runner) pilotAlive(ctx context.Context, pilot string) (bool, error) {
	shown, err := r.client.JobDetails(ctx, pilot)
	return slices.ContainsFunc(shown, func(job slurm.JobDetail) bool {
		return strings.HasPrefix(job.Comment, packMark) && Alive(&slurm.Job{State: job.State})
	}), err
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
		var work time.Duration // of pilots
		part := func(n, of int) float64 { return float64(n) / float64(max(1, of)) }
		for _, t := range waiting {
			work += time.Duration(float64(t.Limit) * max(part(t.CPUs, p.CPUs), part(t.GPUs, p.GPUs)))
		}
		wanted = min(r.options.config.Pack.Jobs, 1+int((work-1)/p.Time))
	}
	all := r.packs.pilots(class, rows)
	alive := able(all)
	// What holds all pilots holds those that come in their place, too.
	wanted = min(wanted, max(0, 2*r.options.config.Pack.Jobs-(len(all)-len(alive))))
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
	bin, err := r.packs.program(p)
	if err != nil {
		return err
	}
	for n := len(alive); n < wanted; n++ {
		b := slurm.Batch{
			Options: append(slices.Clone(p.Options), "--job-name="+pilotName, "--comment="+r.packs.mark()+class,
				"--output="+r.packs.Dir.Output(class), "--open-mode=append", "--chdir="+r.packs.Dir.Class(class)),
			Env:  Environ(os.Environ()),
			Text: pack.Script(bin, r.packs.Dir.Class(class)),
			Hold: []*os.File{held.File()},
		}
		tries = pack.Tries{Count: tries.Count + 1, At: r.now()}
		if err := r.packs.Dir.Note(class, tries); err != nil {
			return err
		}
		if _, err = r.client.Submit(ctx, b); err != nil {
			err = submitError(err)
			tries.Problem = fault.Text(err)
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

// stopPacked ends the task of a directory in its pilot, and waits for its end. The pilot and its
// other tasks continue.
func (r *Runner) stopPacked(ctx context.Context, ref runner.Ref) error {
	if r.packs == nil || ref.Dir == "" {
		return nil
	}
	type holder struct{ pilot, state string }
	var last atomic.Pointer[holder] // by the last listing
	// The time may be up while Slurm is asked.
	late := func(err error) error {
		seen := last.Load()
		switch {
		case err == nil, seen == nil, !errors.Is(ctx.Err(), context.DeadlineExceeded):
			return err
		case seen.state == "SUSPENDED":
			return fault.Errorf(fault.Failed, "pilot job %s is suspended: the task ends when the job continues", seen.pilot)
		}
		return fault.Errorf(fault.Failed, "pilot job %s has not ended the task within %v", seen.pilot, r.stopWait)
	}
	// held returns the pilot that has the task; "": none, or it is over.
	held := func() (pilot string, err error) {
		if gone, err := r.packs.Dir.Cancel(ref.Dir); gone || err != nil {
			return "", err
		}
		return r.packs.Dir.Holder(ref.Dir)
	}
	if first, err := held(); first == "" || err != nil {
		return err
	}
	return late(r.squeue.Until(ctx, func(l *listing) (watch.Next, error) {
		pilot, err := held()
		if pilot == "" || err != nil {
			return watch.Over, err
		}
		row := l.ofID[pilot]
		if row == nil || !strings.HasPrefix(row.Comment, packMark) {
			alive, err := r.pilotAlive(ctx, pilot)
			if err != nil || !alive {
				return watch.Over, err
			}
			last.Store(&holder{pilot: pilot})
			return watch.Later, nil
		}
		last.Store(&holder{pilot, row.State})
		if waits(row.State) || !Alive(row) {
			return watch.Over, nil // if it was requeued, it reads the request to stop when it begins
		}
		return watch.Later, nil
	}))
}
