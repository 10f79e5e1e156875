package server

import (
	"net/http"
	"strings"
)

// document answers the OpenAPI document, as far as the official client reads it.
func document(x *exchange) answer {
	if x.s.opt.NoDocument {
		return notThere()
	}
	if x.URL.Query().Get("format") != "json" {
		return notThere()
	}
	object := map[string]any{"type": "object"}
	paths := map[string]map[string]any{}
	for _, o := range x.s.ops {
		if o.id == "" || strings.HasPrefix(o.path, "/s3/") {
			continue
		}
		operation := map[string]any{
			"operationId": o.id, "description": "", "tags": []string{"test"},
			"responses":   map[string]any{"200": map[string]any{"description": ""}},
			"x-paginated": o.paged,
		}
		parameters := []any{}
		for _, name := range []string{"{id}", "{+path}", "{+name}"} {
			if strings.Contains(o.path, name) {
				parameters = append(parameters, map[string]any{
					"name": strings.Trim(name, "{+}"), "in": "path", "required": true, "schema": map[string]any{"type": "string"},
				})
			}
		}
		if o.paged {
			parameters = append(parameters,
				map[string]any{"name": "page", "in": "query", "schema": map[string]any{"type": "integer"}},
				map[string]any{"name": "page_size", "in": "query", "schema": map[string]any{"type": "integer"}})
		}
		operation["parameters"] = parameters
		if o.method != http.MethodGet && o.id != "StartWorkerActivity" {
			operation["requestBody"] = map[string]any{
				"content": map[string]any{"application/json": map[string]any{"schema": object}}, "required": true,
			}
		}
		if paths[o.path] == nil {
			paths[o.path] = map[string]any{}
		}
		paths[o.path][strings.ToLower(o.method)] = operation
	}
	a := jsonAnswer(http.StatusOK, map[string]any{
		"openapi": "3.0.2", "info": map[string]any{"title": "Arkindex API", "version": "1.12.0"},
		"servers": []any{map[string]any{"url": "https://elsewhere.example.org/", "x-csrf-cookie": "arkindex.csrf"}},
		"paths":   paths, "components": map[string]any{"schemas": map[string]any{}},
	})
	a.header.Set("Content-Type", "application/vnd.oai.openapi+json")
	return a
}
