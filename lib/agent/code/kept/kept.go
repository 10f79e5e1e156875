// Package kept keeps what a task has created or changed in its working directory, which is a copy of its code.
package kept

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/ponos-tools/ponos/lib/base/remove"
)

// None is the only pattern of a task of which nothing is kept.
const None = "none"

// Passing are names of what git, Python and editors leave behind: neither code nor result.
var Passing = map[string]bool{
	".git": true, "__pycache__": true, ".venv": true, "venv": true, ".mypy_cache": true, ".pytest_cache": true,
	"node_modules": true,
}

// MaxFiles limits how many files of a task are kept.
const MaxFiles = 100_000

// CheckPattern returns an error for a pattern that is none of path.Match.
func CheckPattern(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
		return fmt.Errorf("invalid pattern %q: expected one such as '*.pt' or results", pattern)
	}
	return nil
}

// Plan is what is kept of a working directory, by paths in it.
type Plan struct {
	Files []string // sorted
	Size  int64    // bytes
	Left  []string // for which there is no room; sorted
	Odd   []string // pipes, sockets and devices, which cannot be kept; sorted

	work string
	keep map[string]bool // Files, and the directories that lead to them
}

// walk is the state of New.
type walk struct {
	code     string
	patterns []string
	sizes    map[string]int64
	odd      []string
}

// New looks at what a task has written to work: files and links that code, of which work is a copy, does not have, or has with
// other contents. code "": it is not known, and all counts. Of the files that match one of the patterns, or
// of all if there are none, the smallest are kept that have together at most limit bytes. A pattern is that of a path in work,
// of a directory in it, or of a name. If there is no directory work, the plan is empty.
func New(work, code string, patterns []string, limit int64) (Plan, error) {
	p := Plan{work: work, keep: map[string]bool{}}
	info, err := os.Lstat(work)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return p, nil // the task has removed it, or put something in its place
	}
	if err != nil {
		return p, err
	}
	w := walk{code: code, patterns: patterns, sizes: map[string]int64{}}
	if limit > 0 && !slices.Contains(patterns, None) {
		if err := w.directory(work, "."); err != nil {
			return p, err
		}
	}
	bySize := slices.SortedFunc(maps.Keys(w.sizes), func(a, b string) int {
		return cmp.Or(cmp.Compare(w.sizes[a], w.sizes[b]), cmp.Compare(a, b))
	})
	for _, name := range bySize {
		if p.Size+w.sizes[name] > limit || len(p.Files) == MaxFiles {
			p.Left = append(p.Left, name)
			continue
		}
		p.Size += w.sizes[name]
		p.Files = append(p.Files, name)
		for ; !p.keep[name]; name = path.Dir(name) {
			p.keep[name] = true
		}
	}
	slices.Sort(p.Files)
	slices.Sort(p.Left)
	p.Odd = slices.Sorted(slices.Values(w.odd))
	return p, nil
}

// directory adds the files of a directory and of those in it. What cannot be read is a file of others, and stays away.
func (w *walk) directory(work, name string) error {
	entries, err := os.ReadDir(filepath.Join(work, name))
	if errors.Is(err, fs.ErrPermission) && os.Chmod(filepath.Join(work, name), 0o700) == nil { //nolint:gosec // a directory
		entries, err = os.ReadDir(filepath.Join(work, name))
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		inner := path.Join(name, e.Name())
		info, err := e.Info()
		switch {
		case Passing[e.Name()] || errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		case info.IsDir():
			if err := w.directory(work, inner); err != nil {
				return err
			}
		case len(w.patterns) > 0 && !Matches(w.patterns, inner):
		case !info.Mode().IsRegular() && info.Mode().Type() != fs.ModeSymlink:
			w.odd = append(w.odd, inner)
		default:
			same, err := w.same(filepath.Join(work, inner), inner, info)
			if err != nil {
				return err
			}
			if !same {
				w.sizes[inner] = info.Size()
			}
		}
	}
	return nil
}

