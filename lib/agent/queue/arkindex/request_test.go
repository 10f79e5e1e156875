package arkindex_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/queue/arkindex"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

func TestFaults(t *testing.T) {
	const retried = 5
	for _, tt := range []struct {
		name  string
		fault server.Fault
		want  string // "": it passes
		waits int
	}{
		{"500 once", server.Fault{Kind: "status", Status: 500}, "", 1},
		{"502 page twice", server.Fault{Kind: "html", Status: 502, Count: 2}, "", 2},
		{"500 for ever", server.Fault{Kind: "status", Status: 500, Count: -1}, "500 Internal Server Error: A fault: 500.", retried},
		{"connection cut", server.Fault{Kind: "reset", Count: 3}, "", 2}, // the first time net/http itself tries again
		{"cut for ever", server.Fault{Kind: "reset", Count: -1}, "it ends too early", retried},
		{"half once", server.Fault{Kind: "half"}, "", 1},
		{"half for ever", server.Fault{Kind: "half", Count: -1}, "answer breaks off after", retried},
		{"400", server.Fault{Kind: "status", Status: 400}, "400 Bad Request", 0},
		{"401", server.Fault{Kind: "status", Status: 401}, "", 0},
		{"401 for ever", server.Fault{Kind: "status", Status: 401, Count: -1}, "401 Unauthorized", 0},
		{"403", server.Fault{Kind: "status", Status: 403}, "403 Forbidden", 0},
		{"404", server.Fault{Kind: "status", Status: 404}, "404 Not Found", 0},
		{"429", server.Fault{Kind: "status", Status: 429, RetryAfter: 7}, "", 1},
		{"page", server.Fault{Kind: "html"}, "answer is HTML, not JSON", 0},
		{"nothing", server.Fault{Kind: "empty"}, "answer is empty", 0},
		{"huge", server.Fault{Kind: "huge"}, "answer is longer than 32 MiB", 0},
		{"repeats the token", server.Fault{Kind: "token", Status: 400}, "You sent Bearer [secret]", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := setup(t, server.Options{})
			b.actions()
			tt.fault.Operation = "RetrieveAgentActions"
			b.server.Break(tt.fault)
			_, err := b.q.Actions(t.Context(), nil)
			if tt.want == "" && err != nil {
				t.Fatal(err)
			}
			if tt.want != "" {
				b.refusal(err, tt.want)
			}
			if len(b.waits) != tt.waits {
				t.Errorf("waited %v; want %d waits", b.waits, tt.waits)
			}
			if tt.fault.RetryAfter > 0 && b.waits[0] != 7*time.Second {
				t.Errorf("waited %v; the server asked for 7 s", b.waits)
			}
		})
	}
}

