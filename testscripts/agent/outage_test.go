package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/outage"
)

// Whatever a git host or a package index does instead of answering, a task waits, with the reason and the next try in
// ponos-list, and runs once the host has answered.
func TestOutages(t *testing.T) {
	t.Parallel()
	harness.Programs(t, "git", "python3")
	w := newOutages(t)
	for _, c := range []struct {
		server *outage.Server
		fault  outage.Fault
		want   string // in the reason
	}{
		{w.git, outage.Refused, "Failed to connect to"},
		{w.git, outage.Hangs, "no answer within 5s"},
		{w.git, outage.Cut, "git: "},
		{w.git, outage.Page, "it has no branches"},
		{w.git, "401", "could not read Username"},
		{w.git, "404", "Not Found"},
		{w.git, "503", "The requested URL returned error: 503"},
		{nil, "name", "Could not resolve host"},
		{w.index, outage.Refused, "Failed to establish a new connection"},
		{w.index, outage.Hangs, "Read timed out"},
		{w.index, outage.Cut, "installing the task's code: "},
		{w.index, outage.Page, "installing the task's code: "},
		{w.index, "401", "/simple/greeting/: 401 Client Error: Unauthorized"},
		{w.index, "403", "/simple/greeting/: 403 Client Error: Forbidden"},
		{w.index, "500", "/simple/greeting/: too many 500 error responses"},
		{w.index, "502", "/simple/greeting/: 502 Server Error: Bad Gateway"},
	} {
		name := "git"
		if c.server == w.index {
			name = "index"
		}
		t.Run(name+" "+string(c.fault), func(t *testing.T) {
			w.t = t
			w.breaks(c.server, c.fault)
			id := w.submit("requirements.txt", "greeting==1.0\n")
			w.turn()
			w.turn() // tells the queue
			if state, reason := w.task(id); state != "pending" || !strings.HasPrefix(reason, "preparing: ") ||
				!strings.Contains(reason, c.want) || !strings.Contains(reason, "; next try at ") || strings.Contains(reason, "secret") {
				t.Errorf("%s, %q; want %q", state, reason, c.want)
			}
			w.breaks(c.server, "")
			w.later()
			w.ends(id, "completed", "1.0")
		})
	}
}

// An index that is broken for long ends no task, and one that has answered as a whole, and has only other versions, ends it in
// the second try.
func TestBrokenIndex(t *testing.T) {
	t.Parallel()
	harness.Programs(t, "git", "python3")
	w := newOutages(t)
	w.breaks(w.index, "502")
	id := w.submit("requirements.txt", "greeting==1.0\n")
	for range 8 {
		w.turn()
		if state, reason := w.task(id); state != "pending" {
			t.Fatalf("%s: %s", state, reason)
		}
		w.later()
	}
	w.breaks(w.index, "")
	w.ends(id, "completed", "1.0")
	id = w.submit("requirements.txt", "greeting==9.0\n")
	w.turn()
	w.turn()
	if state, reason := w.task(id); state != "pending" || !strings.Contains(reason, "(from versions: 1.0, 1.1)") {
		t.Errorf("%s, %q", state, reason)
	}
	w.later()
	w.turn()
	if state, reason := w.task(id); state != "error" || !strings.Contains(reason, "(from versions: 1.0, 1.1); it was tried 2 times in 11m") {
		t.Errorf("%s, %q", state, reason)
	}
}

// outages is an agent of mode local whose tasks have code, and the hosts of that.
type outages struct {
	t          *testing.T
	dir        string
	git, index *outage.Server
	env        []string
	ahead      time.Duration // of the clock of the tools
	pushed     int
}

func newOutages(t *testing.T) *outages {
	t.Helper()
	w := &outages{t: t, dir: t.TempDir()}
	git, err := outage.Git(w.file("hosted"))
	w.must(err)
	w.git, err = outage.Serve(git)
	w.must(err)
	t.Cleanup(func() { _ = w.git.Close() })
	index, err := outage.Index(map[string][]string{"greeting": {"1.0", "1.1"}})
	w.must(err)
	w.index, err = outage.Serve(index)
	w.must(err)
	t.Cleanup(func() { _ = w.index.Close() })
	w.env = []string{
		"PATH=" + harness.Bin + ":" + os.Getenv("PATH"), "HOME=" + w.file("home"), "PONOS_CONFIG=" + w.file("ponos.yaml"), "LC_ALL=C", "TZ=UTC",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.org", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.org",
		// Nothing but the index of the test.
		"PIP_CONFIG_FILE=/dev/null", "PIP_INDEX_URL=http://u:secret@" + w.index.Address + "/simple", "PIP_RETRIES=0",
	}
	for _, dir := range []string{"home", "hosted"} {
		w.must(os.Mkdir(w.file(dir), 0o700))
	}
	w.patient(10*time.Minute, time.Minute)
	w.run("git", "init", "-q", "--bare", "-b", "main", w.file("hosted/r.git"))
	w.run("git", "init", "-q", "-b", "main", w.file("work"))
	t.Cleanup(func() { killLocalJobs(w.dir, w.dir) })
	return w
}

