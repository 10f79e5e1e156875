package jobpool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/renameio/v2"
	"github.com/google/uuid"
	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/core"
	"github.com/ponos-tools/ponos/lib/pool/input"
	"github.com/ponos-tools/ponos/lib/pool/journal"
	"github.com/ponos-tools/ponos/lib/pool/pilot"
	"github.com/ponos-tools/ponos/lib/pool/scheduler"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// ofAlloc are the options by which a pool gets its own nodes, and those of its run
// directory: the schedulers in its jobs do not get them.
var ofAlloc = []string{
	"alloc", "alloc-sbatch", "max-jobs", "linger", "scheduler", "run", "resume", "retry-failed", "resume-failed",
}

// passOn are the arguments by which the schedulers in a pool's jobs are told what this call was told.
func passOn(c *cli.Context, serve bool, more ...string) []string {
	args := []string{"run"}
	if serve {
		args[0] = "serve"
	}
	for _, f := range runFlags() {
		name := f.Names()[0]
		if !c.IsSet(name) || slices.Contains(ofAlloc, name) {
			continue
		}
		switch value := c.Value(name).(type) {
		case bool:
			args = append(args, fmt.Sprintf("--%s=%t", name, value))
		case string:
			args = append(args, "--"+name+"="+value)
		default:
			for _, value := range c.StringSlice(name) {
				args = append(args, "--"+name+"="+value)
			}
		}
	}
	return append(append(append(args, more...), "--"), c.Args().Slice()...)
}

// allocate submits the first jobs of a pool that gets its own nodes. It reports whether the
// scheduler is to run here.
func allocate(c *cli.Context, serve bool) (here bool, err error) {
	if !c.IsSet("alloc") && !c.IsSet("alloc-sbatch") {
		for _, name := range []string{"max-jobs", "linger", "scheduler"} {
			if c.IsSet(name) {
				return false, fault.Errorf(fault.Usage, "--%s requires --alloc or --alloc-sbatch", name)
			}
		}
		return true, nil
	}
	v := &values{c: c}
	p := &pilot.Pool{
		MaxJobs: v.count("max-jobs", 1, 1), Linger: v.duration("linger", 5*time.Minute).Seconds(),
		Here: v.oneOf("scheduler", "job", "here") == 1 || serve, // where programs find it
	}
	policy, base, size := v.policy(serve), v.base(), v.jobs()
	given, err := sbatchOptions(c.StringSlice("alloc-sbatch"))
	if v.err != nil || err != nil {
		return false, cmp.Or(v.err, err)
	}
	switch {
	case serve && c.String("scheduler") == "job":
		return false, fault.Errorf(fault.Usage, "--scheduler job cannot be combined with serve")
	case c.IsSet("nodes"), c.IsSet("via"), c.IsSet("via-cmd"):
		return false, fault.Errorf(fault.Usage,
			"--alloc: the nodes are those of its jobs: --nodes, --via and --via-cmd cannot be combined with it")
	case c.Bool("hold"):
		return false, fault.Errorf(fault.Usage, "--alloc and --hold cannot be combined")
	case c.String("alloc") == "" && !c.IsSet("alloc-sbatch"):
		return false, fault.Errorf(fault.Usage, "--alloc: the request is empty")
	}
	if c.Bool("dry-run") {
		return true, nil
	}
	in, err := readInput(c, serve)
	if err != nil {
		return false, err
	}
	run, err := runDir(c, func(string) string { return "" }, false)
	if err != nil {
		return false, err
	}
	if continues(c.Context, run) {
		return false, refill(c, run, p, serve)
	}
	history, err := past(run, c.String("joblog"), resumes(c, &policy), serve)
	if err != nil {
		return false, err
	}
	found, err := allocation(c)
	if err != nil {
		return false, err
	}
	options := found.With(given...)
	p.Options = options.Args()
	p.Stdin = in.stdin
	var output []string
	if !c.IsSet("output") && !c.IsSet("results") && !p.Here {
		output = []string{"--output=files"}
	}
	p.Args = passOn(c, serve, output...)
	if p.Dir, err = os.Getwd(); err != nil {
		return false, err
	}
	tasks, err := takeInput(c, run, in, base, &policy, history)
	if err != nil {
		_ = os.Remove(filepath.Join(run, pilot.Dir)) // if it is empty, as that of a new run
		_ = os.Remove(run)
		return false, err
	}
	defer tasks.forget()
	return submit(c, run, p, in, tasks, resumes(c, &policy) || serve, sizeOf(options, size))
}

