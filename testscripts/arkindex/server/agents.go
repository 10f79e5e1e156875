package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// op is an operation of the API.
type op struct {
	id, method, path string
	auth             string // who may: "agent", "task", "agent task", "": anybody
	paged            bool
	serve            func(*exchange) answer
}

// operations is the table of the API. The agents' part has no fixed place.
func (s *Server) operations() []op {
	agent, task, refresh := "/api/v1/agent/", "/api/v1/task/", "RefreshAgentToken"
	if s.opt.Moved {
		agent, task = "/api/v1/ponos/agents/", "/api/v1/ponos/tasks/"
	}
	return []op{
		{id: "", method: http.MethodGet, path: "/api/v1/openapi/", serve: document},
		{id: "CreateAgent", method: http.MethodPost, path: agent, serve: createAgent},
		{id: refresh, method: http.MethodPost, path: agent + "refresh/", serve: refreshToken},
		{id: "RetrieveAgentActions", method: http.MethodGet, path: agent + "actions/", auth: "agent", serve: actions},
		{id: "RetrieveTaskDefinition", method: http.MethodGet, path: task + "{id}/definition/", auth: "agent", serve: retrieveDefinition},
		{id: "RetrieveTask", method: http.MethodGet, path: task + "{id}/", auth: "agent task", serve: retrieveTask},
		{id: "PartialUpdateTask", method: http.MethodPatch, path: task + "{id}/", auth: "agent", serve: updateTask},
		{id: "ListArtifacts", method: http.MethodGet, path: task + "{id}/artifacts/", auth: "agent task", serve: listArtifacts},
		{id: "CreateArtifact", method: http.MethodPost, path: task + "{id}/artifacts/", auth: "agent task", serve: createArtifact},
		{id: "DownloadArtifact", method: http.MethodGet, path: task + "{id}/artifact/{+path}", auth: "agent task", serve: downloadArtifact},
		{id: "RetrieveWorkerRun", method: http.MethodGet, path: "/api/v1/process/workers/{id}/", auth: "task", serve: retrieveWorkerRun},
		{id: "RetrieveWorkerRunConfiguration", method: http.MethodGet, path: "/api/v1/workers/runs/{id}/configuration/", auth: "task", serve: retrieveConfiguration},
		{id: "RetrieveModelVersion", method: http.MethodGet, path: "/api/v1/modelversion/{id}/", auth: "task", serve: retrieveModel},
		{id: "RetrieveSecret", method: http.MethodGet, path: "/api/v1/secret/{+name}", auth: "task", serve: retrieveSecret},
		{id: "ListProcessElements", method: http.MethodGet, path: "/api/v1/process/{id}/elements/", auth: "task", paged: true, serve: listElements},
		{id: "RetrieveElement", method: http.MethodGet, path: "/api/v1/element/{id}/", auth: "task", serve: retrieveElement},
		{id: "CreateTranscription", method: http.MethodPost, path: "/api/v1/element/{id}/transcription/", auth: "task", serve: publish},
		{id: "CreateMetaData", method: http.MethodPost, path: "/api/v1/element/{id}/metadata/", auth: "task", serve: publish},
		{id: "StartWorkerActivity", method: http.MethodPost, path: "/api/v1/process/activity/start/", auth: "task", serve: startActivity},
		{id: "UpdateWorkerActivity", method: http.MethodPut, path: "/api/v1/workers/runs/{id}/activity/", auth: "task", serve: updateActivity},
		{id: "PutObject", method: http.MethodPut, path: "/s3/{+path}", serve: store},
		{id: "GetObject", method: http.MethodGet, path: "/s3/{+path}", serve: store},
	}
}

func createAgent(x *exchange) answer {
	s := x.s
	var in struct {
		ID       string `json:"id"`
		FarmID   string `json:"farm_id"`
		Seed     string `json:"seed"`
		Hostname string `json:"hostname"`
		Mode     string `json:"mode"`
		CPUs     int    `json:"cpu_cores"`
		RAM      int64  `json:"ram_total"`
		GPUs     []struct {
			ID string `json:"id"`
		} `json:"gpus"`
	}
	if bad := x.input(&in); bad != nil {
		return *bad
	}
	switch {
	case in.FarmID != s.w.FarmID:
		return failure(http.StatusBadRequest, "does_not_exist", fmt.Sprintf("Invalid pk \"%s\" - object does not exist.", in.FarmID))
	case in.Seed != s.w.Seed:
		return failure(http.StatusForbidden, "permission_denied", "The seed is not that of the farm.")
	case in.Hostname == "" || in.CPUs < 1 || in.RAM < 1:
		return invalid("hostname, cpu_cores and ram_total are required.")
	}
	for _, g := range in.GPUs {
		if !uuid.MatchString(strings.ToLower(g.ID)) {
			return invalid("Must be a valid UUID.")
		}
	}
	i := slices.IndexFunc(s.w.Agents, func(a *Agent) bool { return a.ID == in.ID })
	if i < 0 {
		s.w.Agents = append(s.w.Agents, &Agent{ID: NewID()})
		i = len(s.w.Agents) - 1
	}
	a := s.w.Agents[i]
	a.Hostname, a.Mode, a.GPUs, a.Refresh = in.Hostname, in.Mode, len(in.GPUs), random(24)
	var declared map[string]json.RawMessage
	_ = json.Unmarshal(x.body, &declared)
	delete(declared, "seed")
	a.Declared, _ = json.Marshal(declared)
	x.agent = a
	return jsonAnswer(http.StatusCreated, map[string]any{
		"id": a.ID, "hostname": a.Hostname, "farm": map[string]any{"id": s.w.FarmID, "name": "Test farm"},
		"access_token": s.accessToken(a), "refresh_token": a.Refresh, "gpus": in.GPUs,
	})
}

