package arkindex

import (
	"encoding/json"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

const someID = "b1e7c1f0-0000-4000-8000-00000000000a"

func TestParseDefinition(t *testing.T) {
	whole := `{"id": "` + someID + `", "slug": "a\nb", "image": "x:1", "command": ["run", "a b"], "env": {"N": 1, "B": true, "S": "s", "Z": null},
		"requires_gpu": true, "agent": {"id": "9f1c"}, "process_id": "aaaa", "parents": ["77aa", {"id": "88bb", "slug": "init"}],
		"extra_files": {"m.tar.zst": "https://s3.example.org/m?X-Amz-Signature=1"}, "s3_logs_put_url": "https://s3.example.org/l?x=1",
		"ttl": 3600, "run": 2, "state": "PENDING", "new": [1]}`
	got, logURL, err := parseDefinition([]byte(whole))
	want := task.Task{
		ID: someID, Slug: "a b", State: task.Pending, Process: "aaaa", Run: 2, Agent: "9f1c", Image: "x:1",
		Command: []string{"run", "a b"}, Env: map[string]string{"N": "1", "B": "true", "S": "s", "Z": ""}, RequiresGPU: true,
		Parents: []task.Parent{{ID: "77aa"}, {ID: "88bb", Slug: "init"}},
		Files:   []task.File{{Name: "m.tar.zst", URL: "https://s3.example.org/m?X-Amz-Signature=1"}}, TTL: time.Hour,
	}
	if err != nil || !reflect.DeepEqual(got, want) || logURL != "https://s3.example.org/l?x=1" {
		t.Errorf("got %+v, %q, %v; want %+v", got, logURL, err, want)
	}
	for _, least := range []string{
		`{"id": "` + someID + `"}`,
		`{"id": "` + someID + `", "slug": null, "command": null, "env": null, "agent_id": null, "agent": null, "parents": null, "extra_files": null,
			"s3_logs_put_url": null, "ttl": null, "requires_gpu": null, "image": null, "run": null, "state": null, "process_id": null}`,
		`{"id": "` + someID + `", "extra_files": [], "parents": [], "command": "", "ttl": "soon"}`,
	} {
		got, logURL, err := parseDefinition([]byte(least))
		if want := (task.Task{ID: someID, Env: map[string]string{}}); err != nil || logURL != "" || !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, %q, %v; want %+v", got, logURL, err, want)
		}
	}
}

