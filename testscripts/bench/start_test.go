package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/testscripts/harness"
)

const (
	startTasks  = 200
	startRounds = 5
	manyStarts  = 2000 // once, with eight at a time
	arrayStarts = 1000
	arrayRounds = 3
)

// BenchmarkStart starts tasks of one prepared commit on a real cluster, with one
// ponos-start, and compares its rate with that of a shell's loop over the same
// calls of sbatch. The jobs are held, as running them would take the cores that
// both are measured on.
func BenchmarkStart(b *testing.B) {
	s := newStarter(b)
	for _, c := range []struct{ jobs, tasks, rounds int }{{4, startTasks, startRounds}, {8, startTasks, startRounds}, {8, manyStarts, 1}} {
		b.Run(fmt.Sprintf("jobs=%d/tasks=%d", c.jobs, c.tasks), func(b *testing.B) {
			s.tb = b
			var ratios []float64
			var starts, bares []time.Duration
			loop := s.loop(c.tasks)
			for range c.rounds {
				bare := s.bare(loop)
				start := s.start(c.jobs, c.tasks)
				ratios = append(ratios, float64(bare)/float64(start))
				starts, bares = append(starts, start), append(bares, bare)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(ratios), "x-rate-of-bare")
			b.ReportMetric(float64(c.tasks)/median(starts).Seconds(), "tasks/s")
			b.ReportMetric(float64(c.tasks)/median(bares).Seconds(), "bare-sbatch/s")
		})
	}
}

// BenchmarkStartArrays starts equal tasks as job arrays, beside our own way without them and a
// shell's loop with one sbatch for each.
func BenchmarkStartArrays(b *testing.B) {
	s := newStarter(b)
	text, err := os.ReadFile(s.config())
	s.must(err)
	arrays := func(on bool) {
		s.must(os.WriteFile(s.config(), []byte(strings.Replace(string(text), "arrays: false", fmt.Sprintf("arrays: %v", on), 1)), 0o600))
	}
	var together, single, bare []time.Duration
	var ofBare, ofSingle []float64
	calls, script := 0, s.loop(arrayStarts)
	for range arrayRounds {
		loop := s.bare(script)
		arrays(true)
		one := s.start(4, arrayStarts)
		calls = s.calls
		arrays(false)
		each := s.start(4, arrayStarts)
		together, single, bare = append(together, one), append(single, each), append(bare, loop)
		ofBare, ofSingle = append(ofBare, float64(loop)/float64(one)), append(ofSingle, float64(each)/float64(one))
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(calls), "sbatch-calls")
	b.ReportMetric(median(ofBare), "x-rate-of-bare")
	b.ReportMetric(median(ofSingle), "x-rate-of-single")
	b.ReportMetric(ms(median(together)), "ms")
	b.ReportMetric(ms(median(single)), "single-ms")
	b.ReportMetric(ms(median(bare)), "bare-sbatch-ms")
}

type starter struct {
	tb     testing.TB
	dir    string
	env    []string
	spool  *spool.Spool
	source task.Source
	tasks  int
	calls  int // of sbatch that the last start has made
}

// startedJob finds the id of the job or the array of a task.
var startedJob = regexp.MustCompile(`"event":"started".*"job":"(\d+)`)

