package arkindex

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

// flexible is a string that a server may send as a number, or as null.
type flexible string

func (f *flexible) UnmarshalJSON(b []byte) error {
	switch {
	case string(b) == "null":
		*f = ""
		return nil
	case b[0] == '"':
		var s string
		err := json.Unmarshal(b, &s)
		*f = flexible(s)
		return err
	case b[0] == '{' || b[0] == '[':
		return errors.New("expected a string")
	}
	*f = flexible(b)
	return nil
}

// reference is an object by its id, or an object that has one.
type reference struct {
	ID   flexible
	Slug flexible
}

func (r *reference) UnmarshalJSON(b []byte) error {
	if b[0] != '{' {
		return json.Unmarshal(b, &r.ID)
	}
	var object struct {
		ID   flexible `json:"id"`
		Slug flexible `json:"slug"`
	}
	err := json.Unmarshal(b, &object)
	*r = reference{object.ID, object.Slug}
	return err
}

// words is a command: a list, or a string to split. nil: none is given.
type words []string

func (w *words) UnmarshalJSON(b []byte) error {
	switch {
	case string(b) == "null":
		*w = nil
		return nil
	case b[0] == '[':
		if err := json.Unmarshal(b, (*[]string)(w)); err != nil {
			return err
		}
		if slices.ContainsFunc(*w, func(s string) bool { return strings.ContainsRune(s, 0) }) {
			return errors.New("command holds a zero byte")
		}
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if *w = nil; strings.TrimSpace(s) == "" {
		return nil
	}
	split, err := task.SplitCommand(s)
	*w = split
	return err
}

// files is a map of names to URLs, or a list of objects with both.
type files []task.File

func (f *files) UnmarshalJSON(b []byte) error {
	*f = nil
	if string(b) == "null" {
		return nil
	}
	named := map[string]flexible{}
	if b[0] == '[' {
		var list []struct {
			Name flexible `json:"name"`
			URL  flexible `json:"url"`
		}
		if err := json.Unmarshal(b, &list); err != nil {
			return err
		}
		for _, item := range list {
			named[string(item.Name)] = item.URL
		}
	} else if err := json.Unmarshal(b, &named); err != nil {
		return err
	}
	for _, name := range sortedKeys(named) {
		if !plainName(name) {
			return fmt.Errorf("extra file %.60q: expected a plain file name", name)
		}
		if !webAddress(string(named[name])) {
			return fmt.Errorf("extra file %.60q has no http or https URL", name)
		}
		*f = append(*f, task.File{Name: name, URL: string(named[name])})
	}
	return nil
}

// maxName is the longest file name of common file systems.
const maxName = 255

// plainName reports whether a name stays in its directory.
func plainName(name string) bool {
	return name != "" && len(name) <= maxName && name != "." && name != ".." &&
		!strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '/' || r == 0x7f || r == 0xfffd })
}

func webAddress(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
}

