package progress

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Task is a piece of work that may take long.
type Task struct {
	line  *Line
	what  string
	began time.Time
	delay time.Duration // before it is shown
	// Of a transfer: bytes in total, and bytes done.
	total, done atomic.Int64
}

type lineKey struct{}
type taskKey struct{}

// With returns a context whose work is shown in a line, or nowhere.
func With(ctx context.Context, l *Line) context.Context {
	return context.WithValue(ctx, lineKey{}, l)
}

// Start begins to show a piece of work, if the context has a line for it. The returned function ends
// that.
func Start(ctx context.Context, format string, args ...any) (context.Context, func()) {
	return start(ctx, delay, fmt.Sprintf(format, args...))
}

// Say changes what is shown of the work of the context.
func Say(ctx context.Context, format string, args ...any) {
	if t, ok := ctx.Value(taskKey{}).(*Task); ok {
		t.line.mu.Lock()
		defer t.line.mu.Unlock()
		t.what = fmt.Sprintf(format, args...)
	}
}

// Wait is Start for an answer that usually comes at once: only a long wait is shown. The returned
// function ends it.
func Wait(ctx context.Context, what string) func() {
	_, end := start(ctx, answer, "waiting for "+what)
	return end
}

func start(ctx context.Context, delay time.Duration, what string) (context.Context, func()) {
	l, _ := ctx.Value(lineKey{}).(*Line)
	if l == nil {
		return ctx, func() {}
	}
	t := &Task{line: l, what: what, began: time.Now(), delay: delay}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tasks = append(l.tasks, t)
	l.wake()
	return context.WithValue(ctx, taskKey{}, t), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.tasks = slices.DeleteFunc(l.tasks, func(other *Task) bool { return other == t })
		if len(l.tasks) == 0 {
			l.clear()
		}
	}
}

// Reader counts the bytes read for the work of the context, from the beginning. A total below 0 is
// unknown.
func Reader(ctx context.Context, total int64, r io.Reader) io.Reader {
	t, ok := ctx.Value(taskKey{}).(*Task)
	if !ok {
		return r
	}
	t.total.Store(total)
	t.done.Store(0)
	return &reader{r, t}
}

type reader struct {
	io.Reader
	t *Task
}

func (r *reader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.t.done.Add(int64(n))
	return n, err
}

// describe returns the task that has taken longest, and the number of others, of those that are shown.
func (l *Line) describe(now time.Time) string {
	text, others := "", 0
	for _, t := range l.tasks {
		switch {
		case now.Sub(t.began) < t.delay:
		case text == "":
			text = t.String(now)
		default:
			others++
		}
	}
	if others > 0 {
		text += fmt.Sprintf(" (and %d more)", others)
	}
	return text
}

// String returns the progress; known totals come first, as a narrow terminal cuts the rest.
func (t *Task) String(now time.Time) string {
	since := now.Sub(t.began)
	done, total := t.done.Load(), t.total.Load()
	switch {
	case total > 0:
		part := min(float64(done)/float64(total), 1)
		return fmt.Sprintf("%s %3.0f%% of %s %s", Bar(part), 100*part, size(total), t.what)
	case done > 0:
		return fmt.Sprintf("%s %s", size(done), t.what)
	}
	return fmt.Sprintf("%s %s", since.Truncate(time.Second), t.what)
}

const barWide = 16

// Bar draws a fraction.
func Bar(part float64) string {
	full := min(max(0, int(part*barWide+0.5)), barWide)
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", barWide-full) + "]"
}

// size formats a number of bytes for people.
func size(n int64) string {
	f := float64(n)
	for _, unit := range []string{"B", "KiB", "MiB", "GiB"} {
		if f < 1000 {
			return fmt.Sprintf("%.3g %s", f, unit)
		}
		f /= 1024
	}
	return fmt.Sprintf("%.4g TiB", f)
}
