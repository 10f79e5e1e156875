package source

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// git runs git in a repository, without a configuration that changes what it prints.
func git(ctx context.Context, repository string, args ...string) (string, error) {
	args = append([]string{"-c", "core.quotePath=false", "-c", "core.fsmonitor=false"}, args...)
	out, err := command.System.Run(ctx, command.Cmd{
		Name: "git", Dir: repository, Env: command.Environ(), Args: args, Timeout: 10 * time.Minute,
	})
	if err != nil {
		return "", fault.Errorf(fault.Usage, "--repository: %w", err)
	}
	return string(out.Stdout), nil
}

// changes are the files of a work tree that differ from HEAD, or are new and not ignored.
// A bare repository has none.
func changes(ctx context.Context, repository string) ([]string, error) {
	inside, err := git(ctx, repository, "rev-parse", "--is-inside-work-tree")
	if err != nil || strings.TrimSpace(inside) != "true" {
		return nil, err
	}
	out, err := git(ctx, repository, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal")
	return changed(out), err
}

// changed reads the names that git status prints, each behind its state and before a zero byte.
func changed(status string) (names []string) {
	for line := range strings.SplitSeq(status, "\x00") {
		if len(line) > 3 {
			names = append(names, line[3:])
		}
	}
	return names
}

// committed is the mode of a file or directory of the last commit of a repository on this machine, as git writes it; "": the
// commit does not have it. The path is relative to the directory of the repository.
func committed(ctx context.Context, repository, name string) (mode string, err error) {
	out, err := git(ctx, repository, "ls-tree", "-z", "HEAD", "--", filepath.Clean(name))
	mode, _, _ = strings.Cut(out, " ")
	return mode, err
}

// whole is an error if a directory is only a part of a work tree: git clones none.
func whole(ctx context.Context, dir string) error {
	up, err := git(ctx, dir, "rev-parse", "--show-cdup")
	if up = strings.TrimSuffix(up, "\n"); err != nil || up == "" {
		return nil // what is no repository is refused later
	}
	top := filepath.Join(dir, up)
	return fault.Hint(
		fault.Errorf(fault.Usage, "--repository: %s is a part of the repository %s", task.Clean(dir), task.Clean(top)),
		"give --repository "+shell.Quote(top)+", and paths from there: tasks run in it; or --directory, for this directory alone")
}

// dirty makes an archive of a work tree as it is: files that git knows, and new ones that
// it does not ignore. What they differ by from HEAD is kept beside it.
func dirty(ctx context.Context, s queue.Client, source task.Source) (task.Source, error) {
	dir, err := workTree(ctx, source.Repository)
	if err != nil {
		return source, err
	}
	names, err := files(ctx, dir)
	if err != nil {
		return source, err
	}
	source.Archive, err = pack(s, "--dirty", func(t *tar.Writer) error { return packFiles(t, dir, names) })
	if err != nil {
		return source, err
	}
	// As text: git apply makes of HEAD what was submitted, but for files that are new. The options are
	// those that a user's configuration may have changed.
	patch, err := git(ctx, dir, "diff", "--binary", "--no-color", "--no-ext-diff", "--no-textconv",
		"--src-prefix=a/", "--dst-prefix=b/", "--unified=3", "HEAD")
	if err != nil {
		return source, err
	}
	source.Patch, err = keep(s, ".patch", func(w io.Writer) error {
		_, err := io.WriteString(w, patch)
		return err
	})
	return source, err
}

// workTree is the work tree that a directory belongs to.
func workTree(ctx context.Context, dir string) (string, error) {
	top, err := git(ctx, dir, "rev-parse", "--show-toplevel")
	return strings.TrimSuffix(top, "\n"), err
}

// files are those of a work tree that git knows, and new ones that it does not ignore.
func files(ctx context.Context, dir string) ([]string, error) {
	known, err := git(ctx, dir, "ls-files", "-z", "--stage", "-t")
	if err != nil {
		return nil, err
	}
	fresh, err := git(ctx, dir, "ls-files", "-z", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	return listed(known, fresh, func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err == nil
	})
}

// listed reads what git ls-files prints of the files that git knows, and of new ones. Those that a tool
// cannot take along are an error.
func listed(known, fresh string, exists func(name string) bool) ([]string, error) {
	var names []string
	for entry := range strings.SplitSeq(known, "\x00") {
		status, name, _ := strings.Cut(entry, "\t") // such as "H 100644 HASH 0"
		if name == "" {                             // behind the last one
			continue
		}
		tag, mode, _ := strings.Cut(status, " ")
		const submodule = "160000 "
		switch {
		case strings.HasPrefix(mode, submodule):
			return nil, fault.Errorf(fault.Usage, "--dirty: %q is a submodule, which is not included", task.Clean(name))
		case tag == "S" && !exists(name):
			return nil, fault.Errorf(fault.Usage, "--dirty: %q is not in the work tree, which is sparse", task.Clean(name))
		}
		names = append(names, name)
	}
	for name := range strings.SplitSeq(fresh, "\x00") {
		switch {
		case name == "": // behind the last one
			continue
		case strings.HasSuffix(name, "/"):
			return nil, fault.Errorf(fault.Usage, "--dirty: %q is another repository, which is not included", task.Clean(name))
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// packFiles packs files of a directory. Those that are not there were removed, or replaced by a directory.
func packFiles(t *tar.Writer, dir string, names []string) error {
	for _, n := range names {
		path := filepath.Join(dir, n)
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && info.IsDir() {
			continue
		}
		if err != nil {
			return err
		}
		if err := packOne(t, dir, path, fs.FileInfoToDirEntry(info)); err != nil {
			return err
		}
	}
	return nil
}
