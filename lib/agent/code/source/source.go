// Package source makes the source of a task of what a person names: a directory as it is now, or a commit of a git
// repository, with or without what is not committed. It tells later whether that has changed.
package source

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/mitchellh/go-homedir"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// Wanted is what a person names. If all is empty, a task has no code.
type Wanted struct {
	Directory  string
	Repository string // a URL or a path
	Revision   string // a commit, tag or branch of Repository; "": HEAD
	Dirty      bool   // with what is not committed in Repository, a path
	InPlace    bool   // run in Directory itself
}

// Named is what the flags directory, repository and revision of a tool name, and dirty.
func Named(flag func(name string) string, dirty bool) Wanted {
	return Wanted{Directory: flag("directory"), Repository: flag("repository"), Revision: flag("revision"), Dirty: dirty}
}

// Check returns an error for options that cannot be combined.
func (w Wanted) Check() error {
	switch {
	case w.InPlace && w.Repository != "":
		return fault.Errorf(fault.Usage, "--in-place and --repository cannot be combined")
	case w.Repository != "" && w.Directory != "":
		return fault.Errorf(fault.Usage, "--repository and --directory cannot be combined")
	case w.Revision != "" && w.Repository == "":
		return fault.Errorf(fault.Usage, "--revision needs --repository")
	case w.Dirty && w.Repository == "":
		return fault.Errorf(fault.Usage, "--dirty needs --repository")
	case w.Dirty && w.Revision != "":
		return fault.Errorf(fault.Usage, "--dirty and --revision cannot be combined: changes are those since HEAD")
	}
	return nil
}

// Make makes a source of what is there now, and keeps archives in the spool. It returns the files that are not part of
// it, as they are not committed.
func (w Wanted) Make(ctx context.Context, s queue.Client) (made task.Source, uncommitted []string, err error) {
	if err := w.Check(); err != nil {
		return made, nil, err
	}
	switch {
	case w.InPlace:
		made.InPlace = true
		made.Directory, err = realDirectory(w.Directory)
		return made, nil, err
	case w.Directory != "":
		if made.Directory, err = directory(w.Directory); err != nil {
			return made, nil, err
		}
		f, err := look(ctx, made.Directory)
		if err != nil {
			return made, nil, fault.Wrap(fault.Usage, fmt.Errorf("--directory: %w", err))
		}
		made.Archive, err = pack(s, "--directory", f.pack)
		return made, nil, err
	case w.Repository == "":
		return made, nil, nil
	}
	made.Repository = w.Repository
	if info, err := os.Stat(w.Repository); err == nil && info.IsDir() {
		if made.Repository, err = filepath.Abs(w.Repository); err != nil {
			return made, nil, err
		}
		if err := whole(ctx, made.Repository); err != nil {
			return made, nil, err
		}
		if w.Revision == "" {
			made.Directory = made.Repository
		}
	} else if strings.HasPrefix(w.Repository, "-") {
		return made, nil, fault.Errorf(fault.Usage, "--repository: neither a URL nor a directory: %q", w.Repository)
	}
	if w.Dirty && made.Directory == "" {
		return made, nil, fault.Errorf(fault.Usage, "--dirty: %q is not a directory", task.CleanAddress(w.Repository))
	}
	made.Revision, err = resolve(ctx, made.Repository, w.Revision)
	if err != nil || made.Directory == "" {
		return made, nil, err
	}
	uncommitted, err = changes(ctx, made.Repository)
	if err == nil && w.Dirty && len(uncommitted) > 0 {
		made, err = dirty(ctx, s, made)
		uncommitted = nil
	}
	return made, uncommitted, err
}

// Uncommitted is a warning about the files that Make returns, or nil.
func Uncommitted(files []string) error {
	if len(files) == 0 {
		return nil
	}
	return fault.Hint(
		fmt.Errorf("warning: not committed, and so not part of the task: %s", task.SomeOf(files)),
		"commit it, or include it with --dirty")
}

// maxCompared is the size in bytes up to which an archive is compared with its directory, which takes a second or two.
const maxCompared = 64 << 20

