// Package replace replaces files in one step without waiting for the disk: for state that is written
// often and found out again if it is lost. What must outlive a power failure is written by renameio,
// which waits.
package replace

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
)

// File replaces a file, or creates it. Readers see the old contents or the new, and never a part;
// after a power failure the file may be empty.
func File(path string, b []byte, mode fs.FileMode) error {
	keep, err := Stage(path, b, mode)
	if err != nil {
		return err
	}
	return keep()
}

// Stage writes the new contents of a file, and keep then replaces the file by them: a caller can wait
// for the disk in between, once for many files. The temporary file is hidden beside the file, under a
// name that ends in digits, as those of renameio do. It stays if keep is not called.
func Stage(path string, b []byte, mode fs.FileMode) (keep func() error, err error) {
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+strconv.FormatUint(rand.Uint64(), 10))
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return nil, err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, errors.Join(err, os.Remove(temporary))
	}
	return func() error {
		err := os.Rename(temporary, path)
		if err != nil {
			err = errors.Join(err, os.Remove(temporary))
		}
		return err
	}, nil
}
