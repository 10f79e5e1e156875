// Package transfer moves files between tasks on this machine and their queue: the artifacts of tasks
// in both directions, and models and data sets, which tasks share.
package transfer

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/code/archive"
	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/remove"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// Queue is what transfers need of a queue.
type Queue interface {
	Artifacts(ctx context.Context, id task.ID) ([]task.Artifact, error)
	GetArtifact(ctx context.Context, id task.ID, a task.Artifact, to *os.File) error
	PutArtifact(ctx context.Context, id task.ID, a task.Artifact, from io.ReadSeeker) error
	GetFile(ctx context.Context, f task.File, to *os.File) error
}

// Store has the files of tasks.
type Store struct {
	Queue     Queue
	Processes string // directory of the artifacts
	Dir       string // of models and data sets
}

// DefectError is an error of what is to be transferred: another try cannot help.
type DefectError struct{ err error }

func (e *DefectError) Error() string { return e.err.Error() }
func (e *DefectError) Unwrap() error { return e.err }

func defectf(format string, args ...any) error { return &DefectError{fmt.Errorf(format, args...)} }

// Artifacts is the directory of a task's artifacts. It is grouped by process, as tasks of one process
// read each other's artifacts.
func (s *Store) Artifacts(process string, id task.ID) string {
	group := "none"
	if p, err := task.ParseID(process); err == nil {
		group = string(p)
	}
	return filepath.Join(s.Processes, group, string(id))
}

// Kept is the directory of what a task has written to its working directory, beside its artifacts.
func (s *Store) Kept(process string, id task.ID) string { return s.Artifacts(process, id) + ".files" }

// Prune removes models and data sets that were last used before a time, and what killed downloads have left before another.
func (s *Store) Prune(unused, leftover time.Time) error {
	errs := []error{environment.PruneUnused(s.Dir, unused, filesLock)}
	for _, depth := range []struct{ dir, pattern string }{{s.Processes, "*/*/"}, {s.Dir, "*/"}} {
		root, err := os.OpenRoot(depth.dir) // in which tasks may have left links to elsewhere
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		defer root.Close()
		left, err := fs.Glob(root.FS(), depth.pattern+downloadPrefix+"*")
		errs = append(errs, err)
		for _, name := range left {
			info, err := root.Lstat(name)
			if err != nil || !info.Mode().IsRegular() || !isDownload(info.Name()) || !clock.Modified(info).Before(leftover) {
				continue // a task may have ended it, or written it
			}
			errs = append(errs, root.Remove(name))
		}
	}
	return errors.Join(errs...)
}

// maxArtifacts limits how many artifacts of a task are read or published.
const maxArtifacts = 100000

// FetchArtifacts downloads into dir the artifacts of a parent that are not here yet: the parent may have
// run on this machine.
func (s *Store) FetchArtifacts(ctx context.Context, parent task.Parent, dir string, say func(format string, args ...any)) error {
	list, err := s.Queue.Artifacts(ctx, parent.ID)
	if err != nil {
		return fmt.Errorf("artifacts of parent %s: %w", parent.ID, err)
	}
	if len(list) > maxArtifacts {
		return defectf("parent %s has %d artifacts, more than %d", parent.ID, len(list), maxArtifacts)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return unfit(err)
	}
	root, err := os.OpenRoot(dir) // in which the parent may have left links to elsewhere
	if err != nil {
		return err
	}
	defer root.Close()
	for _, artifact := range list {
		name := filepath.Clean(filepath.FromSlash(artifact.Path))
		if !filepath.IsLocal(artifact.Path) || name == "." {
			return defectf("artifact %q of parent %s leads out of its directory", task.Clean(artifact.Path), parent.ID)
		}
		if info, err := root.Stat(name); err == nil && info.Mode().IsRegular() && info.Size() == artifact.Size {
			continue
		}
		say("downloading artifact %s of parent %s", task.Clean(artifact.Path), parent.ID)
		err := download(root, name, func(f *os.File) error { return s.Queue.GetArtifact(ctx, parent.ID, artifact, f) })
		if err != nil {
			return fmt.Errorf("artifact %q of parent %s: %w", task.Clean(artifact.Path), parent.ID, err)
		}
	}
	return nil
}

