package bench

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
)

const (
	manyTasks = 10000
	rounds    = 7
	endAtOnce = 500
)

// BenchmarkPoll takes turns of ponos-poll, the whole process, over many running
// tasks, and compares them with the bare calls of squeue and sacct that they make.
func BenchmarkPoll(b *testing.B) { benchmarkPoll(b, 1) }

// BenchmarkPollArrays does so where the tasks are elements of the largest job arrays.
func BenchmarkPollArrays(b *testing.B) { benchmarkPoll(b, 44) }

func benchmarkPoll(b *testing.B, size int) {
	w := newWorld(b, manyTasks, size)
	w.poll(true) // reports all as running, and publishes their first lines
	next := 0
	for _, c := range []struct {
		name   string
		change func()
	}{
		{"quiet", func() {}},
		{"grown", func() {
			for i := 0; i < manyTasks; i += 10 {
				w.grow(i)
			}
		}},
		{"ended", func() {
			for range endAtOnce {
				w.ended[next] = true
				next++
			}
			w.slurm()
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			w.tb = b
			var ratios, instantRatios []float64
			var turns, bares, instants, cpus []time.Duration
			var memory int64
			for range rounds {
				c.change()
				os.Remove(w.file("calls"))
				turn := w.poll(false)
				calls := w.calls()
				bare := w.bare(false, calls)
				c.change()
				instant := w.poll(true)
				bareInstant := w.bare(true, w.calls())
				turns, bares, instants = append(turns, turn.wall), append(bares, bare), append(instants, instant.wall)
				cpus = append(cpus, instant.cpu)
				ratios = append(ratios, float64(turn.wall)/float64(bare))
				instantRatios = append(instantRatios, float64(instant.wall)/float64(bareInstant))
				memory = max(memory, turn.memory, instant.memory)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(ratios), "x-bare")
			b.ReportMetric(ms(median(turns)), "turn-ms")
			b.ReportMetric(ms(median(bares)), "bare-ms")
			b.ReportMetric(median(instantRatios), "x-instant")
			b.ReportMetric(ms(median(instants)), "instant-ms")
			b.ReportMetric(ms(median(cpus)), "instant-cpu-ms")
			b.ReportMetric(float64(memory)/(1<<20), "peak-MiB")
		})
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// A turn asks squeue once and sacct at most once, however many tasks there are.
func TestOneCallEach(t *testing.T) {
	t.Run("jobs", func(t *testing.T) { testOneCallEach(t, 1) })
	t.Run("arrays", func(t *testing.T) { testOneCallEach(t, 44) })
}

func testOneCallEach(t *testing.T, size int) {
	const tasks = 100
	w := newWorld(t, tasks, size)
	count := func() map[string]int {
		n := map[string]int{}
		w.poll(true)
		for _, call := range w.calls() {
			name, _, _ := strings.Cut(call, " ")
			n[name]++
		}
		return n
	}
	state := func(i int) task.State {
		e, err := w.spool.Find(id(i))
		w.must(err)
		return e.State
	}
	// With a state directory that is new, accounting is asked once for what has ended before.
	if n := count(); n["squeue"] != 1 || n["sacct"] != 1 || state(0) != task.Running {
		t.Errorf("first turn: calls %v, state %q; want one squeue, one sacct, running", n, state(0))
	}
	for i := range 40 {
		w.ended[i] = true
	}
	w.slurm()
	w.grow(50)
	if n := count(); n["squeue"] != 1 || n["sacct"] != 1 || state(0) != task.Completed || state(50) != task.Running {
		t.Errorf("turn with ends: calls %v, states %q and %q; want one squeue, one sacct, completed and running", n, state(0), state(50))
	}
	for _, i := range []int{0, 50} {
		log, err := os.ReadFile(w.spool.Log(id(i)))
		w.must(err)
		if want := "a line of the task's own output\n"; !strings.Contains(string(log), want) || (i == 50) != strings.HasSuffix(string(log), "another line of the task's own output\n") {
			t.Errorf("published log of task %d ends with %q", i, log[max(0, len(log)-60):])
		}
	}
	if n := count(); n["squeue"] != 1 || n["sacct"] != 0 {
		t.Errorf("quiet turn: calls %v; want one squeue, no sacct", n)
	}
}
