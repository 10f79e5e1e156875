package main

import (
	"archive/tar"
	"bufio"
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

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/environment"
	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/queue/spool"
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
func source(c *cli.Context, s *spool.Spool) (task.Source, error) {
	repository, directory := c.String("repository"), c.String("directory")
	switch {
	case repository != "" && directory != "":
		return task.Source{}, fault.Errorf(fault.Usage, "--repository and --directory can't be combined")
	case c.IsSet("revision") && repository == "":
		return task.Source{}, fault.Errorf(fault.Usage, "--revision needs --repository")
	case directory != "":
		archive, err := pack(directory, s)
		return task.Source{Archive: archive}, err
	case repository == "":
		return task.Source{}, nil
	}
	if info, err := os.Stat(repository); err == nil && info.IsDir() {
		if repository, err = filepath.Abs(repository); err != nil {
			return task.Source{}, err
		}
	} else if strings.HasPrefix(repository, "-") {
		return task.Source{}, fault.Errorf(fault.Usage, "--repository: neither a URL nor a directory: %q", repository)
	}
	revision, err := resolve(c.Context, repository, c.String("revision"))
	return task.Source{Repository: repository, Revision: revision}, err
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
				"git commit makes one; --directory takes code as it is, without git")
		}
		return strings.TrimSpace(string(out.Stdout)), nil
	}
	address, options, secrets := environment.Login(repository)
	out, err := command.System.Run(ctx, command.Cmd{
		Name: "git", Args: append(options, "ls-remote", "--", address, want, want+"^{}"), Timeout: 2 * time.Minute,
		Env: append(append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=https:http:ssh:git:file"), secrets...),
	})
	if err != nil {
		return "", fault.Errorf(fault.Unavailable, "--repository: %w", err)
	}
	commit := ""
	for line := range strings.Lines(string(out.Stdout)) {
		hash, _, _ := strings.Cut(line, "\t")
		commit = hash // of an annotated tag, the commit comes last
	}
	if commit == "" {
		if revision == "" {
			return "", fault.Errorf(fault.Usage, "--repository %q has no HEAD", task.CleanAddress(repository))
		}
		return revision, nil
	}
	return commit, nil
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

// readEnv reads variables: a NAME=VALUE a line, blank lines and comments between.
func readEnv(name string) (map[string]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fault.Errorf(fault.Usage, "--env-file: %w", err)
	}
	defer f.Close()
	env := map[string]string{}
	var errs []error
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimPrefix(strings.TrimSpace(lines.Text()), "export ")
		if line == "" || line[0] == '#' {
			continue
		}
		variable, value, ok := strings.Cut(line, "=")
		if !ok || variable == "" || strings.ContainsAny(variable, " \t'\"") {
			errs = append(errs, fault.Errorf(fault.Usage, "%s:%d: want NAME=VALUE", name, n)) // the line may hold a secret
			continue
		}
		if l := len(value); l > 1 && (value[0] == '"' || value[0] == '\'') && value[l-1] == value[0] {
			value = value[1 : l-1]
		}
		env[variable] = value
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, fault.Errorf(fault.Usage, "%s: %w", name, err))
	}
	return env, errors.Join(errs...)
}

// left out of a directory's snapshot: what git, Python and editors leave behind.
var leftOut = map[string]bool{".git": true, "__pycache__": true, ".venv": true, "venv": true, ".mypy_cache": true, ".pytest_cache": true, "node_modules": true}

// pack makes a snapshot of a directory in the spool. The same contents give the
// same file, so that tasks of one directory share an environment.
func pack(dir string, s *spool.Spool) (string, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return "", fault.Errorf(fault.Usage, "--directory: %w", err)
	}
	if !info.IsDir() {
		return "", fault.Errorf(fault.Usage, "--directory %q is not a directory", dir)
	}
	f, err := os.CreateTemp(s.TempDir(), "source-*")
	if err != nil {
		return "", fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	sum := sha256.New()
	z := gzip.NewWriter(io.MultiWriter(f, sum))
	t := tar.NewWriter(z)
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
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
	if err != nil {
		return "", fault.Errorf(fault.Usage, "--directory: %w", err)
	}
	if err := errors.Join(t.Close(), z.Close(), f.Sync()); err != nil {
		return "", fault.Errorf(fault.Unavailable, "spool: %w", err)
	}
	path := s.SourcePath(hex.EncodeToString(sum.Sum(nil)))
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
