package arkindex

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/agent/queue/arkindex"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
)

// scene is a server with a worker run whose configuration has all that is hard
// to carry over.
func scene(t *testing.T, legacy bool) (*server.Server, *httptest.Server, *arkindex.Queue) {
	t.Helper()
	s, err := server.New(server.Options{NoDocument: legacy})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(s)
	t.Cleanup(web.Close)
	raw := func(v string) json.RawMessage { return json.RawMessage(v) }
	run := &server.WorkerRun{
		ID: server.NewID(), Slug: "greet", Repository: "https://git.example.org/worker", Revision: "abc",
		ModelVersion: server.NewID(), Model: raw(`{"padding": false}`),
	}
	if legacy {
		run.Configuration = raw(`{"greeting": "no", "rate": 2}`)
		run.User = raw(`{"greeting": {"title": "Greeting", "type": "string", "default": "no"}, "rate": {"default": 1e-05}}`)
		run.Chosen = raw(`{"greeting": "Grüß \"Gott\" 😀\n\u0085"}`)
		run.Secrets = []string{"tool/key.json", "tool/plain"}
	} else {
		run.Settings = []server.Setting{
			{Key: "greeting", Value: raw(`"Grüß \"Gott\" 😀\n\u0085"`)}, {Key: "rate", Value: raw("1e-05")},
			{Key: "many", Value: raw(`[{"a": null, "b": -1.5E3}, [true]]`)}, {Key: "none", Value: raw("null"), Secret: true},
			{Key: "key", Value: raw(`"tool/key.json"`), Secret: true}, {Key: "plain", Value: raw(`"tool/plain"`), Secret: true},
		}
	}
	spec := server.Spec{
		WorkerRuns: []*server.WorkerRun{run},
		Secrets:    map[string]string{"tool/key.json": `{"user": "me", "limit": 1e3}`, "tool/plain": "yes: no"},
		Storage:    map[string]string{"training/m": "weights"},
		Tasks: []*server.Task{
			{Slug: "elements"},
			{Slug: "greet", WorkerRun: run.ID, Parents: []string{"elements"}, RequiresGPU: true, Files: map[string]string{"weights.bin": "training/m"}},
		},
	}
	for i := 1; i <= 2; i++ {
		e := &server.Element{ID: fmt.Sprintf("00000000-0000-4000-8000-00000000000%d", i), Type: "page", Name: fmt.Sprint("element ", i)}
		spec.Elements = append(spec.Elements, e)
		run.Elements = append(run.Elements, e.ID)
	}
	if err := s.Add(spec); err != nil {
		t.Fatal(err)
	}
	q, err := arkindex.New(arkindex.Config{
		URL: web.URL, FarmID: server.FarmID, Seed: server.Seed, IdentityFile: filepath.Join(t.TempDir(), "identity"),
		DeclareGPU: true, Hardware: &arkindex.Hardware{CPUs: 1, RAM: 1 << 30},
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, web, q
}

// place is what an agent prepares for a task: files, and variables.
func place(t *testing.T, q *arkindex.Queue, tk task.Task) (data string, env []string) {
	t.Helper()
	data = t.TempDir()
	for _, dir := range []string{string(tk.ID), "extra_files"} {
		if err := os.Mkdir(filepath.Join(data, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(string(tk.ID), filepath.Join(data, "current")); err != nil {
		t.Fatal(err)
	}
	for _, p := range tk.Parents {
		dir := filepath.Join(data, string(p.ID))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		list, err := q.Artifacts(t.Context(), p.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range list {
			fetch(t, filepath.Join(dir, a.Path), func(f *os.File) error { return q.GetArtifact(t.Context(), p.ID, a, f) })
		}
	}
	for _, file := range tk.Files {
		fetch(t, filepath.Join(data, "extra_files", file.Name), func(f *os.File) error { return q.GetFile(t.Context(), file, f) })
	}
	for name, value := range tk.Env {
		env = append(env, name+"="+value)
	}
	return data, append(env, "PONOS_DATA="+data, "PONOS_TASK="+string(tk.ID),
		"PYTHONPATH="+workerDir, "PYTHONDONTWRITEBYTECODE=1", "HOME="+data, "PATH="+os.Getenv("PATH"))
}

func fetch(t *testing.T, path string, get func(*os.File) error) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := get(f); err != nil {
		t.Fatal(err)
	}
}

func python(t *testing.T, env []string, module string, args ...string) string {
	t.Helper()
	code := "import sys; from ponos_test_worker." + module + " import main; sys.argv[0] = 'worker'; main()"
	cmd := exec.Command(filepath.Join(packages(t), "bin/python3"), append([]string{"-c", code}, args...)...)
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", module, args, err, out)
	}
	return string(out)
}

// runParent runs the task with the elements, and publishes what it has made as
// the agent does.
func runParent(t *testing.T, q *arkindex.Queue) {
	t.Helper()
	actions, err := q.Actions(t.Context(), nil)
	if err != nil || len(actions) != 1 {
		t.Fatalf("actions %+v, %v", actions, err)
	}
	parent, err := q.Task(t.Context(), actions[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	data, env := place(t, q, parent)
	python(t, env, "elements")
	f, err := os.Open(filepath.Join(data, "current/elements.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := q.PutArtifact(t.Context(), parent.ID, task.Artifact{Path: "elements.json", ContentType: "application/json"}, f); err != nil {
		t.Fatal(err)
	}
	for _, state := range []task.State{task.Running, task.Completed} {
		if err := q.Report(t.Context(), parent.ID, task.Report{State: state}); err != nil {
			t.Fatal(err)
		}
	}
}

type report struct {
	Greeted      []string       `json:"greeted"`
	Config       map[string]any `json:"config"`
	Secrets      map[string]any `json:"secrets"`
	Corpus       string         `json:"corpus"`
	ModelVersion string         `json:"model_version"`
	Extras       []string       `json:"extras"`
	ReadOnly     bool           `json:"read_only"`
}

func readReport(t *testing.T, data string) report {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(data, "current/report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// A worker without network, given what Offline says, finds what it would have
// found with it: on a current instance exactly that, on an older one the merged
// configuration.
func TestRealWorkerOnlineAndOffline(t *testing.T) {
	s, web, q := scene(t, false)
	runParent(t, q)
	actions, err := q.Actions(t.Context(), nil)
	if err != nil || len(actions) != 1 || !actions[0].RequiresGPU {
		t.Fatalf("actions %+v, %v", actions, err)
	}
	tk, err := q.Task(t.Context(), actions[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	data, env := place(t, q, tk)
	out := python(t, env, "greet", "--closing", "good bye")
	online := readReport(t, data)
	want := report{
		Greeted: []string{"Grüß \"Gott\" 😀\n\u0085, page 1, good bye!", "Grüß \"Gott\" 😀\n\u0085, page 2, good bye!"},
		Config: map[string]any{
			"greeting": "Grüß \"Gott\" 😀\n\u0085", "rate": 1e-05, "many": []any{map[string]any{"a": nil, "b": -1500.0}, []any{true}},
			"none": nil, "key": map[string]any{"user": "me", "limit": 1000.0}, "plain": "yes: no",
		},
		Secrets: map[string]any{"none": nil, "key": map[string]any{"user": "me", "limit": 1000.0}, "plain": "yes: no"},
		Extras:  []string{"weights.bin"},
	}
	s.Do(func(w *server.World) {
		want.Corpus, want.ModelVersion = w.WorkerRuns[0].Corpus, w.WorkerRuns[0].ModelVersion
	})
	if !reflect.DeepEqual(online, want) {
		t.Errorf("online: got %+v\nwant %+v\n%s", online, want, out)
	}
	s.Do(func(w *server.World) {
		if len(w.Published) != 4 || !strings.Contains(string(w.Published[0].Body), "page 1") || !strings.Contains(string(w.Published[1].Body), "1e-05") {
			t.Errorf("published %+v", w.Published)
		}
		for key, state := range w.Activities {
			if state != "processed" {
				t.Errorf("activity %s is %s", key, state)
			}
		}
	})
	// The worker has published this one itself; for the agent to do it as well
	// does no harm.
	for range 2 {
		err := q.PutArtifact(t.Context(), tk.ID, task.Artifact{Path: "greetings.txt", ContentType: "text/plain"}, strings.NewReader(strings.Join(online.Greeted, "\n")+"\n"))
		if err != nil {
			t.Error(err)
		}
	}

	data, env = place(t, q, tk)
	offline, err := q.Offline(t.Context(), tk)
	if err != nil {
		t.Fatal(err)
	}
	web.Close()
	out = python(t, offlineEnv(t, data, env, offline.SchemaEnv, offline.Schema, offline.Configuration, offline.Env, offline.Unset),
		"greet", "--closing", "good bye", "--config", filepath.Join(data, "config.json"))
	want.ReadOnly = true
	if got := readReport(t, data); !reflect.DeepEqual(got, want) {
		t.Errorf("offline: got %+v\nwant %+v\n%s", got, want, out)
	}
}

// An older instance has four configurations to merge. This one has no OpenAPI
// document either, which the worker cannot do without.
func TestRealWorkerOfflineOfOlderInstance(t *testing.T) {
	_, web, q := scene(t, true)
	runParent(t, q)
	actions, err := q.Actions(t.Context(), nil)
	if err != nil || len(actions) != 1 {
		t.Fatalf("actions %+v, %v", actions, err)
	}
	tk, err := q.Task(t.Context(), actions[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	data, env := place(t, q, tk)
	offline, err := q.Offline(t.Context(), tk)
	if err != nil {
		t.Fatal(err)
	}
	web.Close()
	out := python(t, offlineEnv(t, data, env, offline.SchemaEnv, offline.Schema, offline.Configuration, offline.Env, offline.Unset),
		"greet", "--closing", "x", "--config", filepath.Join(data, "config.json"))
	got := readReport(t, data)
	secrets := map[string]any{"tool/key.json": map[string]any{"user": "me", "limit": 1000.0}, "tool/plain": "yes: no"}
	config := map[string]any{
		"greeting": "Grüß \"Gott\" 😀\n\u0085", "rate": 1e-05, "padding": false,
		"tool/key.json": secrets["tool/key.json"], "tool/plain": secrets["tool/plain"],
	}
	if !got.ReadOnly || !reflect.DeepEqual(got.Config, config) || !reflect.DeepEqual(got.Secrets, secrets) {
		t.Errorf("got %+v\n%s", got, out)
	}
}

func offlineEnv(t *testing.T, data string, env []string, schemaEnv string, schema, configuration []byte, set map[string]string, unset []string) []string {
	t.Helper()
	for name, contents := range map[string][]byte{"schema.json": schema, "config.json": configuration} {
		if err := os.WriteFile(filepath.Join(data, name), contents, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var kept []string
	for _, variable := range env {
		name, _, _ := strings.Cut(variable, "=")
		gone := false
		for _, u := range unset {
			gone = gone || u == name
		}
		if !gone {
			kept = append(kept, variable)
		}
	}
	for name, value := range set {
		kept = append(kept, name+"="+value)
	}
	return append(kept, schemaEnv+"="+filepath.Join(data, "schema.json"))
}
