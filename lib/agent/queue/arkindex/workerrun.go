package arkindex

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/ponos-tools/ponos/lib/task"
)

// workerRun is the relevant part of RetrieveWorkerRun. Its fields are from different versions, and
// any may be missing.
type workerRun struct {
	Version struct {
		Configuration *struct {
			Configuration map[string]json.RawMessage `json:"configuration"`
			User          map[string]struct {
				Default json.RawMessage `json:"default"`
			} `json:"user_configuration"`
			Secrets []string `json:"secrets"`
		} `json:"configuration"`
		Revision *struct {
			Hash flexible `json:"hash"`
		} `json:"revision"`
		RevisionURL flexible `json:"revision_url"`
		Worker      struct {
			Slug       flexible `json:"slug"`
			Repository flexible `json:"repository_url"`
		} `json:"worker"`
	} `json:"worker_version"`
	Configuration *struct {
		Configuration map[string]json.RawMessage `json:"configuration"`
	} `json:"configuration"`
	Model *struct {
		ID            flexible                   `json:"id"`
		Configuration map[string]json.RawMessage `json:"configuration"`
		Model         *struct {
			ID flexible `json:"id"`
		} `json:"model"`
	} `json:"model_version"`
	Process *struct {
		Corpus *reference `json:"corpus"`
	} `json:"process"`
}

// asTask is the credential of the task itself, which may read what concerns it.
func asTask(t task.Task) credential {
	if token := t.Env["ARKINDEX_TASK_TOKEN"]; token != "" {
		return credential{scheme: "Ponos", token: token}
	}
	return credential{}
}

// worker returns the worker run of a task; nil if the task is not a worker.
func (q *Queue) worker(ctx context.Context, t task.Task) (*workerRun, error) {
	run := t.Env["ARKINDEX_WORKER_RUN_ID"]
	if run == "" {
		return nil, nil
	}
	var w workerRun
	c := call{op: "RetrieveWorkerRun", path: map[string]string{"id": run}, as: asTask(t)}
	if err := q.do(ctx, c, &w); err != nil {
		return nil, fmt.Errorf("worker run: %w", final(err))
	}
	return &w, nil
}

// revision checks a commit, tag or branch; git must not take it for an option.
var revision = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._/-]*$`)

// maxRevision is how long it may be.
const maxRevision = 251

// source returns where the code of a worker is.
func (w *workerRun) source() (task.Source, error) {
	s := task.Source{Repository: string(w.Version.Worker.Repository)}
	if w.Version.Revision != nil {
		s.Revision = string(w.Version.Revision.Hash)
	}
	if at := strings.TrimRight(string(w.Version.RevisionURL), "/"); s.Revision == "" && at != "" {
		s.Revision = path.Base(at)
	}
	if s.Revision != "" && (len(s.Revision) > maxRevision || !revision.MatchString(s.Revision) || strings.Contains(s.Revision, "..")) {
		return task.Source{}, fmt.Errorf("invalid git revision %.60q", s.Revision)
	}
	return s, nil
}
