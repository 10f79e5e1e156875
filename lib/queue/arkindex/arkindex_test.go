package arkindex_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/queue"
	"github.com/ponos-tools/ponos/lib/queue/arkindex"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
)

// bench is a server and an agent's queue before it.
type bench struct {
	*testing.T
	server *server.Server
	web    *httptest.Server
	cfg    arkindex.Config
	q      *arkindex.Queue
	now    time.Time // of the agent
	waits  []time.Duration
	log    bytes.Buffer
}

func setup(t *testing.T, opt server.Options, change ...func(*arkindex.Config)) *bench {
	t.Helper()
	s, err := server.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{T: t, server: s, now: time.Now()}
	b.web = httptest.NewServer(s)
	b.web.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(b.web.Close)
	b.cfg = arkindex.Config{
		URL: b.web.URL, FarmID: server.FarmID, Seed: server.Seed, Mode: "slurm", Hostname: "login1",
		IdentityFile:   filepath.Join(t.TempDir(), "identity.json"),
		LogContentType: arkindex.DefaultLogContentType, DeclareGPU: true,
		Hardware: &arkindex.Hardware{CPUs: 4, RAM: 1 << 30},
		Load:     func() (float64, float64) { return 0.25, 0.5 },
		Logger:   slog.New(slog.NewTextHandler(&b.log, nil)),
		Now:      func() time.Time { return b.now },
		Sleep: func(ctx context.Context, d time.Duration) error {
			b.waits = append(b.waits, d)
			return ctx.Err()
		},
	}
	for _, f := range change {
		f(&b.cfg)
	}
	b.q = b.another()
	return b
}

// another is a further process of the same agent.
func (b *bench) another() *arkindex.Queue {
	b.Helper()
	q, err := arkindex.New(b.cfg)
	if err != nil {
		b.Fatal(err)
	}
	return q
}

func (b *bench) add(tasks ...*server.Task) []task.ID {
	b.Helper()
	b.addSpec(server.Spec{Tasks: tasks})
	var ids []task.ID
	for _, t := range tasks {
		ids = append(ids, task.ID(t.ID))
	}
	return ids
}

