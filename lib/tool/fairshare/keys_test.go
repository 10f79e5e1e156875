package fairshare

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/forecast"
	"github.com/ponos-tools/ponos/lib/advise/planner"
	"github.com/ponos-tools/ponos/lib/base/app"
)

// typist is a terminal on which keys are typed one after the other, each when the screen
// before has been drawn.
type typist struct {
	mu      sync.Mutex
	screens []string
	drawn   chan string
}

func (t *typist) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := string(b); strings.Contains(text, "\x1b[H") {
		t.screens = append(t.screens, text)
		t.drawn <- strings.NewReplacer("\x1b[K", "", "\x1b[H", "", "\x1b[J", "", "\x1b[2J", "", "\r\n", "\n").Replace(text)
	}
	return len(b), nil
}

// The list of jobs is steered by keys: choose, details, log, sort, filter, own jobs.
func TestKeys(t *testing.T) {
	t.Setenv("TZ", "UTC")
	was := time.Local
	time.Local = time.UTC
	defer func() { time.Local = was }()
	captured := time.Date(2026, 11, 20, 18, 26, 0, 0, time.UTC)
	log := filepath.Join(t.TempDir(), "slurm.out")
	shown, err := os.ReadFile(filepath.Join(fixtures, "job.txt"))
	if err = errors.Join(err, os.WriteFile(log, []byte("epoch 3: loss 0.25\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	job := regexp.MustCompile(`StdOut=\S+`).ReplaceAllLiteralString(string(shown), "StdOut="+log)
	a := planner.New()
	a.Client.Run, a.Client.Env = recorded{dir: fixtures, files: map[string]string{"job": job}}, []string{"PATH=/nowhere"}
	a.Now = func() time.Time { return captured }
	v := &queueScreen{query: queueQuery{ask: a, budget: time.Minute}, me: "alice"}
	keys, out := make(chan string), &typist{drawn: make(chan string, 1)}
	w := watcher{out: out, stderr: out, terminal: true, now: time.Now, rows: func() int { return 24 }, width: func() int { return 80 }, keys: keys, screen: v}
	ended := make(chan error, 1)
	go func() {
		ended <- w.run(t.Context(), time.Hour, func(ctx context.Context, ask bool) ([]byte, error) {
			if ask {
				if _, err := v.load(ctx); err != nil {
					return nil, err
				}
			}
			var b bytes.Buffer
			p := newPage(&b, 80, false)
			err := errors.Join(v.text(p), p.Flush())
			return b.Bytes(), err
		})
	}()
	screen := func() string {
		t.Helper()
		select {
		case s := <-out.drawn:
			for line := range strings.Lines(s) {
				if app.TextWidth(strings.TrimSuffix(line, "\n")) > 80 {
					t.Errorf("wider than the screen: %q", line)
				}
			}
			return s
		case err := <-ended:
			t.Fatalf("it has ended: %v", err)
		case <-time.After(3 * time.Minute):
			t.Fatal("nothing is drawn")
		}
		return ""
	}
	typed := func(names ...string) (s string) {
		t.Helper()
		for _, name := range names {
			keys <- name
			s = screen()
		}
		return s
	}
	chosen := func(s string) string {
		for line := range strings.Lines(s) {
			if strings.HasPrefix(line, ">") {
				return strings.Fields(line)[2]
			}
		}
		return ""
	}
	first := screen()
	if chosen(first) == "" || !strings.Contains(first, "j/k enter:details l:log s:sort /:filter m:mine r:running q:quit") || strings.Contains(first, "…") {
		t.Errorf("%s", first)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	if again := screen(); chosen(again) != chosen(first) {
		t.Errorf("after the terminal has another size: %s", again)
	}
	second := typed("j")
	if chosen(second) == "" || chosen(second) == chosen(first) {
		t.Errorf("j chooses %q after %q", chosen(second), chosen(first))
	}
	if again := typed(app.KeyUp); chosen(again) != chosen(first) {
		t.Errorf("up chooses %q", chosen(again))
	}
	if s := typed("k"); chosen(s) != chosen(first) {
		t.Errorf("above the first is %q", chosen(s))
	}
	many := typed(slices.Repeat([]string{"j"}, 40)...)
	if chosen(many) == "" || chosen(many) == chosen(second) {
		t.Errorf("the last is not to be seen:\n%s", many)
	}
	if s := typed("m"); !strings.Contains(s, "[mine]") || strings.Contains(s, " bob ") || !strings.Contains(s, " alice ") {
		t.Errorf("%s", s)
	}
	if s := typed("m", "/", "b", "O", "x", app.KeyBack); !strings.Contains(s, "filter: bO_") || !strings.Contains(s, " bob ") || strings.Contains(s, " alice ") {
		t.Errorf("%s", s)
	}
	if s := typed(app.KeyEnter, "s"); !strings.Contains(s, "[by submission, filter bO]") {
		t.Errorf("%s", s)
	}
	if s := typed("/", "q", "q"); !strings.Contains(s, "no job matches the filter") {
		t.Errorf("%s", s)
	}
	if s := typed(app.KeyEscape, "s", "s", "s"); !strings.Contains(s, " alice ") {
		t.Errorf("%s", s)
	}
	typed(slices.Repeat([]string{"k"}, 40)...)
	if s := typed(app.KeyEnter); !strings.Contains(s, "job "+chosen(first)+" ") || !strings.Contains(s, "esc:back") {
		t.Errorf("%s", s)
	}
	if s := typed("j", "j"); strings.Contains(s, "job "+chosen(first)+" \"") {
		t.Errorf("it does not scroll:\n%s", s)
	}
	if s := typed("l"); !strings.Contains(s, "epoch 3: loss 0.25") {
		t.Errorf("%s", s)
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	if s := typed("l"); !strings.Contains(s, "no log: ") {
		t.Errorf("%s", s)
	}
	if s := typed(app.KeyEscape); chosen(s) != chosen(first) {
		t.Errorf("%s", s)
	}
	keys <- "q"
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A look that fails midway leaves the list of the last one, on which keys go on to work.
func TestFailedLook(t *testing.T) {
	a := planner.New()
	a.Client.Run, a.Client.Env = recorded{dir: fixtures}, []string{"PATH=/nowhere"}
	a.Now = func() time.Time { return time.Date(2026, 11, 20, 18, 26, 0, 0, time.UTC) }
	draw := func(v *queueScreen) string {
		t.Helper()
		var b bytes.Buffer
		p := newPage(&b, 80, false)
		if err := errors.Join(v.text(p), p.Flush()); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	v := &queueScreen{query: queueQuery{ask: a, budget: time.Minute}, me: "alice"}
	if _, err := v.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := draw(v)
	for _, fails := range []recorded{
		{dir: fixtures, fail: map[string]string{"squeue": "error: Unable to contact slurm controller (connect failure)"}},
		{dir: fixtures, files: map[string]string{"squeue": ""}, fail: map[string]string{"sprio": "error"}},
	} {
		a.Client.Run = fails
		if _, err := v.load(t.Context()); err != nil {
			v.key("j")
			v.key("k")
			if after := draw(v); after != before {
				t.Errorf("after a failed look:\n%s\nwant\n%s", after, before)
			}
		}
	}
	a.Client.Run = recorded{dir: fixtures}
	v.lines = 0
	v.key(app.KeyEnter)
	if _, err := v.load(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, lines := range []int{0, 1, 2, 3, 24} { // however low the terminal is
		v.lines, v.scrolled = lines, 1000
		draw(v)
	}
	a.Client.Run = recorded{dir: fixtures, fail: map[string]string{"squeue": "error: Unable to contact slurm controller (connect failure)"}}
	before = draw(v)
	if _, err := v.load(t.Context()); err == nil || draw(v) != before {
		t.Errorf("%v:\n%s", err, draw(v))
	}
}

// The end of a log is read, and nothing but files.
func TestEndOf(t *testing.T) {
	file := t.TempDir() + "/log"
	if err := os.WriteFile(file, []byte(strings.Repeat("x", maxLog)+"end"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, err := endOf(file); err != nil || len(text) != maxLog || !bytes.HasSuffix(text, []byte("end")) {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if _, err := endOf("/dev/zero"); err == nil {
		t.Error("a device was read")
	}
}

// Nothing is wider than the screen, and nothing that matters is cut.
func TestNarrow(t *testing.T) {
	was := time.Local
	time.Local = time.UTC
	defer func() { time.Local = was }()
	captured := time.Date(2026, 11, 20, 18, 26, 0, 0, time.UTC)
	for _, width := range []int{40, 60, 80, 120} {
		for name, make := range map[string]func(*planner.Asker) query{
			"jobs":   func(a *planner.Asker) query { return &queueQuery{ask: a, budget: time.Minute} },
			"jobs 7": func(a *planner.Asker) query { return &queueQuery{ask: a, budget: time.Minute, ids: []string{"7"}} },
			"holes":  func(a *planner.Asker) query { return &holesQuery{ask: a, shortest: time.Minute, margin: time.Minute} },
			"shares": func(a *planner.Asker) query { return &sharesQuery{ask: a, all: true} },
		} {
			a := planner.New()
			a.Client.Run, a.Client.Env = recorded{dir: fixtures}, []string{"PATH=/nowhere"}
			a.Now = func() time.Time { return captured }
			v, err := make(a).load(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			var b bytes.Buffer
			p := newPage(&b, width, false)
			if err := errors.Join(v.text(p), p.Flush()); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(b.String()) {
				if line = strings.TrimSuffix(line, "\n"); app.TextWidth(line) > width || strings.Contains(line, "…") {
					t.Errorf("%s at %d columns: %q", name, width, line)
				}
			}
		}
	}
}

// The chart of holes and what it lists are on one screen, with a line for each partition, however many holes there are; a partition
// whose holes are out of reach for one reason takes one line.
func TestHolesFitTheScreen(t *testing.T) {
	was := time.Local
	time.Local = time.UTC
	defer func() { time.Local = was }()
	for _, size := range [][2]int{{80, 24}, {200, 24}, {80, 20}, {80, 100}} {
		a := planner.New()
		a.Client.Run, a.Client.Env = recorded{dir: fixtures}, []string{"PATH=/nowhere"}
		a.Now = func() time.Time { return time.Date(2026, 11, 20, 18, 26, 0, 0, time.UTC) }
		v, err := (&holesQuery{ask: a, shortest: time.Minute, margin: time.Minute}).load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		closed := v.(*holesView).holes["gpu_csi_a"]
		for i := range closed {
			closed[i].request, closed[i].certainty, closed[i].why = nil, forecast.OutOfReach, "the partition takes none of your accounts (research)"
		}
		var b bytes.Buffer
		p := newPage(&b, size[0], false)
		p.height = size[1]
		if err := errors.Join(v.text(p), p.Flush()); err != nil {
			t.Fatal(err)
		}
		out := b.String()
		if lines := strings.Count(out, "\n"); lines >= size[1] || strings.Count(out, "partition ") < 5 {
			t.Errorf("%d lines on a screen of %d:\n%s", lines, size[1], out)
		}
		if !strings.Contains(strings.Join(strings.Fields(out), " "), "csi only: out of reach: the partition takes none of your accounts (research) partition") {
			t.Errorf("a partition that one may not use:\n%s", out)
		}
		if more := strings.Contains(out, " more (--list)"); more != (size[1] < 100) {
			t.Errorf("%v: %s", size, out)
		}
	}
}
