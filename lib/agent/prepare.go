package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/agent/code/transfer"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// taskError is a failure that is the task's own fault: the task ends as an error.
type taskError struct{ err error }

func (e *taskError) Error() string { return e.err.Error() }
func (e *taskError) Unwrap() error { return e.err }

func taskErrorf(format string, args ...any) error { return &taskError{fmt.Errorf(format, args...)} }

// Preparing is what is known of a task whose code or data could not be prepared so far, by an answer that
// may change. Record.Retry says when it is tried next, Record.Problem why.
//
//	none ──unknown──► preparing ──done──► none, and its job is submitted
//	                   │   ▲ │
//	                   └───┘ └─ refused, environment.Enough failures, or GiveUp after Since ──► error
//
// Whoever tries holds the lock of the task, and git, pip and what builds an environment the locks of
// the repository and of the environment: a try that was killed is begun anew, never beside itself.
type Preparing struct {
	Since time.Time `json:"since"`
	Tries int       `json:"tries,omitempty"` // that asked
	On    string    `json:"on,omitempty"`    // what is held: see environment.Holds
}

// unprepared has a task wait until its code may be prepared, or ends it when that took too long.
func (a *Agent) unprepared(
	ctx context.Context, d Dir, record Record, why *environment.UnknownError, log *taskLog,
) (task.Outcome, error) {
	now, p := a.now(), Preparing{}
	if record.Preparing != nil {
		p = *record.Preparing
	}
	if p.Since.IsZero() || p.Since.After(now) {
		p.Since = now
	}
	p.On = why.On
	next := why.Next
	if next.IsZero() {
		p.Tries++
		next = now.Add(pause(p.Tries))
	}
	record.Preparing, record.Retry, record.Problem = &p, next, why.Error()
	if took := now.Sub(p.Since); took >= a.GiveUp || why.Failures >= environment.Enough {
		if p.Tries > 1 {
			return a.unpreparable(ctx, d, record, log,
				fmt.Errorf("%w; it was tried %d times in %s", why, p.Tries, unit.FormatDuration(took.Round(time.Second))))
		}
		return a.unpreparable(ctx, d, record, log, why)
	}
	if why.Next.IsZero() {
		log.Say("WARNING", "%s; it is tried again at %s", why, next.Local().Format(time.TimeOnly))
	}
	return a.outcome("deferred", record, record.preparing()), d.Write(record)
}

// unpreparable ends a task whose code or data cannot be prepared, or begins another attempt if its rules say so.
// Each step may be repeated; the record decides.
func (a *Agent) unpreparable(ctx context.Context, d Dir, r Record, log *taskLog, why error) (task.Outcome, error) {
	rules, err := need.ParseRules(r.Rules)
	if err != nil {
		return a.fail(ctx, d, r, why)
	}
	change, again, never := rules.Within(a.LongestTime).Next(need.End{Reason: need.Prepare}, reasonsOf(r.Attempts))
	if never != "" {
		why = fmt.Errorf("%w; it is not tried again: %s", why, never)
	}
	if !again {
		return a.fail(ctx, d, r, why)
	}
	now := a.now()
	attempt := task.Attempt{
		Number: r.Attempt, State: task.Error, Reason: task.Clean(why.Error()), Ended: now.UTC(),
		Retry: need.Prepare, Changed: changeOptions(change),
	}
	size, err := a.keepAttempt(ctx, d, r, attempt)
	if err != nil {
		return task.Outcome{}, err
	}
	r.Attempts = append(r.Attempts, attempt)
	r.Attempt++
	r.Tries, r.LogFrom = 0, size
	r.Preparing, r.Retry, r.Problem = &Preparing{Since: now}, now.Add(longestPause), why.Error()
	log.Say("WARNING", "attempt %d: %s; the task is tried again at %s", attempt.Number, why, r.Retry.Local().Format(time.TimeOnly))
	return a.outcome("deferred", r, r.preparing()), d.Write(r)
}

// preparing says why a task is not prepared yet.
func (r Record) preparing() string {
	return until("preparing: "+r.Problem, r.Retry)
}

// released reports whether what a task waits for is no longer held.
func (a *Agent) released(r Record) bool {
	if r.Preparing == nil || r.Preparing.On == "" {
		return false
	}
	_, held := a.Store.readBreakers()[r.Preparing.On]
	return !held
}

