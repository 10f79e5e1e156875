package run

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// made are so many tasks in a state, which have begun a minute ago.
func made(n int, state task.State, reason string) (all []queue.Summary) {
	for i := range n {
		t := queue.Summary{ID: task.ID(fmt.Sprintf("%s-%d", state, i)), Slug: fmt.Sprintf("lr-%d", i), State: state, Reason: reason}
		if state != task.Pending {
			t.Started = noon.Add(-time.Minute)
		}
		if state.Final() {
			t.Ended = noon.Add(time.Duration(i-60) * time.Second)
		}
		all = append(all, t)
	}
	return all
}

// The view of a run takes at most one screen, and has what matters first.
func TestView(t *testing.T) {
	v := view{
		name: "lr", where: "on Slurm", began: noon.Add(-2 * time.Minute), keys: true,
		why:     func(t queue.Summary) string { return t.Reason + ": nan" },
		metrics: func(t queue.Summary) string { return map[string]string{"lr-1": "acc NaN  loss 0.25"}[t.Slug] },
	}
	v.tasks = append(append(made(10, task.Completed, ""), made(2, task.Failed, "exit code 3")...), append(made(3, task.Running, ""), made(5, task.Pending, "Priority")...)...)
	const want = `lr: 20 tasks: 5 pending, 3 running, 10 completed, 2 failed, on Slurm
[#####################xxxx>>>>>>>...........]  6.0 tasks/min, about 1m20s left
  failed    lr-1  exit code 3: nan
  failed    lr-0  exit code 3: nan
  running   lr-0  1m0s
  running   lr-1  1m0s  acc NaN  loss 0.25
  running   lr-2  1m0s
  pending   lr-0  Priority
  pending   lr-1  Priority
  pending   lr-2  Priority
  pending   lr-3  Priority
  pending   lr-4  Priority
q leaves the run, which goes on; ^C ^C cancels it`
	if got := strings.Join(v.lines(noon, 120, 24), "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if line := v.lines(noon, 80, 24)[1]; !strings.HasSuffix(line, "about 1m20s left") {
		t.Errorf("%q: 80 columns have no room for the end", line)
	}
	v.note = "Slurm does not answer"
	for _, height := range []int{1, 2, 3, 5, 8, 12, 24, 100} {
		for _, width := range []int{10, 40, 200} {
			lines := v.lines(noon, width, height)
			if len(lines) > max(1, height-1) {
				t.Errorf("%d lines on %d", len(lines), height)
			}
			for _, line := range lines {
				if n := len([]rune(line)); n >= width {
					t.Errorf("%q is wider than %d", line, width)
				}
			}
		}
	}
}

// A run that waits says why, and once.
func TestWaits(t *testing.T) {
	var out strings.Builder
	s := screen{r: &running{single: "a", stderr: &out}}
	waits := func(reason string) []queue.Summary { return made(2, task.Pending, reason) }
	for i, tasks := range [][]queue.Summary{
		waits("Priority"), waits("Priority"), // printed after this
		waits("Priority"), waits("Resources"), made(2, task.Running, "Resources"), waits("Resources"), waits(""), waits("BeginTime"), waits("BeginTime"),
	} {
		s.show(tasks, &notes{}, noon.Add(time.Duration(i)*showAnyway))
	}
	const want = "ponos-run: waits: Priority\nponos-run: waits: Resources\nponos-run: waits: BeginTime\n"
	if got := out.String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// Two signals at once are one ^C, and only a second one cancels.
func TestInterrupts(t *testing.T) {
	for _, tt := range []struct {
		at   []time.Duration // of the presses
		want press           // on the last one
		over bool            // after that, a second past again
	}{
		{[]time.Duration{0}, asks, true},
		{[]time.Duration{0, time.Millisecond}, repeated, true},
		{[]time.Duration{0, twice - 1}, repeated, true},
		{[]time.Duration{0, twice}, cancels, false},
		{[]time.Duration{0, time.Millisecond, 2 * time.Second}, cancels, false},
		{[]time.Duration{0, time.Second, 2 * time.Second}, leaves, false},
	} {
		var i interrupts
		if i.over(noon) {
			t.Error("it is over before it began")
		}
		var got press
		for _, at := range tt.at {
			got = i.press(noon.Add(at), false)
		}
		if typed := (&interrupts{asked: noon}).press(noon.Add(time.Millisecond), true); typed != cancels {
			t.Errorf("typed at once: %v", typed)
		}
		if over := i.over(noon.Add(again + time.Second)); got != tt.want || over != tt.over {
			t.Errorf("%v: %v, over %v; want %v, %v", tt.at, got, over, tt.want, tt.over)
		}
	}
}

func TestFailures(t *testing.T) {
	bad := append(made(2, task.Failed, "exit code 3"), made(1, task.Error, "time limit")...)
	got := strings.Join(failures(bad, func(t queue.Summary) string {
		if t.State == task.Error {
			return t.Reason
		}
		return t.Reason + ": nan"
	}), "\n")
	if want := "2 failed: exit code 3 (lr-0, lr-1): nan\n1 error: time limit (lr-0)"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestOwnLine(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "a\n": "a", "[agent INFO] started\na\nb \n\n[agent ERROR] task failed\n": "b", "[agent INFO] started\n": "", "a\x1b[31m\n": "a [31m",
	} {
		if got := ownLine(text, "[agent %(levelname)s] %(message)s"); got != want {
			t.Errorf("%q: %q; want %q", text, got, want)
		}
	}
}

func TestCalled(t *testing.T) {
	for words, want := range map[string]string{
		"python train.py --lr 1": "train", "./train --lr 1": "train", "bash -e job.sh": "job", "::: a=1 -- python3 x/fit.py": "fit", "": "run",
	} {
		if got := called("", strings.Fields(words)); got != want {
			t.Errorf("%q: %s; want %s", words, got, want)
		}
	}
	if got := called("mine", []string{"true"}); got != "mine" {
		t.Error(got)
	}
}
