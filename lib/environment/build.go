package environment

import (
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

	"github.com/ponos-tools/ponos/lib/archive"
	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/lock"
	"github.com/ponos-tools/ponos/lib/task"
)

// InstallScript is the file at the root of a repository that installs it.
const InstallScript = "install_ponos_slurm.sh"

// check refuses sources that are no good, or that could be taken for options.
func (s Spec) check() error {
	src := s.Source
	if src.Repository == "" {
		return nil
	}
	scheme, rest, hasScheme := strings.Cut(src.Repository, "://")
	switch {
	case strings.HasPrefix(src.Repository, "-") || strings.ContainsAny(src.Repository, "\x00\n\r\t "):
		return buildError("repository %q is no URL", task.Clean(src.Repository))
	case strings.Contains(strings.SplitN(src.Repository, "/", 2)[0], "::"):
		return buildError("repository %q: git's remote helpers are not allowed", task.Clean(src.Repository))
	case hasScheme && (scheme == "https" || scheme == "http" || scheme == "ssh" || scheme == "git") && rest != "":
	case hasScheme && scheme == "file" || !hasScheme && filepath.IsAbs(src.Repository):
		if !s.Local {
			return buildError("repository %q: a path of this machine is not allowed", task.Clean(src.Repository))
		}
	case !hasScheme && scpLike(src.Repository):
	default:
		return buildError("repository %q: want an https, ssh or git URL", task.Clean(src.Repository))
	}
	if src.Revision == "" || strings.HasPrefix(src.Revision, "-") || len(src.Revision) > 200 ||
		strings.ContainsAny(src.Revision, "\x00\n\r\t ~^:?*[\\") || strings.Contains(src.Revision, "..") || strings.Contains(src.Revision, "@{") {
		return buildError("revision %q is no commit, tag or branch", task.Clean(src.Revision))
	}
	return nil
}

// scpLike reports whether an address is of the form user@host:path.
func scpLike(address string) bool {
	host, path, ok := strings.Cut(address, ":")
	return ok && path != "" && host != "" && !strings.Contains(host, "/")
}

// git is a call of git that trusts neither the repository nor its address.
func (s *Store) git(ctx context.Context, spec Spec, log io.Writer, dir string, args ...string) ([]byte, error) {
	protocols := "https:http:ssh:git"
	if spec.Local {
		protocols += ":file"
	}
	env := append(os.Environ(), "GIT_ALLOW_PROTOCOL="+protocols, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
	safe := []string{"-c", "core.hooksPath=/dev/null", "-c", "init.templateDir=", "-c", "advice.detachedHead=false", "-c", "core.fsmonitor=false", "-c", "safe.directory=*"}
	result, err := s.Run.Run(ctx, command.Cmd{Name: "git", Args: append(safe, args...), Dir: dir, Env: env, Timeout: s.Timeout})
	if log != nil && len(result.Stderr) > 0 {
		_, _ = log.Write(result.Stderr)
	}
	return result.Stdout, err
}

// build makes an environment in place.
func (s *Store) build(ctx context.Context, spec Spec, place string, log io.Writer) error {
	source := filepath.Join(place, "source")
	var err error
	switch {
	case spec.Source.Repository != "":
		err = s.checkout(ctx, spec, source, log)
	case spec.Source.Archive != "":
		err = unpack(spec.Source.Archive, source)
	default:
		err = os.Mkdir(source, 0o700)
	}
	if err != nil {
		return err
	}
	return s.install(ctx, spec, source, filepath.Join(place, "venv"), log)
}

// checkout puts a commit of a repository into a directory. The repository itself
// is kept, so that the next commit of it comes quickly.
func (s *Store) checkout(ctx context.Context, spec Spec, source string, log io.Writer) error {
	sum := sha256.Sum256([]byte(spec.Source.Repository))
	mirror := filepath.Join(s.Dir, ".repositories", hex.EncodeToString(sum[:16])+".git")
	if err := os.MkdirAll(mirror, 0o700); err != nil {
		return err
	}
	l, err := lock.Wait(ctx, mirror+".lock")
	if err != nil {
		return err
	}
	defer l.Close()
	name := task.Clean(spec.Source.Repository)
	if _, err := os.Stat(filepath.Join(mirror, "HEAD")); err != nil {
		if _, err := s.git(ctx, spec, log, mirror, "init", "--quiet", "--bare", "."); err != nil {
			return gitError("repository "+name, err)
		}
	}
	commit, err := s.commit(ctx, spec, mirror)
	if err != nil || !isHash(spec.Source.Revision) {
		// A branch may have moved.
		if _, err := s.git(ctx, spec, log, mirror, "fetch", "--quiet", "--force", "--prune", "--tags", "--no-write-fetch-head", "--no-recurse-submodules",
			"--", spec.Source.Repository, "+refs/heads/*:refs/heads/*"); err != nil {
			return gitError("repository "+name, err)
		}
		if commit, err = s.commit(ctx, spec, mirror); err != nil && isHash(spec.Source.Revision) {
			// A commit that no branch or tag leads to: some servers give it by its hash.
			if _, fetchErr := s.git(ctx, spec, log, mirror, "fetch", "--quiet", "--", spec.Source.Repository, spec.Source.Revision); fetchErr == nil {
				commit, err = s.commit(ctx, spec, mirror)
			}
		}
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			return buildError("repository %s has no commit %q", name, task.Clean(spec.Source.Revision))
		}
	}
	// The mirror is ours, and git reaches it as a file.
	ours := spec
	ours.Local = true
	if _, err := s.git(ctx, ours, log, mirror, "clone", "--quiet", "--shared", "--no-checkout", "--", mirror, source); err != nil {
		return gitError("repository "+name, err)
	}
	if _, err := s.git(ctx, spec, log, source, "checkout", "--quiet", "--detach", commit, "--"); err != nil {
		return gitError("commit "+commit+" of "+name, err)
	}
	return nil
}