// prepare puts into a task's directory all that its job needs, except its environment. An error
// that is the task's own fault is a taskError.
func (a *Agent) prepare(ctx context.Context, d Dir, t task.Task, record Record, log *taskLog) (s script, err error) {
	// Before the code, as pip may need the variables; and it is quick.
	variables, err := checkEnv(t.Env)
	if err != nil {
		return s, err
	}
	if remote := a.Runner.Can().Remote; remote != nil {
		return s, placeRemote(ctx, d, t, variables, remote)
	}
	if t.ImageOnly {
		return s, taskErrorf("the task is to run in image %q, and only mode vast runs images", task.Clean(t.Image))
	}
	spec := environment.Spec{Source: t.Source, PIPFlags: a.PIPFlags, Python: a.Python, Local: a.LocalCode}
	if t.Source.Repository != "" {
		log.Say("INFO", "preparing %s at %s", task.CleanAddress(t.Source.Repository), task.Clean(t.Source.Revision))
	}
	env, err := a.Environments.Prepare(ctx, spec, log)
	if err != nil {
		var build *environment.BuildError
		if errors.As(err, &build) && ctx.Err() == nil {
			return s, &taskError{err}
		}
		return s, err
	}
	command, err := commandOf(t, cmp.Or(env.Source, env.Place))
	if err != nil {
		return s, &taskError{err}
	}
	if err := a.view(ctx, d, t, log); err != nil {
		return s, err
	}
	variables["PONOS_TASK"] = string(t.ID)
	variables["PONOS_DATA"] = d.file(viewDir)
	// The queue assumes a container, whose data is at /data. Base-worker opens this file before
	// anything else.
	if path, ok := strings.CutPrefix(variables["TASK_ELEMENTS"], "/data/"); ok {
		variables["TASK_ELEMENTS"] = filepath.Join(d.file(viewDir), path)
	}
	if t.RequiresGPU {
		more, err := a.offline(ctx, d, t, variables)
		if err != nil {
			return s, err
		}
		command = append(command, more...)
	}
	if err := d.replace(envFile, zeroEnded(assignments(variables)), 0o600); err != nil {
		return s, err
	}
	if err := d.replace(commandFile, zeroEnded(command), 0o600); err != nil {
		return s, err
	}
	s = script{Task: t, Dir: d, Env: env, Attempt: record.Attempt, Tried: len(record.Attempts), Command: command, MaxLog: a.MaxLog}
	if a.Programs != nil {
		if s.Programs, err = a.Programs.Place(); err != nil {
			return s, err
		}
	}
	if a.Runner.Can().Batch != nil {
		return s, nil // it may run with others, by another script
	}
	return s, s.write()
}

// placeRemote puts into a task's directory what a remote runner needs.
func placeRemote(ctx context.Context, d Dir, t task.Task, variables map[string]string, remote runner.Remote) error {
	t.Env = variables
	env, command, err := remote.Place(ctx, t)
	if errors.Is(err, runner.ErrLater) || ctx.Err() != nil {
		return err
	}
	if err != nil {
		return &taskError{err}
	}
	if err := d.replace(envFile, zeroEnded(assignments(env)), 0o600); err != nil {
		return err
	}
	return d.replace(commandFile, zeroEnded(command), 0o600)
}

// maxString is the largest environment variable or argument on Linux in bytes, including the final
// zero byte.
const maxString = 128 << 10

// checkEnv returns a copy of a task's variables. An invalid name ends the task.
func checkEnv(env map[string]string) (map[string]string, error) {
	variables := make(map[string]string, len(env)+4)
	for name, value := range env {
		switch {
		case !task.IsVariable(name):
			return nil, taskErrorf("invalid variable name %q", task.Clean(name))
		case strings.ContainsRune(value, 0):
			return nil, taskErrorf("variable %s has a zero byte", name)
		case len(name)+1+len(value)+1 > maxString:
			return nil, taskErrorf("variable %s takes %d bytes, more than the %d that a program can be given",
				task.Clean(name), len(name)+1+len(value), maxString-1)
		}
		variables[name] = value
	}
	return variables, nil
}

// assignments returns the variables as NAME=VALUE. PONOS_TASK comes last: a job that has read it
// has read all of them.
func assignments(variables map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if name != "PONOS_TASK" {
			out = append(out, name+"="+variables[name])
		}
	}
	return append(out, "PONOS_TASK="+variables["PONOS_TASK"])
}

func zeroEnded(words []string) []byte {
	var b []byte
	for _, w := range words {
		b = append(append(b, w...), 0)
	}
	return b
}

