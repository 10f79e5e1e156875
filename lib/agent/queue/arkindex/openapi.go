package arkindex

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// operation is the method and path of an operation.
type operation struct {
	Method string `json:"method"`
	Path   string `json:"path"` // template, from the root of the host
}

// fallback is used for operations that the instance's document does not have.
var fallback = map[string]operation{
	"CreateAgent":                    {http.MethodPost, "/api/v1/agent/"},
	opRefresh:                        {http.MethodPost, "/api/v1/agent/refresh/"},
	"RetrieveAgentActions":           {http.MethodGet, "/api/v1/agent/actions/"},
	"RetrieveTaskDefinition":         {http.MethodGet, "/api/v1/task/{id}/definition/"},
	"RetrieveTask":                   {http.MethodGet, "/api/v1/task/{id}/"},
	"PartialUpdateTask":              {http.MethodPatch, "/api/v1/task/{id}/"},
	"ListArtifacts":                  {http.MethodGet, "/api/v1/task/{id}/artifacts/"},
	"CreateArtifact":                 {http.MethodPost, "/api/v1/task/{id}/artifacts/"},
	"DownloadArtifact":               {http.MethodGet, "/api/v1/task/{id}/artifact/{+path}"},
	"RetrieveWorkerRun":              {http.MethodGet, "/api/v1/process/workers/{id}/"},
	"RetrieveWorkerRunConfiguration": {http.MethodGet, "/api/v1/workers/runs/{id}/configuration/"},
	"RetrieveModelVersion":           {http.MethodGet, "/api/v1/modelversion/{id}/"},
	"RetrieveSecret":                 {http.MethodGet, "/api/v1/secret/{+name}"},
}

// opRefresh renews the agent's token.
const opRefresh = "RefreshAgentToken"

// spellings are other ids of the same operation.
var spellings = map[string][]string{
	opRefresh:           {"RefreshToken", "CreateAgentRefresh", "RefreshAgent"},
	"PartialUpdateTask": {"UpdateTask"},
}

// maxOperations limits what is kept of a document.
const maxOperations = 20000

// parts returns the members of an OpenAPI document, and those of its "paths". Names are case-sensitive
// there, which they would not be in a struct.
func parts(doc []byte) (members, paths map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(doc, &members); err != nil {
		return nil, nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	if raw, ok := members["paths"]; ok {
		if err := json.Unmarshal(raw, &paths); err != nil {
			return nil, nil, fmt.Errorf("OpenAPI document: paths: %w", err)
		}
	}
	return members, paths, nil
}

// parseOpenAPI reads the operations of an OpenAPI document. Servers in the document are ignored: the
// agent's credentials go only to the configured host.
func parseOpenAPI(doc []byte) (map[string]operation, error) {
	d, paths, err := parts(doc)
	if err != nil {
		return nil, err
	}
	if d["openapi"] == nil || len(paths) == 0 {
		return nil, fmt.Errorf("OpenAPI document has no paths")
	}
	found := map[string]operation{}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "?#\\") {
			continue
		}
		var item map[string]json.RawMessage
		if json.Unmarshal(paths[path], &item) != nil {
			continue
		}
		for _, method := range []string{"get", "post", "put", "patch", "delete"} {
			raw, ok := item[method]
			if !ok {
				continue
			}
			var o struct {
				ID string `json:"operationId"`
			}
			if json.Unmarshal(raw, &o) != nil || o.ID == "" {
				continue
			}
			if _, twice := found[o.ID]; twice {
				continue
			}
			if len(found) == maxOperations {
				return nil, fmt.Errorf("OpenAPI document has more than %d operations", maxOperations)
			}
			found[o.ID] = operation{strings.ToUpper(method), path}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("OpenAPI document has no operations")
	}
	return found, nil
}

// url inserts the parameters of an operation. Values are escaped, and cannot leave their path
// segment.
func (o operation) url(base *url.URL, params map[string]string, query url.Values) (*url.URL, error) {
	var plain, escaped strings.Builder
	rest := o.Path
	for {
		before, after, found := strings.Cut(rest, "{")
		plain.WriteString(before)
		escaped.WriteString((&url.URL{Path: before}).EscapedPath())
		if !found {
			break
		}
		name, tail, closed := strings.Cut(after, "}")
		if !closed {
			return nil, fmt.Errorf("path %q of the OpenAPI document has an open brace", o.Path)
		}
		key, many := strings.CutPrefix(name, "+")
		value, given := params[key]
		switch {
		case !given || value == "":
			return nil, fmt.Errorf("path %q of the OpenAPI document needs %q", o.Path, key)
		case climbs(value):
			return nil, fmt.Errorf("invalid part of an address: %.60q", value)
		}
		if many {
			escaped.WriteString(escapeSegments(value))
		} else {
			escaped.WriteString(url.PathEscape(value))
		}
		plain.WriteString(value)
		rest = tail
	}
	return &url.URL{
		Scheme: base.Scheme, Host: base.Host,
		Path: plain.String(), RawPath: escaped.String(), RawQuery: query.Encode(),
	}, nil
}

// climbs reports whether a value has a path segment with a special meaning.
func climbs(value string) bool {
	for segment := range strings.SplitSeq(value, "/") {
		if segment == ".." || segment == "." {
			return true
		}
	}
	return strings.ContainsRune(value, 0)
}

func escapeSegments(value string) string {
	segments := strings.Split(value, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return strings.Join(segments, "/")
}

// minimalOpenAPI is a document with the fallback table, for a worker that needs one where the
// instance has none.
func minimalOpenAPI() []byte {
	paths := map[string]map[string]any{}
	for _, id := range slices.Sorted(maps.Keys(fallback)) {
		if id == opRefresh || id == "RetrieveSecret" {
			continue
		}
		o := fallback[id]
		if paths[o.Path] == nil {
			paths[o.Path] = map[string]any{}
		}
		paths[o.Path][strings.ToLower(o.Method)] = map[string]any{"operationId": id}
	}
	doc, _ := json.Marshal(map[string]any{"openapi": "3.0.2", "paths": paths, "components": map[string]any{}})
	return doc
}

// withoutOperation returns the document without one operation.
func withoutOperation(doc []byte, id string) ([]byte, error) {
	d, paths, err := parts(doc)
	if err != nil {
		return nil, err
	}
	for path, item := range paths {
		var operations map[string]json.RawMessage
		if json.Unmarshal(item, &operations) != nil {
			continue
		}
		before := len(operations)
		for method, raw := range operations {
			var o struct {
				ID string `json:"operationId"`
			}
			if json.Unmarshal(raw, &o) == nil && o.ID == id {
				delete(operations, method)
			}
		}
		if len(operations) == before {
			continue
		}
		kept, err := json.Marshal(operations)
		if err != nil {
			return nil, err
		}
		paths[path] = kept
	}
	raw, err := json.Marshal(paths)
	if err != nil {
		return nil, err
	}
	d["paths"] = raw
	return json.Marshal(d)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
