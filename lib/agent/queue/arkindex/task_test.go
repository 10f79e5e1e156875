package arkindex_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/queue/arkindex"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

func TestTaskAndActions(t *testing.T) {
	needs.Localhost(t)
	for name, opt := range map[string]server.Options{
		"well-known paths": {NoDocument: true},
		"document":         {},
		"moved":            {Moved: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := setup(t, opt)
			run := &server.WorkerRun{Slug: "counter", Repository: "https://git.example.org/counter", Revision: "deadbeef1234"}
			b.addSpec(server.Spec{WorkerRuns: []*server.WorkerRun{run}, Storage: map[string]string{"training/m": "the model"}})
			ids := b.add(
				&server.Task{Slug: "first", Command: json.RawMessage(`"run --name 'a b' \"c\""`), Env: map[string]string{"X": "1"}},
				&server.Task{Slug: "second", Parents: []string{"first"}, WorkerRun: run.ID, RequiresGPU: true,
					Files: map[string]string{"model.bin": "training/m"}, TTL: 60},
			)
			want := []task.Action{{Kind: task.Start, ID: ids[0], Slug: "first"}}
			got := b.actions()
			want[0].Process = got[0].Process
			if !slices.Equal(got, want) || got[0].Process == "" {
				t.Fatalf("got %+v; want %+v", got, want)
			}
			first, err := b.q.Task(t.Context(), ids[0])
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(first.Command, []string{"run", "--name", "a b", "c"}) || first.Env["X"] != "1" ||
				first.Env["ARKINDEX_TASK_TOKEN"] == "" || first.Source != (task.Source{}) {
				t.Errorf("got %+v", first)
			}
			for _, state := range []task.State{task.Running, task.Completed} {
				if err := b.report(ids[0], state); err != nil {
					t.Fatal(err)
				}
			}
			got = b.actions()
			if len(got) != 1 || got[0].ID != ids[1] || !got[0].RequiresGPU || got[0].Repository != run.Repository {
				t.Fatalf("got %+v", got)
			}
			second, err := b.q.Task(t.Context(), ids[1])
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(second.Parents, []task.Parent{{ID: ids[0], Slug: "first"}}) || second.TTL != time.Minute ||
				second.Source != (task.Source{Repository: run.Repository, Revision: run.Revision}) || second.Worker != "counter" {
				t.Errorf("got %+v", second)
			}
			if got := b.download(func(to *os.File) error { return b.q.GetFile(t.Context(), second.Files[0], to) }); got != "the model" {
				t.Errorf("file holds %q", got)
			}
			if err := b.server.Stop("second"); err != nil {
				t.Fatal(err)
			}
			// What is remembered of a task makes the stop filterable as well.
			if got := b.actions(); len(got) != 1 || got[0].Kind != task.Stop || got[0].Slug != "second" {
				t.Errorf("got %+v", got)
			}
			if err := b.report(ids[1], task.Stopped); err != nil {
				t.Error(err)
			}
			if got := b.actions(); len(got) != 0 {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// A turn by cron is a new process. It need not ask again for what is still to be
// started.
func TestParticularsAreKept(t *testing.T) {
	b := setup(t, server.Options{})
	run := &server.WorkerRun{Slug: "w", Repository: "https://me:password@git.example.org/w", Revision: "abc"}
	b.addSpec(server.Spec{WorkerRuns: []*server.WorkerRun{run}})
	b.add(&server.Task{Slug: "one", WorkerRun: run.ID, RequiresGPU: true})
	first := b.actions()
	if len(first) != 1 || first[0].Repository != "https://git.example.org/w" {
		t.Fatalf("got %+v", first)
	}
	b.server.Forget()
	b.q = b.another()
	if got := b.actions(); !slices.Equal(got, first) {
		t.Errorf("got %+v; want %+v", got, first)
	}
	if r := b.server.Requests(""); len(r) != 1 {
		t.Errorf("requests %+v; want one", r)
	}
}

// What a task needs and the instance refuses is no reason to wait.
func TestTaskThatCannotRun(t *testing.T) {
	b := setup(t, server.Options{})
	id := b.add(&server.Task{Slug: "one", WorkerRun: server.NewID()})[0]
	if got := b.actions(); len(got) != 1 || got[0].ID != id {
		t.Errorf("got %+v", got)
	}
	_, err := b.q.Task(t.Context(), id)
	if fault.KindOf(err) != fault.Failed || !errors.Is(err, queue.ErrBroken) || !strings.Contains(fmt.Sprint(err), "404 Not Found: Not found.") || errors.Is(err, queue.ErrGone) {
		t.Errorf("got %v", err)
	}
	b.server.Break(server.Fault{Operation: "RetrieveWorkerRun", Kind: "status", Status: 503, Count: -1})
	got, err := b.q.Actions(t.Context(), nil)
	if len(got) != 0 {
		t.Errorf("passed on: %+v", got)
	}
	b.refusal(err, "task "+string(id)+": start waits for the next turn: worker run: GET")
	_, err = b.q.Task(t.Context(), id)
	b.refusal(err, "503 Service Unavailable")
}

func TestReport(t *testing.T) {
	b := setup(t, server.Options{})
	ids := b.add(&server.Task{Slug: "quick"}, &server.Task{Slug: "twice"}, &server.Task{Slug: "back"})
	b.actions()
	if err := b.report(ids[0], task.Failed); err != nil {
		t.Errorf("over before we looked: %v", err)
	}
	if got := b.history("quick"); got != "unscheduled,pending,running,failed" {
		t.Errorf("history %s", got)
	}
	for range 2 {
		if err := b.report(ids[1], task.Running); err != nil {
			t.Errorf("the same again: %v", err)
		}
	}
	if err := b.report(ids[1], task.Completed); err != nil {
		t.Fatal(err)
	}
	// A preempted job waits again. The queue knows no way back.
	for _, state := range []task.State{task.Running, task.Pending, task.Running, task.Pending} {
		if err := b.report(ids[2], state); err != nil {
			t.Errorf("back to %s: %v", state, err)
		}
	}
	// It ends just when somebody wants it stopped.
	if err := b.server.Stop("back"); err != nil {
		t.Fatal(err)
	}
	for _, state := range []task.State{task.Running, task.Completed, task.Stopped, task.Completed} {
		if err := b.report(ids[2], state); err != nil {
			t.Errorf("%s while stopping: %v", state, err)
		}
	}
	if got := b.history("back"); got != "unscheduled,pending,running,stopping,stopped" {
		t.Errorf("history %s", got)
	}
	// Stopped by somebody at this machine, which the queue has no word for.
	if err := b.report(b.add(&server.Task{Slug: "waits", State: "pending", Agent: b.agent()})[0], task.Stopped); err != nil {
		t.Error(err)
	}
	if got := b.history("waits"); !strings.HasSuffix(got, "running,error") {
		t.Errorf("history %s", got)
	}
	err := b.report(b.add(&server.Task{Slug: "odd", State: "unscheduled", Agent: b.agent()})[0], task.Running)
	b.refusal(err, "Transition from state unscheduled to state running is forbidden.")
	if n := len(b.waits); n > 0 {
		t.Errorf("waited %d times", n)
	}
}

// The answer to a report may be lost on its way.
func TestReportWithLostAnswer(t *testing.T) {
	b := setup(t, server.Options{})
	id := b.add(&server.Task{Slug: "one"})[0]
	b.actions()
	for _, state := range []task.State{task.Running, task.Completed} {
		b.server.Break(server.Fault{Operation: "PartialUpdateTask", Kind: "lost"})
		if err := b.report(id, state); err != nil {
			t.Errorf("%s: %v", state, err)
		}
	}
	if got := b.history("one"); got != "unscheduled,pending,running,completed" {
		t.Errorf("history %s", got)
	}
}

func TestModel(t *testing.T) {
	b := setup(t, server.Options{})
	version := server.NewID()
	b.addSpec(server.Spec{Models: map[string]string{version: "training/m.tar.zst"}, Storage: map[string]string{"training/m.tar.zst": "weights"}})
	id := b.add(&server.Task{Slug: "one", Env: map[string]string{"ARKINDEX_MODEL_VERSION": version}})[0]
	b.actions()
	got, err := b.q.Task(t.Context(), id)
	if err != nil || len(got.Files) != 1 || got.Files[0].Name != arkindex.ModelArchive {
		t.Fatalf("files %+v, %v", got.Files, err)
	}
	b.server.ExpireURLs()
	if got := b.download(func(to *os.File) error { return b.q.GetFile(t.Context(), got.Files[0], to) }); got != "weights" {
		t.Errorf("model holds %q", got)
	}
}

func TestGoneAndNotMine(t *testing.T) {
	b := setup(t, server.Options{})
	ids := b.add(&server.Task{Slug: "theirs", State: "running", Agent: server.NewID()}, &server.Task{Slug: "mine"})
	b.actions()
	for want, id := range map[error]task.ID{queue.ErrGone: task.ID(server.NewID()), queue.ErrNotMine: ids[0]} {
		if _, err := b.q.Task(t.Context(), id); !errors.Is(err, want) {
			t.Errorf("Task: %v; want %v", err, want)
		}
		if err := b.report(id, task.Running); !errors.Is(err, want) {
			t.Errorf("Report: %v; want %v", err, want)
		}
		if err := b.q.PutLog(t.Context(), id, strings.NewReader("x")); !errors.Is(err, want) {
			t.Errorf("PutLog: %v; want %v", err, want)
		}
	}
	// A page instead of an answer says nothing about a task.
	b.server.Break(server.Fault{Operation: "RetrieveTaskDefinition", Kind: "html", Status: 404, Count: -1})
	_, err := b.q.Task(t.Context(), ids[1])
	if errors.Is(err, queue.ErrGone) {
		t.Errorf("a page makes the task gone: %v", err)
	}
	b.refusal(err, "404 Not Found: answer is HTML, not JSON")
}

func TestHostile(t *testing.T) {
	b := setup(t, server.Options{})
	id := server.NewID()
	for name, raw := range map[string]string{
		"id":          `{"id": "../../x"}`,
		"other id":    `{"id": "` + server.NewID() + `"}`,
		"not object":  `[1]`,
		"parent":      `{"id": "` + id + `", "parents": ["../.."]}`,
		"file name":   `{"id": "` + id + `", "extra_files": {"../x": "https://a.example.org/"}}`,
		"file URL":    `{"id": "` + id + `", "extra_files": {"x": "file:///etc/passwd"}}`,
		"variable":    `{"id": "` + id + `", "env": {"A=B": "x"}}`,
		"zero":        `{"id": "` + id + `", "env": {"A": "x\u0000y"}}`,
		"quote":       `{"id": "` + id + `", "command": "run 'x"}`,
		"command":     `{"id": "` + id + `", "command": {"a": 1}}`,
		"log":         `{"id": "` + id + `", "s3_logs_put_url": "ftp://x/y"}`,
		"process":     `{"id": "` + id + `", "process_id": "a/b"}`,
		"state":       `{"id": "` + id + `", "state": "dancing"}`,
		"half object": `{"id": "` + id + `", "env": {"T": "secret-token-of-it"`,
	} {
		tk := &server.Task{ID: id, Slug: "evil", State: "pending", Raw: json.RawMessage(raw)}
		b.server.Do(func(w *server.World) {
			if len(w.Agents) > 0 {
				tk.Agent = w.Agents[0].ID
			}
			w.Tasks = []*server.Task{tk}
		})
		if _, err := b.q.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.server.Do(func(w *server.World) { tk.Agent = w.Agents[0].ID })
		_, err := b.q.Task(t.Context(), task.ID(id))
		if errors.Is(err, queue.ErrBroken) != (name != "half object") {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		b.oneLine(err)
		if strings.Contains(err.Error(), "secret-token") {
			t.Errorf("%s: error quotes the definition: %v", name, err)
		}
		// Whoever starts it will find the same, and report it; but an answer that is
		// no answer may be better next time.
		want := []task.Action{{Kind: task.Start, ID: task.ID(id)}}
		if name == "half object" {
			want = nil
		}
		got, err := b.q.Actions(t.Context(), nil)
		if !slices.Equal(got, want) || (err != nil) != (name == "half object") {
			t.Errorf("%s: passed on: %+v, %v", name, got, err)
		}
		if err != nil {
			b.oneLine(err)
		}
	}
}

// What is wrong with a definition can be read in the task's log.
func TestLogOfBrokenTask(t *testing.T) {
	b := setup(t, server.Options{})
	id := b.add(&server.Task{Slug: "one"})[0]
	b.actions()
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ := io.ReadAll(r.Body)
		b.server.Do(func(w *server.World) { w.Storage["here"] = got })
	}))
	defer store.Close()
	b.server.Do(func(w *server.World) {
		w.Tasks[0].Raw = json.RawMessage(`{"id": "` + string(id) + `", "command": "'", "s3_logs_put_url": "` + store.URL + `"}`)
	})
	if err := b.another().PutLog(t.Context(), id, strings.NewReader("no good")); err != nil {
		t.Error(err)
	}
	b.server.Do(func(w *server.World) {
		if string(w.Storage["here"]) != "no good" {
			t.Errorf("log holds %q", w.Storage["here"])
		}
		w.Tasks[0].Raw = json.RawMessage(`{"id": "` + string(id) + `", "s3_logs_put_url": "ftp://x"}`)
	})
	if err := b.another().PutLog(t.Context(), id, strings.NewReader("nowhere")); err != nil {
		t.Error(err)
	}
}

// An action that is no good does not hold up the others.
func TestHostileAction(t *testing.T) {
	b := setup(t, server.Options{})
	id := b.add(&server.Task{Slug: "good"})[0]
	b.actions()
	b.server.Do(func(w *server.World) {
		w.Tasks = append(w.Tasks, &server.Task{ID: "../../x\n", Slug: "evil", State: "pending", Agent: w.Agents[0].ID})
	})
	got, err := b.q.Actions(t.Context(), nil)
	if len(got) != 1 || got[0].ID != id || err == nil {
		t.Fatalf("got %+v, %v", got, err)
	}
	b.oneLine(err)
}