// commit resolves the revision within the mirror.
func (s *Store) commit(ctx context.Context, spec Spec, mirror string) (string, error) {
	out, err := s.git(ctx, spec, nil, mirror, "rev-parse", "--verify", "--quiet", "--end-of-options", spec.Source.Revision+"^{commit}")
	return strings.TrimSpace(string(out)), err
}

// isHash reports whether a revision is a whole commit hash, which never moves.
func isHash(revision string) bool {
	return (len(revision) == 40 || len(revision) == 64) && strings.Trim(revision, "0123456789abcdef") == ""
}

// gitError is the task's fault if git said no, and ours if it could not run.
func gitError(what string, err error) error {
	var exit *command.ExitError
	var late *command.TimeoutError
	switch {
	case errors.As(err, &exit):
		lines := strings.Split(strings.TrimSpace(exit.Stderr), "\n")
		return buildError("%s: git: %s", what, task.Clean(lines[0]))
	case errors.As(err, &late):
		return buildError("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// install makes a virtual environment and installs the source into it. Code that
// is no Python project, and has no script to install it, is left as it is.
func (s *Store) install(ctx context.Context, spec Spec, source, venv string, log io.Writer) error {
	has := func(name string) bool {
		info, err := os.Stat(filepath.Join(source, name))
		return err == nil && info.Mode().IsRegular()
	}
	script := has(InstallScript)
	if !script && !has("pyproject.toml") && !has("setup.py") && !has("requirements.txt") {
		return nil
	}
	if err := s.venv(ctx, spec, venv, log); err != nil {
		return err
	}
	// Flags are words: in quotes, several of them would be one.
	flags := strings.Fields(spec.PIPFlags)
	cmd := command.Cmd{Name: filepath.Join(venv, "bin", "python"), Args: append([]string{"-m", "pip", "install", "--no-input", "--disable-pip-version-check"}, flags...)}
	switch {
	case script:
		cmd.Name, cmd.Args = "bash", []string{"--", filepath.Join(source, InstallScript)}
	case has("pyproject.toml") || has("setup.py"):
		cmd.Args = append(cmd.Args, ".")
	default:
		cmd.Args = append(cmd.Args, "-r", "requirements.txt")
	}
	cmd.Env = venvEnviron(os.Environ(), venv)
	cmd.Env = append(cmd.Env, "PIP_FLAGS="+spec.PIPFlags)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Timeout = source, log, log, s.Timeout
	return toolError("installing the task's code", s.run(ctx, cmd))
}

func (s *Store) run(ctx context.Context, cmd command.Cmd) error {
	_, err := s.Run.Run(ctx, cmd)
	return err
}

// toolError is the task's fault if the program ran and failed.
func toolError(what string, err error) error {
	var exit *command.ExitError
	var late *command.TimeoutError
	if errors.As(err, &exit) || errors.As(err, &late) {
		return buildError("%s: %w", what, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// venv makes a virtual environment. Debian's python3 without python3-venv can
// make one that has no pip, which is enough for an install script that needs none.
func (s *Store) venv(ctx context.Context, spec Spec, venv string, log io.Writer) error {
	create := func(args ...string) error {
		return s.run(ctx, command.Cmd{Name: spec.Python, Args: append(append([]string{"-m", "venv"}, args...), venv), Stdout: log, Stderr: log, Timeout: s.Timeout})
	}
	err := create()
	var exit *command.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		if removeErr := os.RemoveAll(venv); removeErr != nil {
			return removeErr
		}
		err = create("--without-pip")
	}
	return toolError("making a virtual environment", err)
}

// venvEnviron is the environment within a virtual environment.
func venvEnviron(env []string, venv string) []string {
	out := []string{"VIRTUAL_ENV=" + venv, "LC_ALL=C.UTF-8"}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, v := range env {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case name == "PATH":
			path = value
		case name == "HOME" || name == "USER" || name == "LOGNAME" || name == "TMPDIR" || strings.HasPrefix(name, "PIP_") ||
			strings.HasSuffix(strings.ToLower(name), "_proxy") || name == "SSL_CERT_FILE" || name == "REQUESTS_CA_BUNDLE":
			out = append(out, v)
		}
	}
	return append(out, "PATH="+filepath.Join(venv, "bin")+":"+path)
}

// unpack makes a directory of a snapshot.
func unpack(file, to string) error {
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	err := archive.Gzip(file, to)
	var bad *archive.BadError
	if errors.As(err, &bad) || errors.Is(err, fs.ErrNotExist) {
		return buildError("source archive: %w", err)
	}
	if err != nil {
		return fmt.Errorf("source archive: %w", err)
	}
	return nil
}