// resumes reports whether a run may continue.
func resumes(c *cli.Context, p *scheduler.Policy) bool {
	return c.Bool("resume") || p.RetryFailed || p.ForceResume
}

// submit sets up a pool and submits its first jobs. It reports whether the scheduler is to run here.
func submit(c *cli.Context, run string, p *pilot.Pool, in *taskInput, tasks *work, resume bool, size pool.Need) (here bool, err error) {
	call, err := pilot.Call(c.Context, run)
	if err != nil {
		return false, err
	}
	defer call.Close()
	if continues(c.Context, run) {
		return false, refill(c, run, p, in.serve)
	}
	before, err := pilot.Load(run)
	p.ID, p.Call = uuid.NewString()[:13], uuid.NewString()[:13]
	known := err == nil && !before.Copied(run)
	if known {
		p.ID = before.ID
		if slices.Equal(before.Args, p.Args) { // what has failed there may be other commands
			p.Excluded = before.Excluded
		}
	} else if err == nil {
		if !c.Bool("quiet") {
			fmt.Fprintf(c.App.ErrWriter, "jobpool: %s is a copy of %s: the jobs there are not its own\n", run, before.Run)
		}
		if err := pilot.Disown(run); err != nil {
			return false, err
		}
	}
	if p.Run, p.Inode, err = pilot.Place(run); err != nil {
		return false, err
	}
	jobs := jobsOf(run, p)
	if known && !resume {
		if list, err := jobs.List(c.Context); err != nil || len(list.Have) > 0 {
			return false, cmp.Or(err, hasRun(run))
		}
	}
	if _, over := pilot.Over(run); over && tasks.left() == 0 && !p.Here {
		tasks.tell(c, run)
		return false, nil
	} else if over && known {
		// Their pilots leave, and run nothing that waits from now on.
		if err := jobs.Gone(c.Context, func(have []pilot.Job) { sayGone(c, run, have) }); err != nil {
			return false, err
		}
	}
	if err := tasks.keep(c, run); err != nil {
		return false, err
	}
	if err := pilot.Save(run, p); err != nil {
		return false, err
	}
	if _, err := pinned(run); err != nil {
		return false, err
	}
	if err := remember(run, c.IsSet("run")); err != nil {
		return false, err
	}
	if err := errors.Join(input.Begin(run), pilot.Reopen(run, c.Bool("retry-failed") && !p.Here)); err != nil {
		return false, err
	}
	shared, _ := (&values{c: c}).resources() // the input was read with them
	filled, present := tasks.demand.Jobs(size, shared, shared), 0
	want := max(1, pilot.Wanted(pilot.Backlog{Waiting: tasks.ready, Jobs: filled}))
	ids, err := jobs.Fill(c.Context, func(l pilot.Listing) int {
		present = len(l.Have)
		return jobs.UpTo(want)(l)
	})
	if err == nil && len(ids) == 0 && !c.Bool("quiet") {
		fmt.Fprintf(c.App.ErrWriter, "jobpool: no more jobs are submitted: the run in %s has %d, pending or running\n", run, present)
	}
	if err := told(c, run, ids, err); err != nil || !p.Here {
		return false, err
	}
	return true, errors.Join(c.Set("elastic", "true"), c.Set("resume", "true"), c.Set("run", run))
}

// continues reports whether a scheduler holds a run directory. One by which the run is over lets go of it in a moment.
func continues(ctx context.Context, run string) bool {
	for until := clock.Now().Add(30 * time.Second); journal.Held(run); {
		if _, over := pilot.Over(run); !over || clock.Now().After(until) || ctx.Err() != nil {
			return true
		}
		time.Sleep(100 * time.Millisecond)
	}
	return false
}