func newStarter(b *testing.B) *starter {
	cluster := harness.Cluster(b)
	s := &starter{tb: b, dir: b.TempDir()}
	s.env = []string{"PATH=" + harness.Bin + ":" + os.Getenv("PATH"), "HOME=" + s.dir, "USER=" + harness.User(), "LOGNAME=" + harness.User(), "TZ=UTC"}
	for name, value := range cluster {
		s.env = append(s.env, name+"="+value)
	}
	config := fmt.Sprintf("mode: slurm\nqueue: spool:%[1]s/spool\ndata_dir: %[1]s/data\npid_file: %[1]s/pid\nslurm:\n  arrays: false\n  base:\n    hold: true\n    time: 10\n    mem: 100M\n", s.dir)
	s.must(os.WriteFile(filepath.Join(s.dir, "ponos.yaml"), []byte(config), 0o600))
	var err error
	s.spool, err = spool.Make(filepath.Join(s.dir, "spool"), clock.Now())
	s.must(err)
	repository := filepath.Join(s.dir, "repository")
	s.must(os.MkdirAll(repository, 0o755))
	s.must(os.WriteFile(filepath.Join(repository, "run.sh"), []byte("echo hello\n"), 0o644))
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=bench", "-c", "user.email=bench@example.org", "commit", "-qm", "code"}} {
		s.run("git", append([]string{"-C", repository}, args...)...)
	}
	commit := strings.TrimSpace(s.run("git", "-C", repository, "rev-parse", "HEAD"))
	s.source = task.Source{Repository: repository, Revision: commit}
	s.run("ponos-start", append([]string{"--config", s.config(), "--dry-run"}, s.add(1)...)...) // prepares the commit
	return s
}

func (s *starter) config() string { return filepath.Join(s.dir, "ponos.yaml") }

func (s *starter) must(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatal(err)
	}
}

// run runs a program that must say nothing on standard error.
func (s *starter) run(name string, args ...string) string {
	s.tb.Helper()
	for dir := range strings.SplitSeq(strings.TrimPrefix(s.env[0], "PATH="), ":") {
		if path := filepath.Join(dir, name); exists(path) {
			name = path
			break
		}
	}
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir = s.env, s.dir
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil || complaints.Len() > 0 {
		s.tb.Fatalf("%s: %v: %.500s", name, err, complaints.String())
	}
	return out.String()
}

// add puts new tasks into the spool and returns their ids.
func (s *starter) add(n int) []string {
	ids := make([]string, n)
	for i := range ids {
		s.tasks++
		e := queue.Entry{
			ID: id(s.tasks), Slug: fmt.Sprintf("bench-%d", s.tasks), Source: s.source, Command: []string{"sh", "run.sh"}, Created: submitted,
		}
		s.must(s.spool.Add(e))
		ids[i] = string(e.ID)
	}
	return ids
}

// start starts new tasks, and cancels their jobs afterwards.
func (s *starter) start(parallel, tasks int) time.Duration {
	args := append([]string{"--config", s.config(), "--jobs", fmt.Sprint(parallel)}, s.add(tasks)...)
	began := time.Now()
	out := s.run("ponos-start", args...)
	took := time.Since(began)
	if n := strings.Count(out, `"event":"started"`); n != tasks {
		s.tb.Fatalf("%d of %d tasks were started", n, tasks)
	}
	jobs := map[string]bool{}
	for _, found := range startedJob.FindAllStringSubmatch(out, -1) {
		jobs[found[1]] = true
	}
	s.calls = len(jobs)
	s.run("scancel", "--user=root")
	return took
}

// loop is a script of the calls of sbatch that ponos-start says it would make for new tasks.
func (s *starter) loop(tasks int) string {
	plan := s.run("ponos-start", append([]string{"--config", s.config(), "--dry-run"}, s.add(tasks)...)...)
	var loop strings.Builder
	calls := 0
	for line := range strings.Lines(plan) {
		if strings.HasPrefix(line, "sbatch ") {
			loop.WriteString(line)
			calls++
		}
	}
	if calls != tasks {
		s.tb.Fatalf("%d calls of sbatch for %d tasks", calls, tasks)
	}
	path := filepath.Join(s.dir, "loop.sh")
	s.must(os.WriteFile(path, []byte(loop.String()), 0o600))
	return path
}

// bare runs such a script in a shell.
func (s *starter) bare(path string) time.Duration {
	began := time.Now()
	s.run("bash", path)
	took := time.Since(began)
	s.run("scancel", "--user=root")
	return took
}
