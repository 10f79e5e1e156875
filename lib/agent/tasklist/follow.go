package tasklist

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Tail returns where the last n lines of a log begin, in bytes; 0 if there is no log.
func Tail(path string, n int) (int64, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fault.Errorf(fault.Unavailable, "log: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return 0, fault.Errorf(fault.Unavailable, "log: %w", err)
	}
	part := make([]byte, 64<<10)
	end := info.Size()
	for last := true; end > 0; {
		begin := max(0, end-int64(len(part)))
		b := part[:end-begin]
		if _, err := f.ReadAt(b, begin); err != nil {
			return 0, fault.Errorf(fault.Unavailable, "log: %w", err)
		}
		for i := len(b) - 1; i >= 0; i-- {
			if b[i] == '\n' && !last { // the last byte ends the last line
				if n--; n == 0 {
					return begin + int64(i) + 1, nil
				}
			}
			last = false
		}
		end = begin
	}
	return 0, nil
}

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
