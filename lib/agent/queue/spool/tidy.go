package spool

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// leftoverAge is the age from which a file is taken to be left by a killed tool.
const leftoverAge = 24 * time.Hour

// Tidy removes files that killed tools have left; and, if keep is not 0, tasks that ended longer ago
// than that, with their logs, artifacts and archived sources. A task stays while it has a child that
// has not ended.
func (s *Spool) Tidy(keep time.Duration) error {
	if err := s.Check(); err != nil {
		return err
	}
	now := s.now()
	t := tidying{
		Spool: s, leftover: now.Add(-leftoverAge),
		parents: map[task.ID]bool{}, archives: map[string]bool{}, there: map[task.ID]bool{},
	}
	if keep > 0 {
		t.expired = now.Add(-keep)
	}
	// First the tasks that have not ended: what they need stays.
	for _, dir := range []string{newDir, activeDir} {
		if err := t.note(dir); err != nil {
			return err
		}
	}
	if err := t.done(); err != nil {
		return err
	}
	t.old(tmpDir, t.leftover, func(name string) bool { return !strings.HasSuffix(name, ".bad") })
	t.old(tmpDir, t.expired, nil)
	t.old(stopDir, t.leftover, func(name string) bool { return t.over(name) })
	t.old(absentDir, t.leftover, func(name string) bool { return t.over(name) })
	t.old(undeliveredDir, t.leftover, t.notCommitted)
	t.old(batchesDir, t.expired, t.forgotten)
	t.old(retriedDir, t.expired, func(name string) bool { return !t.there[task.ID(name)] })
	t.old(logsDir, t.expired, func(name string) bool {
		id, _, _ := strings.Cut(name, ".") // ID.log or ID.ATTEMPT.log
		return !t.there[task.ID(id)]
	})
	t.old(overDir, t.expired, nil)
	t.old(artifactsDir, t.expired, func(name string) bool { return !t.there[task.ID(name)] })
	if len(t.errs) == 0 { // otherwise it is unknown which archives are in use
		t.old(sourcesDir, t.leftover, func(name string) bool { return !t.archives[name] })
	}
	return errors.Join(t.errs...)
}

// tidying is the state of Tidy.
type tidying struct {
	*Spool
	leftover, expired time.Time // expired: zero if nothing does
	there, parents    map[task.ID]bool
	archives          map[string]bool // names of files that tasks refer to
	errs              []error
}

func (t *tidying) fail(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.errs = append(t.errs, fault.Errorf(fault.Unavailable, "spool: %w", err))
	}
}

// note records the tasks of a directory, and what they refer to.
func (t *tidying) note(dir string) error {
	names, err := t.names(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		id, _ := fileParts(name)
		t.there[id] = true
		e, err := t.read(t.path(dir, name))
		t.fail(err)
		t.uses(e)
		for _, parent := range e.After {
			t.parents[parent] = true
		}
	}
	return nil
}

func (t *tidying) uses(e queue.Entry) {
	t.archives[filepath.Base(e.Source.Archive)] = true
	t.archives[filepath.Base(e.Source.Patch)] = true
}

// done removes the tasks that have expired.
func (t *tidying) done() error {
	names, err := t.names(doneDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		id, _ := fileParts(name)
		e, err := t.read(t.path(doneDir, name))
		if err != nil || t.expired.IsZero() || e.Ended.IsZero() || e.Ended.After(t.expired) || t.parents[id] || t.there[id] {
			if err != nil && !errors.Is(err, errBad) {
				t.fail(err)
			}
			t.there[id] = true
			t.uses(e)
			continue
		}
		// The task's own file last: until then, everything can be found again.
		paths := []string{t.Log(id), t.path(artifactsDir, string(id))}
		if strings.HasPrefix(filepath.Base(e.Kept), string(id)) {
			paths = append(paths, e.Kept)
		}
		for _, a := range e.Attempts {
			paths = append(paths, t.AttemptLog(id, a.Number))
		}
		for _, path := range append(paths, t.path(doneDir, name)) {
			t.fail(os.RemoveAll(path))
		}
	}
	return nil
}

// over reports whether a name is that of a task that no other task waits for.
func (t *tidying) over(name string) bool {
	if _, err := os.Stat(t.path(newDir, name+".json")); err == nil {
		return false
	}
	path, err := t.active(task.ID(name))
	return err == nil && path == ""
}

// notCommitted reports whether an announced batch was never committed.
func (t *tidying) notCommitted(name string) bool {
	_, err := os.Stat(t.path(batchesDir, name))
	return errors.Is(err, fs.ErrNotExist)
}

// forgotten reports whether all tasks of a batch were removed.
func (t *tidying) forgotten(name string) bool {
	entries, err := os.ReadDir(t.path(batchesDir, name))
	if err != nil || len(entries) != 1 { // the manifest
		return false
	}
	var m manifest
	b, err := os.ReadFile(filepath.Join(t.path(batchesDir, name), manifestFile))
	if err != nil || json.Unmarshal(b, &m) != nil {
		return false
	}
	for _, id := range m.Tasks {
		if t.there[task.ID(id)] {
			return false
		}
	}
	return true
}

// old removes what is older than a time in a directory; nothing if the time is zero.
func (t *tidying) old(dir string, before time.Time, which func(name string) bool) {
	if before.IsZero() {
		return
	}
	entries, err := os.ReadDir(t.path(dir, ""))
	t.fail(err)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && clock.Modified(info).Before(before) && (which == nil || which(e.Name())) {
			t.fail(os.RemoveAll(t.path(dir, e.Name())))
		}
	}
}
