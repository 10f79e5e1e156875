package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/program"
	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

// BenchmarkJob runs the job script of a task whose command does nothing, as a job of Slurm does, beside a script that runs
// the command and keeps no record.
func BenchmarkJob(b *testing.B) {
	dir := b.TempDir()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	config := "mode: local\nlocal: {max_jobs: 1}\nqueue: spool:" + dir + "/spool\ndata_dir: " + dir + "/data\npid_file: " + dir + "/pid\n"
	must(os.WriteFile(filepath.Join(dir, "ponos.yaml"), []byte(config), 0o600))
	tool := func(name string, args ...string) {
		b.Helper()
		c := exec.Command(name, args...)
		c.Env = append(os.Environ(), "PATH="+harness.Bin+":"+os.Getenv("PATH"), "PONOS_CONFIG="+filepath.Join(dir, "ponos.yaml"), "HOME="+dir)
		if out, err := c.CombinedOutput(); err != nil {
			b.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	status := filepath.Join(dir, "status") // of the process that has started the command
	tool(filepath.Join(harness.Bin, "ponos-setup"))
	tool(filepath.Join(harness.Bin, "ponos-submit"), "--", "sh", "-c", `cat /proc/$PPID/status >"$0"`, status)
	tool("/bin/sh", "-c", "ponos-poll | ponos-start")
	scripts, err := filepath.Glob(filepath.Join(dir, "data/state/tasks/*/job.sh"))
	if err != nil || len(scripts) != 1 {
		b.Fatalf("%q, %v", scripts, err)
	}
	place := filepath.Dir(scripts[0])
	for ended := false; !ended; time.Sleep(10 * time.Millisecond) { // the task itself, whose files are used from here on
		journals, err := filepath.Glob(filepath.Join(place, "run.*"))
		must(err)
		for _, path := range journals {
			text, err := os.ReadFile(path)
			must(err)
			ended = record.ParseRun(text).Closed
		}
	}
	store, err := (&program.Store{Dir: filepath.Join(dir, "bin"), Installed: func() (map[string]program.Programs, error) {
		machine, err := exec.Command("uname", "-m").Output()
		return map[string]program.Programs{strings.TrimSpace(string(machine)): {"ponos-worker": filepath.Join(harness.Bin, "ponos-worker")}}, err
	}}).Place()
	must(err)
	text, err := os.ReadFile(scripts[0])
	must(err)
	begin, ok := strings.CutSuffix(string(text), "exec \"$@\"\n")
	if !ok {
		b.Fatalf("%s", text)
	}
	bare := "#!/bin/bash\ncd " + shell.Quote(place) + "\nmapfile -d '' -t command <command\n\"${command[@]}\"\n"
	must(os.WriteFile(filepath.Join(dir, "exec"), []byte(begin+program.Text(store)), 0o600))
	must(os.WriteFile(filepath.Join(dir, "bash"), []byte(bare), 0o600))
	type cost struct {
		wall, cpu []time.Duration
		memory    []float64 // KiB
	}
	costs := map[string]*cost{"bash": {}, "exec": {}}
	for range 30 { // in turns, as the machine is not as fast at all times
		for name, c := range costs {
			for _, pattern := range []string{"owner.*", "run.*", "work"} {
				left, err := filepath.Glob(filepath.Join(place, pattern))
				must(err)
				for _, path := range left {
					must(os.RemoveAll(path))
				}
			}
			job := exec.Command("bash", filepath.Join(dir, name))
			job.Env = append(os.Environ(), "PONOS_JOB=1")
			began := time.Now()
			must(job.Run())
			c.wall = append(c.wall, time.Since(began))
			c.cpu = append(c.cpu, job.ProcessState.UserTime()+job.ProcessState.SystemTime())
			text, err := os.ReadFile(status)
			must(err)
			kib, err := strconv.ParseFloat(strings.Fields(regexp.MustCompile(`VmHWM:.*`).FindString(string(text)))[1], 64)
			must(err)
			c.memory = append(c.memory, kib)
		}
	}
	ratio := func(of func(*cost) []time.Duration) float64 {
		return float64(median(of(costs["exec"]))) / float64(median(of(costs["bash"])))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(median(costs["exec"].wall)), "exec-ms")
	b.ReportMetric(ratio(func(c *cost) []time.Duration { return c.wall }), "wall-x-bash")
	b.ReportMetric(ratio(func(c *cost) []time.Duration { return c.cpu }), "cpu-x-bash")
	b.ReportMetric(median(costs["exec"].memory)/median(costs["bash"].memory), "memory-x-bash")
	b.ReportMetric(median(costs["exec"].memory)/1024, "exec-MiB")
}
