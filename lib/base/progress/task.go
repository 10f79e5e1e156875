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
	// Of a transfer: bytes in total, and bytes done.
	total, done atomic.Int64
}

type lineKey struct{}
type taskKey struct{}

// With returns a context whose work is shown in a line.
func With(ctx context.Context, l *Line) context.Context {
	if l == nil {
		return ctx
	}
	return context.WithValue(ctx, lineKey{}, l)
}

// Start begins to show a piece of work, if the context has a line for it. The returned function ends
// that.
func Start(ctx context.Context, format string, args ...any) (context.Context, func()) {
	l, ok := ctx.Value(lineKey{}).(*Line)
	if !ok {
		return ctx, func() {}
	}
	t := &Task{line: l, what: fmt.Sprintf(format, args...), began: time.Now()}
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

// describe returns the task that has taken longest, and the number of others.
func (l *Line) describe(now time.Time) string {
	if len(l.tasks) == 0 || now.Sub(l.tasks[0].began) < delay {
		return ""
	}
	text := l.tasks[0].String(now)
	if n := len(l.tasks) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
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