// patient sets how long git and pip wait: a host that hangs is not to take long, and a busy machine is none.
func (w *outages) patient(git, pip time.Duration) {
	w.t.Helper()
	w.must(os.WriteFile(w.file("ponos.yaml"), fmt.Appendf(nil, `mode: local
queue: "spool:%[1]s/spool"
data_dir: "%[1]s/data"
pid_file: "%[1]s/pid"
local: {max_jobs: 1}
environments: {timeout: %[2]v}
`, w.dir, git), 0o600))
	w.env = append(w.env, fmt.Sprintf("PIP_TIMEOUT=%d", int(pip.Seconds())))
}

func (w *outages) file(name string) string { return filepath.Join(w.dir, name) }

func (w *outages) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *outages) run(words ...string) string {
	w.t.Helper()
	c := exec.Command(words[0], words[1:]...)
	c.Env, c.Dir = append(w.env, fmt.Sprintf("%s=%+ds", clock.Variable, int(w.ahead.Seconds()))), w.dir
	var complaints strings.Builder
	c.Stderr = &complaints
	out, err := c.Output()
	if err != nil {
		w.t.Fatalf("%q: %v\n%s%s", words, err, out, complaints.String())
	}
	return strings.TrimSpace(string(out))
}

// breaks breaks a server, or mends it; nil: the name of the git host does not resolve, as no name does that has such a label.
func (w *outages) breaks(s *outage.Server, f outage.Fault) {
	w.t.Helper()
	git, pip := 10*time.Minute, time.Minute
	switch {
	case f == outage.Hangs && s == w.git:
		git = 5 * time.Second
	case f == outage.Hangs:
		pip = 2 * time.Second
	}
	w.patient(git, pip)
	if s != nil {
		w.must(s.Break(f))
		return
	}
	w.must(os.WriteFile(w.file("home/.gitconfig"), nil, 0o600))
	if f != "" {
		w.run("git", "config", "--global", "url.http://"+strings.Repeat("x", 64)+".example/.insteadOf", "http://"+w.git.Address+"/")
	}
}

// submit submits a task of a new commit, which prints the version of the package greeting.
func (w *outages) submit(file, text string) string {
	w.t.Helper()
	w.pushed++
	w.must(os.WriteFile(w.file("work/"+file), fmt.Appendf(nil, "%s# %d\n", text, w.pushed), 0o600))
	w.run("git", "-C", w.file("work"), "add", "-A")
	w.run("git", "-C", w.file("work"), "commit", "-qm", "x")
	w.run("git", "-C", w.file("work"), "push", "-q", w.file("hosted/r.git"), "main")
	commit := w.run("git", "-C", w.file("work"), "rev-parse", "HEAD")
	return w.run("ponos-submit", "--repository", "http://"+w.git.Address+"/r.git", "--revision", commit,
		"--", "python", "-c", "import greeting; print(greeting.VERSION)")
}

func (w *outages) turn() {
	w.t.Helper()
	w.run("bash", "-c", "set -o pipefail; ponos-poll | ponos-stop | ponos-start || [ $? = 1 ]") // 1: a task has failed
}

// later lets more time pass than any pause takes.
func (w *outages) later() { w.ahead += 11 * time.Minute }

// task returns the state of a task, and the reason.
func (w *outages) task(id string) (state, reason string) {
	w.t.Helper()
	return w.run("bash", "-c", `ponos-list --json "$1" | grep -o '"state":"[^"]*"' | cut -d'"' -f4`, "task", id),
		w.run("bash", "-c", `ponos-list --json "$1" | grep -o '"reason":"[^"]*"' | cut -d'"' -f4`, "task", id)
}

// ends takes turns until a task has ended.
func (w *outages) ends(id, want, line string) {
	w.t.Helper()
	state, reason := "", ""
	if !harness.Wait(func() bool {
		w.turn()
		if state, reason = w.task(id); strings.HasPrefix(reason, "preparing: ") {
			w.later()
		}
		return state != "pending" && state != "running"
	}) || state != want {
		w.t.Fatalf("%s: %s\n%s", state, reason, w.run("ponos-log", id))
	}
	if log := w.run("ponos-log", id); !strings.Contains(log, "\n"+line+"\n") {
		w.t.Errorf("log:\n%s", log)
	}
}
