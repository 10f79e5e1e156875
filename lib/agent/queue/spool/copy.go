package spool

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copyFile copies from, at its present size, to a new file. Holes in a sparse file, such as a
// preallocated database, stay holes.
func copyFile(to *os.File, from io.Reader) error {
	f, ok := from.(*os.File)
	if !ok {
		_, err := io.Copy(to, from)
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	for at := int64(0); at < info.Size(); {
		data, end, err := nextData(f, at, info.Size())
		if err != nil {
			return err
		}
		if _, err := f.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := to.Seek(data, io.SeekStart); err != nil {
			return err
		}
		if _, err := io.CopyN(to, f, end-data); err != nil {
			return err
		}
		at = end
	}
	return to.Truncate(info.Size())
}

// nextData returns the beginning and end of the next data of a file; both are size if there is none.
// Without support of the file system, the whole file is data.
func nextData(f *os.File, at, size int64) (data, end int64, err error) {
	data, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		return size, size, nil
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOTSUP):
		return at, size, nil
	case err != nil:
		return 0, 0, err
	}
	if end, err = unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE); err != nil {
		return 0, 0, err
	}
	return min(data, size), min(end, size), nil
}
