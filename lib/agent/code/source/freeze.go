package source

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/code/kept"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
)

// IgnoreFile has patterns, one a line, of what is not code in a directory: see kept.Matches.
const IgnoreFile = ".ponosignore"

// maxSize and maxFiles limit what is packed of a directory: more is data, or the wrong directory.
const (
	maxSize  = 200 << 20 // bytes
	maxFiles = 20_000
)

// frozen is what is packed of a directory, by paths in it.
type frozen struct {
	dir     string
	entries []string        // with directories before what is in them
	linked  map[string]bool // entries that the task gets as links to the originals
}

// Linked are the files and directories of a directory that a task gets as links to the originals: what git or IgnoreFile
// ignores, and is no cache.
func Linked(ctx context.Context, dir string) ([]string, error) {
	if dir, err := directory(dir); err == nil {
		f, err := look(ctx, dir)
		if err != nil {
			return nil, fault.Wrap(fault.Usage, fmt.Errorf("--directory: %w", err))
		}
		var names []string
		for _, name := range f.entries {
			if f.linked[name] {
				names = append(names, name)
			}
		}
		return names, nil
	}
	return nil, nil // Make says what is wrong with the directory
}

// look finds what is to be packed.
func look(ctx context.Context, dir string) (f frozen, err error) {
	f = frozen{dir: dir, linked: map[string]bool{}}
	patterns, err := patternsOf(filepath.Join(dir, IgnoreFile))
	if err != nil {
		return f, err
	}
	ignored := ignoredByGit(ctx, dir)
	var size int64
	files := 0
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		leave := error(nil)
		if d.IsDir() {
			leave = fs.SkipDir
		}
		if kept.Passing[d.Name()] {
			return leave
		}
		f.entries = append(f.entries, name)
		if ignored[name] || kept.Matches(patterns, filepath.ToSlash(name)) {
			f.linked[name] = true
			return leave
		}
		if !d.IsDir() {
			files++
		}
		if d.Type().IsRegular() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			size += info.Size()
		}
		if size > maxSize || files > maxFiles {
			return fault.Hint(
				fmt.Errorf("%s has more than %d MiB or %d files of code", task.Clean(dir), maxSize>>20, maxFiles),
				"name what is data in "+IgnoreFile+", and each task gets a link to it; or run in the directory itself: --in-place")
		}
		return nil
	})
	return f, err
}

// patternsOf reads IgnoreFile, which need not exist.
func patternsOf(file string) (patterns []string, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		if err := kept.CheckPattern(text); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		patterns = append(patterns, text)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return patterns, nil
}

// ignoredByGit are the paths in a directory that git ignores. Without git, or in no work tree, there are none.
func ignoredByGit(ctx context.Context, dir string) map[string]bool {
	out, err := command.System.Run(ctx, command.Cmd{Name: "git", Dir: dir, Env: command.Environ(), Timeout: time.Minute, Args: []string{
		"-c", "core.quotePath=false", "-c", "core.fsmonitor=false",
		"ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory",
	}})
	ignored := map[string]bool{}
	if err != nil {
		return ignored
	}
	for name := range strings.SplitSeq(string(out.Stdout), "\x00") {
		if name != "" && name != "./" { // a directory that is ignored as a whole is still what the user names
			ignored[strings.TrimSuffix(name, "/")] = true
		}
	}
	return ignored
}

// pack writes the archive.
func (f frozen) pack(t *tar.Writer) error {
	for _, name := range f.entries {
		path := filepath.Join(f.dir, name)
		if f.linked[name] {
			h := &tar.Header{Name: filepath.ToSlash(name), Typeflag: tar.TypeSymlink, Linkname: path, Mode: 0o777}
			if err := t.WriteHeader(h); err != nil {
				return err
			}
			continue
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		if err := packOne(t, f.dir, path, fs.FileInfoToDirEntry(info)); err != nil {
			return err
		}
	}
	return nil
}
