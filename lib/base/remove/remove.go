// Package remove removes directory trees written by tasks, including directories without write permission
// and trees to which a killed process still writes for a moment.
package remove

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// How often and at which intervals a tree is tried again to which a process still writes.
const (
	tries    = 20
	interval = 100 * time.Millisecond
)

// All removes a file or a directory tree. It follows no links, and does not enter what is mounted in
// the tree. If something cannot be removed, the rest is, and the error is about one of those that
// remain.
func All(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // now, though a process may make it again
	}
	if err != nil || !info.IsDir() || filepath.Base(path) == "." { // which it refuses
		return os.RemoveAll(path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return around(real, mounts())
}

var errMounted = errors.New("a file system is mounted there")

// around removes what is not mounted.
func around(path string, mounted []string) (err error) {
	if slices.Contains(mounted, path) {
		return &fs.PathError{Op: "remove", Path: path, Err: errMounted}
	}
	if !slices.ContainsFunc(mounted, func(m string) bool { return strings.HasPrefix(m, path+"/") }) {
		return settled(path)
	}
	_ = os.Chmod(path, 0o700) //nolint:gosec // a directory; it fails for that of another user
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		err = cmp.Or(around(filepath.Join(path, name), mounted), err)
	}
	return err
}

// mounts returns where file systems are mounted; none where that is not known.
func mounts() (paths []string) {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			paths = append(paths, unescape.Replace(fields[4]))
		}
	}
	return paths
}

// unescape reverts what the kernel does to paths in mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// settled removes a tree to which a process may still write for a moment.
func settled(path string) (err error) {
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
	// Whatever the first error is, directories without permissions may keep others from being removed,
	// and there may be more directories in each other than files that may be open.
	unlock(path)
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

// unlockBelow unlocks what is below a directory that is unlocked, and removes what is far below it. The
// functions of io/fs are of no use here: they refuse names that are not UTF-8.
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
			_ = root.RemoveAll(name) // which has a file open for each directory above another
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
