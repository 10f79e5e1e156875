package slurm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/remove"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

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

// pilots returns the pilots of a class that are alive.
func (p *packs) pilots(class string, rows []slurm.Job) (alive []*slurm.Job) {
	for i := range rows {
		if rows[i].Comment == p.mark()+class && Alive(&rows[i]) {
			alive = append(alive, &rows[i])
		}
	}
	return alive
}

// able returns which of a class's pilots can take tasks, and which are suspended, or held until somebody releases them. One that
// Slurm is ending, for which a node may need minutes, is neither.
func able(pilots []*slurm.Job) (able, held []*slurm.Job) {
	for _, row := range pilots {
		switch {
		case row.State == "COMPLETING":
		case row.State == "SUSPENDED" || waits(row.State) && (row.State != "PENDING" || row.Held()):
			held = append(held, row)
		default:
			able = append(able, row)
		}
	}
	return able, held
}

// unusedClass is how long a class is kept that is not used: longer than slurm.learn needs its records.
const unusedClass = 2 * learnFrom

// tries counts submissions of pilots by agents since a scheduler of the run has begun.
type tries struct {
	Count   int       `json:"count"`
	At      time.Time `json:"at"`                // of the last one
	Problem string    `json:"problem,omitempty"` // why it failed; "": it did not
}

func (p *packs) tries(class string) (t tries) {
	path := filepath.Join(p.run(class), pilot.Dir, triesFile)
	b, err := os.ReadFile(path)
	if err == nil {
		_ = json.Unmarshal(b, &t)
	}
	begun, err := os.Stat(filepath.Join(p.run(class), "lock"))
	tried, err2 := os.Stat(path)
	if err == nil && err2 == nil && clock.Modified(begun).After(clock.Modified(tried)) {
		t.Count, t.Problem = 0, ""
	}
	return t
}

// fill submits the first pilots for the pending tasks of a class where no pilot runs, whose scheduler would do that, and cancels
// pilots that wait for nothing. Rows are those of squeue.
func (r *Runner) fill(ctx context.Context, class string, waiting []note, rows []slurm.Job) error {
	run := r.packs.run(class)
	one, err := lock.Try(filepath.Join(run, pilot.Dir, "agent.lock"))
	if errors.Is(err, lock.ErrHeld) {
		return nil // another tool is doing it
	}
	if err != nil {
		return err
	}
	defer one.Close()
	p, err := pilot.Load(run)
	if err != nil {
		return err
	}
	all := r.packs.pilots(class, rows)
	alive, held := able(all)
	if slices.ContainsFunc(alive, func(row *slurm.Job) bool { return !waits(row.State) }) {
		return nil
	}
	if len(waiting) > 0 { // whatever has closed the run, its next pilot works there
		if err := errors.Join(input.Begin(run), pilot.Reopen(run, false)); err != nil {
			return err
		}
	}
	t := r.packs.tries(class)
	wanted := r.wanted(waiting, p)
	// What holds all pilots holds those that come in their place, too.
	wanted = min(wanted, max(0, 2*p.MaxJobs-len(held)))
	// Rows may lack what was submitted a moment ago.
	if since := r.now().Sub(t.At).Abs(); since < 2*young || len(alive) < wanted && since < packPause(t.Count) {
		return nil
	}
	switch {
	case len(alive) > wanted && r.packs.quiet(class, p):
		var ids []string
		for _, row := range alive[wanted:] {
			ids = append(ids, row.Number())
		}
		return r.client.Cancel(ctx, ids...)
	case len(all) == 0 && len(waiting) == 0:
		info, err := os.Stat(run)
		if err == nil && clock.Since(clock.Modified(info)) > unusedClass {
			err = remove.All(run)
		}
		return err
	case len(alive) >= wanted:
		return nil
	}
	before := t.Count
	t = tries{Count: before + 1, At: r.now()}
	if err := writeJSON(filepath.Join(run, pilot.Dir), triesFile, t); err != nil {
		return err
	}
	jobs := &pilot.Jobs{
		Client: r.client, Run: run, Program: filepath.Join(run, "bin", "jobpool"), Pool: p, Env: Environ(os.Environ()),
	}
	ids, err := jobs.Fill(ctx, func(pilot.Listing) int { return wanted - len(alive) })
	if err == nil {
		t.Count = before + len(ids)
	} else {
		err = submitError(err)
		t.Problem = fault.Text(err)
	}
	return errors.Join(err, writeJSON(filepath.Join(run, pilot.Dir), triesFile, t))
}

// quiet reports whether nothing was put into a run for as long as a pilot waits for tasks.
func (p *packs) quiet(class string, of *pilot.Pool) bool {
	info, err := os.Stat(filepath.Join(p.run(class), input.Offered))
	return err == nil && clock.Since(clock.Modified(info)).Seconds() >= of.Linger
}

// wanted is how many pilots the waiting tasks justify.
func (r *Runner) wanted(waiting []note, p *pilot.Pool) int {
	options, err := sbatch.Argv(p.Options)
	if err != nil || len(waiting) == 0 || len(options.Jobs) == 0 {
		return min(1, len(waiting))
	}
	a, _ := options.Jobs[0].Amount()
	limit, _ := slurm.ParseDuration(options.Jobs[0].Value("time"))
	var work time.Duration // of pilots
	part := func(n int, of int64) float64 { return float64(n) / float64(max(1, of)) }
	for _, t := range waiting {
		work += time.Duration(float64(t.Limit) * max(part(t.CPUs, a.CPUs), part(t.GPUs, a.GPUs)))
	}
	return min(p.MaxJobs, 1+int((work-1)/max(limit, time.Minute)))
}

// packPause returns how long no more pilots are submitted after so many of which none has begun.
func packPause(tries int) time.Duration {
	if tries == 0 {
		return 0
	}
	return min(10*time.Second<<min(tries-1, 10), 10*time.Minute)
}

// whyWaits returns why tasks of a class are pending.
func (p *packs) whyWaits(class string, rows []slurm.Job) string {
	alive, held := able(p.pilots(class, rows))
	t := p.tries(class)
	switch {
	case len(alive) > 0 && waits(alive[0].State):
		return pilotWaits(alive[0])
	case len(alive) > 0:
		return "it waits for room in a pilot job"
	case len(held) > 0:
		return pilotWaits(held[0])
	case t.Problem != "":
		return "no pilot job could be submitted: " + t.Problem
	case t.Count > 1:
		return fmt.Sprintf("%d pilot jobs have not begun; see %s, their reasons in sacct, and whether the nodes see that directory",
			t.Count, filepath.Join(p.run(class), pilot.Dir))
	}
	return "it waits for a pilot job"
}

// pilotWaits returns the reason of a task whose pilot is pending.
func pilotWaits(pilot *slurm.Job) string {
	text := "its pilot job " + pilot.Number() + " waits"
	if reason := pendingReason(pilot); reason != "" {
		text += ": " + reason
	}
	return text
}

// waits reports whether a job in a state is in the queue and has no processes.
func waits(state string) bool {
	return state == "PENDING" || state == "REQUEUE_HOLD" || state == "SPECIAL_EXIT"
}
