package slurm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/google/uuid"

	"github.com/ponos-tools/ponos/lib/agent/program"
	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/pool/wire"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// short returns what a task takes of a pilot, and the pilot, if it can run in one: a task on one node
// with a short time limit.
func (r *Runner) short(given sbatch.Options) (t note, p pilots, ok bool) {
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
	if t.Limit+spare > p.Time {
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
	return t, p, true
}

// class returns the name of a class of pilots.
func class(p pilots) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %v %s", p.Options, p.Linger, p.Program))
	return hex.EncodeToString(sum[:6])
}

// packed returns how a submission is packed, if it is.
func (r *Runner) packed(ctx context.Context, s runner.Submission) (t note, p pilots, ok bool) {
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

// open makes the run of a class, for tasks to be put into it.
func (r *Runner) open(name string, p pilots) error {
	run := r.packs.run(name)
	for _, dir := range []string{r.packs.Dir, run, filepath.Join(run, "bin"), filepath.Join(run, pilot.Dir)} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	bin := filepath.Join(run, "bin")
	if b, err := os.ReadFile(filepath.Join(bin, "program")); err != nil || string(b) != p.Program {
		place, err := r.packs.Programs.Place()
		if err != nil {
			return err
		}
		text, err := program.Pilot(place, run)
		if err != nil {
			return err
		}
		if err := renameio.WriteFile(filepath.Join(bin, "jobpool"), text, 0o700, renameio.WithTempDir(bin)); err != nil {
			return err
		}
		if err := renameio.WriteFile(filepath.Join(bin, "program"), []byte(p.Program), 0o600, renameio.WithTempDir(bin)); err != nil {
			return err
		}
	}
	want := pilot.Pool{
		ID: name, Call: name, Name: pilotName, Mark: r.packs.mark() + name, Dir: run, Options: p.Options,
		Args: []string{
			"serve", "--progress", "none", "--output", "none", "--lost-retries", "1000000",
			"--jobs", strconv.Itoa(p.CPUs), "--kill-after", strconv.FormatFloat((r.stopWait / 3).Seconds(), 'f', -1, 64),
		},
		MaxJobs: r.options.config.Pack.Jobs, Linger: p.Linger.Seconds(),
	}
	var err error
	if want.Run, want.Inode, err = pilot.Place(run); err != nil {
		return err
	}
	have, err := pilot.Load(run)
	if err == nil {
		want.Excluded = have.Excluded
	}
	if err != nil || !same(have, &want) {
		if err := pilot.Save(run, &want); err != nil {
			return err
		}
	}
	return errors.Join(input.Begin(run), clock.Touch(run))
}

func same(a, b *pilot.Pool) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// startPacked puts tasks into the run of a class, and submits the first pilots that they need.
func (r *Runner) startPacked(ctx context.Context, all []runner.Submission, p pilots) []runner.Started {
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
	if err := r.open(name, p); err != nil {
		return fail(err)
	}
	offers, err := r.packs.offers()
	if err != nil {
		return fail(err)
	}
	key, now := uuid.NewString(), r.now()
	made := map[int]note{}
	var lines []string
	for i, s := range all {
		if row := l.existing(s); row != nil {
			results[i].Job = r.adopted(s, row)
			continue
		}
		job, found, err := r.packs.existing(s, offers)
		if found || err != nil {
			results[i] = runner.Started{Job: job, Err: err}
			continue
		}
		t, _, ok := r.packed(ctx, s)
		if !ok { // it no longer fits a pilot
			results[i].Err = fmt.Errorf("%w: its options have changed", runner.ErrLater)
			continue
		}
		t.Class, t.Offer, t.Key, t.Attempt, t.At, t.Name = name, key, uuid.NewString()[:8], s.Attempt, now, jobName(s.Label)
		if err = s.Shared.Alone(); err == nil {
			err = writeJSON(s.Dir, noteFile, t)
		}
		var line []byte
		if err == nil {
			line, err = t.line(s.Dir)
		}
		if results[i].Err = err; err == nil {
			made[i] = t
			lines = append(lines, string(line))
		}
	}
	if len(made) > 0 {
		_, err = input.Offer(r.packs.run(name), &input.Addition{Text: wire.Text(strings.Join(lines, "\n")), JSON: true, Key: key})
		for i, t := range made {
			results[i].Err = err
			if err == nil {
				results[i].Job = runner.Job{Task: all[i].Task, ID: t.job(), Sight: runner.Waits, Submitted: t.At}
			}
		}
		if err != nil {
			return results
		}
	}
	waiting := make([]note, 0, len(made))
	for _, t := range made {
		waiting = append(waiting, t)
	}
	if err = r.fill(ctx, name, waiting, l.rows); !settled(err) {
		return results // a pilot may have been submitted; if not, the next turn does it
	}
	for i, t := range made {
		refused, err2 := withdraw(all[i].Dir, t)
		if err2 == nil && refused {
			results[i] = runner.Started{Err: fmt.Errorf("the pilot job of %d CPUs (slurm.pack): %w", p.CPUs, err)}
			_ = os.Remove(filepath.Join(all[i].Dir, record.Owner(t.Attempt)))
			_ = os.Remove(filepath.Join(all[i].Dir, noteFile))
		}
	}
	return results
}

// taskLine is a task in an addition.
type taskLine struct {
	Argv    []wire.Text `json:"argv"`
	CPUs    int         `json:"cpus"`
	GPUs    int         `json:"gpus,omitempty"`
	Mem     int64       `json:"mem,omitempty"`
	Timeout string      `json:"timeout"`
	Time    string      `json:"time"`
	Cwd     wire.Text   `json:"cwd"`
	Tag     string      `json:"tag"` // the key of the task
}

func (n *note) line(dir string) ([]byte, error) {
	seconds := strconv.Itoa(int(n.Limit / time.Second))
	return json.Marshal(taskLine{
		[]wire.Text{"bash", "--", wire.Text(filepath.Join(dir, "job.sh")), "pool"},
		n.CPUs, n.GPUs, n.Mem, seconds, seconds, wire.Text(dir), n.Key,
	})
}

// linesOf returns the tasks of an addition.
func linesOf(o *input.Keyed) (all []taskLine, err error) {
	text, err := o.Text()
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) { // all its tasks are done with
			err = nil
		}
		return nil, err
	}
	for line := range strings.SplitSeq(text, "\n") {
		var t taskLine
		if err := json.Unmarshal([]byte(line), &t); err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

// offers returns the additions of all classes, by their keys.
func (p *packs) offers() (map[string]input.Keyed, error) {
	classes, err := p.classes()
	all := map[string]input.Keyed{}
	for _, class := range classes {
		offers, err := input.Offers(p.run(class))
		if err != nil {
			return nil, err
		}
		for _, o := range offers {
			all[o.Key] = o
		}
	}
	return all, err
}

// existing returns the job of a task that was packed before, in this attempt.
func (p *packs) existing(s runner.Submission, offers map[string]input.Keyed) (job runner.Job, found bool, err error) {
	if p == nil {
		return job, false, nil
	}
	n, ok, err := readNote(s.Dir)
	if err != nil || !ok || n.Attempt != s.Attempt || slices.Contains(s.Before, n.job()) {
		return job, false, err
	}
	job = runner.Job{Task: s.Task, ID: n.job(), Sight: runner.Waits, Submitted: n.At, Claim: runner.Found}
	owner, err := record.ReadOwner(s.Dir, s.Attempt)
	if err != nil || owner != "" {
		job.ID = owner
		return job, err == nil && isPacked(owner) && !isTicket(owner) && !slices.Contains(s.Before, owner), err
	}
	if offers == nil {
		if offers, err = p.offers(); err != nil {
			return job, false, err
		}
	}
	_, there := offers[n.Offer]
	return job, there, nil
}
