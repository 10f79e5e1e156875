package jobpool

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// contender runs some tasks, which do nothing, two at a time.
type contender struct {
	name  string
	tasks int
	run   func(tasks int) *exec.Cmd
	times []float64 // tasks a second
}

// yardstick starts programs as fast as the machine can: vfork and execve in C.
const yardstick = `
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv) {
	char *args[] = {"/bin/true", 0};
	int left = atoi(argv[1]), running = 0;
	while (left > 0 || running > 0) {
		while (left > 0 && running < 2) {
			if (vfork() == 0) { execv(args[0], args); _exit(1); }
			left--, running++;
		}
		wait(0);
		running--;
	}
	return 0;
}
`

// hyperqueue runs programs by the server and the worker of HyperQueue, and prints when
// it ended and began. What these take to start is not counted.
const hyperqueue = `
import os, sys, time
out = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
from hyperqueue import LocalCluster, Job
from hyperqueue.cluster import WorkerConfig
with LocalCluster() as cluster:
    cluster.start_worker(WorkerConfig(cores=2))
    client = cluster.client()
    job = Job()
    for i in range(int(sys.argv[1])):
        job.program(["/bin/true"], stdout=None, stderr=None)
    began = time.time()
    submitted = client.submit(job)
    client.wait_for_jobs([submitted])
    print(time.time(), began, file=out)
`

func lines(dir string, n int) *os.File {
	name := filepath.Join(dir, fmt.Sprintf("tasks%d", n))
	if _, err := os.Stat(name); err != nil {
		if err := os.WriteFile(name, bytes.Repeat([]byte("/bin/true\n"), n), 0o644); err != nil {
			panic(err)
		}
	}
	f, err := os.Open(name)
	if err != nil {
		panic(err)
	}
	return f
}

func onPath(name string) bool { _, err := exec.LookPath(name); return err == nil }

