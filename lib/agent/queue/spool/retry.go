package spool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// retriedDir has a file for each retried task, with the id of the new task. It is created before the
// new task is in new/, and only once: of two concurrent retries of a task, one wins.
const retriedDir = "retried"

// retries reports whether the tasks of a batch retry others.
func retries(batch string) bool { return strings.HasPrefix(batch, "r") }

// Retry submits tasks that retry those in RetryOf, which must have ended. All of them or none are
// submitted, except those whose RetryOf was retried before. It returns the id of the retry for each,
// and how many of them are new.
func (s *Spool) Retry(entries []queue.Entry) (queue.Batch, error) {
	if err := CheckOwner(s.Dir); err != nil {
		return queue.Batch{}, err
	}
	_ = s.Deliver()                                                    // problems with the batches of others are reported by the agent
	if err := os.MkdirAll(s.path(retriedDir, ""), 0o700); err != nil { // spools of earlier versions have none
		return queue.Batch{}, fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	b, err := s.stage("r"+uuid.NewString(), manifest{Made: s.now().UTC()}, entries, nil)
	if err != nil {
		return b, err
	}
	b.New = 0
	for i, e := range entries {
		id, err := s.Retried(e.RetryOf)
		if err != nil {
			return b, err
		}
		if id == "" || id == b.IDs[i] { // "": submitted, and not delivered yet
			b.New++
			continue
		}
		b.IDs[i] = id
	}
	return b, nil
}

// Retried returns the task that retries a task; "" if there is none.
func (s *Spool) Retried(id task.ID) (task.ID, error) {
	b, err := os.ReadFile(s.path(retriedDir, string(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	next, err := task.ParseID(strings.TrimSpace(string(b)))
	if err != nil {
		return "", fault.Errorf(fault.Unavailable, "%s: %w", s.path(retriedDir, string(id)), err)
	}
	return next, nil
}

// Latest returns the last retry of a task: the task itself, if it was not retried.
func (s *Spool) Latest(id task.ID) (task.ID, error) {
	for range 10_000 {
		next, err := s.Retried(id)
		if err != nil || next == "" {
			return id, err
		}
		id = next
	}
	return id, fault.Errorf(fault.Unavailable, "spool: task %s was retried in a circle", id)
}

// claimRetries records for each task of a batch which one it retries. Those whose task was retried
// before are removed and returned.
func (s *Spool) claimRetries(dir string, files []os.DirEntry) (lost map[string]bool, err error) {
	lost = map[string]bool{}
	claimed := false
	for _, f := range files {
		id, _ := fileParts(f.Name())
		if id == "" {
			continue
		}
		path := filepath.Join(dir, f.Name())
		e, err := s.read(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another process delivers this batch too
		}
		if err != nil {
			return nil, fault.Errorf(fault.Unavailable, "spool: %w", err)
		}
		if err := s.claimRetry(e); err != nil {
			return nil, err
		}
		winner, err := s.Retried(e.RetryOf)
		if err != nil {
			return nil, err
		}
		claimed = true
		if winner != id {
			lost[f.Name()] = true
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fault.Errorf(fault.Unavailable, "spool: %w", err)
			}
		}
	}
	if claimed { // before any of them can be run
		if err := syncAll(s.path(retriedDir, "")); err != nil {
			return nil, fault.Errorf(fault.Unavailable, "spool: %w", err)
		}
	}
	return lost, nil
}

// claimRetry creates the file of retried/, unless it exists.
func (s *Spool) claimRetry(e queue.Entry) error {
	path := s.path(retriedDir, string(e.RetryOf))
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	temp := s.path(tmpDir, "retry-"+uuid.NewString())
	err := os.WriteFile(temp, []byte(e.ID+"\n"), 0o600)
	if err == nil {
		defer os.Remove(temp)
		if err = os.Link(temp, path); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	if err != nil {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return nil
}
