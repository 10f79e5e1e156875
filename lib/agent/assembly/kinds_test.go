package assembly

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/config"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// A paper is a queue with one task. What it does not have it must not be asked.
type paper struct {
	queue.Queue
	state task.State
	log   string
}

const onPaper task.ID = "aaaaaaaa"

func (*paper) Register(context.Context) (queue.Identity, error) {
	return queue.Identity{Agent: "me"}, nil
}
func (*paper) Claim(context.Context, task.ID) error                            { return nil }
func (*paper) Explain(map[task.ID]string) error                                { return nil }
func (q *paper) State(context.Context, task.ID) (task.State, error)            { return q.state, nil }
func (*paper) Artifacts(context.Context, task.ID) ([]task.Artifact, error)     { return nil, nil }
func (*paper) Offline(context.Context, task.Task) (o queue.Offline, err error) { return o, nil }

func (q *paper) Actions(_ context.Context, has func(task.ID) bool) ([]task.Action, error) {
	if q.state.Final() || has(onPaper) {
		return nil, nil
	}
	return []task.Action{{Kind: task.Start, ID: onPaper}}, nil
}

func (*paper) Task(context.Context, task.ID) (task.Task, error) {
	return task.Task{ID: onPaper, Slug: "hello", Command: []string{"sh", "-c", "echo hello $NAME; exit 3"}, Env: map[string]string{"NAME": "you"}}, nil
}

func (q *paper) Report(_ context.Context, _ task.ID, r task.Report) error {
	q.state = r.State
	return nil
}

func (q *paper) PutLog(_ context.Context, _ task.ID, log io.ReadSeeker) error {
	b, err := io.ReadAll(log)
	q.log = string(b)
	return err
}

// A batch is a batch system of one job. Its mode is itself.
type batch struct{ job runner.Job }

func (*batch) place(context.Context, *System, string) (string, error) { return "here", nil }
func (*batch) can() abilities                                         { return abilities{where: "in a batch"} }
func (b *batch) open(context.Context, *System, Options) (runner.Runner, error) {
	return b, nil
}

func (*batch) Name() string { return "batch" }
func (*batch) Check(context.Context) (runner.Checked, error) {
	return runner.Checked{Detail: "paper feed"}, nil
}
func (b *batch) Can() runner.Abilities                { return runner.Abilities{Remote: b} }
func (*batch) Stop(context.Context, runner.Ref) error { return nil }
func (*batch) Preview(context.Context, runner.Submission) (p runner.Preview, err error) {
	return p, nil
}

func (*batch) Place(_ context.Context, t task.Task) (map[string]string, []string, error) {
	return t.Env, t.Command, nil
}

func (b *batch) Jobs(_ context.Context, known func() ([]runner.Ref, error)) ([]runner.Job, error) {
	if _, err := known(); err != nil || b.job.ID == "" {
		return nil, err
	}
	return []runner.Job{b.job}, nil
}

func (b *batch) Start(ctx context.Context, s runner.Submission) (runner.Job, error) {
	words := func(name string) []string {
		text, err := os.ReadFile(filepath.Join(s.Dir, name))
		if err != nil {
			return nil
		}
		return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	}
	argv := words(runner.CommandFile)
	out, err := runner.OpenOutput(s.Dir)
	if err != nil {
		return runner.Job{}, err
	}
	defer out.Close()
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Env, c.Stdout = append(os.Environ(), words(runner.EnvFile)...), out
	err = c.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return runner.Job{}, err
	}
	b.job = runner.Job{Task: s.Task, ID: "1", Sight: runner.Ended, End: runner.End{State: task.Failed, ExitCode: exit.ExitCode()}}
	return b.job, nil
}

// A queue and a batch system that the project does not know take a row each: an agent of both runs a task to its end.
func TestAnotherQueueAndAnotherBatchSystem(t *testing.T) {
	q := &paper{state: task.Pending}
	queues = append(queues, queueKind{
		Kind: config.Kind{Name: "paper", Place: "TRAY"},
		open: func(context.Context, *System, Options) (opened, error) { return opened{Queue: q}, nil },
	})
	modes = append(modes, modeKind{
		Kind:     config.Kind{Name: "batch"},
		new:      func(config.Config) mode { return &batch{} },
		programs: func(config.Config) []Program { return []Program{{Name: "qsub"}} },
	})
	defer func() { queues, modes = queues[:len(queues)-1], modes[:len(modes)-1] }()
	dir := t.TempDir()
	write := func(text string) string {
		path := filepath.Join(dir, "ponos.yaml")
		if err := os.WriteFile(path, []byte(text+"\ndata_dir: data\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	_, err := Configuration(write("queue: pager:1\nmode: bath"))
	for _, want := range []string{
		`queue: invalid value "pager:1": expected "spool:DIR", "arkindex" or "paper:TRAY"`,
		`mode: invalid value "bath": expected "vast", "slurm", "local" or "batch"`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
	}
	c, err := Configuration(write("queue: paper:1\nmode: batch"))
	if err != nil {
		t.Fatal(err)
	}
	if p := Programs(c); len(p) != 1 || p[0].Name != "qsub" || Where(c) != "in a batch" || HasDaemon(c) || Near(c) || RunsImages(c) || Copies(c) {
		t.Errorf("%+v, %s", p, Where(c))
	}
	if _, err := Client(c, nil); err == nil || !strings.Contains(err.Error(), "is paper:1, which is not a spool") {
		t.Error(err)
	}
	var said bytes.Buffer
	p, err := New(t.Context(), c, Options{Stderr: &said, Tool: "test", Create: true, Turns: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { p.Close(nil) }()
	actions, err := p.Agent.Poll(t.Context())
	if err != nil || len(actions) != 1 {
		t.Fatalf("%+v, %v", actions, err)
	}
	if o, err := p.Agent.Start(t.Context(), actions[0].ID); err != nil {
		t.Fatalf("%+v, %v", o, err)
	}
	if actions, err = p.Agent.Poll(t.Context()); err != nil || len(actions) != 0 {
		t.Errorf("%+v, %v", actions, err)
	}
	if q.state != task.Failed || !strings.Contains(q.log, "hello you\n") || said.Len() != 0 {
		t.Errorf("%s, log %q, said %q", q.state, q.log, said.String())
	}
}
