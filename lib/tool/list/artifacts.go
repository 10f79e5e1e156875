package list

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/agent/tasklist"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// artifacts makes a directory with a link for each task that has artifacts, by its name, and
// prints the links.
func (l *listing) artifacts(dir string, out *bufio.Writer, found []spool.Summary) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fault.Errorf(fault.Usage, "--artifacts: %w", err)
	}
	count := map[string]int{}
	for _, s := range found {
		count[fileName(s.Slug)]++
	}
	var errs []error
	for _, s := range found {
		from, err := filepath.Abs(l.spool.Artifacts(s.ID))
		if err != nil {
			return err
		}
		if _, err := os.Stat(from); errors.Is(err, fs.ErrNotExist) {
			continue
		}
		name := fileName(s.Slug)
		if count[name] > 1 {
			name += "." + tasklist.Short(s.ID)
		}
		path := filepath.Join(dir, name)
		if err := link(from, path); err != nil {
			errs = append(errs, fmt.Errorf("--artifacts: %w", err))
			continue
		}
		_, _ = out.WriteString(app.Sanitize(path) + "\n") // Flush tells
	}
	return errors.Join(errs...)
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
