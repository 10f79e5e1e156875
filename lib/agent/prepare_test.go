package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/agent/code/transfer"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// codeQueue has tasks with code, by id: each in the repository that it names.
type codeQueue struct {
	plainQueue
	code     map[task.ID]string
	reported map[task.ID]task.Report
	explain  map[task.ID]string
}

func (q *codeQueue) Actions(context.Context, func(task.ID) bool) (all []task.Action, err error) {
	for id := range q.code {
		if _, over := q.reported[id]; !over {
			all = append(all, task.Action{Kind: task.Start, ID: id})
		}
	}
	return all, nil
}

func (q *codeQueue) Task(_ context.Context, id task.ID) (task.Task, error) {
	return task.Task{ID: id, State: task.Pending, Command: []string{"true"}, Source: task.Source{Repository: q.code[id], Revision: "main"}}, nil
}

func (q *codeQueue) Claim(context.Context, task.ID) error { return nil }

func (q *codeQueue) PutLog(context.Context, task.ID, io.ReadSeeker) error { return nil }

func (q *codeQueue) Report(_ context.Context, id task.ID, r task.Report) error {
	q.reported[id] = r
	return nil
}

func (q *codeQueue) Explain(why map[task.ID]string) error {
	q.explain = why
	return nil
}

// codeRunner starts jobs that stay pending.
type codeRunner struct{ plainRunner }

func (codeRunner) Name() string { return "code" }

func (codeRunner) Start(_ context.Context, s runner.Submission) (runner.Job, error) {
	return runner.Job{Task: s.Task, ID: "7", Sight: runner.Waits}, nil
}

func (codeRunner) Jobs(_ context.Context, known func() ([]runner.Ref, error)) (jobs []runner.Job, err error) {
	refs, err := known()
	for _, r := range refs {
		jobs = append(jobs, runner.Job{Task: r.Task, ID: r.Job, Sight: runner.Waits})
	}
	return jobs, err
}

// forge is git with hosts that are here, as directories by address, or away; and an install script that fails.
type forge struct {
	here     map[string]string
	away     bool
	fails    bool
	asked    []string // addresses that were fetched from
	installs int
}

func (f *forge) Run(ctx context.Context, c command.Cmd) (command.Result, error) {
	if at := slices.IndexFunc(c.Args, func(s string) bool { return strings.HasPrefix(s, "git://") }); at >= 0 && slices.Contains(c.Args, "fetch") {
		f.asked = append(f.asked, c.Args[at])
		if f.away && strings.HasPrefix(c.Args[at], "git://git.example.org/") {
			return command.Result{}, &command.ExitError{Name: "git", Code: 128, Stderr: "fatal: unable to connect to git.example.org:\nerrno=Connection refused\n"}
		}
		c.Args[at] = f.here[c.Args[at]]
	}
	switch c.Name {
	case "python3":
		return command.Result{}, nil
	case "bash":
		f.installs++
		if f.fails {
			return command.Result{}, &command.ExitError{Name: "bash", Code: 9}
		}
		return command.Result{}, nil
	}
	return command.System.Run(ctx, c)
}

// preparing is an agent whose tasks have code, and the time that it sees.
type preparing struct {
	*Agent
	t     *testing.T
	queue *codeQueue
	forge *forge
	time  time.Time
}

func newPreparing(t *testing.T, code map[task.ID]string, files ...string) *preparing {
	t.Helper()
	needs.Programs(t, "git")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", "")
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	repo := t.TempDir()
	for _, name := range append(files, "x") {
		if err := os.WriteFile(filepath.Join(repo, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q", "-b", "main"}, {"add", "-A"}, {"-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "x"}} {
		if _, err := command.System.Run(t.Context(), command.Cmd{Name: "git", Args: args, Dir: repo}); err != nil {
			t.Fatal(err)
		}
	}
	p := &preparing{
		t: t, queue: &codeQueue{code: code, reported: map[task.ID]task.Report{}}, forge: &forge{here: map[string]string{}},
		time: time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC),
	}
	for _, address := range code {
		p.forge.here[address] = repo
	}
	store, dir := testStore(t), t.TempDir()
	p.Agent = &Agent{
		Queue: p.queue, Runner: codeRunner{}, Store: store, Log: slog.New(slog.DiscardHandler), TaskFormat: "%(message)s",
		Environments: &environment.Store{Dir: filepath.Join(dir, "envs"), Run: p.forge, Timeout: 10 * time.Minute},
		Transfers:    &transfer.Store{Queue: p.queue, Processes: filepath.Join(dir, "data"), Dir: filepath.Join(dir, "files")},
		Python:       "python3", LocalCode: true, GiveUp: 24 * time.Hour, Now: func() time.Time { return p.time },
	}
	p.Environments.Holds = p.Agent
	return p
}

