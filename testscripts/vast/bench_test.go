package vast

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/runner"
	vastrunner "github.com/ponos-tools/ponos/lib/runner/vast"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/vastai"
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
	r := &vastrunner.Runner{API: rest, Dir: filepath.Join(dir, "vast"), Agent: "bench", Disk: 20, LogInterval: 0, Settle: time.Minute}
	var refs []runner.Ref
	for i := range instances {
		m.AddOffer(int64(i+1), nil)
		id := task.ID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
		d := filepath.Join(dir, "tasks", string(id))
		if err := os.MkdirAll(d, 0o700); err != nil {
			b.Fatal(err)
		}
		for name, text := range map[string]string{runner.EnvFile: "A=b\x00", runner.CommandFile: "true\x00"} {
			if err := os.WriteFile(filepath.Join(d, name), []byte(text), 0o600); err != nil {
				b.Fatal(err)
			}
		}
		job, err := r.Start(b.Context(), runner.Submission{Task: id, Dir: d, Image: "img", Attempt: 1})
		if err != nil {
			b.Fatal(err)
		}
		m.SetLog(m.Instances()[i].ID, "hello\n")
		refs = append(refs, runner.Ref{Task: id, Job: job.ID, Dir: d})
	}
	before, calls := runtime.MemStats{}, rest.Calls()
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	for range b.N {
		jobs, err := r.Jobs(b.Context(), func() ([]runner.Ref, error) { return refs, nil })
		if err != nil || len(jobs) != instances {
			b.Fatal(len(jobs), err)
		}
		for _, job := range jobs {
			if job.State != task.Running {
				b.Fatalf("%+v", job)
			}
		}
	}
	b.StopTimer()
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	requests := float64(rest.Calls()-calls) / float64(b.N)
	if requests > 25 {
		b.Errorf("%v requests in a turn over %d instances", requests, instances)
	}
	b.ReportMetric(requests, "requests/turn")
	b.ReportMetric(float64(after.Sys)/(1<<20), "MiB")
}
