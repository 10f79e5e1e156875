package remove

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A tree without permissions is removed, and what its links lead to stays.
func TestAll(t *testing.T) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	outside, tree := filepath.Join(dir, "outside"), filepath.Join(dir, "tree")
	must(os.WriteFile(outside, nil, 0o600))
	must(os.MkdirAll(filepath.Join(tree, "a", "b"), 0o700))
	must(os.Symlink(dir, filepath.Join(tree, "a", "b", "link")))
	must(os.Link(outside, filepath.Join(tree, "a", "b", "hard")))
	must(os.Chmod(filepath.Join(tree, "a", "b"), 0o500))
	must(os.Chmod(filepath.Join(tree, "a"), 0))
	if os.Getuid() == 0 { // which needs no permissions
		const nobody = 65534
		must(filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error { return os.Lchown(path, nobody, nobody) }))
		must(os.Chmod(filepath.Dir(dir), 0o755))
		runtime.LockOSThread() // the thread ends with the goroutine of the test
		must(syscall.Setfsuid(nobody))
		defer func() { must(syscall.Setfsuid(0)) }()
	}
	must(All(tree))
	if _, err := os.Lstat(tree); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := os.Lstat(outside); err != nil {
		t.Error(err)
	}
	must(All(tree)) // nothing is there
}

// TestRemoveWhileWritten removes a directory in which others make files without a
// pause, for a while.
func TestRemoveWhileWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "left")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	end := time.Now().Add(300 * time.Millisecond)
	for w := range 4 {
		writers.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				_ = os.MkdirAll(filepath.Join(dir, "sub", strconv.Itoa(w)+"-"+strconv.Itoa(i)), 0o700)
			}
		})
	}
	var err error
	for time.Now().Before(end) && err == nil {
		err = All(dir)
	}
	writers.Wait()
	if err != nil {
		t.Error(err)
	}
}
