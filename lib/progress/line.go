package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mattn/go-runewidth"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/ponos-tools/ponos/lib/lock"
)

const (
	often = 100 * time.Millisecond // between two drawings, at least
	delay = 400 * time.Millisecond // what takes less is not shown
	// erase takes the line away on which the cursor is.
	erase = "\r\x1b[K"
)

// Line is the line of progress of a tool. Nil is one that is never shown.
type Line struct {
	tool string
	tty  *os.File // standard error
	lock *os.File // the same terminal, opened once more; nil if it cannot be

	mu     sync.Mutex
	tasks  []*Task
	text   string // instead of tasks
	shown  int    // columns of what stands there
	locked bool
	stop   chan struct{} // ends the drawing
	ended  sync.WaitGroup
}

// Open makes the line of progress of a tool, nil where none can be shown.
func Open(stderr io.Writer, tool string) *Line {
	f, ok := terminal(stderr)
	if !ok {
		return nil
	}
	l := &Line{tool: tool, tty: f}
	if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err == nil {
		// A lock belongs to an opening: the pipeline shares the one of the shell.
		if own, err := os.OpenFile(name, os.O_WRONLY|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err == nil {
			l.lock = own
		}
	}
	return l
}

// terminal reports whether a stream is a terminal whose cursor can be moved.
func terminal(w io.Writer) (*os.File, bool) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil, false
	}
	kind := os.Getenv("TERM")
	return f, kind != "" && kind != "dumb"
}

// foreground reports whether the terminal is ours at the moment: a shell that has
// put the tool into the background has its own line there.
func foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// Set shows a text until another one is set; "" takes the line away.
func (l *Line) Set(text string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = text
	l.wake()
	if text == "" {
		l.clear()
	}
}

// Close takes the line away for good.
func (l *Line) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	l.tasks, l.text = nil, ""
	if l.stop != nil {
		close(l.stop)
		l.stop = nil
	}
	l.mu.Unlock()
	l.ended.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clear()
	if l.lock != nil {
		l.lock.Close()
		l.lock = nil
	}
}

// wake starts the drawing, if there is something to draw.
func (l *Line) wake() {
	if l.stop != nil || l.text == "" && len(l.tasks) == 0 {
		return
	}
	stop := make(chan struct{})
	l.stop = stop
	l.ended.Go(func() {
		ticker := time.NewTicker(often)
		defer ticker.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-ticker.C:
				if !l.draw(now) {
					return
				}
			}
		}
	})
}

// draw shows how things are, and reports whether there is more to come.
func (l *Line) draw(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text == "" && len(l.tasks) == 0 {
		l.clear()
		l.stop = nil
		return false
	}
	text := l.text
	if text == "" {
		text = l.describe(now)
	}
	if text == "" || !foreground(l.tty) || !l.take() {
		l.clear()
		return true
	}
	width, _, err := term.GetSize(int(l.tty.Fd()))
	if err != nil || width < 10 {
		return true
	}
	// A full line would take the cursor to the next one.
	text = runewidth.Truncate(clean(l.tool+": "+text), width-1, "…")
	_, _ = io.WriteString(l.tty, l.back(width)+text+"\x1b[K")
	l.shown = runewidth.StringWidth(text)
	return true
}

// back goes to where the line begins. A terminal that has become narrower may have
// broken it.
func (l *Line) back(width int) string {
	if l.shown > width {
		return fmt.Sprintf("\x1b[%dA\r\x1b[J", (l.shown-1)/width)
	}
	return "\r"
}

// clear takes away what stands there.
func (l *Line) clear() {
	if l.shown > 0 {
		out := erase
		if width, _, err := term.GetSize(int(l.tty.Fd())); err == nil && l.shown > width && width > 0 {
			out = l.back(width)
		}
		_, _ = io.WriteString(l.tty, out)
		l.shown = 0
	}
	if l.locked {
		_ = lock.Unlock(l.lock)
		l.locked = false
	}
}

// take gets the terminal for the line of this tool, if no other shows one.
func (l *Line) take() bool {
	if l.lock == nil || l.locked {
		return true
	}
	l.locked = lock.File(l.lock, false) == nil
	return l.locked
}

// clean takes out what would move the cursor.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// Writer returns a writer that takes the line away before it writes, that of other
// tools too. Where w is not a terminal, it is w itself.
func (l *Line) Writer(w io.Writer) io.Writer {
	f, ok := terminal(w)
	if !ok {
		return w
	}
	return &writer{line: l, w: f}
}

type writer struct {
	line  *Line
	w     *os.File
	mu    sync.Mutex
	amid  bool // the last write has not ended its line
	bytes bytes.Buffer
}

func (w *writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	if w.line != nil {
		w.line.mu.Lock()
		defer w.line.mu.Unlock()
		w.line.clear()
	}
	w.bytes.Reset()
	if !w.amid && foreground(w.w) {
		w.bytes.WriteString(erase)
	}
	before := w.bytes.Len()
	w.bytes.Write(p)
	w.amid = p[len(p)-1] != '\n'
	// In one piece, so that no line of another tool comes between.
	n, err := w.w.Write(w.bytes.Bytes())
	return max(0, n-before), err
}
