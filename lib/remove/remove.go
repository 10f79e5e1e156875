// Package remove removes directory trees written by tasks, including directories without write permission
// and trees to which a killed process still writes for a moment.
package remove

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// How often and at which intervals a tree is tried again to which a process still writes.
const (
	tries    = 20
	interval = 100 * time.Millisecond
)

// All removes a file or a directory tree. It follows no links. If something cannot be removed, the
// rest is, and the error is about one of those that remain.
func All(path string) (err error) {
	for range tries {
		if err = all(path); !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
		time.Sleep(interval)
	}
	return err
}

func all(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	root, openErr := os.OpenRoot(filepath.Dir(path)) // a process that still writes may put a link to elsewhere in the place of a directory
	if openErr != nil {
		return err
	}
	defer root.Close()
	_ = fs.WalkDir(root.FS(), filepath.Base(path), func(name string, e fs.DirEntry, _ error) error {
		if e != nil && e.IsDir() {
			_ = root.Chmod(name, 0o700) // before the directory is read
		}
		return nil
	})
	return os.RemoveAll(path)
}