// Changed reports whether what a source was made of has changed: a file of it, or the commit. New files beside it are
// often results. A source without a directory has not changed, nor has one whose directory this machine does not have;
// a large one is not compared.
func Changed(ctx context.Context, made task.Source) (bool, error) {
	dir := made.Directory
	if _, err := os.Stat(dir); dir == "" || made.InPlace || err != nil {
		return false, nil
	}
	if made.Repository != "" {
		head, err := resolve(ctx, dir, "")
		if err != nil || head != made.Revision {
			return err == nil, err
		}
		if made.Archive == "" {
			edited, err := git(ctx, dir, "status", "--porcelain", "-z", "--untracked-files=no")
			return edited != "", err
		}
		if dir, err = workTree(ctx, dir); err != nil {
			return false, err
		}
	}
	f, err := os.Open(made.Archive)
	if err != nil {
		return false, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() > maxCompared {
		return false, err
	}
	z, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return false, err
	}
	for archive := tar.NewReader(z); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if same, err := unchanged(filepath.Join(dir, filepath.FromSlash(h.Name)), h, archive); err != nil || !same {
			return err == nil, err
		}
	}
}

// unchanged compares a file with an entry of an archive.
func unchanged(name string, h *tar.Header, content io.Reader) (bool, error) {
	info, err := os.Lstat(name)
	switch {
	case h.Typeflag == tar.TypeSymlink && h.Linkname == name: // the task has a link to it
		return err == nil, nil
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		return false, nil
	case err != nil:
		return false, err
	case info.Mode().Type() != h.FileInfo().Mode().Type():
		return false, nil
	case h.Typeflag == tar.TypeSymlink:
		to, err := os.Readlink(name)
		return to == h.Linkname, err
	case h.Typeflag != tar.TypeReg || h.Size == 0: // the shell has made an empty one for the output of the submission
		return true, nil
	case info.Size() != h.Size || info.Mode().Perm() != h.FileInfo().Mode().Perm():
		return false, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer f.Close()
	was, is := sha256.New(), sha256.New()
	if _, err := io.Copy(was, content); err != nil {
		return false, err
	}
	_, err = io.Copy(is, f)
	return bytes.Equal(was.Sum(nil), is.Sum(nil)), err
}

// resolve turns a revision into a commit, so that the task runs what is there now.
// One that the repository does not name, such as the hash of a commit, stays.
func resolve(ctx context.Context, repository, revision string) (string, error) {
	if len(revision) == 40 && strings.Trim(revision, "0123456789abcdef") == "" {
		return revision, nil
	}
	if strings.HasPrefix(revision, "-") {
		return "", fault.Errorf(fault.Usage, "--revision: no commit, tag or branch %q", revision)
	}
	want := revision
	if want == "" {
		want = "HEAD"
	}
	if filepath.IsAbs(repository) { // here, abbreviated hashes are understood too
		if _, err := os.Stat(repository); err != nil {
			return "", fault.Errorf(fault.Usage, "--repository: %w", err)
		}
		out, err := command.System.Run(ctx, command.Cmd{Name: "git", Dir: repository, Env: command.Environ(), Timeout: time.Minute,
			Args: []string{"rev-parse", "--verify", "--quiet", "--end-of-options", want + "^{commit}"}})
		if err != nil {
			var ran *command.ExitError
			if !errors.As(err, &ran) {
				return "", fmt.Errorf("--repository %q: %w", repository, err)
			}
			return "", fault.Hint(fault.Errorf(fault.Usage, "--repository %q has no commit %q", repository, want),
				"create one with git commit, or use --directory, which needs no git")
		}
		return strings.TrimSpace(string(out.Stdout)), nil
	}
	address, options, secrets := environment.Login(repository)
	out, err := command.System.Run(ctx, command.Cmd{
		Name: "git", Args: append(options, "ls-remote", "--", address, want, want+"^{}"), Timeout: 2 * time.Minute,
		Dir: "/", // the configuration of a repository in the current directory can name programs
		Env: append(append(command.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=https:http:ssh:git:file"), secrets...),
	})
	if err != nil {
		return "", fault.Errorf(fault.Unavailable, "--repository: %w", err)
	}
	switch commit := commitOf(string(out.Stdout), want); {
	case commit != "":
		return commit, nil
	case revision == "":
		return "", fault.Errorf(fault.Usage, "--repository %q has no HEAD", task.CleanAddress(repository))
	}
	return revision, nil
}

// commitOf finds the commit of a revision in what git ls-remote prints: a line of a hash, a tab and the
// name of a reference for each whose name ends with the revision. "": there is none.
func commitOf(out, revision string) string {
	hashes := map[string]string{}
	for line := range strings.Lines(out) {
		if hash, reference, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t"); ok {
			hashes[reference] = hash
		}
	}
	for _, in := range []string{"", "refs/", "refs/tags/", "refs/heads/", "refs/remotes/"} { // as git rev-parse searches
		// An annotated tag is an object of its own, and ^{} its commit.
		if hash := cmp.Or(hashes[in+revision+"^{}"], hashes[in+revision]); hash != "" {
			return hash
		}
	}
	return ""
}

// realDirectory is the absolute path of a directory, without links.
func realDirectory(dir string) (string, error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fault.Errorf(fault.Usage, "--directory: %q does not exist", dir)
	}
	if err != nil {
		return "", fault.Errorf(fault.Usage, "--directory: %w", err)
	}
	if !info.IsDir() {
		return "", fault.Errorf(fault.Usage, "--directory %q is not a directory", dir)
	}
	if dir, err = filepath.EvalSymlinks(dir); err == nil { // WalkDir does not follow a link
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return "", fault.Errorf(fault.Usage, "--directory: %w", err)
	}
	return dir, nil
}

// directory is the path of a directory that can be packed.
func directory(dir string) (string, error) {
	dir, err := realDirectory(dir)
	if err != nil {
		return "", err
	}
	home, err := homedir.Dir()
	if err == nil {
		home, err = filepath.EvalSymlinks(home)
	}
	if dir == "/" || err == nil && dir == home {
		return "", fault.Hint(
			fault.Errorf(fault.Usage, "--directory: %s as a whole is not the code of a task", dir), "name the directory that has the code")
	}
	return dir, nil
}

// pack puts an archive into the spool. The same contents give the same file, so that
// tasks of one directory share an environment.
func pack(s queue.Client, flag string, fill func(*tar.Writer) error) (string, error) {
	return keep(s, ".tar.gz", func(w io.Writer) error {
		z := gzip.NewWriter(w)
		t := tar.NewWriter(z)
		if err := fill(t); err != nil {
			return fault.Errorf(fault.Usage, "%s: %w", flag, err)
		}
		return errors.Join(t.Close(), z.Close())
	})
}

// keep puts a file into the spool, under the hash of its contents: its name is known only when it
// has been written.
func keep(s queue.Client, suffix string, fill func(io.Writer) error) (string, error) {
	f, err := os.CreateTemp(s.TempDir(), "source-*")
	if err != nil {
		return "", fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	sum := sha256.New()
	if err := fill(io.MultiWriter(f, sum)); fault.Is(err, fault.Usage) {
		return "", err
	} else if err := errors.Join(err, f.Sync()); err != nil {
		return "", fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	path := s.SourcePath(hex.EncodeToString(sum.Sum(nil)), suffix)
	if err := os.Rename(f.Name(), path); err != nil {
		return "", fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	return filepath.Abs(path)
}

func packOne(t *tar.Writer, dir, name string, d fs.DirEntry) error {
	relative, err := filepath.Rel(dir, name)
	if err != nil {
		return err
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	h := &tar.Header{Name: filepath.ToSlash(relative), Mode: int64(info.Mode().Perm())}
	switch {
	case d.IsDir():
		h.Typeflag, h.Name = tar.TypeDir, h.Name+"/"
		return t.WriteHeader(h)
	case d.Type()&fs.ModeSymlink != 0:
		h.Typeflag = tar.TypeSymlink
		if h.Linkname, err = os.Readlink(name); err != nil {
			return err
		}
		return t.WriteHeader(h)
	case !d.Type().IsRegular():
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, info.Size()
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	if _, err = io.CopyN(t, f, info.Size()); err != nil {
		return fmt.Errorf("%s: it changed while it was read: %w", name, err)
	}
	return nil
}
