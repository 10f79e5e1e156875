package arkindex

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// setting is one item of a worker's configuration.
type setting struct {
	Key    string          `json:"key"`
	Value  json.RawMessage `json:"value"`
	Secret bool            `json:"secret"`
}

// Offline collects what a worker requests from the instance before it works. A worker reads a
// configuration file only in its read-only mode, that is, without a worker run; and it needs an
// OpenAPI document first.
func (q *Queue) Offline(ctx context.Context, t task.Task) (queue.Offline, error) {
	doc := q.openapi(ctx).doc
	if doc == nil {
		doc = minimalOpenAPI()
	}
	// Secrets are resolved here. A worker without an operation for them uses the value of a secret
	// unchanged.
	doc, err := withoutOperation(doc, "RetrieveSecret")
	if err != nil {
		return queue.Offline{}, err
	}
	o := queue.Offline{
		Schema: doc, SchemaEnv: "ARKINDEX_API_SCHEMA_URL", Env: map[string]string{},
		// An empty worker run would count as one, so it is removed. The others make a worker download
		// parents, models or elements.
		Unset: []string{"ARKINDEX_WORKER_RUN_ID", "TASK_BOOTSTRAP", "SKIP_TASK_ELEMENTS"},
	}
	run, err := q.worker(ctx, t)
	if err != nil || run == nil {
		return o, err
	}
	settings, err := q.settings(ctx, t, run)
	if err != nil {
		return queue.Offline{}, err
	}
	if o.Configuration, err = configurationFile(settings); err != nil {
		return queue.Offline{}, err
	}
	// It cannot request its parents either. Workers that know this variable use it on machines
	// without a shared file system.
	parents := map[task.ID]string{}
	for _, p := range t.Parents {
		parents[p.ID] = p.Slug
	}
	list, err := json.Marshal(parents) // sorted by id
	if err != nil {
		return queue.Offline{}, err
	}
	o.Env["TASK_PARENTS"] = string(list)
	set := func(name string, value flexible) {
		if value != "" && !strings.ContainsRune(string(value), 0) {
			o.Env[name] = string(value)
		}
	}
	if run.Process != nil && run.Process.Corpus != nil {
		set("ARKINDEX_CORPUS_ID", run.Process.Corpus.ID)
	}
	if run.Model != nil {
		set("ARKINDEX_MODEL_VERSION_ID", run.Model.ID)
		if run.Model.Model != nil {
			set("ARKINDEX_MODEL_ID", run.Model.Model.ID)
		}
	}
	return o, nil
}

// settings returns the configuration that a worker would get: the instance's final list if it has
// one, or else the merged content of the worker run.
func (q *Queue) settings(ctx context.Context, t task.Task, run *workerRun) ([]setting, error) {
	if q.has(ctx, "RetrieveWorkerRunConfiguration") {
		var answer struct {
			Configuration *[]setting `json:"configuration"`
		}
		id := map[string]string{"id": t.Env["ARKINDEX_WORKER_RUN_ID"]}
		err := q.do(ctx, call{op: "RetrieveWorkerRunConfiguration", path: id, as: asTask(t)}, &answer)
		switch {
		case err == nil && answer.Configuration == nil:
			return nil, fault.Errorf(fault.Unavailable, "answer has no configuration")
		case err == nil:
			return q.resolved(ctx, t, *answer.Configuration)
		case status(err) != http.StatusBadRequest && status(err) != http.StatusNotFound:
			return nil, final(err)
		}
	}
	return q.resolved(ctx, t, run.merged())
}

