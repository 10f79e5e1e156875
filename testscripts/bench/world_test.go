package bench

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent"
	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
	"github.com/ponos-tools/ponos/testscripts/captures"
)

// world is an agent with tasks whose jobs run, as far as the fakes say.
type world struct {
	tb    testing.TB
	dir   string
	path  string // PATH with the fakes
	store *agent.Store
	spool *spool.Spool
	tasks int
	size  int // elements of a job array; 1: each task has a job by itself
	ended map[int]bool
}

func newWorld(tb testing.TB, tasks, size int) *world {
	return newWorldIn(tb, tasks, size, tb.TempDir())
}

func newWorldIn(tb testing.TB, tasks, size int, dir string) *world {
	tb.Helper()
	w := &world{tb: tb, dir: dir, tasks: tasks, size: size, ended: map[int]bool{}}
	w.path = installFakes(tb) + string(os.PathListSeparator) + os.Getenv("PATH")
	config := fmt.Sprintf("mode: slurm\nqueue: spool:%[1]s/spool\ndata_dir: %[1]s/data\npid_file: %[1]s/pid\n", w.dir)
	w.must(os.WriteFile(w.file("ponos.yaml"), []byte(config), 0o600))
	w.must(os.MkdirAll(w.file("data/state"), 0o700))
	var err error
	w.store, err = agent.OpenStore(w.file("data/state"), submitted)
	w.must(err)
	w.spool, err = spool.Make(w.file("spool"), clock.Now())
	w.must(err)
	each(tasks, w.add)
	w.slurm()
	return w
}

