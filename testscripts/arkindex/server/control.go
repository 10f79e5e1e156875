package server

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Add completes what is new in a spec and adds it to the world.
func (s *Server) Add(spec Spec) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range spec.Elements {
		e.ID = orNew(e.ID)
		e.Corpus = orNew(e.Corpus)
		s.w.Elements = append(s.w.Elements, e)
	}
	for _, r := range spec.WorkerRuns {
		r.ID, r.Process, r.Corpus = orNew(r.ID), orNew(r.Process), orNew(r.Corpus)
		s.w.WorkerRuns = append(s.w.WorkerRuns, r)
	}
	for _, t := range spec.Tasks {
		t.ID, t.Process, t.Token = orNew(t.ID), orNew(t.Process), orNew(t.Token)
		if t.State == "" {
			t.State = "unscheduled"
		}
		t.History = append(t.History, t.State)
		parents := []string{}
		for _, p := range t.Parents {
			parent := s.findTask(p)
			if parent == nil {
				return fmt.Errorf("task %q has the parent %q, which there is not", t.Slug, p)
			}
			parents = append(parents, parent.ID)
		}
		t.Parents = parents
		s.w.Tasks = append(s.w.Tasks, t)
	}
	for name, content := range spec.Secrets {
		s.w.Secrets[name] = content
	}
	for id, key := range spec.Models {
		s.w.Models[id] = key
	}
	for key, content := range spec.Storage {
		s.w.Storage[key] = []byte(content)
	}
	for key, files := range spec.Archives {
		packed, err := pack(files)
		if err != nil {
			return err
		}
		s.w.Storage[key] = packed
	}
	return s.save()
}

// pack makes a tar.zst archive.
func pack(files map[string]string) ([]byte, error) {
	var b bytes.Buffer
	z, err := zstd.NewWriter(&b)
	if err != nil {
		return nil, err
	}
	w := tar.NewWriter(z)
	for name, contents := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(contents))}); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, contents); err != nil {
			return nil, err
		}
	}
	err = errors.Join(w.Close(), z.Close())
	return b.Bytes(), err
}

func orNew(id string) string {
	if id == "" {
		return NewID()
	}
	return id
}

// Stop does what a user does who stops a task.
func (s *Server) Stop(task string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.findTask(task)
	switch {
	case t == nil:
		return fmt.Errorf("there is no task %q", task)
	case t.State == "unscheduled":
		t.enter("stopped")
	case t.State == "pending" || t.State == "running":
		t.enter("stopping")
	default:
		return fmt.Errorf("task %q is %s", task, t.State)
	}
	return nil
}

// ExpireTokens ends all access tokens of agents; with refresh tokens too, they
// have to register again.
func (s *Server) ExpireTokens(refresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.w.Agents {
		for i := range a.Access {
			a.Access[i].Expires = time.Time{}
		}
		if refresh {
			a.Refresh = ""
		}
	}
}

// ExpireURLs makes all presigned URLs that were given out invalid.
func (s *Server) ExpireURLs() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.w.Key = []byte(random(16))
}

// Task returns a copy of a task, by id or slug.
func (s *Server) Task(id string) (Task, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.findTask(id)
	if t == nil {
		return Task{}, false
	}
	c := *t
	c.History, c.Artifacts = slices.Clone(t.History), slices.Clone(t.Artifacts)
	return c, true
}

// Log returns the published log of a task.
func (s *Server) Log(id string) []byte { return s.object(id, (*Task).logKey) }

// Artifact returns a published artifact of a task.
func (s *Server) Artifact(id, path string) []byte {
	return s.object(id, func(t *Task) string { return t.artifactKey(path) })
}

func (s *Server) object(id string, key func(*Task) string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.findTask(id); t != nil {
		return slices.Clone(s.w.Storage[key(t)])
	}
	return nil
}

// control lets another process do the same: POST add, faults, mend, stop,
// expire-tokens, expire-urls, forget; GET tasks, task, log, artifact, requests,
// published, world.
func (s *Server) control(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	query := r.URL.Query()
	if err == nil {
		switch r.Method + " " + strings.TrimPrefix(r.URL.Path, "/_control/") {
		case "POST add":
			var spec Spec
			if err = json.Unmarshal(body, &spec); err == nil {
				err = s.Add(spec)
			}
		case "POST faults":
			var f Fault
			if err = json.Unmarshal(body, &f); err == nil {
				s.Break(f)
			}
		case "POST mend":
			s.Mend()
		case "POST stop":
			err = s.Stop(query.Get("task"))
		case "POST expire-tokens":
			s.ExpireTokens(query.Has("refresh"))
		case "POST expire-urls":
			s.ExpireURLs()
		case "POST forget":
			s.Forget()
		case "GET tasks":
			s.Do(func(world *World) {
				for _, t := range world.Tasks {
					_, _ = fmt.Fprintf(w, "%s %s\n", t.Slug, strings.Join(t.History, ","))
				}
			})
		case "GET ids":
			s.Do(func(world *World) {
				for _, t := range world.Tasks {
					_, _ = fmt.Fprintf(w, "%s %s\n", t.Slug, t.ID)
				}
			})
		case "GET log":
			_, _ = w.Write(s.Log(query.Get("task")))
		case "GET artifacts":
			if t, ok := s.Task(query.Get("task")); ok {
				for _, a := range t.Artifacts {
					_, _ = fmt.Fprintf(w, "%s %d %s\n", a.Path, len(s.Artifact(t.ID, a.Path)), a.ContentType)
				}
			}
		case "GET artifact":
			_, _ = w.Write(s.Artifact(query.Get("task"), query.Get("path")))
		case "GET requests":
			for _, q := range s.Requests(query.Get("operation")) {
				_, _ = fmt.Fprintf(w, "%s %s %s by %s: %d %s %s\n", q.Method, orDash(q.Operation), orDash(q.Who), orDash(q.Program), q.Status, orDash(q.Fault), q.Body)
			}
		case "GET published":
			s.Do(func(world *World) {
				for _, p := range world.Published {
					_, _ = fmt.Fprintf(w, "%s %s %s %s\n", p.Task, p.Operation, p.Element, p.Body)
				}
			})
		case "GET world":
			s.Do(func(world *World) { err = json.NewEncoder(w).Encode(world) })
		default:
			http.NotFound(w, r)
			return
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