// offline creates the files that replace the queue for a task without network access, and returns
// the arguments that pass them to the worker.
func (a *Agent) offline(ctx context.Context, d Dir, t task.Task, variables map[string]string) ([]string, error) {
	var o queue.Offline
	err := a.fetch(ctx, "", func() (err error) {
		if o, err = a.Queue.Offline(ctx, t); err != nil {
			err = fmt.Errorf("configuration of the task: %w", err)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	maps.Copy(variables, o.Env)
	for _, name := range o.Unset {
		delete(variables, name)
	}
	if o.Schema != nil {
		if err := d.replace(schemaFile, o.Schema, 0o600); err != nil {
			return nil, err
		}
		variables[o.SchemaEnv] = d.file(schemaFile)
	}
	if o.Configuration == nil || a.ConfigFlag == "" {
		return nil, nil
	}
	if err := d.replace(configurationFile, o.Configuration, 0o600); err != nil {
		return nil, err
	}
	return []string{a.ConfigFlag, d.file(configurationFile)}, nil
}

// view creates the directory that PONOS_DATA names, with the layout that workers expect: current
// and the task's id lead to its artifacts, each parent's id and slug to the artifacts of that
// parent, the same with .files to what was kept of its working directory, and extra_files to models and data sets.
func (a *Agent) view(ctx context.Context, d Dir, t task.Task, log *taskLog) error {
	view := d.file(viewDir)
	own := a.Transfers.Artifacts(t.Process, t.ID)
	if err := os.MkdirAll(own, 0o700); err != nil {
		return err
	}
	for _, dir := range []string{view, filepath.Join(view, "extra_files")} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	// The second link points to the first: a short target is stored in the inode on most file
	// systems.
	if err := errors.Join(link(own, filepath.Join(view, "current")), link("current", filepath.Join(view, string(t.ID)))); err != nil {
		return err
	}
	say := func(format string, args ...any) { log.Say("INFO", format, args...) }
	for _, parent := range t.Parents {
		dir := a.Transfers.Artifacts(t.Process, parent.ID)
		if err := a.fetch(ctx, "", func() error { return a.Transfers.FetchArtifacts(ctx, parent, dir, say) }); err != nil {
			return err
		}
		names := []string{filepath.Join(view, string(parent.ID))}
		if isPlain(parent.Slug) && parent.Slug != "current" && parent.Slug != "extra_files" {
			names = append(names, filepath.Join(view, parent.Slug))
		}
		if err := link(dir, names...); err != nil {
			return err
		}
		// What the parent has written to its working directory is beside, if it ran with this data directory.
		files := a.Transfers.Kept(t.Process, parent.ID)
		if _, err := os.Stat(files); err != nil {
			continue
		}
		for i := range names {
			names[i] += ".files"
		}
		if err := link(files, names...); err != nil {
			return err
		}
	}
	for _, f := range t.Files {
		var paths []string
		err := a.fetch(ctx, f.URL, func() (err error) {
			paths, err = a.Transfers.FetchFile(ctx, f, say)
			return err
		})
		if err != nil {
			return err
		}
		for _, path := range paths {
			if err := link(path, filepath.Join(view, "extra_files", filepath.Base(path))); err != nil {
				return err
			}
		}
	}
	return nil
}

// isPlain reports whether a slug can be the name of a link: the rules of an id, but dots within it
// are allowed, as in prepare.sh.
func isPlain(slug string) bool {
	_, err := task.ParseID(strings.ReplaceAll(slug, ".", "-"))
	return err == nil && !strings.Contains(slug, "..") && !strings.HasSuffix(slug, ".")
}

// link creates or replaces symbolic links.
func link(to string, names ...string) error {
	for _, name := range names {
		if err := os.Symlink(to, name); !errors.Is(err, fs.ErrExist) {
			if err != nil {
				return err
			}
			continue
		}
		if old, err := os.Readlink(name); err == nil && old == to {
			continue
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(to, name); err != nil {
			return err
		}
	}
	return nil
}

// fetch runs a download that a task needs, from the host of an address; "": it is that of the queue, or not
// known. What does not exist, or is invalid, is the task's own fault.
func (a *Agent) fetch(ctx context.Context, address string, do func() error) error {
	host := ""
	if u, err := url.Parse(address); err == nil {
		host = u.Host
	}
	err := a.Environments.Fetch(ctx, host, lasting, do)
	if errors.As(err, new(*environment.BuildError)) {
		return &taskError{err}
	}
	return err
}

// lasting reports whether another try cannot help.
func lasting(err error) bool {
	return forgotten(err) || errors.Is(err, queue.ErrBroken) || errors.As(err, new(*transfer.DefectError))
}
