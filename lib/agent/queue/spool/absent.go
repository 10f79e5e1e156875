package spool

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
)

// absence is a file of absent/, named after a task: which of its parents is not in the spool, and how
// often that was seen.
type absence struct {
	Parent task.ID `json:"parent"`
	task.Absence
}

// parentGone counts a listing of the spool without the parent of a task, and reports whether the
// parent is gone. On NFS, a host may cache the absence of a file for a minute after another host has
// created it.
func (s *Spool) parentGone(child, parent task.ID) (bool, error) {
	var a absence
	path := s.path(absentDir, string(child))
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	if err != nil || json.Unmarshal(b, &a) != nil || a.Parent != parent {
		a = absence{Parent: parent}
	}
	before := a.Absence
	if a.Absence = a.Again(s.now().UTC()); a.Absence != before {
		if b, err = json.Marshal(a); err == nil {
			err = renameio.WriteFile(path, append(b, '\n'), 0o600, renameio.WithTempDir(s.path(tmpDir, "")))
		}
		if err != nil {
			return false, fault.Errorf(fault.Unavailable, "spool: %w", err)
		}
	}
	return a.Fact(), nil
}

// parentBack removes the record of an absent parent.
func (s *Spool) parentBack(child task.ID) error {
	if err := os.Remove(s.path(absentDir, string(child))); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return nil
}