// sayGone says which jobs of a run that is over have not ended.
func sayGone(c *cli.Context, run string, have []pilot.Job) {
	var ids []string
	for _, job := range have {
		ids = append(ids, job.ID)
	}
	if !c.Bool("quiet") {
		fmt.Fprintf(c.App.ErrWriter, "jobpool: waiting for %s to end: the run in %s is over\n", describe(ids), run)
	}
}

// told prints the jobs that were submitted.
func told(c *cli.Context, run string, ids []string, err error) error {
	for _, id := range ids {
		fmt.Fprintln(c.App.Writer, id)
	}
	if len(ids) > 0 && !c.Bool("quiet") {
		fmt.Fprintf(c.App.ErrWriter, "jobpool: submitted %s, for the run in %s\n", describe(ids), run)
	}
	return err
}

// refill is for a run that has a scheduler: the call may change how many jobs it may have, and how long
// they may be idle, and submits one where there is none.
func refill(c *cli.Context, run string, given *pilot.Pool, serve bool) error {
	if serve {
		return hintRun(fault.Errorf(fault.Busy, "run directory %q is in use by another scheduler", run))
	}
	p, err := pilot.Load(run)
	if err != nil {
		return fault.Errorf(fault.Busy, "run directory %q is in use by a scheduler that has no jobs of its own", run)
	}
	say := func(format string, args ...any) {
		fmt.Fprintf(c.App.ErrWriter, "jobpool: "+format+"\n", args...)
	}
	jobs := jobsOf(run, p)
	most, linger := p.MaxJobs, p.Linger
	if c.IsSet("max-jobs") {
		most = given.MaxJobs
	}
	if c.IsSet("linger") {
		linger = given.Linger
	}
	if most != p.MaxJobs || linger != p.Linger {
		if err := jobs.Change(c.Context, func(p *pilot.Pool) { p.MaxJobs, p.Linger = most, linger }); err != nil {
			return err
		}
		say("the run in %s now has at most %d %s, and ends those that are idle for %s",
			run, most, plural(most, "job"), unit.FormatDuration(time.Duration(linger*float64(time.Second))))
	}
	if c.Bool("retry-failed") {
		say("--retry-failed has no effect while the run continues: repeat the command when it has ended")
	}
	var closed core.Closing
	if found, err := pilot.Closed(run, &closed); found || err != nil {
		say("%s: the run in %s starts nothing new: to continue it, repeat the command when it has ended", closed.Why, run)
		return err
	}
	ids, err := jobs.Fill(c.Context, jobs.UpTo(1))
	if err == nil && len(ids) == 0 {
		say("the run in %s is still running: \"jobpool ctl status\" shows its progress", run)
	}
	return told(c, run, ids, err)
}

// sbatchOptions reads options of sbatch for the jobs of a pool, of which a text may have several, as a line
// #SBATCH of a script has.
func sbatchOptions(texts []string) (sbatch.Options, error) {
	var words []string
	for _, text := range texts {
		more, err := sbatch.Words(text)
		if err != nil {
			return nil, fault.Errorf(fault.Usage, "--alloc-sbatch: %w", err)
		}
		words = append(words, more...)
	}
	line, err := sbatch.Argv(words)
	if err == nil && (len(line.Command) > 0 || len(line.Jobs) > 1) {
		err = fmt.Errorf("%q is not an option of sbatch", append(line.Command, ":")[0])
	}
	options := line.Jobs[0]
	for i, o := range options {
		if known := sbatch.Lookup(o.Name); known != nil {
			if known.Use&sbatch.ByPool == 0 {
				err = cmp.Or(err, fmt.Errorf("--%s is not allowed for the jobs of a pool", o.Name))
			}
			var wrong error
			options[i], wrong = sbatch.Parse(o.Arg()) // a duration, yes and no as ponos.yaml has them
			err = cmp.Or(err, wrong)
		}
		err = cmp.Or(err, options[i].Check())
	}
	err = cmp.Or(err, options.Conflict(sbatch.Newest))
	if err == nil {
		return options, nil
	}
	hint := "write it as in --alloc-sbatch=--partition=gpu"
	if options.Has("array") {
		hint = "--max-jobs sets how many there are"
	}
	return nil, fault.Hint(fault.Errorf(fault.Usage, "--alloc-sbatch: %w", err), hint)
}