// merged merges the configurations of the worker version, the model and the user, as workers did
// before instances did it for them. A later one wins; options of the version that the user may set
// have their default, or null, unless the model sets them.
func (w *workerRun) merged() []setting {
	values := map[string]json.RawMessage{}
	var secrets []string
	if c := w.Version.Configuration; c != nil {
		for key, value := range c.Configuration {
			values[key] = value
		}
		for key, offered := range c.User {
			if w.Model != nil {
				if _, ok := w.Model.Configuration[key]; ok {
					continue
				}
			}
			values[key] = offered.Default
		}
		secrets = c.Secrets
	}
	if w.Model != nil {
		for key, value := range w.Model.Configuration {
			values[key] = value
		}
	}
	if w.Configuration != nil {
		for key, value := range w.Configuration.Configuration {
			values[key] = value
		}
	}
	var list []setting
	for _, key := range sortedKeys(values) {
		list = append(list, setting{Key: key, Value: values[key]})
	}
	for _, name := range secrets {
		value, _ := json.Marshal(name)
		list = append(list, setting{Key: name, Value: value, Secret: true})
	}
	return list
}

// resolved replaces the names of secrets by their contents. Without an operation for secrets, the
// values already are the contents.
func (q *Queue) resolved(ctx context.Context, t task.Task, list []setting) ([]setting, error) {
	ask := q.has(ctx, "RetrieveSecret")
	for i, s := range list {
		if len(s.Value) == 0 {
			list[i].Value = json.RawMessage("null")
		}
		var name string
		if !s.Secret || !ask || json.Unmarshal(s.Value, &name) != nil || name == "" {
			continue
		}
		var answer struct {
			Content *string `json:"content"`
		}
		c := call{op: "RetrieveSecret", path: map[string]string{"name": name}, as: asTask(t)}
		if err := q.do(ctx, c, &answer); err != nil {
			return nil, fmt.Errorf("secret %q: %w", task.Clean(name), final(err))
		}
		if answer.Content == nil {
			return nil, fault.Errorf(fault.Unavailable, "secret %q: answer has none", task.Clean(name))
		}
		value, err := secretValue(name, *answer.Content)
		if err != nil {
			return nil, err
		}
		list[i].Value = value
	}
	return list, nil
}

// secretValue parses a secret as a worker does: by the extension of its name, or as text if that
// fails.
func secretValue(name, content string) (json.RawMessage, error) {
	switch strings.ToLower(path.Ext(name)) {
	case ".json":
		if json.Valid([]byte(content)) {
			return json.RawMessage(content), nil
		}
	case ".yaml", ".yml":
		var node yaml.Node
		var value any
		if yaml.Unmarshal([]byte(content), &node) != nil {
			break
		}
		oldBooleans(&node)
		if node.Decode(&value) == nil {
			if asJSON, err := json.Marshal(value); err == nil {
				return asJSON, nil
			}
		}
	}
	return json.Marshal(content)
}

// oldBooleans converts the words that are booleans in YAML 1.1, which workers use.
func oldBooleans(node *yaml.Node) {
	if node.Kind == yaml.ScalarNode && node.Style == 0 && node.ShortTag() == "!!str" {
		switch node.Value {
		case "yes", "Yes", "YES", "on", "On", "ON":
			node.Tag, node.Value = "!!bool", "true"
		case "no", "No", "NO", "off", "Off", "OFF":
			node.Tag, node.Value = "!!bool", "false"
		}
	}
	for _, child := range node.Content {
		oldBooleans(child)
	}
}

// configurationFile writes the settings in both forms that workers read: since base-worker 0.6 the
// list under "configuration", before that the keys themselves.
func configurationFile(list []setting) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("{\n\"configuration\": [")
	for i, s := range list {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  {\"key\": ")
		writeString(&b, s.Key)
		b.WriteString(", \"value\": ")
		if err := writeJSON(&b, s.Value); err != nil {
			return nil, fmt.Errorf("value of %q: %w", task.Clean(s.Key), err)
		}
		fmt.Fprintf(&b, ", \"secret\": %v}", s.Secret)
	}
	b.WriteString("\n]")
	seen := map[string]bool{
		"configuration": true,
		"secrets":       true, // would be taken for a list of secrets to load
	}
	for _, s := range list {
		if seen[s.Key] || len(s.Key) > 500 {
			continue
		}
		seen[s.Key] = true
		b.WriteString(",\n")
		writeString(&b, s.Key)
		b.WriteString(": ")
		if err := writeJSON(&b, s.Value); err != nil {
			return nil, err
		}
	}
	b.WriteString("\n}\n")
	return b.Bytes(), nil
}
