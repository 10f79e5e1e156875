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
	"regexp"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/progress"
	"github.com/ponos-tools/ponos/lib/task"
)

// git is a call of git that trusts neither the repository nor its address. It ends with this process,
// and releases the kept repository.
func (s *Store) git(ctx context.Context, spec Spec, log io.Writer, dir string, args ...string) ([]byte, error) {
	protocols := "https:http:ssh:git"
	if spec.Local {
		protocols += ":file"
	}
	env := append(gitEnviron(command.Environ()), "GIT_ALLOW_PROTOCOL="+protocols, "GIT_TERMINAL_PROMPT=0", "LC_ALL=C")
	safe := []string{
		"-c", "core.hooksPath=/dev/null", "-c", "init.templateDir=", "-c", "advice.detachedHead=false",
		"-c", "core.fsmonitor=false", "-c", "safe.directory=*",
		// Checkouts borrow objects from the kept repository, and no git process may still work on it
		// when this call has ended.
		"-c", "gc.pruneExpire=never", "-c", "gc.autoDetach=false", "-c", "maintenance.autoDetach=false",
	}
	_, login, secrets := Login(spec.Source.Repository)
	env, safe = append(env, secrets...), append(safe, login...)
	result, err := s.Run.Run(ctx, command.Cmd{
		Name: "git", Args: append(safe, args...), Dir: dir, Env: env, Timeout: s.Timeout, DieWithParent: true,
	})
	if log != nil && len(result.Stderr) > 0 {
		_, _ = log.Write(result.Stderr)
	}
	return result.Stdout, err
}

// gitEnviron removes variables that make git work on another repository than the intended one.
func gitEnviron(env []string) []string {
	var kept []string
	for _, v := range env {
		switch name, _, _ := strings.Cut(v, "="); name {
		case "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES",
			"GIT_NAMESPACE", "GIT_PREFIX", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE", "GIT_CONFIG", "GIT_TEMPLATE_DIR":
		default:
			kept = append(kept, v)
		}
	}
	return kept
}

// resolve replaces a branch or tag by its present commit: the name may refer to another commit when
// the next task is prepared.
func (s *Store) resolve(ctx context.Context, spec Spec, log io.Writer) (Spec, error) {
	if spec.Source.Repository == "" || isHash(spec.Source.Revision) {
		return spec, nil
	}
	_, commit, l, err := s.fetch(ctx, spec, log)
	if err != nil {
		return spec, err
	}
	spec.Source.Revision = commit
	return spec, l.Close()
}

// repositories holds the kept ones, below the store's directory.
const repositories = ".repositories"

// fetch updates the kept repository, unless it has the commit, and returns it locked. It is kept so
// that later commits are fetched quickly.
func (s *Store) fetch(ctx context.Context, spec Spec, log io.Writer) (mirror, commit string, l *lock.Lock, err error) {
	sum := sha256.Sum256([]byte(spec.Source.Repository))
	mirror = filepath.Join(s.Dir, repositories, hex.EncodeToString(sum[:16])+".git")
	if err := os.MkdirAll(mirror, 0o700); err != nil {
		return "", "", nil, err
	}
	if l, err = lock.Wait(ctx, mirror+".lock"); err != nil {
		return "", "", nil, err
	}
	_ = clock.Touch(mirror) // it was used
	if commit, err = s.commit(ctx, spec, mirror); err != nil || !isHash(spec.Source.Revision) {
		commit, err = s.update(ctx, spec, log, mirror)
	}
	if err != nil {
		l.Close()
		return "", "", nil, err
	}
	return mirror, commit, l, nil
}

// update fetches what is new, and returns the commit of the revision.
func (s *Store) update(ctx context.Context, spec Spec, log io.Writer, mirror string) (commit string, err error) {
	name := "repository " + task.CleanAddress(spec.Source.Repository)
	if err := s.readyMirror(ctx, spec, log, mirror); err != nil {
		return "", gitError(name, "", err)
	}
	err = s.ask(gitHost(spec.Source.Repository), func() error {
		commit, err = s.download(ctx, spec, log, mirror)
		return err
	})
	return commit, err
}

// denied finds that a server knows nothing by a hash, or gives nothing by one.
var denied = regexp.MustCompile(
	`not our ref|unadvertised object|Unable to find [0-9a-f]+ under|(could not|couldn't) find remote ref|no such remote ref`)