func FuzzDefinition(f *testing.F) {
	f.Add([]byte(`{"id": "` + someID + `", "command": "a 'b'", "parents": ["x", {"id": 1}], "env": {"A": 1}}`))
	f.Add([]byte(`{"id": 5, "extra_files": [{"name": "a", "url": "http://x/"}], "agent_id": {"id": "b"}, "ttl": 1e3}`))
	f.Add([]byte(`{"id": "a", "command": ["a", 1], "extra_files": {"..": "http://x"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if address := parseLogURL(raw, someID); address != "" && !webAddress(address) {
			t.Errorf("logs go to %q", address)
		}
		got, _, err := parseDefinition(raw)
		if err != nil {
			if strings.ContainsAny(err.Error(), "\n\r\x00") {
				t.Errorf("error is no line: %q", err)
			}
			return
		}
		ids := []task.ID{got.ID}
		for _, p := range got.Parents {
			ids = append(ids, p.ID)
		}
		for _, id := range ids {
			if _, err := task.ParseID(string(id)); err != nil {
				t.Error(err)
			}
		}
		for _, file := range got.Files {
			if strings.Contains(file.Name, "/") || file.Name == ".." || !webAddress(file.URL) {
				t.Errorf("file %+v", file)
			}
		}
		for name, value := range got.Env {
			if strings.ContainsAny(name, "=\x00 ") || strings.Contains(value, "\x00") {
				t.Errorf("variable %q=%q", name, value)
			}
		}
		if strings.ContainsAny(got.Slug, "\n\r\x1b") {
			t.Errorf("slug %q", got.Slug)
		}
	})
}

func TestParseActions(t *testing.T) {
	id := func(s string) task.ID { return task.ID(s) }
	got, bad, err := parseActions([]byte(`{"actions": [
		{"action": "start_task", "task_id": "a"}, {"action": "kill_task", "task_id": "b"}, {"action": "stop", "task": {"id": "c"}},
		{"action": "start", "task_id": "../x"}, {"action": "dance", "task_id": "d"}, 5, {"action": "start_task"}, {"kind": "stop_task", "id": "e"}]}`))
	want := []task.Action{
		{Kind: task.Start, ID: id("a")}, {Kind: task.Stop, ID: id("b")}, {Kind: task.Stop, ID: id("c")}, {Kind: task.Stop, ID: id("e")},
	}
	if err != nil || !slices.Equal(got, want) || len(bad) != 4 {
		t.Errorf("got %+v, %v, %v; want %+v and four that are bad", got, bad, err, want)
	}
	if got, _, err := parseActions([]byte(`[{"action": "start_task", "task_id": "a"}]`)); err != nil || len(got) != 1 {
		t.Errorf("bare list: %+v, %v", got, err)
	}
	for _, raw := range []string{"", "{}", "5", `{"actions": 5}`, `{"detail": "no"}`} {
		if _, _, err := parseActions([]byte(raw)); err == nil {
			t.Errorf("%q is accepted", raw)
		}
	}
}

func FuzzActions(f *testing.F) {
	f.Add([]byte(`{"actions": [{"action": "start_task", "task_id": "a"}]}`))
	f.Add([]byte(`[{"kind": "stop", "task": {"id": 5}}, null, []]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, bad, _ := parseActions(raw)
		for _, a := range got {
			if _, err := task.ParseID(string(a.ID)); err != nil || a.Kind != task.Start && a.Kind != task.Stop {
				t.Errorf("action %+v", a)
			}
		}
		for _, err := range bad {
			if strings.ContainsAny(err.Error(), "\n\r\x00") {
				t.Errorf("error is no line: %q", err)
			}
		}
	})
}

