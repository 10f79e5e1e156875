package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/archive"
	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/environment"
	"github.com/ponos-tools/ponos/lib/lock"
	"github.com/ponos-tools/ponos/lib/queue"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/task"
)

// taskError is a failure that is the task's own fault: the task ends as an error.
type taskError struct{ err error }

func (e *taskError) Error() string { return e.err.Error() }
func (e *taskError) Unwrap() error { return e.err }

func taskErrorf(format string, args ...any) error { return &taskError{fmt.Errorf(format, args...)} }

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
	command, err := commandOf(t, env.Source)
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
	s = script{Task: t, Dir: d, Env: env, Attempt: record.Attempt, Tried: len(record.Attempts), Command: command}
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
		ok := name != "" && (name[0] < '0' || name[0] > '9')
		for i := range len(name) {
			c := name[i]
			ok = ok && ('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_')
		}
		switch {
		case !ok:
			return nil, taskErrorf("invalid variable name %q", task.Clean(name))
		case strings.ContainsRune(value, 0):
			return nil, taskErrorf("variable %s has a zero byte", name)
		case len(name)+1+len(value)+1 > maxString:
			return nil, taskErrorf("variable %s takes %d bytes, more than the %d that a program can be given", task.Clean(name), len(name)+1+len(value), maxString-1)
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
	o, err := a.Queue.Offline(ctx, t)
	if err != nil {
		return nil, lasting(fmt.Errorf("configuration of the task: %w", err))
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
// parent, and extra_files to models and data sets.
func (a *Agent) view(ctx context.Context, d Dir, t task.Task, log *taskLog) error {
	view := d.file(viewDir)
	own := a.artifacts(t.Process, t.ID)
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
	for _, parent := range t.Parents {
		dir := a.artifacts(t.Process, parent.ID)
		if err := a.fetchArtifacts(ctx, parent, dir, log); err != nil {
			return err
		}
		links := []string{filepath.Join(view, string(parent.ID))}
		if isPlain(parent.Slug) && parent.Slug != "current" && parent.Slug != "extra_files" {
			links = append(links, filepath.Join(view, parent.Slug))
		}
		if err := link(dir, links...); err != nil {
			return err
		}
	}
	for _, f := range t.Files {
		paths, err := a.fetchFile(ctx, f, log)
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

// maxArtifacts limits how many artifacts of a task are read or published.
const maxArtifacts = 100000

// fetchArtifacts downloads the artifacts of a parent that are not here yet: the parent may have
// run on this machine.
func (a *Agent) fetchArtifacts(ctx context.Context, parent task.Parent, dir string, log *taskLog) error {
	list, err := a.Queue.Artifacts(ctx, parent.ID)
	if err != nil {
		return lasting(fmt.Errorf("artifacts of parent %s: %w", parent.ID, err))
	}
	if len(list) > maxArtifacts {
		return taskErrorf("parent %s has %d artifacts, more than %d", parent.ID, len(list), maxArtifacts)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, artifact := range list {
		name := filepath.FromSlash(artifact.Path)
		if !filepath.IsLocal(name) {
			return taskErrorf("artifact %q of parent %s leads out of its directory", task.Clean(artifact.Path), parent.ID)
		}
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Size() == artifact.Size {
			continue
		}
		log.Say("INFO", "downloading artifact %s of parent %s", task.Clean(artifact.Path), parent.ID)
		err := download(path, func(f *os.File) error { return a.Queue.GetArtifact(ctx, parent.ID, artifact, f) })
		if err != nil {
			return lasting(fmt.Errorf("artifact %q of parent %s: %w", task.Clean(artifact.Path), parent.ID, err))
		}
	}
	return nil
}

// fetchFile downloads a model or data set, once for all tasks that need it. An archive is
// unpacked.
func (a *Agent) fetchFile(ctx context.Context, f task.File, log *taskLog) ([]string, error) {
	if f.Name == "" || f.Name != filepath.Base(f.Name) || f.Name == "." || f.Name == ".." || strings.ContainsAny(f.Name, "\x00\n") {
		return nil, taskErrorf("file %q: not a plain file name", task.Clean(f.Name))
	}
	// The signature in a presigned URL changes from task to task, the object does not.
	object, _, _ := strings.Cut(f.URL, "?")
	if f.Version != "" {
		object += "?" + f.Version
	}
	sum := sha256.Sum256([]byte(object))
	dir := filepath.Join(a.FilesDir, hex.EncodeToString(sum[:16]))
	path := filepath.Join(dir, f.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	l, err := lock.Wait(ctx, filesLock(dir))
	if err != nil {
		return nil, err
	}
	defer l.Close()
	_ = clock.Touch(dir) // it was used
	unpacked := filepath.Join(dir, ".unpacked")
	if paths, err := listDir(unpacked); err == nil {
		return paths, nil
	}
	if _, err := os.Stat(path); err != nil {
		log.Say("INFO", "downloading %s", task.Clean(f.Name))
		if err := download(path, func(to *os.File) error { return a.Queue.GetFile(ctx, f, to) }); err != nil {
			return nil, lasting(fmt.Errorf("file %q: %w", task.Clean(f.Name), err))
		}
	}
	if !strings.HasSuffix(f.Name, ".tar.zst") {
		return []string{path}, nil
	}
	if err := errors.Join(os.RemoveAll(unpacked+".new"), os.Mkdir(unpacked+".new", 0o700)); err != nil {
		return nil, err
	}
	ok, err := archive.Zstd(path, unpacked+".new")
	var bad *archive.BadError
	if errors.As(err, &bad) {
		return nil, taskErrorf("file %q: %w", task.Clean(f.Name), err)
	}
	if err != nil {
		return nil, fmt.Errorf("file %q: %w", task.Clean(f.Name), err)
	}
	if !ok { // in spite of its name, it is not an archive
		return []string{path}, os.RemoveAll(unpacked + ".new")
	}
	if err := environment.Settle(unpacked + ".new"); err != nil {
		return nil, err
	}
	if err := os.Rename(unpacked+".new", unpacked); err != nil {
		return nil, err
	}
	return listDir(unpacked)
}

// filesLock is the lock of a model or data set.
func filesLock(dir string) string { return filepath.Join(dir, ".lock") }

// listDir lists the paths in a directory.
func listDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	paths := make([]string, len(entries))
	for i, e := range entries {
		paths[i] = filepath.Join(dir, e.Name())
	}
	return paths, nil
}

// lasting marks an error as the task's own fault if another try cannot help: what the task needs
// does not exist.
func lasting(err error) error {
	if forgotten(err) || errors.Is(err, queue.ErrBroken) {
		return &taskError{err}
	}
	return err
}

// download creates a file atomically: it is complete or absent.
func download(path string, get func(*os.File) error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".download-*")
	if err != nil {
		return err
	}
	err = get(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// publishArtifacts publishes the files in a task's artifact directory, except links and unfinished
// downloads. An artifact that can never be published is reported and skipped: it must not keep the
// task from ending.
func (a *Agent) publishArtifacts(ctx context.Context, d Dir, process string, tell func(format string, args ...any)) error {
	// The task may still be running there. Through os.Root, nothing outside of the directory is
	// published, even if a file becomes a link meanwhile.
	root, err := os.OpenRoot(a.artifacts(process, d.id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("artifacts of task %s: %w", d.id, err)
	}
	defer root.Close()
	n := 0
	err = fs.WalkDir(root.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			tell("%q is not published: %v", task.Clean(name), err)
			return nil
		}
		if !e.Type().IsRegular() || strings.HasPrefix(e.Name(), ".download-") {
			return nil
		}
		if n++; n > maxArtifacts {
			tell("more than %d artifacts: the others are not published", maxArtifacts)
			return fs.SkipAll
		}
		f, err := root.Open(name)
		if err != nil {
			tell("%q is not published: %v", task.Clean(name), err)
			return nil
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		err = a.Queue.PutArtifact(ctx, d.id, task.Artifact{Path: name, Size: info.Size()}, f)
		if errors.Is(err, queue.ErrBroken) {
			tell("%q is not published: %v", task.Clean(name), err)
			return nil
		}
		return err
	})
	if err != nil && !forgotten(err) {
		return fmt.Errorf("artifacts of task %s: %w", d.id, err)
	}
	return err
}
