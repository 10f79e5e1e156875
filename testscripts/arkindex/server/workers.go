package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
)

func (s *Server) findRun(id string) *WorkerRun {
	for _, r := range s.w.WorkerRuns {
		if r.ID == id {
			return r
		}
	}
	return nil
}

func (s *Server) findElement(id string) *Element {
	for _, e := range s.w.Elements {
		if e.ID == id {
			return e
		}
	}
	return nil
}

// orObject is a JSON value, or an empty object if there is none.
func orObject(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("{}")
	}
	return raw
}

func retrieveWorkerRun(x *exchange) answer {
	r := x.s.findRun(x.params["id"])
	if r == nil {
		return unknown()
	}
	version := map[string]any{
		"id": NewID(), "revision": map[string]any{"hash": r.Revision, "name": "a commit"}, "version": nil,
		"docker_image_iid": "python:3", "state": "available", "gpu_usage": "supported", "model_usage": "supported",
		"worker": map[string]any{
			"id": NewID(), "name": r.Slug, "slug": r.Slug, "type": "test", "repository_url": r.Repository,
		},
	}
	if r.Settings == nil {
		version["configuration"] = map[string]any{
			"docker": map[string]any{}, "configuration": orObject(r.Configuration),
			"user_configuration": orObject(r.User), "secrets": append([]string{}, r.Secrets...),
		}
	} else {
		// Instances of this age give the commit's address instead of its hash.
		version["revision"], version["revision_url"] = nil, "https://git.example.org/worker/-/commit/"+r.Revision
	}
	m := map[string]any{
		"id": r.ID, "parents": []any{}, "summary": "Worker " + r.Slug, "worker_version": version,
		"configuration": nil, "model_version": nil,
		"process": map[string]any{
			"id": r.Process, "name": nil, "state": "running", "mode": "workers", "corpus": r.Corpus,
			"activity_state": "ready", "skip_elements_json": true,
		},
	}
	if r.Chosen != nil {
		m["configuration"] = map[string]any{"id": NewID(), "name": "chosen", "configuration": r.Chosen, "archived": false}
	}
	if r.ModelVersion != "" {
		m["model_version"] = map[string]any{
			"id": r.ModelVersion, "name": "1", "configuration": orObject(r.Model),
			"model": map[string]any{"id": r.ModelVersion, "name": "A model"},
		}
	}
	return jsonAnswer(http.StatusOK, m)
}

func retrieveConfiguration(x *exchange) answer {
	r := x.s.findRun(x.params["id"])
	switch {
	case r == nil:
		return unknown()
	case r.Settings == nil:
		return invalid("This worker run does not have a modern configuration.")
	}
	return jsonAnswer(http.StatusOK, map[string]any{"configuration": r.Settings})
}

func retrieveModel(x *exchange) answer {
	key, ok := x.s.w.Models[x.params["id"]]
	if !ok {
		return unknown()
	}
	return jsonAnswer(http.StatusOK, map[string]any{
		"id": x.params["id"], "state": "available", "s3_url": x.presign(http.MethodGet, key, ""),
	})
}

func retrieveSecret(x *exchange) answer {
	content, ok := x.s.w.Secrets[x.params["name"]]
	if !ok {
		return unknown()
	}
	return jsonAnswer(http.StatusOK, map[string]any{"id": NewID(), "name": x.params["name"], "content": content})
}

func (s *Server) describeElement(e *Element) map[string]any {
	return map[string]any{
		"id": e.ID, "type": e.Type, "name": e.Name, "corpus": map[string]any{"id": e.Corpus, "name": "A corpus"},
		"zone": nil, "classifications": []any{}, "rotation_angle": 0, "mirrored": false,
	}
}

func retrieveElement(x *exchange) answer {
	e := x.s.findElement(x.params["id"])
	if e == nil {
		return unknown()
	}
	return jsonAnswer(http.StatusOK, x.s.describeElement(e))
}

func listElements(x *exchange) answer {
	list := []any{}
	for _, r := range x.s.w.WorkerRuns {
		if r.Process != x.params["id"] {
			continue
		}
		for _, id := range r.Elements {
			if e := x.s.findElement(id); e != nil {
				list = append(list, x.s.describeElement(e))
			}
		}
	}
	return x.page(list, 500)
}

// publish takes a transcription or a metadata of an element.
func publish(x *exchange) answer {
	e := x.s.findElement(x.params["id"])
	if e == nil {
		return unknown()
	}
	var in struct {
		Text       *string  `json:"text"`
		Confidence *float64 `json:"confidence"`
		Type       string   `json:"type"`
		Name       string   `json:"name"`
		Value      string   `json:"value"`
		WorkerRun  string   `json:"worker_run_id"`
	}
	if bad := x.input(&in); bad != nil {
		return *bad
	}
	switch {
	case in.WorkerRun == "" || in.WorkerRun != x.task.WorkerRun:
		return invalid("This worker run is not that of the task.")
	case x.op == "CreateTranscription" && (in.Text == nil || *in.Text == "" || in.Confidence == nil || *in.Confidence < 0 || *in.Confidence > 1):
		return invalid("text and a confidence of 0 to 1 are required.")
	case x.op == "CreateMetaData" && (in.Type == "" || in.Name == "" || in.Value == ""):
		return invalid("type, name and value are required.")
	}
	x.s.w.Published = append(x.s.w.Published, Publication{x.op, e.ID, x.task.Slug, x.body})
	var out map[string]any
	_ = json.Unmarshal(x.body, &out)
	out["id"] = NewID()
	return jsonAnswer(http.StatusCreated, out)
}

func (s *Server) activity(run *WorkerRun, element string) string {
	if state, ok := s.w.Activities[run.ID+" "+element]; ok {
		return state
	}
	return "queued"
}

func startActivity(x *exchange) answer {
	r := x.s.findRun(x.task.WorkerRun)
	if r == nil {
		return invalid("This task has no worker run.")
	}
	for _, id := range r.Elements {
		if e := x.s.findElement(id); e != nil && x.s.activity(r, id) == "queued" {
			x.s.w.Activities[r.ID+" "+id] = "started"
			return jsonAnswer(http.StatusOK, x.s.describeElement(e))
		}
	}
	return failure(http.StatusNotFound, "not_found", "No queued worker activities were found.")
}

func updateActivity(x *exchange) answer {
	r := x.s.findRun(x.params["id"])
	if r == nil || r.ID != x.task.WorkerRun {
		return unknown()
	}
	var in struct {
		Element string `json:"element_id"`
		Process string `json:"process_id"`
		State   string `json:"state"`
	}
	if bad := x.input(&in); bad != nil {
		return *bad
	}
	now := x.s.activity(r, in.Element)
	allowed := map[string][]string{"queued": {"started"}, "started": {"processed", "error"}, "error": {"started"}}
	switch {
	case !slices.Contains(r.Elements, in.Element) || in.Process != r.Process:
		return unknown()
	case !slices.Contains(allowed[now], in.State):
		return failure(http.StatusConflict, "conflict", fmt.Sprintf("Transition from %s to %s is forbidden.", now, in.State))
	}
	x.s.w.Activities[r.ID+" "+in.Element] = in.State
	return jsonAnswer(http.StatusOK, map[string]any{"element_id": in.Element, "state": in.State})
}
