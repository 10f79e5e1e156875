package progress

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// The tests run this program as the tool, with a terminal of its own.
func TestMain(m *testing.M) {
	switch os.Getenv("PROGRESS_TEST") {
	case "transfer":
		transfer("tool-a")
	case "pair": // two tools on one terminal, as in a pipeline
		var tools sync.WaitGroup
		for _, name := range []string{"tool-a", "tool-b"} {
			tools.Go(func() { transfer(name) })
		}
		tools.Wait()
	case "resize":
		resized()
	default:
		os.Exit(m.Run())
	}
}

// transfer reads four parts, and says something after the second.
func transfer(name string) {
	line := Open(os.Stderr, name)
	defer line.Close()
	out := line.Writer(os.Stdout)
	ctx, end := Start(With(context.Background(), line), "downloading %s", strings.Repeat("long-", 10)+"\x1b[2J")
	defer end()
	r := Reader(ctx, 400, strings.NewReader(strings.Repeat("x", 400)))
	for i := range 4 {
		_, _ = io.CopyN(io.Discard, r, 100)
		time.Sleep(250 * time.Millisecond)
		if i == 2 {
			io.WriteString(out, name+" says a word\n")
		}
	}
}

func resized() {
	line := Open(os.Stderr, "tool")
	line.Set(strings.Repeat("0123456789", 7))
	enough := make(chan os.Signal, 1)
	signal.Notify(enough, syscall.SIGUSR1)
	select {
	case <-enough:
	case <-time.After(patience):
	}
	line.Close()
}

// patience is how long what must come may take, on a machine that is busy.
const patience = time.Minute

// screenOf is what a running tool has written to its terminal.
type screenOf struct {
	t    *testing.T
	file *os.File
	tool *os.Process

	mu  sync.Mutex
	out bytes.Buffer
}

func (x *screenOf) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.Write(p)
}

func (x *screenOf) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.out.String()
}

// await waits until the tool has written something.
func (x *screenOf) await(text string) {
	for end := time.Now().Add(patience); !strings.Contains(x.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			x.t.Errorf("no %q in %q", text, x)
			return
		}
	}
}

// on runs this program on a terminal, and returns all that was written to it.
func on(t *testing.T, mode string, env []string, size pty.Winsize, during func(*screenOf)) string {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append([]string{"PROGRESS_TEST=" + mode, "TERM=xterm-256color", "LC_ALL=C.UTF-8"}, env...)...)
	f, err := pty.StartWithSize(cmd, &size)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var meanwhile sync.WaitGroup
	defer meanwhile.Wait()
	out := &screenOf{t: t, file: f, tool: cmd.Process}
	if during != nil {
		meanwhile.Go(func() { during(out) })
	}
	_, _ = io.Copy(out, f) // EIO is the end of a terminal
	meanwhile.Wait()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	return out.String()
}

