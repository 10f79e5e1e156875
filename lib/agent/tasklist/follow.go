package tasklist

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Follow prints what was appended to a log since the last call. Each time it is published, the file
// may be a new one. It returns how many bytes have been shown.
func Follow(path string, shown int64, stdout io.Writer) (int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return shown, nil
	}
	if err == nil {
		defer f.Close()
		_, err = f.Seek(shown, io.SeekStart)
	}
	if err != nil {
		return shown, fault.Errorf(fault.Unavailable, "log: %w", err)
	}
	n, err := io.Copy(stdout, f)
	var read *fs.PathError
	if errors.As(err, &read) && read.Path == path {
		err = fault.Errorf(fault.Unavailable, "log: %w", err)
	}
	return shown + n, err
}
