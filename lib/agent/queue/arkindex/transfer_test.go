package arkindex_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/queue/arkindex"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/testscripts/arkindex/server"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// A file of any size goes and comes in pieces.
func TestStreaming(t *testing.T) {
	const size = 64 << 20
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if r.Method == http.MethodPut && (n != size || r.ContentLength != size) {
			http.Error(w, fmt.Sprint(n), http.StatusBadRequest)
		}
		if r.Method == http.MethodGet {
			w.Header().Set("Content-Length", fmt.Sprint(size))
			_, _ = io.CopyN(w, zeros{}, size)
		}
	}))
	defer store.Close()
	b := setup(t, server.Options{})
	id := b.add(&server.Task{Slug: "one"})[0]
	b.actions()
	mine, _ := b.server.Task("one")
	b.server.Do(func(w *server.World) {
		w.Tasks[0].Raw = json.RawMessage(`{"id": "` + mine.ID + `", "s3_logs_put_url": "` + store.URL + `/log"}`)
	})
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	q := b.another() // b.q still has the URL of before
	if err := q.PutLog(t.Context(), id, f); err != nil {
		t.Error(err)
	}
	if err := q.GetFile(t.Context(), task.File{Name: "x", URL: store.URL + "/x"}, f); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if info, err := f.Stat(); err != nil || info.Size() != size {
		t.Errorf("file has %d bytes, %v", info.Size(), err)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
		t.Errorf("%d MiB of memory for %d MiB of file", used>>20, size>>20)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestStall(t *testing.T) {
	var asked atomic.Int32
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Header().Set("Content-Length", "10")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer store.Close()
	b := setup(t, server.Options{}, func(c *arkindex.Config) { c.Stall, c.Waits = 3*time.Second, []time.Duration{0} })
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b.refusal(b.q.GetFile(t.Context(), task.File{Name: "x", URL: store.URL + "/x"}, f), "transfer stalled")
	if len(b.waits) != 0 || asked.Load() != 1 {
		t.Errorf("asked %d times, waited %d times; want once, and not again", asked.Load(), len(b.waits))
	}
	// A thousand tasks must not wait for it one after the other.
	start := time.Now()
	for range 1000 {
		b.refusal(b.q.GetFile(t.Context(), task.File{Name: "x", URL: store.URL + "/x"}, f), "did not answer a moment ago")
	}
	if spent := time.Since(start); asked.Load() != 1 || spent > time.Minute {
		t.Errorf("asked %d times within %v", asked.Load(), spent)
	}
	b.now = b.now.Add(time.Minute)
	b.refusal(b.q.GetFile(t.Context(), task.File{Name: "x", URL: store.URL + "/x"}, f), "transfer stalled")
}

func TestLog(t *testing.T) {
	needs.Localhost(t)
	b := setup(t, server.Options{LogType: arkindex.DefaultLogContentType})
	id := b.add(&server.Task{Slug: "one"})[0]
	b.actions()
	for i, log := range []string{"", "line 1\n", strings.Repeat("line\n", 100000)} {
		if err := b.q.PutLog(t.Context(), id, strings.NewReader(log)); err != nil {
			t.Fatal(err)
		}
		if got := string(b.server.Log("one")); got != log {
			t.Errorf("log %d has %d bytes; want %d", i, len(got), len(log))
		}
	}
	b.server.ExpireURLs()
	if err := b.q.PutLog(t.Context(), id, strings.NewReader("after")); err != nil || string(b.server.Log("one")) != "after" {
		t.Errorf("expired URL: %v, log %q", err, b.server.Log("one"))
	}
	b.server.Break(server.Fault{Operation: "PutObject", Kind: "reset"})
	b.server.Break(server.Fault{Operation: "PutObject", Kind: "status", Status: 503})
	if err := b.q.PutLog(t.Context(), id, strings.NewReader("again")); err != nil || string(b.server.Log("one")) != "again" {
		t.Errorf("store fails at first: %v, log %q", err, b.server.Log("one"))
	}
	b.server.Break(server.Fault{Operation: "PutObject", Kind: "token", Status: 403, Count: -1})
	b.refusal(b.q.PutLog(t.Context(), id, strings.NewReader("never")), "403 Forbidden")
	for _, r := range b.server.Requests("PutObject") {
		if r.Auth != "" || r.Length < 0 || r.Type != arkindex.DefaultLogContentType {
			t.Errorf("store got %+v", r)
		}
	}
}

func TestLogWithoutContentType(t *testing.T) {
	needs.Localhost(t)
	b := setup(t, server.Options{}, func(c *arkindex.Config) { c.LogContentType = "" })
	id := b.add(&server.Task{Slug: "one"})[0]
	b.actions()
	if err := b.q.PutLog(t.Context(), id, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if r := b.server.Requests("PutObject"); len(r) != 1 || r[0].Type != "" {
		t.Errorf("store got %+v", r)
	}
}

func TestArtifacts(t *testing.T) {
	needs.Localhost(t)
	for _, paginated := range []bool{false, true} {
		b := setup(t, server.Options{Paginated: paginated})
		id := b.add(&server.Task{Slug: "maker"})[0]
		child := b.add(&server.Task{Slug: "reader", Parents: []string{"maker"}})[0]
		b.actions()
		files := map[string]string{"a.txt": "A", "dir/ü b.json": "{}", "empty": "", "big": strings.Repeat("0123456789", 300000), "e": "E"}
		put := func(q *arkindex.Queue, path string) error {
			a := task.Artifact{Path: path, ContentType: "text/plain"}
			return q.PutArtifact(t.Context(), id, a, strings.NewReader(files[path]))
		}
		// Announced, and then killed before the contents went.
		b.server.Break(server.Fault{Operation: "PutObject", Kind: "status", Status: 400, Count: -1})
		if err := put(b.q, "a.txt"); err == nil {
			t.Error("a refused upload is no error")
		}
		b.server.Mend()
		b.server.Break(server.Fault{Operation: "CreateArtifact", Kind: "lost"})
		b.server.Break(server.Fault{Operation: "PutObject", Kind: "status", Status: 403, After: 2})
		for range 2 {
			q := b.another()
			for path := range files {
				if err := put(q, path); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		}
		b.actions()
		if err := b.report(id, task.Completed); err != nil {
			t.Fatal(err)
		}
		b.actions()
		if _, err := b.q.Task(t.Context(), child); err != nil {
			t.Fatal(err)
		}
		list, err := b.q.Artifacts(t.Context(), id)
		if err != nil || len(list) != len(files) {
			t.Fatalf("%d artifacts, %v; want %d", len(list), err, len(files))
		}
		b.server.Break(server.Fault{Operation: "GetObject", Kind: "half"})
		for _, a := range list {
			got := b.download(func(to *os.File) error { return b.q.GetArtifact(t.Context(), id, a, to) })
			if got != files[a.Path] {
				t.Errorf("%s: %d bytes; want %d", a.Path, len(got), len(files[a.Path]))
			}
		}
		for _, r := range append(b.server.Requests("GetObject"), b.server.Requests("PutObject")...) {
			if r.Auth != "" {
				t.Errorf("credentials went to the store: %+v", r)
			}
		}
	}
}

// Who may read an artifact is not the same everywhere: the agent tries its own
// credential where a task's is not taken.
func TestArtifactCredentials(t *testing.T) {
	needs.Localhost(t)
	b := setup(t, server.Options{})
	ids := b.add(&server.Task{Slug: "maker"}, &server.Task{Slug: "other"})
	b.actions()
	a := task.Artifact{Path: "a.json"}
	b.server.Break(server.Fault{Operation: "CreateArtifact", Kind: "status", Status: 403})
	if err := b.q.PutArtifact(t.Context(), ids[0], a, strings.NewReader("A")); err != nil {
		t.Fatal(err)
	}
	b.server.Break(server.Fault{Operation: "DownloadArtifact", Kind: "status", Status: 401})
	get := func(to *os.File) error { return b.q.GetArtifact(t.Context(), ids[0], a, to) }
	if got := b.download(get); got != "A" {
		t.Errorf("got %q", got)
	}
	b.server.ExpireTokens(false)
	b.q = b.another()
	if list, err := b.q.Artifacts(t.Context(), ids[0]); err != nil || len(list) != 1 || list[0].ContentType != "application/json" {
		t.Errorf("got %+v, %v", list, err)
	}
	b.server.ExpireTokens(false)
	if got := b.download(get); got != "A" {
		t.Errorf("got %q", got)
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := b.q.GetArtifact(t.Context(), ids[0], task.Artifact{Path: "none"}, f); !errors.Is(err, queue.ErrBroken) {
		t.Errorf("an artifact that is not there: %v", err)
	}
	if err := b.q.PutArtifact(t.Context(), ids[0], task.Artifact{Path: "../b"}, strings.NewReader("B")); err == nil {
		t.Error("a path that leads out is taken")
	}
	for _, path := range []string{"../x", "/etc/x", "a//b", "a/\n"} {
		b.server.Do(func(w *server.World) { w.Tasks[1].Artifacts = []*server.Artifact{{Path: path}} })
		if list, err := b.q.Artifacts(t.Context(), ids[1]); !errors.Is(err, queue.ErrBroken) {
			t.Errorf("path %q: %+v, %v", path, list, err)
		}
	}
}

// What will never be taken is told apart from what may be taken later.
func TestRefusedArtifact(t *testing.T) {
	needs.Localhost(t)
	b := setup(t, server.Options{})
	id := b.add(&server.Task{Slug: "one"})[0]
	b.actions()
	for _, tt := range []struct {
		fault  server.Fault
		broken bool
	}{
		{server.Fault{Operation: "CreateArtifact", Kind: "status", Status: 400}, true},
		{server.Fault{Operation: "PutObject", Kind: "status", Status: 413}, true},
		{server.Fault{Operation: "PutObject", Kind: "status", Status: 403, Count: 2}, false},
		{server.Fault{Operation: "CreateArtifact", Kind: "status", Status: 503, Count: 6}, false},
	} {
		b.server.Break(tt.fault)
		err := b.another().PutArtifact(t.Context(), id, task.Artifact{Path: fmt.Sprint("a", tt.fault.Status)}, strings.NewReader("A"))
		if err == nil || errors.Is(err, queue.ErrBroken) != tt.broken {
			t.Errorf("%+v: %v", tt.fault, err)
		}
		b.server.Mend()
	}
	b.server.Break(server.Fault{Operation: "PutObject", Kind: "status", Status: 413})
	if err := b.q.PutLog(t.Context(), id, strings.NewReader("A")); !errors.Is(err, queue.ErrBroken) {
		t.Errorf("a log that is too large: %v", err)
	}
}

func TestExpiredFile(t *testing.T) {
	needs.Localhost(t)
	b := setup(t, server.Options{})
	b.addSpec(server.Spec{Storage: map[string]string{"m": "model"}})
	id := b.add(&server.Task{Slug: "one", Files: map[string]string{"m": "m"}})[0]
	b.actions()
	got, err := b.q.Task(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	b.server.ExpireURLs()
	if got := b.download(func(to *os.File) error { return b.q.GetFile(t.Context(), got.Files[0], to) }); got != "model" {
		t.Errorf("file holds %q", got)
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b.server.ExpireURLs()
	err = b.another().GetFile(t.Context(), got.Files[0], f)
	b.refusal(err, `GET http://localhost`)
	b.server.Do(func(w *server.World) { delete(w.Storage, "m") })
	if err := b.q.GetFile(t.Context(), got.Files[0], f); !errors.Is(err, queue.ErrBroken) {
		t.Errorf("a file that is not there: %v", err)
	}
}
