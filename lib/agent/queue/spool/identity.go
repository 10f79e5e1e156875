package spool

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
)

// identityFile tells one spool from another, and from an empty mount point. It is created once, with
// the spool.
const identityFile = "spool.json"

type identity struct {
	ID   string    `json:"id"`
	Made time.Time `json:"made"`
}

var directories = []string{
	newDir, activeDir, doneDir, stopDir, logsDir, tmpDir, artifactsDir, sourcesDir, agentsDir, absentDir, batchesDir,
	undeliveredDir, retriedDir,
}

// Make opens a spool, and creates missing parts of it. Only tools that may create a new one call it:
// the first submission, and ponos-setup.
func Make(dir string, now time.Time) (*Spool, error) {
	if err := Usable(dir); err != nil {
		return nil, err
	}
	for _, d := range directories {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			return nil, unusable(dir, err)
		}
	}
	if _, err := readIdentity(dir); errors.Is(err, fs.ErrNotExist) {
		b, err := json.Marshal(identity{uuid.NewString(), now.UTC()})
		if err == nil {
			err = lock.WriteNew(filepath.Join(dir, identityFile), append(b, '\n'))
		}
		if err != nil {
			return nil, unusable(dir, err)
		}
	}
	return Open(dir)
}

// Open opens an existing spool. Its error is of kind fault.Unavailable, or fault.Usage if others can write to the spool.
func Open(dir string) (*Spool, error) {
	id, err := readIdentity(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(dir)
	}
	if err != nil {
		return nil, unusable(dir, err)
	}
	owner, err := ours(dir)
	if err != nil {
		return nil, err
	}
	return &Spool{Dir: dir, ID: id.ID, owner: owner}, nil
}

func missing(dir string) error {
	return fault.Hint(fault.Errorf(fault.Unavailable, "spool %q: it does not exist or is not mounted", dir),
		"mount it; if there has never been one, ponos-setup or the first submission creates it")
}

// Check reports an error unless the spool still exists and is the same one.
func (s *Spool) Check() error {
	id, err := readIdentity(s.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return missing(s.Dir)
	case err != nil:
		return unusable(s.Dir, err)
	case id.ID != s.ID:
		return fault.Errorf(fault.Unavailable, "spool %q: it was spool %s, and is spool %s now", s.Dir, s.ID, id.ID)
	}
	return nil
}

func readIdentity(dir string) (identity, error) {
	path := filepath.Join(dir, identityFile)
	b, err := os.ReadFile(path)
	if err != nil {
		return identity{}, err
	}
	var id identity
	if err := json.Unmarshal(b, &id); err != nil || id.ID == "" {
		return identity{}, fault.Errorf(fault.Unavailable, "%q is damaged", path)
	}
	return id, nil
}