// FetchFile downloads a model or data set, once for all tasks that need it. An archive is
// unpacked. It returns the paths of its files.
func (s *Store) FetchFile(ctx context.Context, f task.File, say func(format string, args ...any)) ([]string, error) {
	reserved := []string{"", ".", "..", lockFile, unpackedDir, unpackedDir + ".new"}
	if f.Name != filepath.Base(f.Name) || slices.Contains(reserved, f.Name) || strings.ContainsAny(f.Name, "\x00\n") {
		return nil, defectf("file %q: not a plain file name", task.Clean(f.Name))
	}
	// The signature in a presigned URL changes from task to task, the object does not.
	object, _, _ := strings.Cut(f.URL, "?")
	if f.Version != "" {
		object += "?" + f.Version
	}
	sum := sha256.Sum256([]byte(object))
	dir := filepath.Join(s.Dir, hex.EncodeToString(sum[:16]))
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
	unpacked := filepath.Join(dir, unpackedDir)
	if paths, err := listDir(unpacked); err == nil {
		return paths, nil
	}
	if _, err := os.Stat(path); err != nil {
		say("downloading %s", task.Clean(f.Name))
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		if err := download(root, f.Name, func(to *os.File) error { return s.Queue.GetFile(ctx, f, to) }); err != nil {
			return nil, fmt.Errorf("file %q: %w", task.Clean(f.Name), err)
		}
	}
	if !strings.HasSuffix(f.Name, ".tar.zst") {
		return []string{path}, nil
	}
	if err := errors.Join(remove.All(unpacked+".new"), os.Mkdir(unpacked+".new", 0o700)); err != nil {
		return nil, err
	}
	ok, err := archive.Zstd(path, unpacked+".new")
	var bad *archive.BadError
	if errors.As(err, &bad) {
		return nil, defectf("file %q: %w", task.Clean(f.Name), err)
	}
	if err != nil {
		return nil, fmt.Errorf("file %q: %w", task.Clean(f.Name), err)
	}
	if !ok { // in spite of its name, it is not an archive
		return []string{path}, remove.All(unpacked + ".new")
	}
	if err := environment.SyncFS(unpacked + ".new"); err != nil {
		return nil, err
	}
	if err := os.Rename(unpacked+".new", unpacked); err != nil {
		return nil, err
	}
	return listDir(unpacked)
}

// Names beside the file of a model or data set.
const (
	lockFile    = ".lock"
	unpackedDir = ".unpacked" // if it is an archive
)

// filesLock is the lock of a model or data set.
func filesLock(dir string) string { return filepath.Join(dir, lockFile) }

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

// download creates a file atomically: it is complete or absent. Its temporary name is not one of
// renameio: Publish must tell what is unfinished from an artifact. It lies at the top, where Prune looks.
func download(root *os.Root, name string, get func(*os.File) error) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return unfit(err)
	}
	temporary := downloadPrefix + rand.Text()
	f, err := root.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return unfit(err)
	}
	err = get(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = unfit(root.Rename(temporary, name))
	}
	if err != nil {
		return errors.Join(err, root.Remove(temporary))
	}
	return nil
}

// downloadPrefix begins the names of unfinished downloads.
const downloadPrefix = ".download-"

