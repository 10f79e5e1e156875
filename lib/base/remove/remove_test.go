package remove

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/needs"
)

// give makes a temporary directory that of an unprivileged user, and has the test act as this user from
// now on: root needs no permissions.
func give(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		return
	}
	const nobody = 65534
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for pending := []string{"."}; len(pending) > 0 && err == nil; {
		name := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		err = root.Lchown(name, nobody, nobody)
		if info, statErr := root.Lstat(name); statErr == nil && info.IsDir() {
			f, openErr := root.Open(name)
			err = errors.Join(err, openErr)
			names, readErr := f.Readdirnames(-1)
			err = errors.Join(err, readErr, f.Close())
			for _, n := range names {
				pending = append(pending, filepath.Join(name, n))
			}
		}
	}
	runtime.LockOSThread() // the thread ends with the goroutine of the test
	err = errors.Join(err, os.Chmod(filepath.Dir(dir), 0o755), syscall.Setfsuid(nobody))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setfsuid(0); err != nil {
			t.Error(err)
		}
	})
}

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
	give(t, dir)
	must(All(tree))
	if _, err := os.Lstat(tree); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if _, err := os.Lstat(outside); err != nil {
		t.Error(err)
	}
	must(All(tree)) // nothing is there
}

// Neither the names of directories nor their depth keep a tree without permissions from being removed.
func TestAllWhateverItsNames(t *testing.T) {
	for what, sub := range map[string]string{
		"ASCII":     "bad",
		"not UTF-8": "bad\377",
		"deep":      strings.Repeat(strings.Repeat("x", 200)+"/", 300) + "bad",
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			tree := filepath.Join(dir, "tree")
			root, err := os.OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer root.Close()
			name := filepath.Join("tree", sub, "sub")
			err = errors.Join(root.MkdirAll(name, 0o700), root.WriteFile(filepath.Join(name, "file\n"), nil, 0o600))
			if err = errors.Join(err, root.Chmod(name, 0o500)); err != nil {
				t.Fatal(err)
			}
			give(t, dir)
			if err := All(tree + "/"); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(tree); !errors.Is(err, fs.ErrNotExist) {
				t.Error(err)
			}
		})
	}
}

// A tree may be deeper than a process can open files.
func TestAllWithFewFiles(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := root.MkdirAll("tree/"+strings.Repeat("d/", 3000)+"d", 0o700); err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := syscall.Rlimit{Cur: 256, Max: limit.Max}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	if err := All(filepath.Join(dir, "tree")); err != nil {
		t.Error(err.Error()[max(0, len(err.Error())-100):])
	}
}

// A link that cannot be removed, as its directory is another user's, does not lead to what it names.
func TestAllOfALink(t *testing.T) {
	parent := t.TempDir()
	dir := filepath.Join(parent, "dir")
	target := filepath.Join(dir, "target")
	err := errors.Join(os.MkdirAll(target, 0o700), os.Symlink("target", filepath.Join(dir, "link")), os.Chmod(target, 0o500), os.Chmod(dir, 0o500))
	if err != nil {
		t.Fatal(err)
	}
	give(t, parent)
	defer os.Chmod(dir, 0o700)
	if err := All(filepath.Join(dir, "link")); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
	if info, err := os.Stat(target); err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("%v, %v", info, err)
	}
}

// What is mounted in a tree is not part of it: it may be a file system of another machine.
func TestAllAroundAMount(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	tree := filepath.Join(link, "tree")
	mount := filepath.Join(tree, "a", "a mount")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink(".", link))
	must(errors.Join(os.MkdirAll(mount, 0o700), os.MkdirAll(filepath.Join(tree, "b", "c"), 0o700), os.MkdirAll(filepath.Join(tree, "a", "a m"), 0o700)))
	needs.Mount(t, mount, "tmpfs", 0, "")
	must(os.WriteFile(filepath.Join(mount, "file"), nil, 0o600))
	must(os.Chmod(filepath.Join(tree, "a"), 0o500))
	for range 2 {
		if err := All(tree); err == nil || !strings.HasSuffix(err.Error(), "/tree/a/a mount: a file system is mounted there") {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Join(mount, "file")); err != nil {
			t.Error(err)
		}
		left, err := os.ReadDir(tree)
		if below, _ := os.ReadDir(filepath.Join(tree, "a")); err != nil || len(left) != 1 || len(below) != 1 {
			t.Errorf("%v, %v, %v", left, below, err)
		}
	}
	must(syscall.Unmount(mount, 0))
	must(All(tree))
	if _, err := os.Lstat(tree); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
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