// BenchmarkThroughput runs jobpool and its peers in turns, and prints medians.
func BenchmarkThroughput(b *testing.B) {
	dir := b.TempDir()
	number := 0
	jobpool := func(args ...string) func(int) *exec.Cmd {
		return func(n int) *exec.Cmd {
			number++
			// Log files and the journal are on.
			argv := append([]string{"-q", "-o", "files", "--run", filepath.Join(dir, fmt.Sprint("run", number))}, args...)
			c := exec.Command(filepath.Join(harness.Bin, "jobpool"), argv...)
			c.Stdin = lines(dir, n)
			return c
		}
	}
	var all []*contender
	add := func(name string, tasks int, run func(int) *exec.Cmd) {
		all = append(all, &contender{name: name, tasks: tasks, run: run})
	}
	if onPath("gcc") {
		source, program := filepath.Join(dir, "y.c"), filepath.Join(dir, "y")
		if err := os.WriteFile(source, []byte(yardstick), 0o644); err != nil {
			b.Fatal(err)
		}
		if out, err := exec.Command("gcc", "-O2", "-o", program, source).CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		add("C vfork", 3000, func(n int) *exec.Cmd { return exec.Command(program, strconv.Itoa(n)) })
	}
	add("xargs -P2", 3000, func(n int) *exec.Cmd {
		c := exec.Command("xargs", "-P2", "-n1", "/bin/true")
		c.Stdin = lines(dir, n)
		return c
	})
	// Enough tasks for the start of a connection not to count.
	add("jobpool local", 6000, jobpool("-j2"))
	add("jobpool local, printed", 6000, jobpool("-j2", "-o", "print"))
	options, err := startSSHD(b)
	if err != nil {
		b.Logf("without ssh: %v", err)
	} else {
		add("jobpool ssh", 6000, jobpool("--via", "ssh", "--ssh-opt", options, "--nodes", "2/n1"))
	}
	if onPath("srun") && os.Getenv("SLURM_CONF") != "" {
		inner := jobpool("-j2", "--bind", "none") // as the others
		add("jobpool srun", 6000, func(n int) *exec.Cmd {
			c := inner(n)
			// What the allocation takes to begin and end is not counted.
			timed := `began=$(date +%s.%N); "$@"; echo "$(date +%s.%N) $began"`
			c.Args = append([]string{"salloc", "--quiet", "-n1", "-c2", "sh", "-c", timed, "sh", c.Path}, c.Args[1:]...)
			c.Path, _ = exec.LookPath("salloc")
			return c
		})
	}
	if onPath("parallel") {
		add("GNU parallel -j2", 300, func(n int) *exec.Cmd {
			c := exec.Command("parallel", "--will-cite", "-j2", "--joblog", filepath.Join(dir, "joblog"))
			c.Stdin = lines(dir, n)
			return c
		})
		if err == nil {
			control := "ssh " + options + " -o ControlMaster=auto -o ControlPersist=60 -o ControlPath=" + filepath.Join(dir, "c-%p")
			b.Cleanup(func() {
				_ = exec.Command("ssh", options, "-o", "ControlPath="+filepath.Join(dir, "c-%p"), "-O", "exit", "n1").Run()
			})
			add("GNU parallel ControlMaster", 60, func(n int) *exec.Cmd {
				c := exec.Command("parallel", "--will-cite", "--ssh", control, "--sshlogin", "2/n1")
				c.Stdin = lines(dir, n)
				return c
			})
		}
	}
	if peers := harness.Pip(b, harness.HyperQueue, "disbatch==3.0"); peers != "" {
		python := append(os.Environ(), "PYTHONPATH="+peers)
		add("disBatch", 20, func(n int) *exec.Cmd {
			lines(dir, n)
			c := exec.Command(filepath.Join(peers, "bin/disBatch"), "--use-address=localhost:0", "-s", "localhost:2", filepath.Join(dir, fmt.Sprint("tasks", n)))
			c.Dir, c.Env = dir, python
			return c
		})
		add("HyperQueue", 1000, func(n int) *exec.Cmd {
			c := exec.Command("python3", "-c", hyperqueue, strconv.Itoa(n))
			c.Env = python
			return c
		})
	}
	for b.Loop() {
		for range 5 {
			for _, c := range all {
				cmd := c.run(c.tasks)
				var stdout, complaints bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &complaints
				began := time.Now()
				if err := cmd.Run(); err != nil {
					b.Fatalf("%s: %v: %s", c.name, err, &complaints)
				}
				took := time.Since(began).Seconds()
				var from, to float64
				if n, _ := fmt.Sscan(stdout.String(), &to, &from); n == 2 {
					took = to - from
				}
				c.times = append(c.times, float64(c.tasks)/took)
			}
		}
	}
	median, rounds := map[string]float64{}, map[string][]float64{}
	for _, c := range all {
		rounds[c.name] = slices.Clone(c.times)
		slices.Sort(c.times)
		median[c.name] = c.times[len(c.times)/2]
	}
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\ttasks/s\tbest\tof C vfork\tof local\t")
	for _, c := range all {
		fmt.Fprintf(w, "%s\t%.0f\t%.0f\t%.2f\t%.2f\t\n", c.name, median[c.name], c.times[len(c.times)-1], median[c.name]/max(1, median["C vfork"]), median[c.name]/median["jobpool local"])
	}
	w.Flush()
	// A log would be cut off after ten lines.
	fmt.Printf("\n2 slots, medians of %d rounds in turns\n%s", len(all[0].times), table.String())
	// The machine is not as fast in each round, so the ratio is that of one round.
	ratio := func(a, c, name string) {
		var ratios []float64
		for i := range min(len(rounds[a]), len(rounds[c])) {
			ratios = append(ratios, rounds[a][i]/rounds[c][i])
		}
		if slices.Sort(ratios); len(ratios) > 0 {
			b.ReportMetric(ratios[len(ratios)/2], name)
		}
	}
	ratio("jobpool local", "xargs -P2", "local/xargs")
	ratio("jobpool local, printed", "xargs -P2", "printed/xargs")
	ratio("jobpool local, printed", "HyperQueue", "printed/hq")
	ratio("jobpool local", "GNU parallel -j2", "local/parallel")
	ratio("jobpool ssh", "jobpool local", "ssh/local")
	ratio("jobpool srun", "jobpool local", "srun/local")
	ratio("jobpool ssh", "GNU parallel ControlMaster", "ssh/parallel-master")
	b.ReportMetric(0, "ns/op")
}

