package pilot

import (
	"cmp"
	"context"
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
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Jobs submits the jobs of a pool and counts them.
type Jobs struct {
	Client  *slurm.Client
	Run     string // the run directory
	Program string // that pilots run
	Pool    *Pool
	Env     []string // for sbatch and the jobs
}

// Job is a job of the pool that Slurm shows.
type Job struct {
	ID     string
	State  string        // in the words of squeue
	Reason string        // why it is pending, in the words of squeue
	Waited time.Duration // in the queue, if it runs
}

// mark begins the comments of the jobs of a pool. The call by which a job was submitted follows.
func (j *Jobs) mark() string {
	if j.Pool.Mark != "" {
		return j.Pool.Mark
	}
	return "jobpool:" + j.Pool.ID + ":"
}

func (j *Jobs) comment() string {
	if j.Pool.Mark != "" {
		return j.Pool.Mark
	}
	return j.mark() + j.Pool.Call
}

// Listing is what Slurm shows of the jobs of a pool. An ended job that is in none of the lists leaves its place
// to another one.
//
//	have       pending or running
//	ending     of this call: Slurm ends it, and does not say yet why
//	cancelled  of this call: its user, or an administrator, has cancelled it
type Listing struct {
	Have              []Job
	Ending, Cancelled []string // ids
}

// add puts a job into its list.
func (l *Listing) add(job Job, own bool) {
	switch {
	case lives(job.State):
		l.Have = append(l.Have, job)
	case own && job.State == "COMPLETING":
		l.Ending = append(l.Ending, job.ID)
	case own && job.State == "CANCELLED":
		l.Cancelled = append(l.Cancelled, job.ID)
	}
}

// List asks Slurm for the jobs of the pool.
func (j *Jobs) List(ctx context.Context) (l Listing, err error) {
	all, err := j.Client.Queue(ctx, os.Getuid())
	if err != nil {
		return l, err
	}
	for i := range all {
		if !strings.HasPrefix(all[i].Comment, j.mark()) {
			continue
		}
		job := Job{ID: all[i].Number(), State: all[i].State, Reason: all[i].Reason}
		if slurm.Runs(job.State) && all[i].Start != 0 {
			job.Waited = max(0, slurm.Time(all[i].Start).Sub(slurm.Time(all[i].Submit)))
		}
		l.add(job, all[i].Comment == j.comment())
	}
	return l, nil
}

// lives reports whether a job in that state has, or may get, nodes.
func lives(state string) bool {
	waiting := []string{"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
	return slurm.Runs(state) || slices.Contains(waiting, state)
}

// Fill submits as many jobs as more returns, which is called with what Slurm shows. It
// returns those that were submitted. If a limit of Slurm allows fewer jobs, but there are some, it
// succeeds.
func (j *Jobs) Fill(ctx context.Context, more func(Listing) int) ([]string, error) {
	// With the lock held, no other process is submitting: jobs whose submission was not answered are
	// counted here.
	held, err := j.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	j.Reload()
	hold, err := os.Open(j.lockFile())
	if err != nil {
		return nil, err
	}
	defer hold.Close()
	list, err := j.List(ctx)
	if err != nil {
		return nil, err
	}
	n, have := more(list), list.Have
	if n <= 0 {
		return nil, nil
	}
	forget(j.Run, list)
	script := filepath.Join(j.Run, Dir, "pilot.sh")
	text := "#!/bin/sh\nexec " + shell.Join([]string{j.Program, "pilot", "--run", j.Run}) + "\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		return nil, err
	}
	var out []string
	for len(out) < n {
		id, err := j.Client.Submit(ctx, slurm.Batch{Options: j.options(), Script: script, Env: j.Env, Hold: []*os.File{hold}})
		if slurm.AtLimit(err) && len(have)+len(out) > 0 {
			break // those that there are run the tasks
		}
		if err != nil {
			found := j.unanswered(ctx, err, have, out)
			if hosts := j.excluded(); len(found) == 0 && hosts != nil && slurm.Unavailable(err) {
				names := strings.Join(hosts, ", ")
				err = fmt.Errorf("no host may be left beside those that are excluded as they have failed, %s: %w", names, err)
			}
			if len(found) == 0 {
				return out, err
			}
			out = append(out, found...)
			continue
		}
		out = append(out, id)
	}
	return out, nil
}

// unanswered returns the jobs that Slurm has beside those that are known: it may have one whose submission
// it did not answer, as the error of sbatch leaves open.
func (j *Jobs) unanswered(ctx context.Context, err error, have []Job, out []string) (found []string) {
	if slurm.RefusedJob(err) || slurm.AtLimit(err) || slurm.Unavailable(err) {
		return nil
	}
	now, err := j.List(ctx)
	if err != nil {
		return nil
	}
	for _, job := range now.Have {
		if !slices.Contains(out, job.ID) && !slices.ContainsFunc(have, func(h Job) bool { return h.ID == job.ID }) {
			found = append(found, job.ID)
		}
	}
	return found
}

// Gone waits until no job of the pool is pending or runs. Where there are some, wait is called with them once.
func (j *Jobs) Gone(ctx context.Context, wait func([]Job)) error {
	for pause := 500 * time.Millisecond; ; pause = min(2*pause, 15*time.Second) {
		list, err := j.List(ctx)
		if err != nil || len(list.Have) == 0 {
			return err
		}
		if wait != nil {
			wait(list.Have)
			wait = nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

func (j *Jobs) lockFile() string { return path(j.Run, "submit.lock") }

func (j *Jobs) lock(ctx context.Context) (*lock.Lock, error) {
	held, err := lock.Wait(ctx, j.lockFile())
	if err != nil {
		return nil, fault.Errorf(fault.Unavailable, "%s: %w", j.lockFile(), err)
	}
	return held, nil
}

// Call lets one call at a time set up the pool of a run, until the lock is closed.
func Call(ctx context.Context, run string) (*lock.Lock, error) {
	if err := os.MkdirAll(path(run), 0o700); err != nil {
		return nil, err
	}
	held, err := lock.Wait(ctx, path(run, "call.lock"))
	if err != nil {
		return nil, fault.Errorf(fault.Unavailable, "%s: %w", path(run, "call.lock"), err)
	}
	return held, nil
}

// Change changes what the jobs of a run may be from now on, also for the scheduler that runs now.
func (j *Jobs) Change(ctx context.Context, change func(*Pool)) error {
	held, err := j.lock(ctx)
	if err != nil {
		return err
	}
	defer held.Close()
	p, err := Load(j.Run)
	if err != nil {
		return err
	}
	change(p)
	j.Pool = p
	return Save(j.Run, p)
}

// Reload takes over what another call has changed.
func (j *Jobs) Reload() {
	if p, err := Load(j.Run); err == nil && p.ID == j.Pool.ID {
		j.Pool.MaxJobs, j.Pool.Linger, j.Pool.Excluded = p.MaxJobs, p.Linger, p.Excluded
	}
}

// UpTo is for Fill: until so many jobs are pending or run, and never more than the pool may have.
func (j *Jobs) UpTo(want int) func(Listing) int {
	return func(l Listing) int { return min(want, j.Pool.MaxJobs) - len(l.Have) }
}

// excluded returns the hosts that the next job is not to get.
func (j *Jobs) excluded() (hosts []string) {
	for _, x := range j.Pool.Excludes(clock.Now()) {
		hosts = append(hosts, x.Host)
	}
	return hosts
}

func (j *Jobs) options() []string {
	options := slices.Clone(j.Pool.Options)
	if excluded := j.excluded(); excluded != nil {
		// Of the option, the last one counts.
		for _, o := range options {
			if given, ok := strings.CutPrefix(o, "--exclude="); ok {
				excluded = append([]string{given}, excluded...)
			}
		}
		options = append(options, "--exclude="+strings.Join(excluded, ","))
	}
	return append(options, "--job-name="+cmp.Or(j.Pool.Name, "jobpool"), "--comment="+j.comment(), "--open-mode=append",
		"--output="+strings.ReplaceAll(path(j.Run, "%j.log"), "\n", "?"))
}

// Cancel ends the jobs of the pool that are pending, and with running those that run.
func (j *Jobs) Cancel(ctx context.Context, running bool) error {
	l, err := j.List(ctx)
	for _, job := range l.Have {
		if running || !slurm.Runs(job.State) {
			err = errors.Join(err, j.Client.Cancel(ctx, job.ID))
		}
	}
	return err
}
