package spool

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/fault"
)

// Memory is a directory in which the tools of a user remember which spool is where: a
// task that is submitted to an empty mount point would be hidden by the spool that is
// mounted later.
type Memory struct{ Dir string }

func (m Memory) file(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(m.Dir, hex.EncodeToString(sum[:8]))
}

// Make opens a spool, and makes it if none is remembered at this place. Another one than
// that which is remembered is an error of kind fault.Unavailable.
func (m Memory) Make(dir string, now time.Time) (*Spool, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(m.file(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fault.Errorf(fault.Unavailable, "remembered spools: %w", err)
	}
	was, _, _ := strings.Cut(string(b), " ")
	if was == "" {
		s, err := Make(dir, now)
		if err == nil {
			m.Remember(s)
		}
		return s, err
	}
	s, err := Open(dir)
	hint := fmt.Sprintf("mount it; if spool %s is lost, remove %q", was, m.file(dir))
	switch {
	case err != nil:
		return nil, fault.Hint(err, hint)
	case s.ID != was:
		return nil, fault.Hint(fault.Errorf(fault.Unavailable, "spool %q: it was spool %s, and is spool %s now", dir, was, s.ID), hint)
	}
	return s, nil
}

// Remember notes that a spool is where it is. Without the note, a submission makes a spool
// where there is none, as the first one does.
func (m Memory) Remember(s *Spool) {
	if dir, err := filepath.Abs(s.Dir); err == nil && os.MkdirAll(m.Dir, 0o700) == nil {
		_ = renameio.WriteFile(m.file(dir), []byte(s.ID+" "+dir+"\n"), 0o600, renameio.WithTempDir(m.Dir))
	}
}