// accessToken gives an agent a new token beside those that it has: several
// processes of it may use different ones.
func (s *Server) accessToken(a *Agent) string {
	t := Token{random(24), s.now().Add(s.opt.TokenLife)}
	a.Access = append(a.Access, t)
	return t.Value
}

func refreshToken(x *exchange) answer {
	var in struct {
		Refresh string `json:"refresh"`
	}
	if bad := x.input(&in); bad != nil {
		return *bad
	}
	for _, a := range x.s.w.Agents {
		if in.Refresh != "" && a.Refresh == in.Refresh {
			x.agent = a
			return jsonAnswer(http.StatusOK, map[string]any{"access": x.s.accessToken(a)})
		}
	}
	return failure(http.StatusUnauthorized, "token_not_valid", "Token is invalid or expired")
}

// actions assigns what can be started, and lists what is to be done.
func actions(x *exchange) answer {
	for _, name := range []string{"cpu_load", "ram_load"} {
		if x.URL.Query().Get(name) == "" {
			return invalid(name + " is required.")
		}
	}
	x.agent.Pings++
	list := []any{}
	for _, t := range x.s.w.Tasks {
		if t.State == "unscheduled" && x.s.parentsDone(t) && (t.Agent == "" || t.Agent == x.agent.ID) && (!t.RequiresGPU || x.agent.GPUs > 0 || x.s.opt.AnyHost) {
			t.Agent = x.agent.ID
			t.enter("pending")
		}
		if t.Agent != x.agent.ID {
			continue
		}
		switch t.State {
		case "pending":
			list = append(list, map[string]any{"action": "start_task", "task_id": t.ID})
		case "stopping":
			list = append(list, map[string]any{"action": "kill_task", "task_id": t.ID})
		}
	}
	return jsonAnswer(http.StatusOK, map[string]any{"actions": list})
}

func (t *Task) enter(state string) {
	t.State = state
	t.History = append(t.History, state)
}

func (s *Server) parentsDone(t *Task) bool {
	for _, id := range t.Parents {
		if p := s.findTask(id); p == nil || p.State != "completed" {
			return false
		}
	}
	return true
}

func (s *Server) findTask(id string) *Task {
	for _, t := range s.w.Tasks {
		if t.ID == id || t.Slug == id {
			return t
		}
	}
	return nil
}

// ownTask is the task of the path, if the agent that asks may have it.
func (x *exchange) ownTask() (*Task, *answer) {
	t := x.s.findTask(x.params["id"])
	if t == nil {
		a := unknown()
		return nil, &a
	}
	if x.agent != nil && t.Agent != x.agent.ID {
		a := failure(http.StatusForbidden, "permission_denied", "This task is not assigned to this agent.")
		return nil, &a
	}
	return t, nil
}

func retrieveDefinition(x *exchange) answer {
	t, bad := x.ownTask()
	if bad != nil {
		return *bad
	}
	if t.Raw != nil {
		return answer{status: http.StatusOK, header: http.Header{"Content-Type": {"application/json"}}, body: t.Raw}
	}
	env := map[string]string{
		"ARKINDEX_API_URL":    x.scheme() + x.Host + "/api/v1/",
		"ARKINDEX_TASK_TOKEN": t.Token, "ARKINDEX_PROCESS_ID": t.Process,
	}
	if t.WorkerRun != "" {
		env["ARKINDEX_WORKER_RUN_ID"] = t.WorkerRun
	}
	for name, value := range t.Env {
		env[name] = value
	}
	files := map[string]string{}
	for name, key := range t.Files {
		files[name] = x.presign(http.MethodGet, key, "")
	}
	command := t.Command
	if command == nil {
		command = json.RawMessage("null")
	}
	return jsonAnswer(http.StatusOK, map[string]any{
		"id": t.ID, "slug": t.Slug, "image": t.Image, "command": command, "shm_size": nil, "env": env,
		"has_docker_socket": false, "requires_gpu": t.RequiresGPU, "gpu": nil, "agent_id": t.Agent,
		"process_id": t.Process, "parents": t.Parents, "image_artifact_url": nil, "extra_files": files,
		"s3_logs_put_url": x.presign(http.MethodPut, t.logKey(), x.s.opt.LogType), "ttl": t.TTL,
	})
}