// each does something for all numbers below n, several at a time.
func each(n int, do func(int)) {
	numbers := make(chan int)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for i := range numbers {
				do(i)
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	wg.Wait()
}

func (w *world) must(err error) {
	w.tb.Helper()
	if err != nil {
		w.tb.Fatal(err)
	}
}

func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

func id(i int) task.ID { return task.ID(fmt.Sprintf("019ab6c5-4d2e-7c61-9f0a-%012d", i)) }

// job is the id of a task's job.
func (w *world) job(i int) string {
	if w.size == 1 {
		return strconv.Itoa(4000000 + i)
	}
	return fmt.Sprintf("%d_%d", 4000000+i/w.size*w.size, i%w.size)
}

// comment is that of a task's job: of an element of an array, that of the array.
func (w *world) comment(i int) string {
	var ids []task.ID
	for k := i / w.size * w.size; k < min(w.tasks, i/w.size*w.size+w.size); k++ {
		ids = append(ids, id(k))
	}
	return task.Marks(ids...)
}

var submitted = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// add adds a task with a running job, as ponos-start and the job leave it.
func (w *world) add(i int) {
	slug := fmt.Sprintf("worker-%d", i)
	w.must(w.spool.Add(queue.Entry{
		ID: id(i), Slug: slug, Process: "3f0cf6c1-0000-4000-8000-000000000001",
		Source:  task.Source{Repository: "https://git.example.org/workers/kaldi.git", Revision: "0f5c1e9d2b3a49e08b1f7c6d5e4a39281706f5e4"},
		Command: []string{"worker-kaldi", "--verbose"}, Env: map[string]string{"ARKINDEX_WORKER_RUN_ID": string(id(i))}, Created: submitted,
	}))
	d, err := w.store.Create(id(i))
	w.must(err)
	w.must(os.WriteFile(filepath.Join(d.Path, "head.log"), []byte("[agent INFO 2026-03-01 12:00:00,000] started as slurm job "+w.job(i)+"\n"), 0o600))
	w.must(d.Write(agent.Record{
		Tracked: agent.Tracked{
			Ref:     runner.Ref{Task: id(i), Label: slug, Attempt: 1, Job: w.job(i), Submitted: submitted},
			Process: "3f0cf6c1-0000-4000-8000-000000000001",
		},
		Runner: "slurm", Intent: submitted,
	}))
	w.must(os.Symlink(w.job(i), filepath.Join(d.Path, record.Owner(1))))
	w.must(os.WriteFile(w.output(i), []byte(strings.Repeat("a line of the task's own output\n", 20)), 0o600))
}

func (w *world) output(i int) string { return filepath.Join(w.store.Task(id(i)).Path, runner.Output) }

// grow appends to a task's log.
func (w *world) grow(i int) {
	f, err := os.OpenFile(w.output(i), os.O_WRONLY|os.O_APPEND, 0)
	w.must(err)
	_, err = f.WriteString("another line of the task's own output\n")
	w.must(err)
	w.must(f.Close())
}

// slurm writes what squeue and sacct say: all that have not ended run.
func (w *world) slurm() {
	squeue := bytes.NewBufferString("JobArrayID|State|Reason|SubmitTime|StartTime|exit_code|DerivedEC|RestartCnt|Comment|WorkDir\n")
	sacct := bytes.NewBufferString("JobID|State|ExitCode|Submit|End|Comment|JobName|SubmitLine|WorkDir=/\n")
	for i := range w.tasks {
		if !w.ended[i] {
			fmt.Fprintf(squeue, "%s|RUNNING|None|2026-03-01T12:00:00|2026-03-01T12:00:05|0|0|0|%s|%s\n", w.job(i), w.comment(i), w.store.Task(id(i)).Path)
			continue
		}
		for _, step := range []string{"", ".batch"} {
			comment, name := w.comment(i), fmt.Sprintf("ponos-worker-%d", i)
			if step != "" {
				comment, name = "", "batch"
			}
			fmt.Fprintf(sacct, "%s|COMPLETED|0:0|2026-03-01T12:00:00|2026-03-01T12:10:00|%s|%s|sbatch\n", w.job(i)+step, comment, name)
		}
	}
	w.must(os.WriteFile(w.file("squeue"+captures.Extension), squeue.Bytes(), 0o600))
	w.must(os.WriteFile(w.file("sacct"+captures.Extension), sacct.Bytes(), 0o600))
}

// took is what a program cost.
type took struct {
	wall   time.Duration
	cpu    time.Duration // with its children
	memory int64         // peak, in bytes
	out    []byte
}

// run runs a program in this world.
func (w *world) run(instant bool, name string, args ...string) took {
	w.tb.Helper()
	for dir := range strings.SplitSeq(w.path, string(os.PathListSeparator)) {
		if path := filepath.Join(dir, name); exists(path) {
			name = path
			break
		}
	}
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "PATH="+w.path, "PONOS_FAKE="+w.dir, "TZ=UTC", "HOME="+w.dir)
	if instant {
		cmd.Env = append(cmd.Env, "PONOS_FAKE_PACE=instant")
	}
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	start := time.Now()
	err := cmd.Run()
	wall := time.Since(start)
	if err != nil || complaints.Len() > 0 {
		w.tb.Fatalf("%s: %v: %s", name, err, complaints.String())
	}
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return took{wall, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), usage.Maxrss << 10, out.Bytes()}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// poll takes a turn, in which nothing must be left to do for others.
func (w *world) poll(instant bool) took {
	w.tb.Helper()
	t := w.run(instant, "ponos-poll", "--config", w.file("ponos.yaml"))
	if len(t.out) > 0 {
		w.tb.Fatalf("ponos-poll printed %.200q", t.out)
	}
	return t
}

// calls takes the notes of the fakes.
func (w *world) calls() []string {
	w.tb.Helper()
	b, err := os.ReadFile(w.file("calls"))
	w.must(err)
	w.must(os.Remove(w.file("calls")))
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// bare makes the calls of a turn that were noted, one after the other.
func (w *world) bare(instant bool, calls []string) time.Duration {
	w.tb.Helper()
	total := time.Duration(0)
	for _, call := range calls {
		words := strings.Split(call, " ")
		if words[0] == "squeue" || words[0] == "sacct" {
			total += w.run(instant, words[0], words[1:]...).wall
		}
	}
	w.calls()
	return total
}
