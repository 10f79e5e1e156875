package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/agent/code/archive"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/base/remove"
	"github.com/ponos-tools/ponos/lib/task"
)

// InstallScript is the file at the root of a repository that installs it.
const InstallScript = "install_ponos_slurm.sh"

// Installed reports whether code that has files of some names gets a virtual environment of its own.
func Installed(has func(name string) bool) bool {
	return slices.ContainsFunc([]string{InstallScript, "pyproject.toml", "setup.py", "requirements.txt"}, has)
}

// check refuses sources that are invalid, or that look like options.
func (s Spec) check() error {
	src := s.Source
	if src.InPlace && (!s.Local || !filepath.IsAbs(src.Directory)) {
		return buildError("a task cannot run in directory %q", task.Clean(src.Directory))
	}
	if src.Environment != "" && (!s.Local || !filepath.IsAbs(src.Environment)) {
		return buildError("a task cannot use the environment %q", task.Clean(src.Environment))
	}
	if src.Repository == "" {
		return nil
	}
	scheme, rest, hasScheme := strings.Cut(src.Repository, "://")
	switch {
	case strings.HasPrefix(src.Repository, "-") || strings.ContainsAny(src.Repository, "\x00\n\r\t"),
		strings.Contains(src.Repository, " ") && !filepath.IsAbs(src.Repository):
		return buildError("not a URL of a repository: %q", task.CleanAddress(src.Repository))
	case strings.Contains(strings.SplitN(src.Repository, "/", 2)[0], "::"):
		return buildError("repository %q: git's remote helpers are not allowed", task.CleanAddress(src.Repository))
	case hasScheme && (scheme == "https" || scheme == "http" || scheme == "ssh" || scheme == "git") && rest != "":
	case hasScheme && scheme == "file" || !hasScheme && filepath.IsAbs(src.Repository):
		if !s.Local {
			return buildError("repository %q: a path of this machine is not allowed", task.CleanAddress(src.Repository))
		}
	case !hasScheme && scpLike(src.Repository):
	default:
		return buildError("invalid repository %q: expected an https, ssh or git URL", task.CleanAddress(src.Repository))
	}
	if src.Revision == "" || strings.HasPrefix(src.Revision, "-") || len(src.Revision) > 200 ||
		strings.ContainsAny(src.Revision, "\x00\n\r\t ~^:?*[\\") ||
		strings.Contains(src.Revision, "..") || strings.Contains(src.Revision, "@{") {
		return buildError("no commit, tag or branch %q", task.Clean(src.Revision))
	}
	return nil
}

// scpLike reports whether an address is of the form user@host:path.
func scpLike(address string) bool {
	host, path, ok := strings.Cut(address, ":")
	return ok && path != "" && host != "" && !strings.Contains(host, "/")
}

// build creates an environment in place.
func (s *Store) build(ctx context.Context, spec Spec, place string, log io.Writer) error {
	source := filepath.Join(place, "source")
	var err error
	switch {
	case spec.Source.Archive != "": // with a repository, it is one of its work tree
		err = unpack(spec.Source.Archive, source)
	case spec.Source.Repository != "":
		err = s.checkout(ctx, spec, source, log)
	default:
		err = os.Mkdir(source, 0o700)
	}
	if err != nil {
		return err
	}
	return s.install(ctx, spec, source, filepath.Join(place, "venv"), log)
}