// A page instead of an answer does nothing, whatever its status says.
func TestPageIsNoSuccess(t *testing.T) {
	needs.Localhost(t)
	b := setup(t, server.Options{})
	id := b.add(&server.Task{Slug: "one"})[0]
	b.actions()
	for kind, want := range map[string]string{"html": "answer is HTML, not JSON", "empty": "answer is empty"} {
		b.server.Break(server.Fault{Operation: "PartialUpdateTask", Kind: kind})
		b.refusal(b.report(id, task.Running), "reporting running: PATCH "+b.web.URL+"/api/v1/task/"+string(id)+"/: "+want)
	}
	b.server.Break(server.Fault{Operation: "PutObject", Kind: "html"})
	b.refusal(b.q.PutLog(t.Context(), id, strings.NewReader("x")), "answer is HTML: it is not from an object store")
	b.server.Break(server.Fault{Operation: "PutObject", Kind: "empty"})
	b.refusal(b.q.PutLog(t.Context(), id, strings.NewReader("x")), "answer is JSON: it is not from an object store")
	if got := b.history("one"); got != "unscheduled,pending" {
		t.Errorf("history %s", got)
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for kind, want := range map[string]string{"html": "HTML", "empty": "JSON"} {
		b.server.Break(server.Fault{Operation: "GetObject", Kind: kind})
		b.refusal(b.q.GetFile(t.Context(), task.File{Name: "x", URL: b.web.URL + "/s3/x"}, f), "answer is "+want+": it is not from an object store")
	}
}

func TestUnreachable(t *testing.T) {
	b := setup(t, server.Options{})
	b.web.Close()
	_, err := b.q.Actions(t.Context(), nil)
	b.refusal(err, "connection refused")
	// What has been waited for in vain is not waited for again so soon.
	first := len(b.waits)
	_, err = b.q.Actions(t.Context(), nil)
	b.refusal(err, "connection refused")
	if first != 5 || len(b.waits) != first {
		t.Errorf("waited %d times, then %d", first, len(b.waits)-first)
	}
	b.now = b.now.Add(time.Minute)
	_, err = b.q.Actions(t.Context(), nil)
	b.refusal(err, "connection refused")
	if len(b.waits) != 2*first {
		t.Errorf("after a minute waited %d times", len(b.waits)-first)
	}
	b.now = b.now.Add(time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.waits = nil
	if _, err := b.q.Actions(ctx, nil); err == nil || len(b.waits) > 0 {
		t.Errorf("cancelled: %v after %v", err, b.waits)
	}
}

func TestRedirects(t *testing.T) {
	needs.Localhost(t)
	var seen []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		seen = append(seen, r.Method+" "+r.Header.Get("Authorization")+" "+string(body))
		fmt.Fprint(w, `{"id": "x"}`)
	}))
	defer other.Close()
	b := setup(t, server.Options{NoDocument: true})
	b.actions()
	code := http.StatusMovedPermanently
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+r.URL.Path, code)
	}))
	defer front.Close()
	identity, err := os.ReadFile(b.cfg.IdentityFile)
	if err != nil {
		t.Fatal(err)
	}
	identity = bytes.ReplaceAll(identity, []byte(b.web.URL), []byte(front.URL))
	if err := os.WriteFile(b.cfg.IdentityFile, identity, 0o600); err != nil {
		t.Fatal(err)
	}
	b.cfg.URL = front.URL
	q := b.another()
	_, _ = q.Task(t.Context(), "x")
	err = q.Report(t.Context(), "x", task.Report{State: task.Running})
	b.refusal(err, "301 Moved Permanently: redirected to http://localhost")
	if !strings.Contains(fault.HintOf(err), "url") {
		t.Errorf("hint %q", fault.HintOf(err))
	}
	// Without an identity, the agent registers with the seed; with one that is old, it renews its token.
	for _, code = range []int{301, 302, 303, 307, 308} {
		for _, tokens := range [][]byte{nil, identity} {
			_ = os.Remove(b.cfg.IdentityFile)
			if tokens != nil {
				if err := os.WriteFile(b.cfg.IdentityFile, tokens, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			q := b.another()
			if _, err := q.Actions(t.Context(), nil); err == nil {
				t.Errorf("%d: no error", code)
			}
			_, _ = q.Task(t.Context(), "x")
			_ = q.Report(t.Context(), "x", task.Report{State: task.Running})
		}
	}
	for _, s := range seen {
		if s != "GET  " { // the document of the API, which is public
			t.Errorf("the other host got %q", s)
		}
	}
}

// The seed is not sent where all can read it.
func TestPlainHTTP(t *testing.T) {
	for address, fine := range map[string]bool{
		"http://arkindex.example.org": false, "https://arkindex.example.org": true, "http://127.0.0.1:8000": true,
		"http://localhost.example.org": false, "http://127.0.0.1.example.org": false, "http://127.0.0.1@example.org": false, "HTTP://ARKINDEX.example.org": false,
		"http://[::ffff:192.0.2.1]": false, "http://0.0.0.0": false, "http://[::1]:8000": true, "ftp://127.0.0.1": false, "http:127.0.0.1": false,
	} {
		_, err := arkindex.New(arkindex.Config{URL: address, FarmID: "f", Seed: "s", IdentityFile: filepath.Join(t.TempDir(), "identity")})
		if (err == nil) != fine || !fine && fault.KindOf(err) != fault.Usage {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// A document that is out of date is asked for again when an operation is not
// where it says.
func TestMovedWhileRunning(t *testing.T) {
	b := setup(t, server.Options{})
	b.actions()
	moved, err := server.New(server.Options{Moved: true})
	if err != nil {
		t.Fatal(err)
	}
	b.server.Do(func(w *server.World) { moved.Do(func(m *server.World) { *m = *w }) })
	b.web.Config.Handler = moved
	b.now = b.now.Add(time.Hour)
	if _, err := b.q.Actions(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if n := len(moved.Requests("")); n > 4 {
		t.Errorf("%d requests", n)
	}
}