// Matches reports whether one of some patterns is that of a path, of a directory that it is in, or of the name of one of these.
func Matches(patterns []string, name string) bool {
	for ; name != "."; name = path.Dir(name) {
		for _, pattern := range patterns {
			whole, _ := path.Match(path.Clean(pattern), name) // it was checked
			base, _ := path.Match(path.Clean(pattern), path.Base(name))
			if whole || base {
				return true
			}
		}
	}
	return false
}

// same reports whether the code has a file with the same contents. A file that cannot be read is not the same.
func (w *walk) same(file, name string, info fs.FileInfo) (bool, error) {
	if w.code == "" {
		return false, nil
	}
	original := filepath.Join(w.code, name)
	before, err := os.Lstat(original)
	if err != nil || before.Mode().Type() != info.Mode().Type() || before.Size() != info.Size() {
		return false, nil //nolint:nilerr // code that has gone has no such file
	}
	if info.Mode().Type() == fs.ModeSymlink {
		was, err := os.Readlink(original)
		if err != nil {
			return false, nil //nolint:nilerr // as above
		}
		is, err := os.Readlink(file)
		return was == is, err
	}
	a, err := os.Open(original)
	if err != nil {
		return false, nil //nolint:nilerr // as above
	}
	defer a.Close()
	b, err := os.Open(file)
	if err != nil {
		return false, nil //nolint:nilerr // the task has taken its own right away
	}
	defer b.Close()
	was, is := make([]byte, 64<<10), make([]byte, 64<<10)
	for {
		n, errA := io.ReadFull(a, was)
		m, errB := io.ReadFull(b, is)
		if !bytes.Equal(was[:n], is[:m]) {
			return false, nil
		}
		if errA != nil || errB != nil {
			ended := func(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
			if !ended(errA) || !ended(errB) {
				return false, errors.Join(errA, errB)
			}
			return true, nil
		}
	}
}

// Move makes the working directory, without what is not kept, the directory to; if nothing is kept, it
// removes it. Nothing is copied within a file system. What is there already is of an earlier run of the
// task, and is kept as to.1. It can be repeated after it was interrupted.
func (p Plan) Move(to string) error {
	if len(p.Files) == 0 {
		_ = remove.All(p.work) // what cannot be removed stays
		return nil
	}
	if err := p.prune("."); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if _, err := os.Lstat(to); err == nil {
		if err := p.aside(to); err != nil {
			return err
		}
	}
	_ = os.Chmod(p.work, 0o700)  //nolint:gosec // a directory; the task may have taken away the right to move it
	err := os.Rename(p.work, to) //nolint:forbidigo // a directory moves
	if errors.Is(err, syscall.EXDEV) {
		return p.copy(to)
	}
	return err
}

// copy is Move to another file system.
func (p Plan) copy(to string) error {
	unfinished := to + ".new"
	if err := remove.All(unfinished); err != nil {
		return err
	}
	if err := os.CopyFS(unfinished, os.DirFS(p.work)); err != nil {
		return err
	}
	if err := os.Rename(unfinished, to); err != nil { //nolint:forbidigo // a directory moves
		return err
	}
	return remove.All(p.work)
}

// aside gives what has a name the first one that is free.
func (p Plan) aside(to string) error {
	for n := 1; ; n++ {
		free := fmt.Sprintf("%s.%d", to, n)
		if _, err := os.Lstat(free); errors.Is(err, fs.ErrNotExist) {
			return os.Rename(to, free) //nolint:forbidigo // a directory moves
		} else if err != nil {
			return err
		}
	}
}

// prune removes what is not kept. What cannot be removed, such as a file of root, stays.
func (p Plan) prune(name string) error {
	entries, err := os.ReadDir(filepath.Join(p.work, name))
	if err != nil {
		return err
	}
	for _, e := range entries {
		inner := path.Join(name, e.Name())
		switch {
		case !p.keep[inner]:
			_ = remove.All(filepath.Join(p.work, inner))
		case e.IsDir():
			if err := p.prune(inner); err != nil {
				return err
			}
		}
	}
	return nil
}
