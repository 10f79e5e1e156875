package environment

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := command.System.Run(t.Context(), command.Cmd{Name: "git", Dir: dir, Args: append([]string{"-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out.Stdout))
}

func mirrors(t *testing.T, s *Store) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.Dir, ".repositories", "*.git"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	return found[0]
}

// A git that was killed leaves its locks in the kept repository, and a repository
// that is not complete.
func TestKilledGitDoesNotHinderTheNext(t *testing.T) {
	repo, commit := repository(t, map[string]string{"x": "1"})
	s, _ := store(t)
	prepare := func(what, commit string) {
		t.Helper()
		if _, err := s.Prepare(t.Context(), Spec{Source: task.Source{Repository: repo, Revision: commit}, Local: true}, &bytes.Buffer{}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	prepare("first", commit)
	mirror := mirrors(t, s)
	for _, name := range []string{"packed-refs.lock", "refs/heads/main.lock", "config.lock", "HEAD.lock", "shallow.lock", "objects/pack/tmp_pack_x"} {
		if err := os.WriteFile(filepath.Join(mirror, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git(t, repo, "branch", "more")
	git(t, repo, "commit", "--allow-empty", "-qm", "y")
	prepare("with locks", git(t, repo, "rev-parse", "HEAD"))

	for _, name := range []string{"config", "objects"} {
		if err := os.RemoveAll(filepath.Join(mirror, name)); err != nil {
			t.Fatal(err)
		}
	}
	git(t, repo, "commit", "--allow-empty", "-qm", "z")
	prepare("half made", git(t, repo, "rev-parse", "HEAD"))
}

// What the environment of the agent says of git's own is not meant for the task's.
func TestGitOfTheAgentsOwnEnvironment(t *testing.T) {
	repo, commit := repository(t, map[string]string{"x": "1"})
	other := t.TempDir()
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE", "GIT_COMMON_DIR"} {
		t.Setenv(name, filepath.Join(other, "x"))
	}
	s, _ := store(t)
	env, err := s.Prepare(t.Context(), Spec{Source: task.Source{Repository: repo, Revision: commit}, Local: true}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(env.Source, "x")); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(other); len(left) > 0 {
		t.Errorf("git has written to %v", left)
	}
}

// A branch that was deleted or forced elsewhere upstream, and a commit that only its
// hash leads to.
func TestUpstreamChangesItsMind(t *testing.T) {
	repo, first := repository(t, map[string]string{"x": "1"})
	s, _ := store(t)
	source := func(revision string) string {
		t.Helper()
		env, err := s.Prepare(t.Context(), Spec{Source: task.Source{Repository: repo, Revision: revision}, Local: true}, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		return git(t, env.Source, "rev-parse", "HEAD")
	}
	if got := source(first); got != first {
		t.Errorf("%s; want %s", got, first)
	}
	git(t, repo, "commit", "--amend", "--allow-empty", "-qm", "forced")
	git(t, repo, "branch", "topic/a")
	second := git(t, repo, "rev-parse", "HEAD")
	if got := source(second); got != second {
		t.Errorf("%s; want %s", got, second)
	}
	// A branch in place of a directory of branches.
	git(t, repo, "branch", "-D", "topic/a")
	git(t, repo, "branch", "topic")
	git(t, repo, "commit", "--allow-empty", "-qm", "third")
	third := git(t, repo, "rev-parse", "HEAD")
	if got := source(third); got != third {
		t.Errorf("%s; want %s", got, third)
	}
	git(t, repo, "checkout", "-q", "--orphan", "elsewhere")
	git(t, repo, "commit", "--allow-empty", "-qm", "orphan")
	orphan := git(t, repo, "rev-parse", "HEAD")
	git(t, repo, "checkout", "-q", "main")
	git(t, repo, "branch", "-D", "elsewhere")
	git(t, repo, "config", "uploadpack.allowAnySHA1InWant", "true")
	if got := source(orphan); got != orphan {
		t.Errorf("%s; want %s", got, orphan)
	}
}

// seen keeps what git was called with.
type seen struct {
	command.Runner
	args []string
	env  []string
}

func (s *seen) Run(ctx context.Context, cmd command.Cmd) (command.Result, error) {
	s.args, s.env = append(s.args, cmd.Args...), append(s.env, cmd.Env...)
	return s.Runner.Run(ctx, cmd)
}

// A password in an address is no argument of git's, which everybody can see, and is
// not told: but git gets it.
func TestPasswordOfAnAddress(t *testing.T) {
	needsGit(t)
	var user, password string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); ok {
			user, password = u, p
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	s, _ := store(t)
	run := &seen{Runner: command.System}
	s.Run = run
	address := strings.Replace(server.URL, "http://", "http://oauth2:s3cret%20x@", 1) + "/x.git"
	var log bytes.Buffer
	_, err := s.Prepare(t.Context(), Spec{Source: task.Source{Repository: address, Revision: "main"}}, &log)
	if err == nil || user != "oauth2" || password != "s3cret x" {
		t.Errorf("%v; the server was given %q and %q", err, user, password)
	}
	if said := fmt.Sprint(err, log.String(), run.args); strings.Contains(said, "s3cret") {
		t.Errorf("the password is shown: %s", said)
	}
}

// Where a server redirects to does not get the password that was meant for it.
func TestPasswordStaysWithItsHost(t *testing.T) {
	needsGit(t)
	needs.Localhost(t)
	given := make(chan string, 100)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, p, ok := r.BasicAuth(); ok {
			given <- p
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+r.URL.RequestURI(), http.StatusFound)
	}))
	defer server.Close()
	s, _ := store(t)
	address := strings.Replace(server.URL, "http://", "http://oauth2:s3cret-x@", 1) + "/x.git"
	if _, err := s.Prepare(t.Context(), Spec{Source: task.Source{Repository: address, Revision: "main"}}, &bytes.Buffer{}); err == nil {
		t.Error("no error")
	}
	if len(given) > 0 {
		t.Errorf("another host was given %q", <-given)
	}
}

// An install script finds where its repository came from, without the password.
func TestOriginOfACheckout(t *testing.T) {
	repo, commit := repository(t, map[string]string{"x": "1"})
	s, _ := store(t)
	env, err := s.Prepare(t.Context(), Spec{Source: task.Source{Repository: "file://" + repo, Revision: commit}, Local: true}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if got := git(t, env.Source, "remote", "get-url", "origin"); got != "file://"+repo {
		t.Errorf("origin is %s", got)
	}
}

// A branch is what it is when a task asks for it, and not what it was for an earlier
// one.
func TestABranchMoves(t *testing.T) {
	repo, first := repository(t, map[string]string{"x": "1"})
	s, calls := store(t)
	source := func(revision string) string {
		t.Helper()
		env, err := s.Prepare(t.Context(), Spec{Source: task.Source{Repository: repo, Revision: revision}, Local: true}, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		return git(t, env.Source, "rev-parse", "HEAD")
	}
	if got := source("main"); got != first {
		t.Errorf("%s; want %s", got, first)
	}
	git(t, repo, "commit", "--allow-empty", "-qm", "second")
	second := git(t, repo, "rev-parse", "HEAD")
	if got := source("main"); got != second {
		t.Errorf("%s; want %s", got, second)
	}
	// By its hash it is the same environment.
	clones := calls.calls["git clone"]
	if got := source(second); got != second || calls.calls["git clone"] != clones {
		t.Errorf("%s, %d clones; want %s, %d", got, calls.calls["git clone"], second, clones)
	}
}

// A filter of the user's git, such as that of git-lfs, finds the repository that large files come from.
func TestFiltersKnowTheRepository(t *testing.T) {
	repo, commit := repository(t, map[string]string{"x.bin": "pointer", ".gitattributes": "*.bin filter=large\n"})
	config := filepath.Join(t.TempDir(), "gitconfig")
	if err := os.WriteFile(config, []byte("[filter \"large\"]\n\tsmudge = git config remote.origin.url\n\trequired = true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", config)
	s, _ := store(t)
	env, err := s.Prepare(t.Context(), Spec{Source: task.Source{Repository: repo, Revision: commit}, Local: true}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(env.Source, "x.bin")); err != nil || string(got) != repo+"\n" {
		t.Errorf("%q, %v; want %q", got, err, repo)
	}
}
