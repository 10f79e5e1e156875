package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/place"
)

// MakeOnce opens a spool, and creates it if none is remembered at this place. If it is not the
// remembered one, the error is of kind fault.Unavailable: a task that is submitted to an empty mount
// point would be hidden by the spool that is mounted later.
func MakeOnce(m place.Memory, dir string, now time.Time) (*Spool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	was, err := m.Identity(dir)
	if err != nil {
		return nil, fault.Errorf(fault.Unavailable, "remembered spools: %w", err)
	}
	if was == "" {
		s, err := Make(dir, now)
		if err == nil {
			m.Remember(dir, s.ID)
		}
		return s, err
	}
	s, err := Open(dir)
	hint := fmt.Sprintf("mount it; if spool %s is lost, remove %q", was, m.File(dir))
	switch {
	case errors.Is(err, fs.ErrPermission), fault.Is(err, fault.Usage): // it is there
		return nil, err
	case err != nil:
		return nil, fault.Hint(err, hint)
	case s.ID != was:
		return nil, fault.Hint(fault.Errorf(fault.Unavailable, "spool %q: it was spool %s, and is spool %s now", dir, was, s.ID), hint)
	}
	if err := CheckOwner(dir); err != nil {
		return nil, err
	}
	return s, nil
}
