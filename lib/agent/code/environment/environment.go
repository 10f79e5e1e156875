package environment

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/base/remove"
	"github.com/ponos-tools/ponos/lib/task"
)

// Spec says what to prepare.
type Spec struct {
	Source   task.Source
	PIPFlags string
	Python   string // interpreter for virtual environments
	// Local allows repositories on this machine's file systems, which only
	// a user who can read them may request.
	Local bool
}

// Environment is a prepared environment. It is shared and must not be written to.
type Environment struct {
	Source string // directory of the checkout; "": the task runs in Place
	Place  string // directory of which nothing is copied
	Venv   string // directory of the virtual environment; "" if the code needs none
}

// BuildError says that the code or data can never be prepared: no such commit, an invalid address, a
// requirement that nothing fulfils.
type BuildError struct{ err error }

func (e *BuildError) Error() string { return e.err.Error() }
func (e *BuildError) Unwrap() error { return e.err }

func buildError(format string, args ...any) error {
	return &BuildError{fmt.Errorf(format, args...)}
}

// Store is where prepared environments are kept.
type Store struct {
	Dir     string
	Run     command.Runner
	Timeout time.Duration // of cloning and of installing, each
	Holds   Holds         // nil: nothing is held

	mu       sync.Mutex
	underWay map[string]*pending
}

// key names a prepared environment.
func (s Spec) key() string {
	h := sha256.New()
	for _, part := range []string{"1", s.Source.Repository, s.Source.Revision, s.Source.Archive, s.PIPFlags, s.Python} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	if s.Source.Environment != "" { // nothing is installed, whichever it is
		h.Write([]byte("installed"))
	}
	return hex.EncodeToString(h.Sum(nil))[:32]
}

const current = "current"

func (s *Store) prepare(ctx context.Context, key string, spec Spec, log io.Writer) (Environment, error) {
	dir := filepath.Join(s.Dir, key)
	if env, ok := find(dir); ok {
		return env, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Environment{}, err
	}
	// The scripts of a virtual environment contain its path, which must not depend on a link that may
	// change.
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Environment{}, err
	}
	l, err := lock.Wait(ctx, filepath.Join(dir, "lock"))
	if err != nil {
		return Environment{}, err
	}
	defer l.Close()
	if env, ok := find(dir); ok { // another process has built it meanwhile
		return env, nil
	}
	// Files of killed builds belong to no environment.
	if err := s.sweep(dir); err != nil {
		return Environment{}, err
	}
	stays := place.Watch(dir) // before anything is in it
	name := uuid.NewString()
	building := filepath.Join(dir, name)
	if err := os.Mkdir(building, 0o700); err != nil {
		stays.Moved()
		return Environment{}, err
	}
	err = s.build(ctx, spec, building, log)
	if err == nil {
		// Others use it as soon as the link exists, also after a power failure.
		err = SyncFS(building)
	}
	if stays.Moved() && ctx.Err() == nil { // whatever git and pip say: a part may be missing, and what they refuse may only have been away
		err = &UnknownError{err: fmt.Errorf("%s was away while code was prepared in it", s.Dir)}
	}
	if err != nil {
		return Environment{}, errors.Join(err, remove.All(building))
	}
	if err := renameio.Symlink(name, filepath.Join(dir, current)); err != nil {
		return Environment{}, err
	}
	env, ok := find(dir)
	if !ok {
		return Environment{}, fmt.Errorf("environment %q is not complete after its building", dir)
	}
	return env, nil
}

// find returns the complete environment of a directory, and records that it was used.
func find(dir string) (Environment, bool) {
	root, err := os.OpenRoot(dir) // if the directory goes away between two looks, both see the same
	if err != nil {
		return Environment{}, false
	}
	defer root.Close()
	name, err := root.Readlink(current)
	if err != nil || name != filepath.Base(name) {
		return Environment{}, false
	}
	if _, err := root.Stat(filepath.Join(name, "source")); err != nil {
		return Environment{}, false
	}
	// The real path, not that through the link: the scripts of a virtual environment contain its
	// path.
	env := Environment{Source: filepath.Join(dir, name, "source"), Venv: filepath.Join(dir, name, "venv")}
	switch _, err := root.Stat(filepath.Join(name, "venv")); {
	case errors.Is(err, fs.ErrNotExist):
		env.Venv = ""
	case err != nil:
		return Environment{}, false
	}
	_ = clock.Touch(dir) // a read-only environment is also usable
	return env, true
}

// sweep removes unfinished builds.
func (s *Store) sweep(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != "lock" && e.Name() != current {
			if err := remove.All(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Prune removes environments that were not used since a time, and kept repositories from which no
// environment borrows objects. Environments of running tasks must be younger.
func (s *Store) Prune(before time.Time) error {
	err := PruneUnused(s.Dir, before, func(dir string) string { return filepath.Join(dir, "lock") })
	mirrors := filepath.Join(s.Dir, repositories)
	borrowed := map[string]bool{}
	names, globErr := filepath.Glob(filepath.Join(s.Dir, "*", "*", "source", ".git", "objects", "info", "alternates"))
	for _, name := range names {
		b, readErr := os.ReadFile(name)
		if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
			return errors.Join(err, readErr) // it is unknown which ones are borrowed
		}
		for line := range strings.Lines(string(b)) {
			borrowed[filepath.Base(filepath.Dir(strings.TrimSpace(line)))] = true
		}
	}
	// A repository whose objects are borrowed counts as used.
	for name := range borrowed {
		if chErr := clock.Touch(filepath.Join(mirrors, name)); chErr != nil && !errors.Is(chErr, fs.ErrNotExist) {
			return errors.Join(err, chErr)
		}
	}
	return errors.Join(err, globErr, PruneUnused(mirrors, before, func(dir string) string { return dir + ".lock" }))
}

// PruneUnused removes the directories within a directory that were last touched
// before a time, and that are not locked. Hidden ones stay.
func PruneUnused(parent string, before time.Time, lockOf func(dir string) string) error {
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		dir := filepath.Join(parent, e.Name())
		unused := func() bool {
			info, err := os.Lstat(dir)
			return err == nil && info.IsDir() && !clock.Modified(info).After(before)
		}
		if strings.HasPrefix(e.Name(), ".") || !unused() {
			continue
		}
		l, err := lock.Try(lockOf(dir))
		if err != nil {
			continue
		}
		if unused() { // checked again, now that no other process can begin to use it
			errs = append(errs, remove.All(dir))
		}
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// SyncFS flushes the file system of a path to disk, for trees with too many files to sync one by one.
func SyncFS(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return &fs.PathError{Op: "syncfs", Path: path, Err: err}
	}
	return nil
}