// install creates a virtual environment and installs the source into it. Code that is not a Python
// project, and has no script to install it, is left unchanged.
func (s *Store) install(ctx context.Context, spec Spec, source, venv string, log io.Writer) error {
	root, err := os.OpenRoot(source)
	if err != nil {
		return err
	}
	defer root.Close()
	has := func(name string) bool {
		info, err := root.Stat(name)
		return err == nil && info.Mode().IsRegular()
	}
	if spec.Source.Environment != "" || !Installed(has) {
		return nil
	}
	script := has(InstallScript)
	// What is killed does not remove its temporary files: they lie in the building, which is removed whole.
	temporary := filepath.Join(filepath.Dir(venv), "tmp")
	if err := os.Mkdir(temporary, 0o700); err != nil {
		return err
	}
	defer func() { _ = remove.All(temporary) }()
	env := append(slices.DeleteFunc(command.Environ(), func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") }), "TMPDIR="+temporary)
	if err := s.venv(ctx, spec, venv, env, log); err != nil {
		return err
	}
	// Flags are words: in quotes, several of them would be one.
	flags := strings.Fields(spec.PIPFlags)
	cmd := command.Cmd{
		Name: filepath.Join(venv, "bin", "python"),
		Args: append(append(isolated("pip"), "install", "--no-input", "--disable-pip-version-check"), flags...),
	}
	switch {
	case script:
		cmd.Name, cmd.Args = "bash", []string{"--", filepath.Join(source, InstallScript)}
	case has("pyproject.toml") || has("setup.py"):
		cmd.Args = append(cmd.Args, ".")
	default:
		cmd.Args = append(cmd.Args, "-r", "requirements.txt")
	}
	cmd.Env = venvEnviron(env, venv)
	// What an index answers is in the log of pip alone, and not in its output.
	pipLog := filepath.Join(filepath.Dir(venv), "pip.log")
	defer os.Remove(pipLog)
	cmd.Env = append(cmd.Env, "PIP_FLAGS="+spec.PIPFlags, "PIP_LOG="+pipLog)
	said := new(tail)
	both := io.MultiWriter(log, said)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Timeout, cmd.DieWithParent = source, both, both, s.Timeout, true
	ctx, end := progress.Start(ctx, "installing %s", spec.name())
	defer end()
	host := indexHost(spec.PIPFlags, func() string {
		list := command.Cmd{
			Name: filepath.Join(venv, "bin", "python"), Args: append(isolated("pip"), "config", "list"),
			Env: cmd.Env, Dir: source, Timeout: s.Timeout, DieWithParent: true,
		}
		result, _ := s.Run.Run(ctx, list) // without pip, nothing is known
		return string(result.Stdout)
	})
	return s.ask(host, func() error {
		err := s.run(ctx, cmd)
		if err == nil || ctx.Err() != nil {
			return err
		}
		return installFailed(host, said.String(), logged(pipLog), err)
	})
}

// logged returns what pip has logged; "" if it was not run.
func logged(path string) string {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	text, _ := io.ReadAll(io.LimitReader(f, maxLogged))
	return string(text)
}

const maxLogged = 32 << 20

// name returns the name of a source for people.
func (s Spec) name() string {
	if s.Source.Repository == "" {
		return "a snapshot"
	}
	return path.Base(strings.TrimSuffix(task.CleanAddress(s.Source.Repository), ".git"))
}

func (s *Store) run(ctx context.Context, cmd command.Cmd) error {
	_, err := s.Run.Run(ctx, cmd)
	return err
}

// isolated are Python's arguments for one of its own modules. Without -I, a module of that name, or of one that it
// imports, such as types.py, would be taken from the current directory: that of the task's code, or of another user.
func isolated(module string) []string { return []string{"-I", "-m", module} }

// venv creates a virtual environment. On Debian, python3 without python3-venv can only create one
// without pip, which is enough for an install script that does not need pip.
func (s *Store) venv(ctx context.Context, spec Spec, venv string, env []string, log io.Writer) error {
	create := func(ctx context.Context, args ...string) error {
		args = append(append(isolated("venv"), args...), venv)
		return s.run(ctx, command.Cmd{
			Name: spec.Python, Args: args, Env: env, Stdout: log, Stderr: log, Timeout: s.Timeout, DieWithParent: true,
		})
	}
	ctx, end := progress.Start(ctx, "making a virtual environment for %s", spec.name())
	defer end()
	err := create(ctx)
	var exit *command.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		if removeErr := remove.All(venv); removeErr != nil {
			return removeErr
		}
		err = create(ctx, "--without-pip")
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	return toolFailed("making a virtual environment", "", "", err)
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

// unpack unpacks a snapshot into a new directory.
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