func (b *bench) addSpec(spec server.Spec) {
	b.Helper()
	if err := b.server.Add(spec); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) actions() []task.Action {
	b.Helper()
	actions, err := b.q.Actions(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return actions
}

func (b *bench) history(id string) string {
	t, _ := b.server.Task(id)
	return strings.Join(t.History, ",")
}

func (b *bench) report(id task.ID, state task.State) error {
	return b.q.Report(b.Context(), id, task.Report{State: state})
}

// refusal checks that err is one of the queue, in one line and without a secret.
func (b *bench) refusal(err error, want string) {
	b.Helper()
	switch {
	case err == nil:
		b.Fatalf("no error; want %q", want)
	case !fault.Is(err, fault.Unavailable):
		b.Errorf("error %q is of kind %d; want Unavailable", err, fault.KindOf(err))
	case !strings.Contains(err.Error(), want):
		b.Errorf("error %q; want %q in it", err, want)
	}
	b.oneLine(err)
}

func (b *bench) oneLine(err error) {
	b.Helper()
	text := err.Error()
	if strings.ContainsAny(text, "\n\r\x00") || len(text) > 1000 {
		b.Errorf("error is no line: %q", text)
	}
	if strings.Contains(text, server.Seed) || strings.Contains(text, "X-Amz") {
		b.Errorf("error holds a secret: %q", text)
	}
	b.server.Do(func(w *server.World) {
		for _, a := range w.Agents {
			for _, t := range a.Access {
				if strings.Contains(text, t.Value) {
					b.Errorf("error holds a token: %q", text)
				}
			}
		}
		for _, t := range w.Tasks {
			if t.Token != "" && strings.Contains(text, t.Token) {
				b.Errorf("error holds a task's token: %q", text)
			}
		}
	})
}

func TestRegisterOnce(t *testing.T) {
	b := setup(t, server.Options{})
	first, err := b.q.Register(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := b.another().Register(t.Context())
	if err != nil || again != first {
		t.Errorf("second process is %+v, %v; want %+v", again, err, first)
	}
	if first.Hostname != "login1" || first.Farm != server.FarmID || first.Agent == "" {
		t.Errorf("got %+v", first)
	}
	if n := len(b.server.Requests("CreateAgent")); n != 1 {
		t.Errorf("registered %d times", n)
	}
	var declared struct {
		GPUs []arkindex.GPU `json:"gpus"`
		CPUs int            `json:"cpu_cores"`
		Mode string         `json:"mode"`
	}
	b.server.Do(func(w *server.World) { err = json.Unmarshal(w.Agents[0].Declared, &declared) })
	if err != nil || len(declared.GPUs) != 1 || declared.CPUs != 4 || declared.Mode != "slurm" {
		t.Errorf("declared %+v, %v", declared, err)
	}
	info, err := os.Stat(b.cfg.IdentityFile)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("identity file: %v, %v; want mode 0600", info.Mode(), err)
	}
	contents, _ := os.ReadFile(b.cfg.IdentityFile)
	if bytes.Contains(contents, []byte(server.Seed)) {
		t.Error("identity file holds the seed")
	}
}

func TestRegisterRefused(t *testing.T) {
	b := setup(t, server.Options{}, func(c *arkindex.Config) { c.Seed = "not the seed of this farm" })
	_, err := b.q.Register(t.Context())
	b.refusal(err, "registering the agent: POST "+b.web.URL+"/api/v1/agent/: 403 Forbidden: The seed is not that of the farm.")
	if fault.HintOf(err) == "" {
		t.Error("no hint")
	}
	if len(b.waits) != 0 {
		t.Errorf("waited %v: a refusal is final", b.waits)
	}
}

// A changed seed, farm or instance makes another agent; the same ones do not.
func TestIdentityBelongsToItsFarm(t *testing.T) {
	b := setup(t, server.Options{})
	first, err := b.q.Register(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.server.Do(func(w *server.World) { w.Seed = "another seed of the farm" })
	b.cfg.Seed = "another seed of the farm"
	second, err := b.another().Register(t.Context())
	if err != nil || second.Agent == first.Agent {
		t.Errorf("agent %v, %v; want another than %v", second.Agent, err, first.Agent)
	}
	if err := os.WriteFile(b.cfg.IdentityFile, []byte("{half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.another().Register(t.Context()); err != nil {
		t.Errorf("damaged identity file: %v", err)
	}
	if !strings.Contains(b.log.String(), "damaged") {
		t.Errorf("log says nothing of it: %s", b.log.String())
	}
}

func TestTokens(t *testing.T) {
	b := setup(t, server.Options{})
	id := b.add(&server.Task{Slug: "one"})[0]
	b.actions()
	other := b.another()

	b.server.ExpireTokens(false)
	b.actions()
	if n := len(b.server.Requests("RefreshAgentToken")); n != 1 {
		t.Errorf("refreshed %d times; want once", n)
	}
	// The other process finds the new token in the file.
	if _, err := other.Actions(t.Context()); err != nil {
		t.Error(err)
	}
	if n := len(b.server.Requests("RefreshAgentToken")); n != 1 {
		t.Errorf("the other process refreshed too: %d", n)
	}

	b.server.ExpireTokens(true)
	b.actions()
	if n := len(b.server.Requests("CreateAgent")); n != 2 {
		t.Errorf("registered %d times; want twice", n)
	}
	if _, err := b.q.Task(t.Context(), id); err != nil {
		t.Errorf("after registering again, the task is: %v", err)
	}
	// Many at once renew once.
	b.server.ExpireTokens(false)
	b.server.Forget()
	errs := make(chan error)
	for range 10 {
		go func() { _, err := b.another().Actions(t.Context()); errs <- err }()
	}
	for range 10 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := len(b.server.Requests("RefreshAgentToken")) + len(b.server.Requests("CreateAgent")); n != 1 {
		t.Errorf("ten processes renewed the token %d times", n)
	}
}

func TestTaskAndActions(t *testing.T) {
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

func (b *bench) download(get func(to *os.File) error) string {
	b.Helper()
	f, err := os.CreateTemp(b.TempDir(), "")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	if err := get(f); err != nil {
		b.Fatal(err)
	}
	contents, err := os.ReadFile(f.Name())
	if err != nil {
		b.Fatal(err)
	}
	return string(contents)
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
	if fault.KindOf(err) != fault.Failed || !strings.Contains(fmt.Sprint(err), "404 Not Found: Not found.") || errors.Is(err, queue.ErrGone) {
		t.Errorf("got %v", err)
	}
	b.server.Break(server.Fault{Operation: "RetrieveWorkerRun", Kind: "status", Status: 503, Count: -1})
	if got := b.actions(); len(got) != 0 {
		t.Errorf("passed on: %+v", got)
	}
	_, err = b.q.Task(t.Context(), id)
	b.refusal(err, "503 Service Unavailable")
}

func TestRegisterReaches(t *testing.T) {
	b := setup(t, server.Options{})
	if _, err := b.q.Register(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.web.Close()
	_, err := b.another().Register(t.Context())
	b.refusal(err, "connection refused")
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
	err := b.report(ids[1], task.Running)
	b.refusal(err, "Transition from state completed to state running is forbidden.")
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

// A file of any size goes and comes in pieces.
func TestStreaming(t *testing.T) {
	const size = 64 << 20
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPut && (n != size || r.ContentLength != size) {
			http.Error(w, fmt.Sprint(n), http.StatusBadRequest)
		}
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Length", fmt.Sprint(size))
			_, _ = io.CopyN(w, zeros{}, size)
		}
	}))
	defer store.Close()
	b := setup(t, server.Options{})
	id := b.add(&server.Task{Slug: "one"})[0]
	b.actions()
	mine, _ := b.server.Task("one")
	b.server.Do(func(w *server.World) {
		w.Tasks[0].Raw = json.RawMessage(`{"id": "` + mine.ID + `", "s3_logs_put_url": "` + store.URL + `/log"}`)
	})
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	q := b.another() // b.q still has the URL of before
	if err := q.PutLog(t.Context(), id, f); err != nil {
		t.Error(err)
	}
	if err := q.GetFile(t.Context(), task.File{Name: "x", URL: store.URL + "/x"}, f); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if info, err := f.Stat(); err != nil || info.Size() != size {
		t.Errorf("file has %d bytes, %v", info.Size(), err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
		t.Errorf("%d MiB of memory for %d MiB of file", used>>20, size>>20)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestStall(t *testing.T) {
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer store.Close()
	b := setup(t, server.Options{}, func(c *arkindex.Config) { c.Stall, c.Waits = 50*time.Millisecond, []time.Duration{0} })
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b.refusal(b.q.GetFile(t.Context(), task.File{Name: "x", URL: store.URL + "/x"}, f), "transfer stands still")
	if len(b.waits) != 1 {
		t.Errorf("tried again %d times; want once", len(b.waits))
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

func TestFaults(t *testing.T) {
	const retried = 5
	for _, tt := range []struct {
		name  string
		fault server.Fault
		want  string // "": it passes
		waits int
	}{
		{"500 once", server.Fault{Kind: "status", Status: 500}, "", 1},
		{"502 page twice", server.Fault{Kind: "html", Status: 502, Count: 2}, "", 2},
		{"500 for ever", server.Fault{Kind: "status", Status: 500, Count: -1}, "500 Internal Server Error: A fault: 500.", retried},
		{"connection cut", server.Fault{Kind: "reset", Count: 3}, "", 2}, // the first time net/http itself tries again
		{"cut for ever", server.Fault{Kind: "reset", Count: -1}, "EOF", retried},
		{"half once", server.Fault{Kind: "half"}, "", 1},
		{"half for ever", server.Fault{Kind: "half", Count: -1}, "answer breaks off after", retried},
		{"400", server.Fault{Kind: "status", Status: 400}, "400 Bad Request", 0},
		{"401", server.Fault{Kind: "status", Status: 401}, "", 0},
		{"401 for ever", server.Fault{Kind: "status", Status: 401, Count: -1}, "401 Unauthorized", 0},
		{"403", server.Fault{Kind: "status", Status: 403}, "403 Forbidden", 0},
		{"404", server.Fault{Kind: "status", Status: 404}, "404 Not Found", 0},
		{"429", server.Fault{Kind: "status", Status: 429, RetryAfter: 7}, "", 1},
		{"page", server.Fault{Kind: "html"}, "answer is HTML, not JSON", 0},
		{"nothing", server.Fault{Kind: "empty"}, "answer is empty", 0},
		{"huge", server.Fault{Kind: "huge"}, "answer is longer than 32 MiB", 0},
		{"repeats the token", server.Fault{Kind: "token", Status: 400}, "You sent Bearer [secret]", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := setup(t, server.Options{})
			b.actions()
			tt.fault.Operation = "RetrieveAgentActions"
			b.server.Break(tt.fault)
			_, err := b.q.Actions(t.Context())
			if tt.want == "" && err != nil {
				t.Fatal(err)
			}
			if tt.want != "" {
				b.refusal(err, tt.want)
			}
			if len(b.waits) != tt.waits {
				t.Errorf("waited %v; want %d waits", b.waits, tt.waits)
			}
			if tt.fault.RetryAfter > 0 && b.waits[0] != 7*time.Second {
				t.Errorf("waited %v; the server asked for 7 s", b.waits)
			}
		})
	}
}

func TestUnreachable(t *testing.T) {
	b := setup(t, server.Options{})
	b.web.Close()
	_, err := b.q.Actions(t.Context())
	b.refusal(err, "connection refused")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.waits = nil
	if _, err := b.q.Actions(ctx); err == nil || len(b.waits) > 0 {
		t.Errorf("cancelled: %v after %v", err, b.waits)
	}
}

func TestLog(t *testing.T) {
	b := setup(t, server.Options{LogType: arkindex.DefaultLogContentType})
	id := b.add(&server.Task{Slug: "one"})[0]
	b.actions()
	for i, log := range []string{"", "line 1\n", strings.Repeat("line\n", 100000)} {
		if err := b.q.PutLog(t.Context(), id, strings.NewReader(log)); err != nil {
			t.Fatal(err)
		}
		if got := string(b.server.Log("one")); got != log {
			t.Errorf("log %d has %d bytes; want %d", i, len(got), len(log))
		}
	}
	b.server.ExpireURLs()
	if err := b.q.PutLog(t.Context(), id, strings.NewReader("after")); err != nil || string(b.server.Log("one")) != "after" {
		t.Errorf("expired URL: %v, log %q", err, b.server.Log("one"))
	}
	b.server.Break(server.Fault{Operation: "PutObject", Kind: "reset"})
	b.server.Break(server.Fault{Operation: "PutObject", Kind: "status", Status: 503})
	if err := b.q.PutLog(t.Context(), id, strings.NewReader("again")); err != nil || string(b.server.Log("one")) != "again" {
		t.Errorf("store fails at first: %v, log %q", err, b.server.Log("one"))
	}
	b.server.Break(server.Fault{Operation: "PutObject", Kind: "token", Status: 403, Count: -1})
	b.refusal(b.q.PutLog(t.Context(), id, strings.NewReader("never")), "403 Forbidden")
	for _, r := range b.server.Requests("PutObject") {
		if r.Auth != "" || r.Length < 0 || r.Type != arkindex.DefaultLogContentType {
			t.Errorf("store got %+v", r)
		}
	}
}

func TestLogWithoutContentType(t *testing.T) {
	b := setup(t, server.Options{}, func(c *arkindex.Config) { c.LogContentType = "" })
	id := b.add(&server.Task{Slug: "one"})[0]
	b.actions()
	if err := b.q.PutLog(t.Context(), id, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if r := b.server.Requests("PutObject"); len(r) != 1 || r[0].Type != "" {
		t.Errorf("store got %+v", r)
	}
}

func TestArtifacts(t *testing.T) {
	for _, paginated := range []bool{false, true} {
		b := setup(t, server.Options{Paginated: paginated})
		id := b.add(&server.Task{Slug: "maker"})[0]
		child := b.add(&server.Task{Slug: "reader", Parents: []string{"maker"}})[0]
		b.actions()
		files := map[string]string{"a.txt": "A", "dir/ü b.json": "{}", "empty": "", "big": strings.Repeat("0123456789", 300000), "e": "E"}
		put := func(q *arkindex.Queue, path string) error {
			a := task.Artifact{Path: path, ContentType: "text/plain"}
			return q.PutArtifact(t.Context(), id, a, strings.NewReader(files[path]))
		}
		// Announced, and then killed before the contents went.
		b.server.Break(server.Fault{Operation: "PutObject", Kind: "status", Status: 400, Count: -1})
		if err := put(b.q, "a.txt"); err == nil {
			t.Error("a refused upload is no error")
		}
		b.server.Mend()
		b.server.Break(server.Fault{Operation: "CreateArtifact", Kind: "lost"})
		b.server.Break(server.Fault{Operation: "PutObject", Kind: "status", Status: 403, After: 2})
		for range 2 {
			q := b.another()
			for path := range files {
				if err := put(q, path); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		}
		b.actions()
		if err := b.report(id, task.Completed); err != nil {
			t.Fatal(err)
		}
		b.actions()
		if _, err := b.q.Task(t.Context(), child); err != nil {
			t.Fatal(err)
		}
		list, err := b.q.Artifacts(t.Context(), id)
		if err != nil || len(list) != len(files) {
			t.Fatalf("%d artifacts, %v; want %d", len(list), err, len(files))
		}
		b.server.Break(server.Fault{Operation: "GetObject", Kind: "half"})
		for _, a := range list {
			got := b.download(func(to *os.File) error { return b.q.GetArtifact(t.Context(), id, a, to) })
			if got != files[a.Path] {
				t.Errorf("%s: %d bytes; want %d", a.Path, len(got), len(files[a.Path]))
			}
		}
		for _, r := range append(b.server.Requests("GetObject"), b.server.Requests("PutObject")...) {
			if r.Auth != "" {
				t.Errorf("credentials went to the store: %+v", r)
			}
		}
	}
}

func TestExpiredFile(t *testing.T) {
	b := setup(t, server.Options{})
	b.addSpec(server.Spec{Storage: map[string]string{"m": "model"}})
	id := b.add(&server.Task{Slug: "one", Files: map[string]string{"m": "m"}})[0]
	b.actions()
	got, err := b.q.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	b.server.ExpireURLs()
	if got := b.download(func(to *os.File) error { return b.q.GetFile(t.Context(), got.Files[0], to) }); got != "model" {
		t.Errorf("file holds %q", got)
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b.server.ExpireURLs()
	err = b.another().GetFile(t.Context(), got.Files[0], f)
	b.refusal(err, `file "m": GET http://localhost`)
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
		if err == nil {
			t.Errorf("%s: accepted", name)
			continue
		}
		b.oneLine(err)
		if strings.Contains(err.Error(), "secret-token") {
			t.Errorf("%s: error quotes the definition: %v", name, err)
		}
		b.log.Reset()
		// Whoever starts it will find the same, and report it; but an answer that is
		// no answer may be better next time.
		want := []task.Action{{Kind: task.Start, ID: task.ID(id)}}
		if name == "half object" {
			want = nil
		}
		if got := b.actions(); !slices.Equal(got, want) {
			t.Errorf("%s: passed on: %+v", name, got)
		}
		if n := strings.Count(b.log.String(), "\n"); n != 1 {
			t.Errorf("%s: %d lines of log: %s", name, n, b.log.String())
		}
	}
}

func TestRedirects(t *testing.T) {
	var seen []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.Header.Get("Authorization"))
		fmt.Fprint(w, `{"id": "x"}`)
	}))
	defer other.Close()
	b := setup(t, server.Options{NoDocument: true})
	b.actions()
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+r.URL.Path, http.StatusMovedPermanently)
	}))
	defer front.Close()
	identity, err := os.ReadFile(b.cfg.IdentityFile)
	if err != nil {
		t.Fatal(err)
	}
	identity = bytes.ReplaceAll(identity, []byte(b.web.URL), []byte(front.URL))
	if err := os.WriteFile(b.cfg.IdentityFile, identity, 0o600); err != nil {
		t.Fatal(err)
	}
	b.cfg.URL = front.URL
	q := b.another()
	_, _ = q.Task(t.Context(), "x")
	for _, s := range seen {
		if s != "GET " {
			t.Errorf("the other host got %q", s)
		}
	}
	if len(seen) == 0 {
		t.Error("redirect of a GET is not followed")
	}
	err = q.Report(t.Context(), "x", task.Report{State: task.Running})
	b.refusal(err, "301 Moved Permanently: redirected to http://localhost")
	if !strings.Contains(fault.HintOf(err), "url") {
		t.Errorf("hint %q", fault.HintOf(err))
	}
}

