package server

import (
	"encoding/json"
	"time"
)

// World is all that the server knows. It can be kept in a file.
type World struct {
	FarmID string `json:"farm_id"`
	Seed   string `json:"seed"`
	Key    []byte `json:"key"` // signs URLs

	Agents     []*Agent          `json:"agents"`
	Tasks      []*Task           `json:"tasks"`
	WorkerRuns []*WorkerRun      `json:"worker_runs"`
	Elements   []*Element        `json:"elements"`
	Secrets    map[string]string `json:"secrets"`
	Models     map[string]string `json:"models"`  // model version id: storage key
	Storage    map[string][]byte `json:"storage"` // key: contents
	Published  []Publication     `json:"published"`
	Activities map[string]string `json:"activities"` // worker run id + " " + element id: state
	Clock      time.Duration     `json:"clock"`      // how far the server's clock is ahead
}

// Agent is a registered agent.
type Agent struct {
	ID       string          `json:"id"`
	Hostname string          `json:"hostname"`
	Mode     string          `json:"mode"`
	GPUs     int             `json:"gpus"`
	Declared json.RawMessage `json:"declared"` // the body of its registration, without the seed
	Access   []Token         `json:"access"`
	Refresh  string          `json:"refresh"`
	Pings    int             `json:"pings"`
}

// Token is a token with an end.
type Token struct {
	Value   string    `json:"value"`
	Expires time.Time `json:"expires"`
}

// Task is a task. Of a new one, everything but the slug may be left out.
type Task struct {
	ID          string            `json:"id"`
	Slug        string            `json:"slug"`
	State       string            `json:"state"`
	Agent       string            `json:"agent_id"`
	Process     string            `json:"process_id"`
	WorkerRun   string            `json:"worker_run"`
	Command     json.RawMessage   `json:"command"`
	Image       string            `json:"image"`
	Env         map[string]string `json:"env"`
	RequiresGPU bool              `json:"requires_gpu"`
	Parents     []string          `json:"parents"` // ids or slugs
	Files       map[string]string `json:"files"`   // name: storage key
	TTL         int               `json:"ttl"`
	Token       string            `json:"token"`
	Artifacts   []*Artifact       `json:"artifacts"`
	History     []string          `json:"history"` // states, in order
	// Raw replaces the definition as a whole, to be as hostile as one likes.
	Raw json.RawMessage `json:"raw"`
}

// Artifact is an announced artifact.
type Artifact struct {
	ID          string `json:"id"`
	Path        string `json:"path"`
	Size        int64  `json:"size"`
	ContentType string `json:"content_type"`
}

// WorkerRun is a worker run: what RetrieveWorkerRun and
// RetrieveWorkerRunConfiguration answer.
type WorkerRun struct {
	ID         string `json:"id"`
	Slug       string `json:"slug"` // of the worker
	Repository string `json:"repository_url"`
	Revision   string `json:"revision"` // hash
	Corpus     string `json:"corpus"`
	Process    string `json:"process"`
	// Settings is the final list. nil: an instance of the older generation, whose
	// workers merge the four configurations below.
	Settings      []Setting       `json:"settings"`
	Configuration json.RawMessage `json:"configuration"`
	User          json.RawMessage `json:"user_configuration"`
	Secrets       []string        `json:"secrets"`
	ModelVersion  string          `json:"model_version"`
	Model         json.RawMessage `json:"model_configuration"`
	Chosen        json.RawMessage `json:"chosen_configuration"`
	Elements      []string        `json:"elements"` // ids, given out by StartWorkerActivity
}

// Setting is one item of a worker's configuration.
type Setting struct {
	Key    string          `json:"key"`
	Value  json.RawMessage `json:"value"`
	Secret bool            `json:"secret"`
}

// Element is an element of a corpus.
type Element struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Name   string `json:"name"`
	Corpus string `json:"corpus"`
}

// Publication is what a worker has published on an element.
type Publication struct {
	Operation string          `json:"operation"`
	Element   string          `json:"element"`
	Task      string          `json:"task"` // slug
	Body      json.RawMessage `json:"body"`
}

// Spec adds to a world.
type Spec struct {
	Tasks      []*Task           `json:"tasks"`
	WorkerRuns []*WorkerRun      `json:"worker_runs"`
	Elements   []*Element        `json:"elements"`
	Secrets    map[string]string `json:"secrets"`
	Models     map[string]string `json:"models"`
	Storage    map[string]string `json:"storage"` // key: contents as text
	// Archives are kept as tar.zst. Key: file names with their contents.
	Archives map[string]map[string]string `json:"archives"`
}

// Request is a request as it is recorded.
type Request struct {
	Operation string `json:"operation"` // operation id, or "" for an address that there is not
	Method    string `json:"method"`
	Path      string `json:"path"`
	Query     string `json:"query"`   // without a signature
	Who       string `json:"who"`     // agent, task SLUG, or "" if unknown
	Auth      string `json:"auth"`    // scheme of the Authorization header
	Program   string `json:"program"` // User-Agent, without its version
	Type      string `json:"content_type"`
	Length    int64  `json:"length"`
	Body      string `json:"body"`   // its beginning
	Status    int    `json:"status"` // 0: the connection was cut
	Fault     string `json:"fault,omitempty"`
}
