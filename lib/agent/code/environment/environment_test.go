package environment

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/testscripts/executable"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// counting counts how often each program is run.
type counting struct {
	mu    sync.Mutex
	calls map[string]int
}

func (c *counting) Run(ctx context.Context, cmd command.Cmd) (command.Result, error) {
	c.mu.Lock()
	name := filepath.Base(cmd.Name)
	for _, verb := range cmd.Args {
		if name == "git" && (verb == "fetch" || verb == "clone") {
			c.calls["git "+verb]++
		}
	}
	c.calls[name]++
	c.mu.Unlock()
	return command.System.Run(ctx, cmd)
}

func store(t *testing.T) (*Store, *counting) {
	c := &counting{calls: map[string]int{}}
	return &Store{Dir: filepath.Join(t.TempDir(), "envs"), Run: c, Timeout: 10 * time.Minute}, c
}

// needsGit has git run as for a user who has configured nothing.
func needsGit(t *testing.T) {
	t.Helper()
	needs.Programs(t, "git")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Setenv("no_proxy", "*")
}

// repository makes a git repository with these files, and returns its path and commit.
func repository(t *testing.T, files map[string]string) (path, commit string) {
	t.Helper()
	needsGit(t)
	path = t.TempDir()
	for name, text := range files {
		executable.Write(t, filepath.Join(path, name), text)
	}
	git(t, path, "init", "-q", "-b", "main")
	git(t, path, "add", "-A")
	git(t, path, "commit", "-qm", "x")
	return path, git(t, path, "rev-parse", "HEAD")
}

// python writes a Python that makes a virtual environment of one file, with what it was asked for, and
// fails unless its options are these.
func python(t *testing.T, options string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	executable.Write(t, path, `#!/bin/sh
for dir; do :; done
mkdir -p "$dir/bin"
echo "$*" >"$dir/bin/python"
test "$*" = "-I -m venv `+options+`$dir"
`)
	return path
}