// definition is a task as RetrieveTaskDefinition or RetrieveTask returns it.
type definition struct {
	ID      flexible            `json:"id"`
	Slug    flexible            `json:"slug"`
	State   flexible            `json:"state"`
	Run     flexible            `json:"run"`
	Image   flexible            `json:"image"`
	Command words               `json:"command"`
	Env     map[string]flexible `json:"env"`
	GPU     *bool               `json:"requires_gpu"`
	AgentID *reference          `json:"agent_id"`
	Agent   *reference          `json:"agent"`
	ProcID  *reference          `json:"process_id"`
	Process *reference          `json:"process"`
	Parents []reference         `json:"parents"`
	Files   files               `json:"extra_files"`
	LogURL  flexible            `json:"s3_logs_put_url"`
	TTL     flexible            `json:"ttl"`
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Limits of one definition.
const (
	maxParents  = 10000
	maxVariable = 128 << 10 // the limit of Linux
)

// parseDefinition decodes a definition and checks everything that becomes a path, an argument or a
// variable.
func parseDefinition(raw []byte) (task.Task, string, error) {
	var d definition
	if len(bytes.TrimSpace(raw)) == 0 || bytes.TrimSpace(raw)[0] != '{' {
		return task.Task{}, "", errors.New("definition is not a JSON object")
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		return task.Task{}, "", fmt.Errorf("definition: %s", task.Clean(err.Error()))
	}
	id, err := task.ParseID(string(d.ID))
	if err != nil {
		return task.Task{}, "", fmt.Errorf("definition: %w", err)
	}
	t := task.Task{
		ID: id, Slug: task.Clean(string(d.Slug)), State: task.State(strings.ToLower(string(d.State))),
		Image: string(d.Image), Command: d.Command, Files: d.Files,
		RequiresGPU: d.GPU != nil && *d.GPU,
		Agent:       referenceID(d.AgentID, d.Agent), Process: referenceID(d.ProcID, d.Process),
		TTL: seconds(d.TTL), Run: count(d.Run), Env: map[string]string{},
	}
	if t.State != "" && !t.State.Known() {
		return task.Task{}, "", fmt.Errorf("definition: state %.40q is not known", t.State)
	}
	for name, value := range d.Env {
		switch {
		case !variableName.MatchString(name):
			return task.Task{}, "", fmt.Errorf("definition: %.40q cannot be the name of a variable", name)
		case strings.ContainsRune(string(value), 0) || len(value) > maxVariable:
			return task.Task{}, "", fmt.Errorf("definition: value of variable %s is too long or holds a zero byte", task.Clean(name))
		}
		t.Env[name] = string(value)
	}
	if t.Process == "" {
		t.Process = t.Env["ARKINDEX_PROCESS_ID"]
	}
	if t.Process != "" {
		if _, err := task.ParseID(t.Process); err != nil {
			return task.Task{}, "", fmt.Errorf("definition: process: %w", err)
		}
	}
	if len(d.Parents) > maxParents {
		return task.Task{}, "", fmt.Errorf("definition: more than %d parents", maxParents)
	}
	for _, p := range d.Parents {
		parent, err := task.ParseID(string(p.ID))
		if err != nil {
			return task.Task{}, "", fmt.Errorf("definition: parent: %w", err)
		}
		t.Parents = append(t.Parents, task.Parent{ID: parent, Slug: task.Clean(string(p.Slug))})
	}
	logs := string(d.LogURL)
	if logs != "" && !webAddress(logs) {
		return task.Task{}, "", errors.New("definition: URL for the log is not an http or https URL")
	}
	return t, logs, nil
}

// parseLogURL finds the URL for the log in an otherwise invalid definition; "" if there is none.
func parseLogURL(raw []byte, id task.ID) string {
	var d struct {
		ID     json.RawMessage `json:"id"`
		LogURL json.RawMessage `json:"s3_logs_put_url"`
	}
	var logs, is string
	if json.Unmarshal(raw, &d) != nil || json.Unmarshal(d.ID, &is) != nil || is != string(id) ||
		json.Unmarshal(d.LogURL, &logs) != nil || !webAddress(logs) {
		return ""
	}
	return logs
}

func referenceID(references ...*reference) string {
	for _, r := range references {
		if r != nil && r.ID != "" {
			return string(r.ID)
		}
	}
	return ""
}

// seconds reads a time limit; an absent one, or more than a century, means no limit.
func seconds(n flexible) time.Duration {
	s, err := strconv.ParseInt(string(n), 10, 64)
	if err != nil || s <= 0 || s > 100*366*24*3600 {
		return 0
	}
	return time.Duration(s) * time.Second
}

func count(n flexible) int {
	i, err := strconv.ParseUint(string(n), 10, 30)
	if err != nil {
		return 0
	}
	return int(i)
}

// parseActions decodes the actions of the instance. Invalid actions are returned as errors, and the
// others are still returned.
func parseActions(raw []byte) ([]task.Action, []error, error) {
	type wish struct {
		Action flexible   `json:"action"`
		Kind   flexible   `json:"kind"`
		TaskID *reference `json:"task_id"`
		Task   *reference `json:"task"`
		ID     *reference `json:"id"`
	}
	var list []json.RawMessage
	if trimmed := bytes.TrimSpace(raw); len(trimmed) > 0 && trimmed[0] == '[' {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, nil, fmt.Errorf("actions: %s", task.Clean(err.Error()))
		}
	} else {
		var answer struct {
			Actions *[]json.RawMessage `json:"actions"`
		}
		if err := json.Unmarshal(raw, &answer); err != nil {
			return nil, nil, fmt.Errorf("actions: %s", task.Clean(err.Error()))
		}
		if answer.Actions == nil {
			return nil, nil, errors.New(`actions: answer has no list "actions"`)
		}
		list = *answer.Actions
	}
	var actions []task.Action
	var bad []error
	for _, item := range list {
		var w wish
		if err := json.Unmarshal(item, &w); err != nil {
			bad = append(bad, fmt.Errorf("action %s: %s", clip(string(item), 60), task.Clean(err.Error())))
			continue
		}
		kind, err := task.ParseKind(firstOf(string(w.Action), string(w.Kind)))
		if err != nil {
			bad = append(bad, err)
			continue
		}
		id, err := task.ParseID(referenceID(w.TaskID, w.Task, w.ID))
		if err != nil {
			bad = append(bad, err)
			continue
		}
		actions = append(actions, task.Action{Kind: kind, ID: id})
	}
	return actions, bad, nil
}
