package task

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Kind is what the queue requests for a task.
type Kind string

// The kinds of action.
const (
	Start Kind = "start"
	Stop  Kind = "stop"
)

// ParseKind reads an action's name in any spelling that queues use.
func ParseKind(s string) (Kind, error) {
	switch s {
	case "start", "start_task":
		return Start, nil
	case "stop", "stop_task", "kill_task":
		return Stop, nil
	}
	return "", fmt.Errorf("action %.40q is neither start nor stop", s)
}

// Action is one line between the tools: what is requested for a task, and enough of the task to
// filter by. It never contains a secret.
type Action struct {
	Kind        Kind   `json:"action"`
	ID          ID     `json:"id"`
	Slug        string `json:"slug,omitempty"`
	RequiresGPU bool   `json:"requires_gpu"`
	Process     string `json:"process,omitempty"`
	Repository  string `json:"repository,omitempty"`
	Image       string `json:"image,omitempty"`
}

// Outcome is one line between the tools: the result of an action.
type Outcome struct {
	Event  string  `json:"event"` // started, adopted, stopped, skipped, unknown, deferred, failed, ended
	ID     ID      `json:"id"`
	Slug   string  `json:"slug,omitempty"`
	Runner string  `json:"runner,omitempty"`
	Job    string  `json:"job,omitempty"` // the runner's own name of the job
	Reason string  `json:"reason,omitempty"`
	State  State   `json:"state,omitempty"`        // of ended
	Cost   float64 `json:"cost_dollars,omitempty"` // of ended and stopped
}

// MaxLine is the longest line in bytes that is read as a record.
const MaxLine = 1 << 20

// Line is an input line. Action is nil if the line is not an action, and then belongs to another
// tool.
type Line struct {
	Raw    []byte
	Action *Action
}

// ParseLine reads a line without its newline. A JSON object without "action"
// (an outcome, say) and a blank line are not errors and have no Action; an
// object whose action or id is invalid is an error, as is what is not JSON.
func ParseLine(raw []byte) (Line, error) {
	line := Line{Raw: raw}
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 {
		return line, nil
	}
	if len(raw) > MaxLine {
		return line, fmt.Errorf("line of %d bytes is longer than %d", len(raw), MaxLine)
	}
	if trimmed[0] != '{' || !utf8.Valid(trimmed) {
		return line, fmt.Errorf("line is not a JSON object: %.40q", trimmed)
	}
	var fields struct {
		Action      *string         `json:"action"`
		ID          *string         `json:"id"`
		Slug        string          `json:"slug"`
		RequiresGPU bool            `json:"requires_gpu"`
		Process     string          `json:"process"`
		Repository  string          `json:"repository"`
		Image       string          `json:"image"`
		Event       json.RawMessage `json:"event"`
	}
	if err := json.Unmarshal(trimmed, &fields); err != nil {
		return line, fmt.Errorf("line is not a record: %w", err)
	}
	if fields.Action == nil || fields.Event != nil {
		return line, nil
	}
	kind, err := ParseKind(*fields.Action)
	if err != nil {
		return line, err
	}
	if fields.ID == nil {
		return line, fmt.Errorf("record has no id: %.60q", trimmed)
	}
	id, err := ParseID(*fields.ID)
	if err != nil {
		return line, err
	}
	line.Action = &Action{
		Kind: kind, ID: id, Slug: fields.Slug, RequiresGPU: fields.RequiresGPU,
		Process: fields.Process, Repository: fields.Repository, Image: fields.Image,
	}
	return line, nil
}
