package spool

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/task"
)

// retriedDir has a file for each task that was retried, with the id of the new task. It is
// made before the new task is in new/, and only once: of two retries of a task, one wins.
const retriedDir = "retried"

// retries reports whether the tasks of a batch do others again.
func retries(batch string) bool { return strings.HasPrefix(batch, "r") }

// Retry submits tasks that do others again: those of RetryOf, which must be over. All of
// them or none are submitted, but for those whose RetryOf was retried before. It returns
// the id of the task that does it again for each, and how many of them are new.
func (s *Spool) Retry(entries []Entry) (Batch, error) {
	if err := CheckOwner(s.Dir); err != nil {
		return Batch{}, err
	}
	_ = s.Deliver()                                                    // problems with the batches of others are reported by the agent
	if err := os.MkdirAll(s.path(retriedDir, ""), 0o700); err != nil { // spools of earlier versions have none
		return Batch{}, fault.Errorf(fault.Unavailable, "spool: %w", err)
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
		if id == b.IDs[i] {
			b.New++
		}
		b.IDs[i] = id
	}
	return b, nil
}

// Retried is the task that does a task again; "" if there is none.
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

// Latest is the last of the tasks that do a task again: the task itself, if none does.
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

// claimRetries notes for each task of a batch which one it does again. Those that another
// task does again already are removed and returned.
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

// claimRetry makes the file of retried/, unless it is there.
func (s *Spool) claimRetry(e Entry) error {
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