// isDownload reports whether download makes names such as this one.
func isDownload(name string) bool {
	text, ok := strings.CutPrefix(name, downloadPrefix)
	return ok && len(text) == len(rand.Text()) && strings.Trim(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
}

// unfit marks an error as a defect if a file can never have a place: its name is too long, or that of a
// directory, or leads through a file or out of the directory.
func unfit(err error) error {
	if err == nil || errors.Is(err, fs.ErrPermission) || !Lasting(err) && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return &DefectError{err}
}

// Publish publishes the files in a task's artifact directory, as PublishFrom does.
func (s *Store) Publish(ctx context.Context, process string, id task.ID, tell func(format string, args ...any)) error {
	return s.PublishFrom(ctx, s.Artifacts(process, id), id, tell)
}

// PublishFrom publishes the files in a directory as a task's artifacts, except links and unfinished
// downloads. What can never be published is reported and skipped: it must not keep the task from
// ending. An error is one that may pass.
func (s *Store) PublishFrom(ctx context.Context, dir string, id task.ID, tell func(format string, args ...any)) error {
	root, err := openRoot(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil && Lasting(err):
		tell("the directory of the artifacts is not published: %v", fault.Text(err))
		return nil
	case err != nil:
		return fmt.Errorf("artifacts of task %s: %w", id, err)
	}
	defer root.Close()
	p := publication{queue: s.Queue, id: id, root: root, tell: tell}
	err = p.directory(ctx, ".")
	if p.refused > maxRefused {
		tell("%d more are not published", p.refused-maxRefused)
	}
	if err != nil && !errors.Is(err, queue.ErrGone) && !errors.Is(err, queue.ErrNotMine) {
		return fmt.Errorf("artifacts of task %s: %w", id, err)
	}
	return err
}

var errNotDirectory = errors.New("it is not a directory any more")

// openRoot opens a directory that is not a link. The task may still be running there. Through
// os.Root, nothing outside of the directory is published, even if a file becomes a link meanwhile.
func openRoot(dir string) (*os.Root, error) {
	before, err := os.Lstat(dir)
	if err != nil {
		return nil, err
	}
	if !before.IsDir() {
		return nil, errNotDirectory
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	opened, err := root.Stat(".")
	if err == nil && !os.SameFile(before, opened) {
		err = errNotDirectory
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return root, nil
}

// Lasting reports whether an error is due to a file, so that it stays. All other errors of file
// systems may pass.
func Lasting(err error) bool {
	var number syscall.Errno
	if !errors.As(err, &number) {
		return true // of os.Root: the file is out of the directory
	}
	switch number {
	case syscall.ELOOP, syscall.ENXIO, syscall.ENODEV, syscall.ENOTDIR, syscall.EISDIR, syscall.ENAMETOOLONG:
		return true
	}
	return errors.Is(number, fs.ErrPermission)
}

// maxRefused limits how many artifacts are reported one by one as not published.
const maxRefused = 20

// publication is the state of publishing one directory.
type publication struct {
	queue   Queue
	id      task.ID
	root    *os.Root
	tell    func(format string, args ...any)
	seen    int
	refused int
}

// refuse reports that something is not published.
func (p *publication) refuse(name string, err error) {
	if p.refused++; p.refused > maxRefused {
		return
	}
	var path *fs.PathError
	if errors.As(err, &path) && !errors.Is(err, queue.ErrBroken) {
		err = path.Err // its name is not fit to be printed
	}
	p.tell("%q is not published: %v", task.Clean(name), fault.Text(err))
}

// directory publishes the files of a directory and of those in it. The functions of io/fs are of no
// use here: they refuse names that are not UTF-8. Nor is ReadDir: if it fails for one entry, it fails
// for all.
func (p *publication) directory(ctx context.Context, name string) error {
	dir, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	var names []string
	if err == nil {
		names, err = dir.Readdirnames(-1)
		dir.Close()
	}
	if err := p.passing(name, err); err != nil {
		return err
	}
	slices.Sort(names)
	for _, base := range names {
		path := filepath.Join(name, base)
		info, err := p.root.Lstat(path)
		switch {
		case err != nil:
			err = p.passing(path, err)
		case info.IsDir():
			err = p.directory(ctx, path)
		case info.Mode().IsRegular() && !strings.HasPrefix(base, downloadPrefix):
			err = p.file(ctx, path)
		}
		if err != nil || p.seen > maxArtifacts {
			return err
		}
	}
	return nil
}

// passing returns an error that may pass. What is not published for good is reported, and what is not
// there any more is not.
func (p *publication) passing(name string, err error) error {
	switch {
	case err == nil || errors.Is(err, fs.ErrNotExist):
		return nil
	case Lasting(err):
		p.refuse(name, err)
		return nil
	}
	return err
}

// file publishes a file.
func (p *publication) file(ctx context.Context, name string) error {
	if p.seen++; p.seen > maxArtifacts {
		p.tell("more than %d artifacts: the others are not published", maxArtifacts)
		return nil
	}
	f, err := p.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return p.passing(name, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	err = p.queue.PutArtifact(ctx, p.id, task.Artifact{Path: name, Size: info.Size()}, f)
	if errors.Is(err, queue.ErrBroken) {
		p.refuse(name, err)
		return nil
	}
	return err
}