func (t *Task) logKey() string { return "ponos-logs/" + t.ID + ".log" }

func (t *Task) artifactKey(path string) string { return "ponos-artifacts/" + t.ID + "/" + path }

func (t *Task) summary() map[string]any {
	return map[string]any{
		"id": t.ID, "run": 0, "depth": 0, "slug": t.Slug, "state": t.State, "parents": t.Parents,
		"agent": map[string]any{"id": t.Agent}, "requires_gpu": t.RequiresGPU, "shm_size": nil,
	}
}

func retrieveTask(x *exchange) answer {
	t := x.s.findTask(x.params["id"])
	if t == nil {
		return unknown()
	}
	return jsonAnswer(http.StatusOK, t.summary())
}

// next are the states that an agent may report, by the state that a task is in.
var next = map[string][]string{
	"pending":  {"running"},
	"running":  {"completed", "failed", "error"},
	"stopping": {"stopped"},
}

func updateTask(x *exchange) answer {
	t, bad := x.ownTask()
	if bad != nil {
		return *bad
	}
	var in struct {
		State string `json:"state"`
	}
	if bad := x.input(&in); bad != nil {
		return *bad
	}
	if !slices.Contains(next[t.State], in.State) {
		return invalid(fmt.Sprintf("Transition from state %s to state %s is forbidden.", t.State, in.State))
	}
	t.enter(in.State)
	return jsonAnswer(http.StatusOK, t.summary())
}

func (x *exchange) describe(t *Task, a *Artifact, put bool) map[string]any {
	m := map[string]any{
		"id": a.ID, "path": a.Path, "size": a.Size, "content_type": a.ContentType, "s3_put_url": nil,
		"created": "2000-01-01T00:00:00Z", "updated": "2000-01-01T00:00:00Z",
	}
	if put {
		m["s3_put_url"] = x.presign(http.MethodPut, t.artifactKey(a.Path), a.ContentType)
	}
	return m
}

func listArtifacts(x *exchange) answer {
	t := x.s.findTask(x.params["id"])
	if t == nil {
		return unknown()
	}
	list := []any{}
	for _, a := range t.Artifacts {
		// What was announced and never came can still be sent.
		_, there := x.s.w.Storage[t.artifactKey(a.Path)]
		list = append(list, x.describe(t, a, !there))
	}
	if !x.s.opt.Paginated {
		return jsonAnswer(http.StatusOK, list)
	}
	return x.page(list, 2)
}

// page answers a part of a list.
func (x *exchange) page(list []any, size int) answer {
	number := 1
	_, _ = fmt.Sscan(x.URL.Query().Get("page"), &number)
	from, to := min(len(list), (number-1)*size), min(len(list), number*size)
	if number < 1 || from == to && number > 1 {
		return failure(http.StatusNotFound, "not_found", "Invalid page.")
	}
	m := map[string]any{"count": len(list), "number": number, "previous": nil, "next": nil, "results": list[from:to]}
	if to < len(list) {
		m["next"] = x.scheme() + x.Host + x.URL.Path + "?" + url.Values{"page": {fmt.Sprint(number + 1)}}.Encode()
	}
	return jsonAnswer(http.StatusOK, m)
}

func createArtifact(x *exchange) answer {
	t, bad := x.ownTask()
	if bad != nil {
		return *bad
	}
	if x.task != nil && x.task != t {
		return failure(http.StatusForbidden, "permission_denied", "A task may only publish its own artifacts.")
	}
	var in Artifact
	if bad := x.input(&in); bad != nil {
		return *bad
	}
	switch {
	case in.Path == "" || strings.HasPrefix(in.Path, "/") || slices.Contains(strings.Split(in.Path, "/"), ".."):
		return invalid("Enter a valid path.")
	case !strings.Contains(in.ContentType, "/"):
		return invalid("Enter a valid content type.")
	case in.Size < 0:
		return invalid("Ensure this value is greater than or equal to 0.")
	case slices.ContainsFunc(t.Artifacts, func(a *Artifact) bool { return a.Path == in.Path }):
		return failure(http.StatusBadRequest, "unique", "An artifact with this path already exists on this task.")
	}
	in.ID = NewID()
	t.Artifacts = append(t.Artifacts, &in)
	return jsonAnswer(http.StatusCreated, x.describe(t, &in, true))
}

func downloadArtifact(x *exchange) answer {
	t := x.s.findTask(x.params["id"])
	if t == nil {
		return unknown()
	}
	if !slices.ContainsFunc(t.Artifacts, func(a *Artifact) bool { return a.Path == x.params["path"] }) {
		return unknown()
	}
	to := x.presign(http.MethodGet, t.artifactKey(x.params["path"]), "")
	return answer{status: http.StatusFound, header: http.Header{"Location": {to}}}
}