// download is update with the host that is asked.
func (s *Store) download(ctx context.Context, spec Spec, log io.Writer, mirror string) (string, error) {
	address, _, _ := Login(spec.Source.Repository)
	name, host := "repository "+task.CleanAddress(spec.Source.Repository), gitHost(spec.Source.Repository)
	slow := []string{"-c", "http.lowSpeedLimit=100", "-c", "http.lowSpeedTime=60", "--git-dir=."}
	if _, err := s.git(ctx, spec, log, mirror, append(slow,
		"fetch", "--quiet", "--force", "--prune", "--tags", "--no-write-fetch-head", "--no-recurse-submodules",
		"--", address, "+refs/heads/*:refs/heads/*")...); err != nil {
		return "", gitError(name, host, err)
	}
	commit, err := s.commit(ctx, spec, mirror)
	if err == nil {
		return commit, nil
	}
	if isHash(spec.Source.Revision) {
		// A commit that is not on any branch or tag: some servers provide it by its hash.
		_, err := s.git(ctx, spec, log, mirror, append(slow, "fetch", "--quiet", "--", address, spec.Source.Revision)...)
		var exit *command.ExitError
		if err != nil && (!errors.As(err, &exit) || !denied.MatchString(exit.Stderr)) {
			return "", gitError(name, host, err)
		}
		if commit, err = s.commit(ctx, spec, mirror); err == nil {
			return commit, nil
		}
	}
	refs, err := s.git(ctx, spec, nil, mirror, "--git-dir=.", "for-each-ref", "--count=1")
	switch {
	case err != nil:
		return "", gitError(name, "", err)
	case len(refs) == 0: // so answers a server that has lost its repositories or cannot read them, and a page of somebody else
		return "", unlessAsked(host, fmt.Errorf("%s: it has no branches", name))
	}
	return "", buildError("%s has no commit %q", name, task.Clean(spec.Source.Revision))
}

// checkout puts a commit of a repository into a directory.
func (s *Store) checkout(ctx context.Context, spec Spec, source string, log io.Writer) error {
	ctx, end := progress.Start(ctx, "fetching %s", spec.name())
	defer end()
	mirror, commit, l, err := s.fetch(ctx, spec, log)
	if err != nil {
		return err
	}
	defer l.Close()
	address, _, _ := Login(spec.Source.Repository)
	name := task.CleanAddress(spec.Source.Repository)
	// The mirror is local and trusted, and git reaches it as a file.
	ours := spec
	ours.Local = true
	if _, err := s.git(ctx, ours, log, mirror, "clone", "--quiet", "--shared", "--no-checkout", "--", mirror, source); err != nil {
		return gitError("repository "+name, "", err)
	}
	// For filters of the user that fetch large files, and for install scripts that fetch submodules.
	if _, err := s.git(ctx, spec, log, source, "config", "remote.origin.url", address); err != nil {
		return gitError("repository "+name, "", err)
	}
	if _, err := s.git(ctx, spec, log, source, "checkout", "--quiet", "--detach", commit, "--"); err != nil {
		return gitError("commit "+commit+" of "+name, gitHost(spec.Source.Repository), err)
	}
	return nil
}

// readyMirror prepares the kept repository, or what a killed git has left of it. The caller holds the
// lock, so no git runs there.
func (s *Store) readyMirror(ctx context.Context, spec Spec, log io.Writer, mirror string) error {
	err := filepath.WalkDir(mirror, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && len(e.Name()) == 2 && filepath.Base(filepath.Dir(path)) == "objects" {
			return fs.SkipDir // there may be many, and it has no lock files
		}
		if !e.IsDir() && (strings.HasSuffix(path, ".lock") || strings.HasPrefix(e.Name(), "tmp_")) {
			return os.Remove(path)
		}
		return nil
	})
	if err == nil {
		_, err = s.git(ctx, spec, log, mirror, "--git-dir=.", "init", "--quiet", "--bare")
	}
	return err
}

// commit resolves the revision within the mirror.
func (s *Store) commit(ctx context.Context, spec Spec, mirror string) (string, error) {
	out, err := s.git(ctx, spec, nil, mirror,
		"--git-dir=.", "rev-parse", "--verify", "--quiet", "--end-of-options", spec.Source.Revision+"^{commit}")
	return strings.TrimSpace(string(out)), err
}

// isHash reports whether a revision is a complete commit hash, which always refers to the same
// commit.
func isHash(revision string) bool {
	return (len(revision) == 40 || len(revision) == 64) && strings.Trim(revision, "0123456789abcdef") == ""
}

// unableToAccess names a repository once more in front of what is wrong with it.
var unableToAccess = regexp.MustCompile(`(?m)^fatal: unable to access '[^']*': `)

// gitError judges a failure of git, which may have asked a host.
func gitError(what, host string, err error) error {
	var exit *command.ExitError
	if !errors.As(err, &exit) {
		return toolFailed(what, host, "", err)
	}
	text := unableToAccess.ReplaceAllString(strings.TrimSpace(exit.Stderr), "")
	first, _, _ := strings.Cut(text, "\n")
	if away.MatchString(text) {
		return &UnknownError{host: host, err: fmt.Errorf("%s: git: %s", what, telling(text))}
	}
	return unlessAsked(host, fmt.Errorf("%s: git: %s", what, task.Clean(first)))
}

// unlessAsked is a failure that is the code's own, unless a host was asked: what git says does not tell then.
func unlessAsked(host string, err error) *UnknownError {
	e := &UnknownError{err: err}
	if host == "" {
		e.own = ofCode
	}
	return e
}