func TestPrepareOnceForMany(t *testing.T) {
	repo, commit := repository(t, map[string]string{
		"run.py": "print('hello')",
		InstallScript: `echo "flags: $PIP_FLAGS"
echo "print('installed')" > "$VIRTUAL_ENV/hello.py"
`,
	})
	s, calls := store(t)
	spec := Spec{Source: task.Source{Repository: repo, Revision: commit}, PIPFlags: "--no-index --quiet", Python: python(t, ""), Local: true}
	var wg sync.WaitGroup
	envs := make([]Environment, 20)
	var log bytes.Buffer
	for i := range envs {
		wg.Go(func() {
			var err error
			store := s
			if i%2 == 1 { // another process
				store = &Store{Dir: s.Dir, Run: calls, Timeout: 10 * time.Minute}
			}
			var mine bytes.Buffer
			if envs[i], err = store.Prepare(t.Context(), spec, &mine); err != nil {
				t.Error(err)
			}
			calls.mu.Lock()
			log.Write(mine.Bytes())
			calls.mu.Unlock()
		})
	}
	wg.Wait()
	for _, e := range envs {
		if e != envs[0] {
			t.Fatalf("two environments: %+v and %+v", e, envs[0])
		}
	}
	if calls.calls["git clone"] != 1 || calls.calls["git fetch"] != 1 || calls.calls["bash"] != 1 {
		t.Errorf("calls %v; want one fetch, clone and installation", calls.calls)
	}
	if !strings.Contains(log.String(), "flags: --no-index --quiet") {
		t.Errorf("log %q", log.String())
	}
	for _, file := range []string{filepath.Join(envs[0].Source, "run.py"), filepath.Join(envs[0].Venv, "hello.py"), filepath.Join(envs[0].Venv, "bin/python")} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

// What pip and its kin write to the directory of temporary files lies within the building: it goes with that, also if they are killed,
// and is not shared.
func TestTemporaryFilesGoWithTheBuilding(t *testing.T) {
	repo, commit := repository(t, map[string]string{
		InstallScript: `mktemp -d pip-XXXXXX --tmpdir >"$VIRTUAL_ENV/made"
`,
	})
	for _, killed := range []bool{false, true} {
		shared := t.TempDir()
		t.Setenv("TMPDIR", shared)
		s, _ := store(t)
		python := python(t, "")
		text, err := os.ReadFile(python)
		if err != nil {
			t.Fatal(err)
		}
		executable.Write(t, python, string(text)+"\nmktemp -d --tmpdir >/dev/null\n")
		spec := Spec{Source: task.Source{Repository: repo, Revision: commit}, Python: python, Local: true}
		if killed {
			s.Run = killing{s.Run}
		}
		env, err := s.Prepare(t.Context(), spec, &bytes.Buffer{})
		if (err != nil) != killed {
			t.Fatal(err)
		}
		if !killed {
			made, err := os.ReadFile(filepath.Join(env.Venv, "made"))
			if err != nil || filepath.Dir(filepath.Dir(string(made))) != filepath.Dir(env.Venv) {
				t.Errorf("%s, %v; want it beside %s", made, err, env.Venv)
			}
		}
		for _, pattern := range []string{filepath.Join(shared, "*"), filepath.Join(s.Dir, "*", "*", "tmp")} {
			if left, _ := filepath.Glob(pattern); left != nil {
				t.Errorf("killed: %v: %s is left", killed, left)
			}
		}
	}
}

// killing has what installs killed after it has made its files.
type killing struct{ command.Runner }

func (k killing) Run(ctx context.Context, c command.Cmd) (command.Result, error) {
	result, err := k.Runner.Run(ctx, c)
	if c.Name == "bash" && err == nil {
		err = &command.ExitError{Name: "bash", Code: -1, Signal: 9}
	}
	return result, err
}

// moving has the directory of environments away for a moment while code is installed, and answers as it is told.
type moving struct {
	command.Runner
	dir    string
	answer error
}

func (m moving) Run(ctx context.Context, c command.Cmd) (command.Result, error) {
	result, err := m.Runner.Run(ctx, c)
	if c.Name == "bash" {
		err = errors.Join(err, os.Rename(m.dir, m.dir+".away"), os.Rename(m.dir+".away", m.dir), m.answer)
	}
	return result, err
}

// A directory that was away while code was prepared in it may lack any part of it, and what was refused meanwhile may have been there.
func TestPreparedWhileAway(t *testing.T) {
	repo, commit := repository(t, map[string]string{InstallScript: "true"})
	spec := Spec{Source: task.Source{Repository: repo, Revision: commit}, Python: python(t, ""), Local: true}
	for _, answer := range []error{nil, buildError("no such requirement"), &UnknownError{own: ofCode, err: errors.New("it failed")}} {
		s, calls := store(t)
		s.Run = moving{calls, s.Dir, answer}
		_, err := s.Prepare(t.Context(), spec, &bytes.Buffer{})
		var unknown *UnknownError
		if !errors.As(err, &unknown) || errors.As(err, new(*BuildError)) || unknown.own != 0 || unknown.host != "" {
			t.Errorf("after %v: %v", answer, err)
		}
		s.Run = calls
		if env, err := s.Prepare(t.Context(), spec, &bytes.Buffer{}); err != nil || env.Venv == "" {
			t.Errorf("after %v: %+v, %v", answer, env, err)
		}
	}
}

func TestPipInstalls(t *testing.T) {
	needs.Programs(t, "python3")
	if said, err := command.System.Run(t.Context(), command.Cmd{Name: "python3", Args: []string{"-c", "import ensurepip, venv"}}); err != nil {
		needs.Missing(t, "python3 with venv: "+string(said.Stderr))
	}
	repo, commit := repository(t, map[string]string{
		"pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n",
		"backend.py": `
import zipfile
def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(directory + "/" + name, "w") as z:
        z.writestr("tiny.py", "def main(): print('tiny')")
        z.writestr("tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
        z.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("tiny-1.dist-info/entry_points.txt", "[console_scripts]\ntiny = tiny:main\n")
        z.writestr("tiny-1.dist-info/RECORD", "")
    return name
`,
	})
	s, _ := store(t)
	var log bytes.Buffer
	env, err := s.Prepare(t.Context(), Spec{Source: task.Source{Repository: repo, Revision: commit}, PIPFlags: "--no-index --no-deps", Python: "python3", Local: true}, &log)
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	out, err := command.System.Run(t.Context(), command.Cmd{Name: filepath.Join(env.Venv, "bin/tiny")})
	if err != nil || string(out.Stdout) != "tiny\n" {
		t.Errorf("%q, %v", out.Stdout, err)
	}
}

// Nothing of the directory in which the agent runs is executed, nor, by accident, a module of the task's code in place of
// one of Python's own.
func TestNothingPlantedRuns(t *testing.T) {
	needs.Programs(t, "python3")
	if said, err := command.System.Run(t.Context(), command.Cmd{Name: "python3", Args: []string{"-c", "import ensurepip, venv"}}); err != nil {
		needs.Missing(t, "python3 with venv: "+string(said.Stderr))
	}
	here, ran := t.TempDir(), filepath.Join(t.TempDir(), "ran")
	planted := map[string]string{"requirements.txt": ""}
	for _, module := range []string{"venv", "types", "logging", "ensurepip", "pip", "subprocess", "sitecustomize", "usercustomize"} {
		planted[module+".py"] = "open(" + strconv.Quote(ran) + ", 'a').write(__name__)\n"
	}
	repo, commit := repository(t, planted)
	for name, text := range planted {
		executable.Write(t, filepath.Join(here, name), text)
	}
	for _, program := range []string{"git", "python", "python3", "pip", "ssh"} {
		executable.Write(t, filepath.Join(here, program), "#!/bin/sh\necho program >>"+ran+"\n")
	}
	executable.Write(t, filepath.Join(here, ".git/HEAD"), "ref: refs/heads/main\n")
	for _, dir := range []string{"objects", "refs"} {
		if err := os.MkdirAll(filepath.Join(here, ".git", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	evil := "!echo git >>" + ran
	executable.Write(t, filepath.Join(here, ".git/config"), "[core]\n\trepositoryformatversion = 0\n\tfsmonitor = "+evil[1:]+"\n\tsshCommand = "+evil[1:]+
		"\n\thooksPath = "+here+"\n[credential]\n\thelper = "+evil+"\n[uploadpack]\n\tpackObjectsHook = "+evil[1:]+"\n")
	t.Chdir(here)
	// Where everyone may write: Python looks for itself there, by its name, and git for ssh.
	if err := os.Chmod(here, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", ".:"+here+":"+os.Getenv("PATH"))
	s, _ := store(t)
	var log bytes.Buffer
	away := Spec{Source: task.Source{Repository: "ssh://nobody@127.0.0.1:1/x.git", Revision: "main"}}
	if _, err := s.Prepare(t.Context(), away, &log); err == nil {
		t.Error("a repository that is not there was prepared")
	}
	env, err := s.Prepare(t.Context(), Spec{Source: task.Source{Repository: repo, Revision: commit}, PIPFlags: "--no-index", Python: "python3", Local: true}, &log)
	if text, ranErr := os.ReadFile(ran); err != nil || env.Venv == "" || ranErr == nil {
		t.Errorf("%+v, %v; what was planted has run: %q\n%s", env, err, text, log.String())
	}
}

// A Python that has no pip makes environments without, which is enough for an install script.
func TestPythonWithoutPip(t *testing.T) {
	repo, commit := repository(t, map[string]string{InstallScript: "true"})
	s, _ := store(t)
	env, err := s.Prepare(t.Context(), Spec{Source: task.Source{Repository: repo, Revision: commit}, Python: python(t, "--without-pip "), Local: true}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if asked, err := os.ReadFile(filepath.Join(env.Venv, "bin/python")); err != nil || string(asked) != "-I -m venv --without-pip "+env.Venv+"\n" {
		t.Errorf("%q, %v", asked, err)
	}
}

func TestWhatCannotBePrepared(t *testing.T) {
	repo, commit := repository(t, map[string]string{"x": "y"})
	for name, tt := range map[string]struct {
		spec Spec
		want string
	}{
		"no commit":       {Spec{Source: task.Source{Repository: repo, Revision: strings.Repeat("0", 40)}, Local: true}, "has no commit"},
		"no branch":       {Spec{Source: task.Source{Repository: repo, Revision: "nope"}, Local: true}, `has no commit "nope"`},
		"file URL":        {Spec{Source: task.Source{Repository: "file://" + repo, Revision: commit}}, "a path of this machine is not allowed"},
		"path":            {Spec{Source: task.Source{Repository: repo, Revision: commit}}, "a path of this machine is not allowed"},
		"helper":          {Spec{Source: task.Source{Repository: "ext::sh -c id", Revision: commit}, Local: true}, "not a URL"},
		"helper, quoted":  {Spec{Source: task.Source{Repository: "ext::id", Revision: commit}, Local: true}, "remote helpers are not allowed"},
		"option":          {Spec{Source: task.Source{Repository: "--upload-pack=id", Revision: commit}, Local: true}, "not a URL"},
		"option revision": {Spec{Source: task.Source{Repository: repo, Revision: "--all"}, Local: true}, "no commit, tag or branch"},
		"relative":        {Spec{Source: task.Source{Repository: "../x", Revision: commit}, Local: true}, "expected an https"},
		"no archive":      {Spec{Source: task.Source{Archive: "/no/such.tar.gz"}}, "source archive"},
	} {
		s, _ := store(t)
		_, err := s.Prepare(t.Context(), tt.spec, &bytes.Buffer{})
		var build *BuildError
		if !errors.As(err, &build) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v; want %q", name, err, tt.want)
		}
	}
}

// A hook in a repository, or in the templates of the user, is not run.
func TestHooksAreNotRun(t *testing.T) {
	repo, commit := repository(t, map[string]string{"x": "y"})
	ran := filepath.Join(t.TempDir(), "ran")
	hook := "#!/bin/sh\ntouch " + ran + "\n"
	template := t.TempDir()
	t.Setenv("GIT_TEMPLATE_DIR", template)
	for _, dir := range []string{filepath.Join(repo, ".git/hooks"), filepath.Join(template, "hooks")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"post-checkout", "post-merge", "reference-transaction", "pre-receive", "update"} {
			executable.Write(t, filepath.Join(dir, name), hook)
		}
	}
	s, _ := store(t)
	if _, err := s.Prepare(t.Context(), Spec{Source: task.Source{Repository: repo, Revision: commit}, Local: true}, &bytes.Buffer{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("a hook was run")
	}
}

func TestUnfinishedBuildIsNotUsed(t *testing.T) {
	repo, commit := repository(t, map[string]string{"x": "y"})
	s, _ := store(t)
	spec := Spec{Source: task.Source{Repository: repo, Revision: commit}, Local: true}
	left := filepath.Join(s.Dir, spec.key(), "killed", "source")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	env, err := s.Prepare(t.Context(), spec, &bytes.Buffer{})
	if err != nil || env.Source == left || env.Venv != "" {
		t.Errorf("%+v, %v", env, err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("what a killed build left is still there")
	}
	if err := s.Prune(clock.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(env.Source); err != nil {
		t.Errorf("a used environment is removed: %v", err)
	}
	if err := s.Prune(clock.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(env.Source); err == nil {
		t.Error("an unused environment stays")
	}
}

func TestAskedForAgainAfterItsEnd(t *testing.T) {
	repo, commit := repository(t, map[string]string{"x": "y"})
	s, _ := store(t)
	spec := Spec{Source: task.Source{Repository: repo, Revision: commit}, Local: true}
	for range 2 {
		env, err := s.Prepare(t.Context(), spec, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(env.Source, "x")); err != nil || string(b) != "y" {
			t.Errorf("%q, %v", b, err)
		}
		if err := s.Prune(clock.Now().Add(time.Hour)); err != nil { // as another tool does
			t.Fatal(err)
		}
	}
}

func TestAskingKeepsAnEnvironment(t *testing.T) {
	repo, commit := repository(t, map[string]string{"x": "y"})
	s, _ := store(t)
	spec := Spec{Source: task.Source{Repository: repo, Revision: commit}, Local: true}
	long := time.Now().Add(-100 * time.Hour)
	var env Environment
	for range 2 {
		var err error
		if env, err = s.Prepare(t.Context(), spec, &bytes.Buffer{}); err != nil {
			t.Fatal(err)
		}
		if err := s.Prune(clock.Now().Add(-50 * time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(env.Source); err != nil {
			t.Fatalf("it was asked for, and is gone: %v", err)
		}
		if err := os.Chtimes(filepath.Join(s.Dir, spec.key()), long, long); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKeptRepositoriesGoAfterTheirEnvironments(t *testing.T) {
	repo, commit := repository(t, map[string]string{"x": "y"})
	s, _ := store(t)
	spec := Spec{Source: task.Source{Repository: repo, Revision: commit}, Local: true}
	env, err := s.Prepare(t.Context(), spec, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	mirrors := func() []string {
		found, err := filepath.Glob(filepath.Join(s.Dir, repositories, "*.git"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	all := mirrors()
	if len(all) != 1 {
		t.Fatalf("kept repositories: %q", all)
	}
	long := time.Now().Add(-100 * time.Hour)
	age := func(path string) {
		if err := os.Chtimes(path, long, long); err != nil {
			t.Fatal(err)
		}
	}
	prune := func() {
		if err := s.Prune(clock.Now().Add(-50 * time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	age(all[0])
	prune()
	if len(mirrors()) != 1 {
		t.Fatal("a repository is gone that an environment borrows from")
	}
	if out, err := command.System.Run(t.Context(), command.Cmd{Name: "git", Args: []string{"-C", env.Source, "fsck"}}); err != nil {
		t.Errorf("%v: %s", err, out.Stderr)
	}
	age(all[0])
	age(filepath.Join(s.Dir, spec.key()))
	prune()
	if got := mirrors(); len(got) != 0 {
		t.Errorf("kept repositories that nobody needs: %q", got)
	}
}

func TestHostileArchive(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	if err := w.WriteHeader(&tar.Header{Name: "../x", Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	for name, contents := range map[string][]byte{"leads out": b.Bytes(), "text": []byte("text")} {
		path := filepath.Join(t.TempDir(), "a.tar.gz")
		if err := os.WriteFile(path, contents, 0o600); err != nil {
			t.Fatal(err)
		}
		s, _ := store(t)
		_, err := s.Prepare(t.Context(), Spec{Source: task.Source{Archive: path}}, &bytes.Buffer{})
		var build *BuildError
		if !errors.As(err, &build) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// slow runs an install script until it is told to go on, and needs no virtual environment for it.
type slow struct {
	command.Runner
	started, goOn chan struct{}
}

func (s *slow) Run(ctx context.Context, cmd command.Cmd) (command.Result, error) {
	switch cmd.Name {
	case "python3":
		return command.Result{}, nil
	case "bash":
	default:
		return s.Runner.Run(ctx, cmd)
	}
	close(s.started)
	select {
	case <-s.goOn:
		return command.Result{}, nil
	case <-ctx.Done():
		return command.Result{}, context.Cause(ctx)
	}
}

// waiting returns how many callers wait for an environment.
func (s *Store) waiting(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.underWay[key]; b != nil {
		return b.needed
	}
	return 0
}

// A task that is stopped neither waits for the building that others need as well,
// nor ends it.
func TestStoppedTaskLeavesTheBuildingToOthers(t *testing.T) {
	repo, commit := repository(t, map[string]string{InstallScript: "true"})
	run := &slow{command.System, make(chan struct{}), make(chan struct{})}
	s := &Store{Dir: filepath.Join(t.TempDir(), "envs"), Run: run, Timeout: 10 * time.Minute}
	spec := Spec{Source: task.Source{Repository: repo, Revision: commit}, Python: "python3", Local: true}
	stopped := errors.New("stopped")
	type answer struct {
		env Environment
		err error
	}
	prepare := func(ctx context.Context) chan answer {
		c := make(chan answer, 1)
		go func() {
			env, err := s.Prepare(ctx, spec, &bytes.Buffer{})
			c <- answer{env, err}
		}()
		return c
	}
	first, stopFirst := context.WithCancelCause(t.Context())
	one := prepare(first)
	select {
	case <-run.started:
	case a := <-one:
		t.Fatalf("%+v before the install script", a)
	}
	second, stopSecond := context.WithCancelCause(t.Context())
	two, three := prepare(second), prepare(t.Context())
	for range 60_000 { // a minute
		if s.waiting(spec.key()) == 3 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	stopFirst(stopped)
	stopSecond(stopped)
	for _, c := range []chan answer{one, two} {
		select {
		case a := <-c:
			if !errors.Is(a.err, stopped) {
				t.Errorf("%+v; want what stopped it", a)
			}
		case <-time.After(time.Minute):
			t.Fatal("a stopped task waits for the building")
		}
	}
	close(run.goOn)
	if a := <-three; a.err != nil || a.env.Source == "" {
		t.Errorf("%+v; want the environment", a)
	}
}

// Nobody is left who needs it: the building ends.
func TestBuildingEndsWithTheLastOfThoseWhoNeedIt(t *testing.T) {
	repo, commit := repository(t, map[string]string{InstallScript: "true"})
	run := &slow{command.System, make(chan struct{}), make(chan struct{})}
	s := &Store{Dir: filepath.Join(t.TempDir(), "envs"), Run: run, Timeout: 10 * time.Minute}
	spec := Spec{Source: task.Source{Repository: repo, Revision: commit}, Python: "python3", Local: true}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-run.started
		cancel()
	}()
	if _, err := s.Prepare(ctx, spec, &bytes.Buffer{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	run.started = make(chan struct{})
	close(run.goOn)
	if _, err := s.Prepare(t.Context(), spec, &bytes.Buffer{}); err != nil {
		t.Errorf("prepared again: %v", err)
	}
}