// sideBySide runs commands in turns, and returns the median time of each in seconds.
func sideBySide(b *testing.B, rounds int, commands map[string]func() *exec.Cmd) map[string]float64 {
	b.Helper()
	times := map[string][]float64{}
	for range rounds {
		for name, command := range commands {
			c := command()
			var complaints bytes.Buffer
			c.Stderr = &complaints
			began := time.Now()
			if err := c.Run(); err != nil {
				b.Fatalf("%s: %v: %s", name, err, &complaints)
			}
			times[name] = append(times[name], time.Since(began).Seconds())
		}
	}
	out := map[string]float64{}
	for name, t := range times {
		slices.Sort(t)
		out[name] = t[len(t)/2]
	}
	return out
}

// BenchmarkDependencies runs 1,000 tasks and 100 that depend on all of them, beside as
// many that depend on nothing; and a thousand that depend on a thousand, which are a
// million edges.
func BenchmarkDependencies(b *testing.B) {
	dir := b.TempDir()
	list := func(name string, dependants int, edges bool) string {
		var text, names strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&text, `{"argv":["/bin/true"],"id":"s%d"}`+"\n", i)
			fmt.Fprintf(&names, `,"s%d"`, i)
		}
		for i := range dependants {
			if edges {
				fmt.Fprintf(&text, `{"argv":["/bin/true"],"after":[%s]}`+"\n", names.String()[1:])
			} else {
				fmt.Fprintf(&text, `{"argv":["/bin/true"],"id":"t%d"}`+"\n", i)
			}
		}
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text.String()), 0o644); err != nil {
			b.Fatal(err)
		}
		return name
	}
	number := 0
	run := func(name string) *exec.Cmd {
		number++
		return exec.Command(filepath.Join(harness.Bin, "jobpool"), "-q", "-j2", "--jsonl", "--run", filepath.Join(dir, fmt.Sprint("run", number)), "-a", name)
	}
	with, without, million := list("with", 100, true), list("without", 100, false), list("million", 1000, true)
	for b.Loop() {
		t := sideBySide(b, 5, map[string]func() *exec.Cmd{
			"with": func() *exec.Cmd { return run(with) }, "without": func() *exec.Cmd { return run(without) },
		})
		b.ReportMetric(t["with"]/t["without"], "of-without")
		c := run(million)
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- c.Wait() }()
		used := 0.0
		for running := true; running; {
			select {
			case err := <-done:
				if running = false; err != nil {
					b.Fatal(err)
				}
			case <-time.After(20 * time.Millisecond):
				used = max(used, peak(c.Process.Pid))
			}
		}
		b.ReportMetric(used, "MiB/1M-edges")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkLargeOutput has four tasks print 100 MB each into a pipe, beside GNU