func TestParseOpenAPI(t *testing.T) {
	got, err := parseOpenAPI([]byte(`{"openapi": "3.0.2", "x-more": 1, "paths": {
		"/api/v2/task/{id}/": {"parameters": [], "get": {"operationId": "RetrieveTask"}, "patch": {"operationId": "PartialUpdateTask"}, "post": 5},
		"//evil.example.org/": {"get": {"operationId": "CreateAgent"}}, "x-note": "text", "/none/": {"get": {}}}}`))
	want := map[string]operation{"RetrieveTask": {"GET", "/api/v2/task/{id}/"}, "PartialUpdateTask": {"PATCH", "/api/v2/task/{id}/"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	for _, raw := range []string{"", "{}", "<html>", `{"openapi": "3", "paths": {}}`, `{"openapi": "3", "paths": {"/a": {}}}`,
		`{"openapi": "3", "Paths": {"/a": {"get": {"operationId": "a"}}}}`, `{"OpenAPI": "3", "paths": {"/a": {"get": {"operationId": "a"}}}}`,
	} {
		if _, err := parseOpenAPI([]byte(raw)); err == nil {
			t.Errorf("%q is accepted", raw)
		}
	}
	if ops, err := parseOpenAPI(minimalOpenAPI()); err != nil || ops["RetrieveTask"] != fallback["RetrieveTask"] {
		t.Errorf("our own document: %v, %v", ops, err)
	}
}

func TestOperationURL(t *testing.T) {
	base, _ := url.Parse("https://a.example.org/api/v1/")
	for _, tt := range []struct{ path, id, want string }{
		{"/api/v1/task/{id}/", "a b?c#d/e", "https://a.example.org/api/v1/task/a%20b%3Fc%23d%2Fe/"},
		{"/x/{+id}", "a/b c/ü", "https://a.example.org/x/a/b%20c/%C3%BC"},
	} {
		got, err := operation{"GET", tt.path}.url(base, map[string]string{"id": tt.id}, nil)
		if err != nil || got.String() != tt.want {
			t.Errorf("got %v, %v; want %s", got, err, tt.want)
		}
	}
	for _, bad := range []string{"", "..", "a/../../b", "."} {
		if got, err := (operation{"GET", "/x/{+id}"}).url(base, map[string]string{"id": bad}, nil); err == nil {
			t.Errorf("%q makes %v", bad, got)
		}
	}
}

// Whatever a document says, requests go to the configured host, and taking an
// operation out leaves a document that can be read.
func FuzzOpenAPI(f *testing.F) {
	f.Add([]byte(`{"openapi": "3.0.2", "paths": {"/a/{id}/{+path}": {"get": {"operationId": "RetrieveTask"}}}}`), "x/../y")
	f.Add([]byte(`{"openapi": 3, "paths": {"/{": {"put": {"operationId": "a"}}, "/@b": 5}}`), "\x00")
	f.Add([]byte(`{"openapi": "3", "Paths": {"/a": {"get": {"operationId": "a"}}}}`), "a")
	f.Add(minimalOpenAPI(), "a")
	base, _ := url.Parse("https://a.example.org/")
	f.Fuzz(func(t *testing.T, doc []byte, value string) {
		ops, err := parseOpenAPI(doc)
		if err != nil {
			return
		}
		for _, o := range ops {
			u, err := o.url(base, map[string]string{"id": value, "path": value, "name": value}, nil)
			if err != nil {
				continue
			}
			again, err := url.Parse(u.String())
			if err == nil && (again.Host != base.Host || again.Scheme != base.Scheme || again.RawQuery != "") {
				t.Errorf("operation %+v with %q leads to %v", o, value, again)
			}
		}
		less, err := withoutOperation(doc, "RetrieveTask")
		if err != nil || !json.Valid(less) {
			t.Errorf("without an operation: %v", err)
		}
	})
}

func TestMerge(t *testing.T) {
	for _, tt := range []struct{ version, user, model, chosen, want string }{
		{`{"p": 0}`, `{"p": {"default": 1}}`, ``, ``, `{"p": 1}`},
		{`{"p": 0}`, `{"p": {"default": 2}}`, `{"p": 2}`, ``, `{"p": 2}`},
		{`{"p": 0}`, ``, `{"p": 1}`, `{"p": 2}`, `{"p": 2}`},
		{`{"p": 0}`, `{"p": {"default": 1}}`, `{"p": 2}`, `{"p": 3}`, `{"p": 3}`},
		{`{"p": 0}`, `{"q": {"title": "no default"}}`, ``, ``, `{"p": 0, "q": null}`},
		{`{"p": 0}`, `{"p": {"title": "no default"}}`, `{"p": 5}`, ``, `{"p": 5}`},
	} {
		raw := `{"worker_version": {"configuration": {"configuration": ` + tt.version
		if tt.user != "" {
			raw += `, "user_configuration": ` + tt.user
		}
		raw += `}}`
		if tt.model != "" {
			raw += `, "model_version": {"id": "m", "configuration": ` + tt.model + `}`
		}
		if tt.chosen != "" {
			raw += `, "configuration": {"configuration": ` + tt.chosen + `}`
		}
		var w workerRun
		if err := json.Unmarshal([]byte(raw+"}"), &w); err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		for _, s := range w.merged() {
			var v any
			if s.Value != nil {
				_ = json.Unmarshal(s.Value, &v)
			}
			got[s.Key] = v
		}
		var want map[string]any
		_ = json.Unmarshal([]byte(tt.want), &want)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v: got %v", tt, got)
		}
	}
}

func TestSource(t *testing.T) {
	for raw, want := range map[string]task.Source{
		`{"worker_version": {"revision": {"hash": "abc"}, "revision_url": "https://x/-/commit/def", "worker": {"repository_url": "https://x"}}}`: {Repository: "https://x", Revision: "abc"},
		`{"worker_version": {"revision": null, "revision_url": "https://x/-/commit/def/", "worker": {"repository_url": "https://x"}}}`:           {Repository: "https://x", Revision: "def"},
		`{"worker_version": {"version": 3, "worker": {}}}`: {},
	} {
		var w workerRun
		if err := json.Unmarshal([]byte(raw), &w); err != nil {
			t.Fatal(err)
		}
		if got, err := w.source(); err != nil || got != want {
			t.Errorf("%s: got %+v, %v", raw, got, err)
		}
	}
	for _, bad := range []string{"--upload-pack=x", "a..b", "a b", "a\nb"} {
		var w workerRun
		w.Version.RevisionURL = flexible("https://x/" + bad)
		if got, err := w.source(); err == nil {
			t.Errorf("%q makes %+v", bad, got)
		}
	}
}

// The file is JSON, and YAML 1.1 reads the same out of it.
func TestConfigurationFile(t *testing.T) {
	raw := func(s string) json.RawMessage { return json.RawMessage(s) }
	got, err := configurationFile([]setting{
		{Key: "rate", Value: raw("1e-05")}, {Key: "big", Value: raw("1.5E21")}, {Key: "nested", Value: raw(`{"b": [1, 2.5, null, true], "a": "x"}`)},
		{Key: "tëxt", Value: raw(`"é\u0085\ud83d\ude00\"\\\u0000"`)}, {Key: "secrets", Value: raw("[]")}, {Key: "pass", Value: raw(`"w"`), Secret: true},
	})
	want := `{
"configuration": [
  {"key": "rate", "value": 1.0e-05, "secret": false},
  {"key": "big", "value": 1.5e+21, "secret": false},
  {"key": "nested", "value": {"a": "x", "b": [1, 2.5, null, true]}, "secret": false},
  {"key": "t\u00ebxt", "value": "\u00e9\u0085😀\"\\\u0000", "secret": false},
  {"key": "secrets", "value": [], "secret": false},
  {"key": "pass", "value": "w", "secret": true}
],
"rate": 1.0e-05,
"big": 1.5e+21,
"nested": {"a": "x", "b": [1, 2.5, null, true]},
"t\u00ebxt": "\u00e9\u0085😀\"\\\u0000",
"pass": "w"
}
`
	if err != nil || string(got) != want || !json.Valid(got) {
		t.Errorf("got %s, %v; want %s", got, err, want)
	}
}

func FuzzConfigurationFile(f *testing.F) {
	f.Add("k", []byte(`{"a": [1e5, "\u2028", -0.0]}`))
	f.Add("configuration", []byte(`"\ud800"`))
	f.Add("Configuration", []byte(`"0"`))
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		if !json.Valid(value) {
			return
		}
		list := []setting{{Key: key, Value: value}}
		file, err := configurationFile(list)
		if err != nil {
			t.Fatal(err)
		}
		// Into a map, as the keys of a struct match in any case, and those of Python do not.
		var back map[string]json.RawMessage
		if err := json.Unmarshal(file, &back); err != nil {
			t.Fatalf("%v: %s", err, file)
		}
		var settings []struct {
			Value any `json:"value"`
		}
		if err := json.Unmarshal(back["configuration"], &settings); err != nil {
			if strings.Contains(err.Error(), "cannot unmarshal number") {
				return // beyond a float64
			}
			t.Fatalf("%v: %s", err, file)
		}
		var want any
		if json.Unmarshal(value, &want) == nil && !reflect.DeepEqual(settings[0].Value, want) {
			t.Errorf("%s comes back as %v", value, settings[0].Value)
		}
	})
}