// takeInput counts the tasks and, if they come from standard input, stores it for [work.keep].
func takeInput(
	c *cli.Context, run string, in *taskInput, base pool.Spec, policy *scheduler.Policy, history *journal.History,
) (tasks *work, err error) {
	w := &work{demand: pool.Demand{}}
	if in.serve {
		return w, nil // they come from programs
	}
	defer func() {
		if err != nil {
			w.forget()
		}
	}()
	if in.stdin {
		if err := os.MkdirAll(filepath.Dir(pilot.Input(run)), 0o700); err != nil {
			return nil, err
		}
		if w.kept, err = renameio.NewPendingFile(pilot.Input(run), renameio.WithPermissions(0o600)); err != nil {
			return nil, err
		}
		if err := copyInput(c.Context, w.kept, c.App.Reader); err != nil {
			return nil, err
		}
		if _, err := w.kept.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		c.App.Reader = w.kept.File
	}
	always := c.String("shell") != "" && c.String("shell") != "none"
	source, err := in.open(base, &place{elastic: true}, always, policy)
	if err != nil {
		return nil, err
	}
	if err := w.count(input.Look(source, run, base, always), policy, history); err != nil {
		return nil, err
	}
	if w.all == 0 {
		return nil, fault.Errorf(fault.Usage, "the input has no tasks")
	}
	return w, nil
}

// copyInput copies an input until its end, or until the context ends: an input may be a terminal, or
// never end.
func copyInput(ctx context.Context, to io.Writer, from io.Reader) error {
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(to, from)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// work are the tasks of an input.
type work struct {
	all, done, failed int                   // done: they have succeeded
	ready             int                   // that are to run and wait for no others
	demand            pool.Demand           // of those that are ready
	kept              *renameio.PendingFile // the input, if it is standard input
}

// left is how many are to run.
func (w *work) left() int { return w.all - w.done - w.failed }

// keep puts the input where the schedulers find it. That of a run that continues is replaced only when
// it is good.
func (w *work) keep(c *cli.Context, run string) (err error) {
	if w.kept == nil {
		return nil
	}
	if err := w.kept.CloseAtomicallyReplace(); err != nil {
		return err
	}
	c.App.Reader, err = os.Open(pilot.Input(run))
	return err
}

// forget removes what was not kept.
func (w *work) forget() {
	if w.kept != nil {
		_ = w.kept.Cleanup()
	}
}

// tell reports that all tasks have ended.
func (w *work) tell(c *cli.Context, run string) {
	if c.Bool("quiet") {
		return
	}
	fmt.Fprintf(c.App.ErrWriter, "jobpool: all tasks of the run in %s have ended: %d succeeded, %d failed\n", run, w.done, w.failed)
	if w.failed > 0 {
		fmt.Fprintln(c.App.ErrWriter, "jobpool: hint: --retry-failed runs those that failed again")
	}
}

// count reads all of the input once, so that its errors are reported before a job is submitted.
func (w *work) count(source input.Tasks, policy *scheduler.Policy, history *journal.History) error {
	for {
		t, err := source.Next()
		var one *input.BadTask
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &one):
			w.all++
			continue
		case err != nil:
			return fault.Wrap(fault.Usage, err)
		}
		w.all++
		state, err := stateOf(t, policy, history)
		switch {
		case err != nil:
			return err
		case state == journal.OK:
			w.done++
		case (state == journal.Failed || state == journal.Cancelled) && !policy.RetryFailed:
			w.failed++
		case t.Extra == nil || len(t.Extra.After) == 0:
			w.ready++
			w.demand.Add(t.Spec, 1)
		}
	}
}

// stateOf returns what earlier runs did with a task.
func stateOf(t *pool.Task, policy *scheduler.Policy, history *journal.History) (journal.State, error) {
	if !policy.ForceResume {
		if err := history.Same(t); err != nil {
			return journal.Unknown, err
		}
	}
	return history.Get(t.Seq).State, nil
}
