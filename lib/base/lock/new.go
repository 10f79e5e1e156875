package lock

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteNew creates a file with its contents atomically, unless it exists, which is success: of
// several concurrent calls, one creates the file, also on NFS. The contents are on disk when it
// returns.
func WriteNew(path string, contents []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(contents)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return errors.Join(err, os.Remove(f.Name()))
}
