package list

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// artifacts makes a directory with links for each task that has artifacts or kept files, by its name, and
// prints the links.
func (l *listing) artifacts(dir string, out *bufio.Writer, found []queue.Summary) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fault.Errorf(fault.Usage, "--artifacts: %w", err)
	}
	count := map[string]int{}
	for _, s := range found {
		count[fileName(s.Slug)]++
	}
	var errs []error
	err := l.places(found, func(s queue.Summary, ending, from string) error {
		name := fileName(s.Slug)
		if count[name] > 1 {
			name += "." + s.ID.Short()
		}
		path := filepath.Join(dir, name+ending)
		if err := link(from, path); err != nil {
			errs = append(errs, fmt.Errorf("--artifacts: %w", err))
			return nil
		}
		l.printPath(out, path)
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// places calls do with each directory that has files of a task: that of its artifacts, and with the ending ".files" that of
// what was kept of its working directory.
func (l *listing) places(found []queue.Summary, do func(s queue.Summary, ending, dir string) error) error {
	for _, s := range found {
		dirs := map[string]string{"": l.spool.Artifacts(s.ID)}
		if e, err := l.spool.Read(s); err == nil && s.State.Final() && e.Kept != "" {
			dirs[".files"] = e.Kept
		}
		for _, ending := range slices.Sorted(maps.Keys(dirs)) {
			dir, err := filepath.Abs(dirs[ending])
			if err != nil {
				return err
			}
			if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err := do(s, ending, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// files prints the paths of the files of tasks.
func (l *listing) files(out *bufio.Writer, found []queue.Summary) error {
	return l.places(found, func(_ queue.Summary, _, dir string) error {
		return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				l.printPath(out, path)
			}
			return err
		})
	})
}

// printPath prints a path, which a task has chosen, in a line of its own: with characters that are not printed, quoted as by git. With
// --null, it is unchanged, and NUL ends it.
func (l *listing) printPath(out *bufio.Writer, path string) {
	switch {
	case l.c.Bool("null"):
		path += "\x00"
	case app.Sanitize(path) != path || path[0] == '"':
		path = strconv.Quote(path) + "\n"
	default:
		path += "\n"
	}
	_, _ = out.WriteString(path) // Flush tells
}

// link makes a symbolic link, in the place of another one but of nothing else.
func link(from, path string) error {
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&fs.ModeSymlink == 0 {
		return fmt.Errorf("%s exists and is not a link", path)
	}
	if err == nil {
		if to, err := os.Readlink(path); err == nil && to == from {
			return nil
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return os.Symlink(from, path)
}

// fileName is a name of a task as one of a file, in this directory and not hidden.
func fileName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '/' || unicode.IsControl(r) {
			return '-'
		}
		return r
	}, name)
	if name == "" || name[0] == '.' {
		name = "_" + name
	}
	return strings.ToValidUTF8(name[:min(len(name), 200)], "") // without a part of a character
}
