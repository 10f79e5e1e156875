package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// timed runs a tool, and returns how long it took, what it took of memory in bytes at
// most, and what it printed.
func timed(tb testing.TB, env []string, name string, args ...string) (time.Duration, int64, string) {
	tb.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = env
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	began := time.Now()
	if err := cmd.Run(); err != nil {
		tb.Fatalf("%s: %v: %.500s", name, err, complaints.String())
	}
	took := time.Since(began)
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		tb.Fatal("the system does not say what a program takes")
	}
	return took, usage.Maxrss << 10, out.String()
}

// BenchmarkSubmit submits sweeps, beside one job array of as many held tasks on a real
// cluster, and a job of as many tasks that is made and handed to a server of HyperQueue.
func BenchmarkSubmit(b *testing.B) {
	env := []string{"PATH=" + harness.Bin + ":" + os.Getenv("PATH"), "HOME=" + b.TempDir()}
	cluster := os.Environ()
	for name, value := range harness.Cluster(b) {
		cluster = append(cluster, name+"="+os.Expand(value, os.Getenv))
	}
	peer := harness.Pip(b, harness.HyperQueue)
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("tasks=%d", n), func(b *testing.B) {
			dir := b.TempDir()
			var table strings.Builder
			table.WriteString("lr\tseed\n")
			for i := range n {
				fmt.Fprintf(&table, "0.%d\t%d\n", i%7, i)
			}
			path := filepath.Join(dir, "params.tsv")
			if err := os.WriteFile(path, []byte(table.String()), 0o600); err != nil {
				b.Fatal(err)
			}
			took, memory, out := timed(b, env, harness.Bin+"/ponos-submit", "--spool", dir+"/spool", "--group", "g", "--each", path, "--", "./train", "--lr", "{lr}", "--seed", "{seed}")
			if lines := strings.Count(out, "\n"); lines != n {
				b.Fatalf("%d ids of %d tasks", lines, n)
			}
			array, _, _ := timed(b, cluster, "sbatch", "--hold", "--array", fmt.Sprintf("1-%d", min(n, 1000)), "--output=/dev/null", "--wrap", "true")
			timed(b, cluster, "scancel", "--me")
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ms(took), "ms")
			b.ReportMetric(float64(memory)/(1<<20), "peak-MiB")
			b.ReportMetric(ms(array), "sbatch-array-ms")
			if peer != "" {
				_, _, out := timed(b, append(os.Environ(), "PYTHONPATH="+peer), "python3", "-c", hyperqueue, strconv.Itoa(n))
				seconds, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(seconds*1000, "hq-submit-ms")
			}
		})
	}
}

// hyperqueue submits tasks to a server of HyperQueue without workers, and prints how long that
// took, without the start of Python and of the server.
const hyperqueue = `
import os, sys, time
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
from hyperqueue import LocalCluster, Job
with LocalCluster() as cluster:
    client = cluster.client()
    began = time.perf_counter()
    job = Job()
    for i in range(int(sys.argv[1])):
        job.program(["./train", "--lr", "0.%d" % (i % 7), "--seed", str(i)], name="g-%d" % i, stdout=None, stderr=None)
    client.submit(job)
    print(time.perf_counter() - began, file=out)
`

// BenchmarkList lists a spool of 100,000 tasks that are over, without and with the index.
func BenchmarkList(b *testing.B) {
	const n = 100_000
	dir := b.TempDir()
	s, err := spool.Make(dir, clock.Now())
	if err != nil {
		b.Fatal(err)
	}
	each(n, func(i int) {
		path := filepath.Join(dir, "done", string(id(i))+".json")
		state := task.Completed
		if i%100 == 0 {
			state = task.Failed
		}
		text := fmt.Sprintf(`{"id":%q,"slug":"lr-0.%d_seed-%d","group":"lr","parameters":{"lr":"0.%d","seed":"%d"},"state":%q,"source":{},"command":["./train","--lr","0.%d","--seed","%d"],"created":%q,"started":%q,"ended":%q}`+"\n",
			id(i), i%7, i, i%7, i, state, i%7, i, submitted.Format(time.RFC3339Nano), submitted.Format(time.RFC3339Nano), submitted.Format(time.RFC3339Nano))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			b.Error(err)
		}
	})
	env := []string{"PATH=" + harness.Bin, "HOME=" + b.TempDir()}
	first, _, _ := timed(b, env, harness.Bin+"/ponos-list", "--spool", s.Dir, "--state", "failed")
	for name, args := range map[string][]string{"failed": {"--state", "failed"}, "ids": {"--ids"}, "groups": {"--groups"}, "all": nil} {
		b.Run(name, func(b *testing.B) {
			var times []time.Duration
			var memory int64
			for range 5 {
				took, peak, _ := timed(b, env, harness.Bin+"/ponos-list", append([]string{"--spool", s.Dir}, args...)...)
				times, memory = append(times, took), max(memory, peak)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ms(median(times)), "ms")
			b.ReportMetric(ms(first), "ms-without-index")
			b.ReportMetric(float64(memory)/(1<<20), "peak-MiB")
		})
	}
}
