package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/agent"
	"github.com/ponos-tools/ponos/lib/agent/code/environment"
	"github.com/ponos-tools/ponos/lib/agent/code/transfer"
	"github.com/ponos-tools/ponos/lib/agent/queue/spool"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// maxMemory is what an agent may take, however many tasks run.
const maxMemory = 100 << 20

// BenchmarkMemory takes turns over more and more running tasks. What a task takes
// must not grow with their number, and the whole stays below maxMemory.
func BenchmarkMemory(b *testing.B) {
	base := map[string]float64{} // of 1,000 tasks
	for _, tasks := range []int{1000, 2000, 5000, 10000} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			w := newWorld(b, tasks, 1)
			first := w.poll(true)
			quiet := w.poll(true)
			peak := max(first.memory, quiet.memory)
			if peak > maxMemory {
				b.Errorf("%d tasks take %d MiB", tasks, peak>>20)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
			for name, value := range map[string]float64{
				"memory": float64(peak), "first-turn": ms(first.wall), "quiet-turn": ms(quiet.wall),
			} {
				if tasks == 1000 {
					base[name] = value
				}
				b.ReportMetric(value/base[name], name+"-x-1000")
			}
		})
	}
}

// BenchmarkManyEnds lets 2,000 of 10,000 tasks end within one turn, and compares it
// with the bare calls of squeue and sacct, and a quiet turn.
func BenchmarkManyEnds(b *testing.B) {
	const ends = 2000
	w := newWorld(b, manyTasks, 1)
	w.poll(true)
	quiet := w.poll(false)
	w.calls()
	for i := range ends {
		w.ended[i] = true
	}
	w.slurm()
	turn := w.poll(false)
	calls := w.calls()
	bare := w.bare(false, calls)
	if e, err := w.spool.Find(id(ends - 1)); err != nil || e.State != task.Completed {
		b.Errorf("task %d is %q, %v", ends-1, e.State, err)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(turn.wall)/float64(bare), "x-bare")
	b.ReportMetric(float64(turn.wall)/float64(quiet.wall), "x-quiet-turn")
	b.ReportMetric(float64(len(calls)), "calls")
	b.ReportMetric(float64(turn.memory)/(1<<20), "peak-MiB")
}

// BenchmarkLargeLog publishes a log of 1 GB, compared with cp of that file, and then
// one more line of it, compared with a turn without one.
func BenchmarkLargeLog(b *testing.B) {
	w := newWorld(b, 1, 1)
	w.poll(true)
	quiet := w.poll(true)
	f, err := os.OpenFile(w.output(0), os.O_WRONLY|os.O_APPEND, 0)
	w.must(err)
	line := make([]byte, 1<<20)
	for i := range line {
		line[i] = 'x'
	}
	line[len(line)-1] = '\n'
	for range 1000 {
		_, err = f.Write(line)
		w.must(err)
	}
	w.must(f.Close())
	publish := w.poll(true)
	copied := w.run(true, "cp", w.output(0), w.file("copy"))
	w.must(os.Remove(w.file("copy")))
	w.grow(0)
	grown := w.poll(true)
	info, err := os.Stat(w.spool.Log(id(0)))
	w.must(err)
	if info.Size() < 1000<<20 {
		b.Errorf("the published log has %d bytes", info.Size())
	}
	peak := max(publish.memory, grown.memory)
	if peak > maxMemory {
		b.Errorf("a log of 1 GB takes %d MiB", peak>>20)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(publish.wall)/float64(copied.wall), "x-cp")
	b.ReportMetric(float64(grown.wall)/float64(quiet.wall), "one-line-x-quiet-turn")
	b.ReportMetric(float64(peak)/(1<<20), "peak-MiB")
}

// instant is a runner whose jobs run for a number of looks.
type instant struct {
	now  func() time.Time
	jobs map[task.ID]*runner.Job
	left map[task.ID]int
	next int
}

func (r *instant) Name() string { return "instant" }
func (r *instant) Preview(context.Context, runner.Submission) (runner.Preview, error) {
	return runner.Preview{}, nil
}

func (r *instant) Can() runner.Abilities { return runner.Abilities{} }

func (r *instant) Check(context.Context) (runner.Checked, error) { return runner.Checked{}, nil }

