package vast

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/market/rented"
	"github.com/ponos-tools/ponos/lib/market/vastai"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
	"github.com/ponos-tools/ponos/testscripts/vast/server"
)

// BenchmarkTurn is one turn over 500 instances, all of them running and with logs to
// be read.
func BenchmarkTurn(b *testing.B) {
	const instances = 500
	m := server.New(server.Options{Credit: 1e6})
	defer m.Close()
	web := httptest.NewServer(m)
	defer web.Close()
	m.SetURL(web.URL)
	dir := b.TempDir()
	rest := vastai.NewREST(web.URL, server.Key)
	rest.Wait = 8 * time.Millisecond
	// Distances in proportion: the market of tests is asked as often as it likes.
	governor := vastai.NewGovernor(rest, filepath.Join(dir, "market"), 8*time.Millisecond, clock.Now)
	governor.Keep = rented.Kept()
	r := &rented.Runner{API: governor, Dir: filepath.Join(dir, "vast"), Agent: "bench", Program: rented.Program{URL: "http://127.0.0.1:9/entry", Sums: "x"}, Fetch: fetched, Disk: 20, LogInterval: 0, Settle: time.Minute}
	var refs []runner.Ref
	for i := range instances {
		m.AddOffer(int64(i+1), nil)
		id := task.ID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
		d := filepath.Join(dir, "tasks", string(id))
		if err := os.MkdirAll(d, 0o700); err != nil {
			b.Fatal(err)
		}
		label := "ponos:bench:" + string(id) + ":1"
		// As ponos-start has them, but for the time that 500 orders take.
		created, err := rest.Create(b.Context(), int64(i+1), vastai.Order{
			Image: "img", Env: map[string]string{"PONOS_NONCE": "0-" + string(id)}, Entrypoint: "/bin/sh", Args: []string{"-c", strings.Repeat("x", 2000)},
			Disk: 20, Label: label,
		})
		if err != nil {
			b.Fatal(err)
		}
		m.SetLog(created.ID, "hello\n")
		refs = append(refs, runner.Ref{Task: id, Job: label, Dir: d})
	}
	known := func() ([]runner.Ref, error) { return refs, nil }
	// The first turns take them up, and see them run.
	for range 2 {
		if _, err := r.Jobs(b.Context(), known); err != nil {
			b.Fatal(err)
		}
	}
	before, calls := runtime.MemStats{}, len(m.Requests("."))
	runtime.ReadMemStats(&before)
	turns := 0.0
	for b.Loop() {
		turns++
		jobs, err := r.Jobs(b.Context(), known)
		if err != nil || len(jobs) != instances {
			b.Fatal(len(jobs), err)
		}
		for _, job := range jobs {
			if job.State != task.Running {
				b.Fatalf("%+v", job)
			}
		}
	}
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	requests := float64(len(m.Requests("."))-calls) / turns
	if requests > 25 {
		b.Errorf("%v requests in a turn over %d instances", requests, instances)
	}
	b.ReportMetric(requests, "requests/turn")
	b.ReportMetric(float64(after.Sys)/(1<<20), "MiB")
}
