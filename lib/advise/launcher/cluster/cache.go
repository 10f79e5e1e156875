package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/base/replace"
)

// MaxAge is how long a snapshot is used, and MaxAgePartial how long one with a Note is.
const (
	MaxAge        = 5 * time.Minute
	MaxAgePartial = time.Minute
)

// Cache keeps snapshots in files, one for each key. It is optional: a file that cannot be read,
// or that others could have written, counts as missing, and a failure to write is ignored.
type Cache struct {
	Dir     string // "": no cache
	Refresh bool   // ignore what is cached
	Now     func() time.Time
}

// format changes whenever Snapshot does, so that no version reads the file of another.
const format = "lfind cluster 6\n"

// Get returns the cached snapshot for key if it is recent enough. Otherwise it calls ask and
// caches the result.
func (c Cache) Get(ctx context.Context, key string, ask func(context.Context) (*Snapshot, error)) (*Snapshot, error) {
	if c.Dir == "" {
		return ask(ctx)
	}
	sum := sha256.Sum256([]byte(key))
	path := filepath.Join(c.Dir, "cluster-"+hex.EncodeToString(sum[:8]))
	if !c.Refresh {
		if s, err := read(path); err == nil {
			limit := MaxAge
			if s.Note != "" {
				limit = MaxAgePartial
			}
			if age := c.Now().Sub(s.Time); age >= 0 && age < limit {
				return s, nil
			}
		}
	}
	s, err := ask(ctx)
	if err != nil {
		return nil, err
	}
	_ = write(path, s)
	return s, nil
}

func read(path string) (*Snapshot, error) {
	f, err := place.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	start := make([]byte, len(format))
	if _, err := io.ReadFull(f, start); err != nil || string(start) != format {
		return nil, fmt.Errorf("%s: of another version", path)
	}
	s := new(Snapshot)
	return s, json.NewDecoder(f).Decode(s)
}

// write replaces the file in one step, so that no process reads a partial one.
func write(path string, s *Snapshot) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	b := bytes.NewBufferString(format)
	if err := json.NewEncoder(b).Encode(s); err != nil {
		return err
	}
	return replace.File(path, b.Bytes(), 0o600)
}
