// Package remove removes directory trees that programs of others have written: also directories
// without write permission, and those to which a process that was killed still writes for a moment.
package remove

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
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
	if os.RemoveAll(path) == nil {
		return nil
	}
	// Whatever the first error is, directories without permissions may keep others from being removed.
	unlock(filepath.Clean(path))
	return os.RemoveAll(path)
}

// unlock makes the directories of a tree readable and writable, as far as their owner allows. Through
// os.Root, nothing outside of the tree is changed: a process that still writes may put a link in the
// place of a directory.
func unlock(path string) {
	parent, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return
	}
	defer parent.Close()
	name := filepath.Base(path)
	if info, err := parent.Lstat(name); err == nil && info.IsDir() {
		_ = parent.Chmod(name, 0o700) // fails for another user's
		unlockBelow(parent, name)
	}
}

// maxDepth is how many directories below an open one are found by their path from there: each use
// of a path takes as many steps as it has names.
const maxDepth = 64

// unlockBelow unlocks what is below a directory that is unlocked. The functions of io/fs are of no
// use here: they refuse names that are not UTF-8.
func unlockBelow(parent *os.Root, name string) {
	root, err := parent.OpenRoot(name)
	if err != nil {
		return
	}
	defer root.Close()
	for pending := []string{"."}; len(pending) > 0; {
		name := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		if strings.Count(name, "/") >= maxDepth {
			unlockBelow(root, name)
			continue
		}
		dir, err := root.OpenFile(name, os.O_RDONLY|syscall.O_DIRECTORY, 0)
		if err != nil {
			continue
		}
		for err == nil {
			var names []string
			names, err = dir.Readdirnames(1024) // ReadDir fails for all if it fails for one
			for _, below := range names {
				below = filepath.Join(name, below)
				if info, err := root.Lstat(below); err == nil && info.IsDir() {
					_ = root.Chmod(below, 0o700) // before it is read
					pending = append(pending, below)
				}
			}
		}
		dir.Close()
	}
}