// screen is what the lines of a terminal hold in the end, without scrolling.
func screen(out string) string {
	lines, row, column := []string{""}, 0, 0
	escapes := regexp.MustCompile(`^\x1b\[([0-9]*)([A-Z])`)
	for out != "" {
		if m := escapes.FindStringSubmatch(out); m != nil {
			switch m[2] {
			case "K", "J":
				lines[row] = string([]rune(lines[row])[:column])
			}
			out = out[len(m[0]):]
			continue
		}
		c := []rune(out)[0]
		out = out[len(string(c)):]
		switch c {
		case '\r':
			column = 0
		case '\n':
			if row++; row == len(lines) {
				lines = append(lines, "")
			}
		default:
			text := []rune(lines[row])
			for len(text) <= column {
				text = append(text, ' ')
			}
			text[column] = c
			lines[row] = string(text)
			column++
		}
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n ")
}

func TestLine(t *testing.T) {
	out := on(t, "transfer", nil, pty.Winsize{Rows: 24, Cols: 60}, nil)
	if !strings.Contains(out, "tool-a: [########........]  50% of 400 B downloading long-") {
		t.Errorf("no bar: %q", out)
	}
	if got := screen(out); got != "tool-a says a word" {
		t.Errorf("what is left: %q\nof %q", got, out)
	}
	if strings.Contains(out, "\x1b[2J") {
		t.Errorf("a name moves the cursor: %q", out)
	}
	if out := on(t, "transfer", nil, pty.Winsize{}, nil); !strings.Contains(out, "tool-a: [") {
		t.Errorf("no bar on a terminal of unknown size: %q", out)
	}
	drawn := strings.Split(out, "\r")
	for _, d := range drawn {
		if text, _, _ := strings.Cut(d, "\x1b"); len([]rune(strings.TrimRight(text, "\n"))) >= 60 {
			t.Errorf("wider than the terminal: %q", text)
		}
	}
	if n := strings.Count(out, "tool-a: ["); n > 11 || n < 2 {
		t.Errorf("drawn %d times in a second", n)
	}
}

func TestTwoToolsShareATerminal(t *testing.T) {
	out := on(t, "pair", nil, pty.Winsize{Rows: 24, Cols: 80}, nil)
	drawn := regexp.MustCompile(`tool-[ab]: \[|\r\x1b\[K`).FindAllString(out, -1)
	for i, d := range drawn[1:] {
		if before := drawn[i]; d != erase && before != erase && d != before {
			t.Errorf("both show a line at a time: %q", out)
		}
	}
	if !strings.Contains(out, ": [") {
		t.Errorf("none shows a line: %q", out)
	}
	got := strings.Split(screen(out), "\n")
	if len(got) != 2 || !strings.HasSuffix(strings.TrimSpace(got[0]), " says a word") || !strings.HasSuffix(got[1], " says a word") || len(got[0]) > 25 {
		t.Errorf("they garble one another: %q\nof %q", got, out)
	}
}

func TestNothingIsShown(t *testing.T) {
	for _, kind := range []string{"TERM=dumb", "TERM="} {
		if out := on(t, "transfer", []string{kind}, pty.Winsize{Rows: 24, Cols: 80}, nil); out != "tool-a says a word\r\n" {
			t.Errorf("%s: %q", kind, out)
		}
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PROGRESS_TEST=transfer", "TERM=xterm-256color")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "tool-a says a word\n" {
		t.Errorf("into a pipe: %q, %v", out, err)
	}
	// In the background of a shell, the terminal is not the tool's.
	script := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(script, []byte("set -m\n\"$1\" &\nwait\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	background := exec.Command("bash", script, os.Args[0])
	background.Env = append(os.Environ(), "PROGRESS_TEST=transfer", "TERM=xterm-256color", "LC_ALL=C.UTF-8")
	f, err := pty.Start(background)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out, _ := io.ReadAll(f)
	if err := background.Wait(); err != nil || string(out) != "tool-a says a word\r\n" {
		t.Errorf("in the background: %q, %v", out, err)
	}
}

// TestResize makes the terminal narrower while a line stands there: it is then
// broken over two rows, and both are erased.
func TestResize(t *testing.T) {
	out := on(t, "resize", nil, pty.Winsize{Rows: 24, Cols: 100}, func(x *screenOf) {
		x.await("tool: 0123")
		_ = pty.Setsize(x.file, &pty.Winsize{Rows: 24, Cols: 40})
		x.await("…")
		_ = x.tool.Signal(syscall.SIGUSR1)
	})
	if !strings.Contains(out, "\x1b[1A\r\x1b[Jtool: 0123") || !strings.HasSuffix(out, erase) {
		t.Errorf("%q", out)
	}
	if !strings.Contains(out, "3456789…\x1b[K") && !strings.Contains(out, "…\x1b[K") {
		t.Errorf("it is not cut to the new width: %q", out)
	}
}

func TestText(t *testing.T) {
	now := time.Now()
	task := &Task{what: "fetching x", began: now.Add(-90 * time.Second)}
	if got := task.String(now); got != "1m30s fetching x" {
		t.Error(got)
	}
	task.done.Store(3 << 20)
	if got := task.String(now); got != "3 MiB fetching x" {
		t.Error(got)
	}
	task.total.Store(12 << 20)
	if got := task.String(now); got != "[####............]  25% of 12 MiB fetching x" {
		t.Error(got)
	}
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "0.977 KiB", 5 << 40: "5 TiB"} {
		if got := size(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
	var none *Line
	none.Set("x")
	none.Close()
	ctx, end := Start(With(context.Background(), none), "x")
	end()
	if r := strings.NewReader(""); Reader(ctx, 1, r) != io.Reader(r) {
		t.Error("a reader is wrapped though nothing is shown")
	}
}

func TestWaitsAreShownLater(t *testing.T) {
	began := time.Now()
	line := &Line{tasks: []*Task{
		{what: "waiting", began: began, delay: answer}, {what: "working", began: began, delay: delay}, {what: "more", began: began, delay: delay},
	}}
	for after, want := range map[time.Duration]string{
		0: "", time.Second: "1s working (and 1 more)", 3 * time.Second: "3s waiting (and 2 more)",
	} {
		if got := line.describe(began.Add(after)); got != want {
			t.Errorf("after %v: %q; want %q", after, got, want)
		}
	}
}