// parallel.
func BenchmarkLargeOutput(b *testing.B) {
	dir := b.TempDir()
	number := 0
	pipe := func(args ...string) *exec.Cmd {
		return exec.Command("sh", append([]string{"-c", `"$@" 'head -c 100000000 /dev/zero # {}' ::: 1 2 3 4 | cat >/dev/null`, "sh"}, args...)...)
	}
	jobpool := func(args ...string) *exec.Cmd {
		number++
		return pipe(append([]string{filepath.Join(harness.Bin, "jobpool"), "-q", "-j2", "--run", filepath.Join(dir, fmt.Sprint("run", number))}, args...)...)
	}
	commands := map[string]func() *exec.Cmd{
		"jobpool":  func() *exec.Cmd { return jobpool() },
		"in-order": func() *exec.Cmd { return jobpool("-k") },
	}
	if onPath("parallel") {
		commands["parallel"] = func() *exec.Cmd { return pipe("parallel", "--will-cite", "-j2") }
	}
	for b.Loop() {
		for name, t := range sideBySide(b, 5, commands) {
			b.ReportMetric(400/t, "MB/s-"+name)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkFirstTask measures the time from the start of jobpool to that of its
// first task, with four nodes over ssh, and over srun if there is a cluster; and
// beside it what a lone ssh takes.
func BenchmarkFirstTask(b *testing.B) {
	options, err := startSSHD(b)
	if err != nil {
		needs.Missing(b, "an sshd: "+err.Error())
	}
	dir := b.TempDir()
	run := 0
	first := func(wrap []string, args ...string) *exec.Cmd {
		run++
		argv := append(wrap, "sh", "-c", `date +%s.%N; exec "$@"`, "sh", filepath.Join(harness.Bin, "jobpool"), "-q", "--run", filepath.Join(dir, fmt.Sprint(run)))
		argv = append(append(argv, args...), "date +%s.%N # {}", ":::", "1")
		return exec.Command(argv[0], argv[1:]...)
	}
	ways := map[string]func() *exec.Cmd{
		"ms/ssh": func() *exec.Cmd {
			return first(nil, "--via", "ssh", "--ssh-opt", options, "--nodes", "2/n[1-4]")
		},
		"ms/lone-ssh": func() *exec.Cmd {
			return exec.Command("sh", "-c", `date +%s.%N; exec ssh "$1" n1 date +%s.%N`, "sh", options)
		},
	}
	if onPath("salloc") && os.Getenv("SLURM_CONF") != "" {
		ways["ms/srun"] = func() *exec.Cmd { return first(slices.Clone(fourNodes)) }
	}
	times := map[string][]float64{}
	for b.Loop() {
		for range 7 {
			for name, way := range ways {
				out, err := way().Output()
				if err != nil {
					b.Fatal(name, err)
				}
				var from, to float64
				if _, err := fmt.Sscan(string(out), &from, &to); err != nil {
					b.Fatalf("%s: %q", name, out)
				}
				times[name] = append(times[name], to-from)
			}
		}
	}
	for name, t := range times {
		slices.Sort(t)
		b.ReportMetric(t[len(t)/2]*1000, name)
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkDispatch hands out a million tasks that start nothing.
func BenchmarkDispatch(b *testing.B) {
	const n = 1000000
	dir := b.TempDir()
	for b.Loop() {
		c := exec.Command(filepath.Join(harness.Bin, "jobpool"), "-q", "-j8", "--noop", "--run", filepath.Join(dir, "run"))
		c.Stdin = lines(dir, n)
		began := time.Now()
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		b.ReportMetric(n/time.Since(began).Seconds(), "tasks/s")
	}
	b.ReportMetric(0, "ns/op")
}

// BenchmarkMillionQueued measures the memory of a scheduler that has a million tasks
// waiting.
func BenchmarkMillionQueued(b *testing.B) {
	const n = 1000000
	p := &pool{TB: b, dir: b.TempDir()}
	name := filepath.Join(p.dir, "tasks")
	if err := os.WriteFile(name, []byte("sleep 1000\n"+strings.Repeat("simulate --seed 12345 --out result\n", n)), 0o644); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c := p.command("-q", "-j1", "--run", "run", "-a", name)
		if err := c.Start(); err != nil {
			b.Fatal(err)
		}
		for range 600 {
			if st := p.status(); st != nil && st["waiting"].(float64) >= n {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
		b.ReportMetric(peak(c.Process.Pid), "MiB")
		for range 3 {
			_ = c.Process.Signal(syscall.SIGINT)
			time.Sleep(50 * time.Millisecond)
		}
		_ = c.Wait()
	}
	b.ReportMetric(0, "ns/op")
}