// turn takes a turn and starts what it offers, one after the other. It returns what became of each task that was offered.
func (p *preparing) turn() map[task.ID]string {
	p.t.Helper()
	actions, err := p.Poll(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	slices.SortFunc(actions, func(a, b task.Action) int { return strings.Compare(string(a.ID), string(b.ID)) })
	events := map[task.ID]string{}
	for _, action := range actions {
		o, err := p.Start(p.t.Context(), action.ID)
		if err != nil {
			p.t.Fatal(err)
		}
		events[action.ID] = o.Event
	}
	return events
}

// A host that is away holds the tasks of it: one asks for all, the others wait, and none ends. When it
// has answered, all go on at once.
func TestAHostThatIsAway(t *testing.T) {
	code := map[task.ID]string{"other": "git://other.example.org/r"}
	for i := range 5 {
		code[task.ID(fmt.Sprintf("t%d", i))] = fmt.Sprintf("git://git.example.org/r%d", i%2)
	}
	p := newPreparing(t, code)
	p.forge.away = true
	events := p.turn()
	if events["other"] != "started" || events["t0"] != "deferred" || events["t4"] != "deferred" || len(p.forge.asked) != 2 {
		t.Fatalf("%v, asked %q; want one try at each host", events, p.forge.asked)
	}
	if events = p.turn(); len(events) != 0 {
		t.Errorf("offered within the pause: %v", events)
	}
	if why := p.queue.explain["t3"]; !strings.HasPrefix(why, "preparing: repository git://git.example.org/r0: git: fatal: unable to connect to git.example.org") ||
		!strings.Contains(why, "; next try at ") {
		t.Errorf("t3 waits as %q", why)
	}
	view, err := ReadView(p.Store.Dir)
	if err != nil || len(view.Held) != 1 || view.Held[0].Kind != "host git.example.org" {
		t.Errorf("%+v, %v", view.Held, err)
	}
	for range 6 { // more tries than a failure of the code itself is given
		p.time = p.time.Add(longestPause)
		asked := len(p.forge.asked)
		if events = p.turn(); len(events) != 5 || len(p.forge.asked) != asked+1 {
			t.Fatalf("%v, asked %d times; want one try for five tasks", events, len(p.forge.asked)-asked)
		}
	}
	p.forge.away, p.time = false, p.time.Add(longestPause)
	if events = p.turn(); len(events) != 5 || len(p.queue.reported) != 0 {
		t.Errorf("%v; %v", events, p.queue.reported)
	}
	for id, event := range events {
		if event != "started" {
			t.Errorf("%s is %s", id, event)
		}
	}
	if len(p.readBreakers()) != 0 {
		t.Errorf("still held: %v", p.readBreakers())
	}
}

func (p *preparing) readBreakers() map[string]breaker { return p.Store.readBreakers() }

// A task whose code is away for longer than GiveUp ends with the last cause.
func TestCodeIsGivenUp(t *testing.T) {
	p := newPreparing(t, map[task.ID]string{"a": "git://git.example.org/r", "b": "git://git.example.org/r"})
	p.forge.away = true
	p.turn()
	p.time = p.time.Add(p.GiveUp)
	if events := p.turn(); events["a"] != "failed" || events["b"] != "failed" {
		t.Errorf("%v", events)
	}
	for id, r := range p.queue.reported {
		if r.State != task.Error || !strings.Contains(r.Reason, "unable to connect to git.example.org") {
			t.Errorf("%s: %+v", id, r)
		}
	}
}

// Code that cannot be installed although all has answered is tried for some minutes, once for all of its
// tasks, and then they end.
func TestCodeThatFails(t *testing.T) {
	p := newPreparing(t, map[task.ID]string{"a": "git://git.example.org/r", "b": "git://git.example.org/r"}, environment.InstallScript)
	p.forge.fails = true
	began := p.time
	for turns := 0; len(p.queue.reported) < 2; turns++ {
		if turns > 1000 {
			t.Fatalf("still not ended: %v", p.queue.reported)
		}
		p.turn()
		p.time = p.time.Add(10 * time.Second)
	}
	if took := p.time.Sub(began); p.forge.installs != environment.Enough || took < 5*time.Minute || took > 10*time.Minute {
		t.Errorf("%d installations in %s", p.forge.installs, took)
	}
	if r := p.queue.reported["b"]; r.State != task.Error || !strings.Contains(r.Reason, "installing the task's code: bash: exit status 9") {
		t.Errorf("%+v", r)
	}
	// Without patience, the first failure ends a task.
	p = newPreparing(t, map[task.ID]string{"a": "git://git.example.org/r"}, environment.InstallScript)
	p.forge.fails, p.GiveUp = true, 0
	if events := p.turn(); events["a"] != "failed" {
		t.Errorf("%v", events)
	}
}

// fileQueue has tasks without code that need a file, by id: each from the address that it names.
type fileQueue struct {
	*codeQueue
	files map[task.ID]string
	fail  error // of GetFile
	asked int
	rules string
	tries []task.Attempt
}

func (q *fileQueue) Actions(context.Context, func(task.ID) bool) (all []task.Action, err error) {
	for id := range q.files {
		if _, over := q.reported[id]; !over {
			all = append(all, task.Action{Kind: task.Start, ID: id})
		}
	}
	return all, nil
}

func (q *fileQueue) Task(_ context.Context, id task.ID) (task.Task, error) {
	return task.Task{
		ID: id, State: task.Pending, Command: []string{"true"}, Retry: q.rules,
		Files: []task.File{{Name: string(id), URL: q.files[id]}},
	}, nil
}

func (q *fileQueue) GetFile(context.Context, task.File, *os.File) error {
	q.asked++
	return q.fail
}

func (q *fileQueue) State(context.Context, task.ID) (task.State, error) { return task.Pending, nil }

func (q *fileQueue) PutAttempt(_ context.Context, _ task.ID, a task.Attempt, _ io.ReadSeeker) error {
	q.tries = append(q.tries, a)
	return nil
}

type answered struct{ error }

func (answered) Answered() bool { return true }

func newDownloading(t *testing.T, rules string, files map[task.ID]string) (*preparing, *fileQueue) {
	t.Helper()
	p := newPreparing(t, nil)
	q := &fileQueue{codeQueue: p.queue, files: files, rules: rules}
	p.Queue, p.Transfers.Queue = q, q
	return p, q
}

// A store of objects that is away holds all tasks that need it, as a git server does; one that refuses a
// single object holds its task alone. Both wait with growing pauses, and are given up.
func TestAStoreThatIsAway(t *testing.T) {
	for name, c := range map[string]struct {
		fail error
		asks int // in a turn for three tasks
	}{
		"away":    {fault.Errorf(fault.Unavailable, "GET https://store.example.org/x: connection refused"), 1},
		"refused": {fault.Wrap(fault.Unavailable, answered{errors.New("GET https://store.example.org/x: 403 Forbidden")}), 3},
	} {
		t.Run(name, func(t *testing.T) {
			p, q := newDownloading(t, "", map[task.ID]string{
				"a": "https://store.example.org/a", "b": "https://store.example.org/b", "c": "https://store.example.org/c",
			})
			q.fail = c.fail
			for turn := range 4 {
				events := p.turn()
				if len(events) != 3 || events["a"] != "deferred" || q.asked != c.asks*(turn+1) {
					t.Fatalf("turn %d: %v, asked %d times; want %d for each turn", turn, events, q.asked, c.asks)
				}
				if events = p.turn(); len(events) != 0 {
					t.Errorf("offered within the pause: %v", events)
				}
				p.time = p.time.Add(longestPause)
			}
			if why := p.queue.explain["b"]; !strings.HasPrefix(why, "preparing: file ") || !strings.Contains(why, "store.example.org") {
				t.Errorf("b waits as %q", why)
			}
			q.fail = nil
			for id, event := range p.turn() {
				if event != "started" {
					t.Errorf("%s is %s", id, event)
				}
			}
			if len(p.readBreakers()) != 0 {
				t.Errorf("still held: %v", p.readBreakers())
			}
			p, q = newDownloading(t, "", map[task.ID]string{"a": "https://store.example.org/a"})
			q.fail = c.fail
			p.turn()
			p.time = p.time.Add(p.GiveUp)
			if events := p.turn(); events["a"] != "failed" {
				t.Errorf("%v", events)
			}
		})
	}
}

// A task that is refused what it needs ends, unless its rules name preparation: then it is tried again
// as often as they say.
func TestRetryOfPreparation(t *testing.T) {
	for rules, want := range map[string]int{"": 0, "oom, exit=1": 0, "prepare: 2": 2, "1": 1} {
		p, q := newDownloading(t, rules, map[task.ID]string{"a": "https://store.example.org/a"})
		q.fail = fmt.Errorf("%w: GET https://store.example.org/a: 404 Not Found", queue.ErrBroken)
		for turns := 0; len(p.queue.reported) == 0; turns++ {
			if turns > 10 {
				t.Fatalf("%q: still not ended", rules)
			}
			p.turn()
			p.time = p.time.Add(longestPause)
		}
		r := p.queue.reported["a"]
		if q.asked != want+1 || len(q.tries) != want || r.State != task.Error || !strings.Contains(r.Reason, "404 Not Found") {
			t.Errorf("%q: asked %d times, attempts %+v, %+v", rules, q.asked, q.tries, r)
		}
		for i, a := range q.tries {
			if a.Number != i+1 || a.Retry != "prepare" || a.Job != "" {
				t.Errorf("%q: %+v", rules, a)
			}
		}
	}
}