func (r *instant) Jobs(_ context.Context, known func() ([]runner.Ref, error)) ([]runner.Job, error) {
	refs, err := known()
	jobs := make([]runner.Job, 0, len(refs))
	for _, ref := range refs {
		j := r.jobs[ref.Task]
		if j == nil {
			return nil, errors.New("a task is known that was never started")
		}
		if r.left[ref.Task]--; r.left[ref.Task] == 0 {
			j.Sight, j.State = runner.Ended, task.Completed
		}
		jobs = append(jobs, *j)
	}
	return jobs, err
}

func (r *instant) Start(_ context.Context, s runner.Submission) (runner.Job, error) {
	r.next++
	j := &runner.Job{Task: s.Task, ID: fmt.Sprint(r.next), Sight: runner.Runs, Submitted: r.now()}
	r.jobs[s.Task], r.left[s.Task] = j, 5
	return *j, os.WriteFile(filepath.Join(s.Dir, runner.Output), []byte("hello\n"), 0o600)
}

func (r *instant) Stop(context.Context, runner.Ref) error { return nil }

// BenchmarkWeek lets a week pass for an agent, a turn a minute, with 300 tasks a
// day that run for five minutes and are kept for a day. From the end of the third day to
// that of the week nothing may grow: memory, open files, files of the state directory.
func BenchmarkWeek(b *testing.B) {
	const perDay, day = 300, 24 * 60
	dir := b.TempDir()
	must := func(err error) {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
	}
	now := time.Now()
	clock := func() time.Time { return now }
	store, err := agent.OpenStore(filepath.Join(dir, "state"), now)
	must(err)
	s, err := spool.Make(filepath.Join(dir, "spool"), now)
	must(err)
	s.Now = clock
	q, err := s.For("bench")
	must(err)
	jobs := &instant{now: clock, jobs: map[task.ID]*runner.Job{}, left: map[task.ID]int{}}
	a := &agent.Agent{
		Queue: q, Runner: jobs, Store: store, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), TaskFormat: "%(message)s", Now: clock,
		Environments: &environment.Store{Dir: filepath.Join(dir, "environments"), Run: command.System, Timeout: time.Minute},
		Transfers:    &transfer.Store{Queue: q, Processes: filepath.Join(dir, "artifacts"), Dir: filepath.Join(dir, "files")}, LocalCode: true,
	}
	type use struct{ memory, descriptors, files float64 }
	measure := func() use {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		open, err := os.ReadDir("/proc/self/fd")
		must(err)
		files := 0
		must(filepath.WalkDir(filepath.Join(dir, "state"), func(_ string, _ fs.DirEntry, err error) error {
			files++
			return err
		}))
		return use{float64(m.HeapAlloc), float64(len(open)), float64(files)}
	}
	var third, last use
	number := 0
	began := time.Now()
	for turn := range 7 * day {
		if turn%(day/perDay) == 0 && turn%day < day-60 { // nothing is left at the end of a day
			number++
			must(q.Add(queue.Entry{ID: id(number), Slug: "t", Command: []string{"true"}, Created: now}))
		}
		actions, err := a.Poll(b.Context())
		must(err)
		for _, action := range actions {
			if _, err := a.Start(b.Context(), action.ID); err != nil {
				b.Fatal(err)
			}
		}
		must(a.WaitUploads(b.Context()))
		for id, left := range jobs.left {
			if left <= 0 {
				delete(jobs.left, id)
				delete(jobs.jobs, id)
			}
		}
		now = now.Add(time.Minute)
		if (turn+1)%day != 0 {
			continue
		}
		// Files are as old as the machine's clock says, so all that are over go.
		must(a.Tidy(b.Context(), 24*time.Hour, 24*time.Hour))
		switch turn/day + 1 {
		case 3:
			third = measure()
		case 7:
			last = measure()
		}
	}
	for _, g := range []struct {
		name         string
		before, then float64
		bound        float64
	}{
		{"memory", third.memory, last.memory, 1.2},
		{"descriptors", third.descriptors, last.descriptors, 1},
		{"files", third.files, last.files, 1.05},
	} {
		ratio := g.then / g.before
		b.ReportMetric(ratio, g.name+"-x-day3")
		if ratio > g.bound {
			b.Errorf("%s grew from %.0f to %.0f", g.name, g.before, g.then)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(time.Since(began).Microseconds())/float64(7*day), "µs/turn")
	b.ReportMetric(float64(number), "tasks")
}
