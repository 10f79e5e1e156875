package submit

import (
	"archive/tar"
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
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
)

// slug names a task after what it runs.
func slug(e spool.Entry) string {
	switch {
	case len(e.Command) > 0:
		return path.Base(e.Command[0])
	case e.Worker != "":
		return e.Worker
	case e.Image != "":
		name, _, _ := strings.Cut(path.Base(e.Image), "@")
		name, _, _ = strings.Cut(name, ":")
		return name
	}
	return "task"
}

// source is where the code of the task is.
func source(c *cli.Context, s *spool.Spool, stderr io.Writer) (task.Source, error) {
	repository, directory := c.String("repository"), c.String("directory")
	switch {
	case repository != "" && directory != "":
		return task.Source{}, fault.Errorf(fault.Usage, "--repository and --directory cannot be combined")
	case c.IsSet("revision") && repository == "":
		return task.Source{}, fault.Errorf(fault.Usage, "--revision needs --repository")
	case c.Bool("dirty") && repository == "":
		return task.Source{}, fault.Errorf(fault.Usage, "--dirty needs --repository")
	case c.Bool("dirty") && c.IsSet("revision"):
		return task.Source{}, fault.Errorf(fault.Usage, "--dirty and --revision cannot be combined: changes are those since HEAD")
	case directory != "":
		archive, err := packDirectory(directory, s)
		return task.Source{Archive: archive}, err
	case repository == "":
		return task.Source{}, nil
	}
	local := false
	if info, err := os.Stat(repository); err == nil && info.IsDir() {
		local = true
		if repository, err = filepath.Abs(repository); err != nil {
			return task.Source{}, err
		}
	} else if strings.HasPrefix(repository, "-") {
		return task.Source{}, fault.Errorf(fault.Usage, "--repository: neither a URL nor a directory: %q", repository)
	}
	if c.Bool("dirty") && !local {
		return task.Source{}, fault.Errorf(fault.Usage, "--dirty: %q is not a directory", task.CleanAddress(repository))
	}
	revision, err := resolve(c.Context, repository, c.String("revision"))
	source := task.Source{Repository: repository, Revision: revision}
	if err != nil || !local || c.IsSet("revision") {
		return source, err
	}
	changed, err := changes(c.Context, repository)
	switch {
	case err != nil || len(changed) == 0:
		return source, err
	case c.Bool("dirty"):
		return dirty(c.Context, s, source)
	}
	app.Report(stderr, name, fault.Hint(
		fmt.Errorf("warning: not committed, and so not part of the task: %s", someOf(changed)),
		"commit it, or include it with --dirty"))
	return source, nil
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
		out, err := command.System.Run(ctx, command.Cmd{Name: "git", Dir: repository, Timeout: time.Minute,
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
		Env: append(append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=https:http:ssh:git:file"), secrets...),
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

// file is a file for the task.
func file(name string) (task.File, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return task.File{}, err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return task.File{}, fault.Errorf(fault.Usage, "--file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return task.File{}, fault.Errorf(fault.Usage, "--file %q is not a plain file", name)
	}
	return task.File{Name: filepath.Base(abs), URL: "file://" + abs}, nil
}

// left out of a directory's snapshot: what git, Python and editors leave behind.
var leftOut = map[string]bool{
	".git": true, "__pycache__": true, ".venv": true, "venv": true, ".mypy_cache": true, ".pytest_cache": true,
	"node_modules": true,
}

// packDirectory makes a snapshot of a directory in the spool.
func packDirectory(dir string, s *spool.Spool) (string, error) {
	info, err := os.Stat(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir) // WalkDir does not follow a link
	}
	if err != nil {
		return "", fault.Errorf(fault.Usage, "--directory: %w", err)
	}
	if !info.IsDir() {
		return "", fault.Errorf(fault.Usage, "--directory %q is not a directory", dir)
	}
	return pack(s, "--directory", func(t *tar.Writer) error {
		return filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
			if err != nil || name == dir {
				return err
			}
			if leftOut[d.Name()] {
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			return packOne(t, dir, name, d)
		})
	})
}

// pack puts an archive into the spool. The same contents give the same file, so that
// tasks of one directory share an environment.
func pack(s *spool.Spool, flag string, fill func(*tar.Writer) error) (string, error) {
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
func keep(s *spool.Spool, suffix string, fill func(io.Writer) error) (string, error) {
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