// A document that is out of date is asked for again when an operation is not
// where it says.
func TestMovedWhileRunning(t *testing.T) {
	b := setup(t, server.Options{})
	b.actions()
	moved, err := server.New(server.Options{Moved: true})
	if err != nil {
		t.Fatal(err)
	}
	b.server.Do(func(w *server.World) { moved.Do(func(m *server.World) { *m = *w }) })
	b.web.Config.Handler = moved
	b.now = b.now.Add(time.Hour)
	if _, err := b.q.Actions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(moved.Requests("")); n > 4 {
		t.Errorf("%d requests", n)
	}
}

func TestNewChecks(t *testing.T) {
	good := arkindex.Config{URL: "https://a.example.org/", FarmID: "f", Seed: "s", IdentityFile: "i"}
	for name, change := range map[string]func(*arkindex.Config){
		"scheme":   func(c *arkindex.Config) { c.URL = "ftp://a.example.org" },
		"host":     func(c *arkindex.Config) { c.URL = "arkindex.example.org" },
		"user":     func(c *arkindex.Config) { c.URL = "https://me:secret@a.example.org" },
		"farm":     func(c *arkindex.Config) { c.FarmID = "" },
		"seed":     func(c *arkindex.Config) { c.Seed = "" },
		"identity": func(c *arkindex.Config) { c.IdentityFile = "" },
	} {
		c := good
		change(&c)
		if _, err := arkindex.New(c); !fault.Is(err, fault.Usage) || strings.Contains(fmt.Sprint(err), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := arkindex.New(good); err != nil {
		t.Error(err)
	}
}
