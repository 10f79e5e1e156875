package progress

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/olekukonko/tablewriter/pkg/twwidth"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/ponos-tools/ponos/lib/base/locale"
	"github.com/ponos-tools/ponos/lib/base/lock"
)

const (
	often  = 100 * time.Millisecond // the shortest interval between two drawings
	delay  = 400 * time.Millisecond // shorter work is not shown
	answer = 3 * time.Second        // nor is a shorter wait for an answer
	// erase erases the line of the cursor.
	erase = "\r\x1b[K"
)

// Line is the progress line of a tool. Nil is never shown.
type Line struct {
	tool string
	tty  *os.File // standard error
	lock *os.File // the same terminal, opened again; nil if that fails

	mu     sync.Mutex
	tasks  []*Task
	text   string // instead of tasks
	shown  int    // columns of the text on the terminal
	locked bool
	stop   chan struct{} // ends the drawing
	ended  sync.WaitGroup
}

// Open returns the progress line of a tool, or nil where none can be shown.
func Open(stderr io.Writer, tool string) *Line {
	f, ok := terminal(stderr)
	if !ok {
		return nil
	}
	l := &Line{tool: tool, tty: f}
	if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err == nil {
		// A lock belongs to an open file: the pipeline shares that of the shell, so the terminal is
		// opened again.
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

// foreground reports whether the tool is in the foreground of the terminal: if a shell has put it
// into the background, the line of the terminal belongs to the shell.
func foreground(f *os.File) bool {
	group, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// Set shows a text until another one is set; "" erases the line.
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

// Close erases the line for good.
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

// draw draws the present state, and reports whether there is more to draw.
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
	if width == 0 { // the terminal does not know: serial lines, containers
		width = 80
	}
	if err != nil || width < 10 {
		return true
	}
	// A full line would move the cursor to the next one.
	if text = clean(l.tool + ": " + text); twwidth.Width(text) >= width {
		text = twwidth.Truncate(text, width-1, locale.Symbols("…"))
	}
	_, _ = io.WriteString(l.tty, l.back(width)+text+"\x1b[K")
	l.shown = twwidth.Width(text)
	return true
}

// back moves the cursor to the beginning of the line, which a terminal that was made narrower may
// have wrapped.
func (l *Line) back(width int) string {
	if l.shown > width {
		return fmt.Sprintf("\x1b[%dA\r\x1b[J", (l.shown-1)/width)
	}
	return "\r"
}

// clear erases the text.
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

// take locks the terminal for the line of this tool, if no other one shows a line.
func (l *Line) take() bool {
	if l.lock == nil || l.locked {
		return true
	}
	l.locked = lock.File(l.lock, false) == nil
	return l.locked
}

// clean removes characters that would move the cursor.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// Writer returns a writer that erases the line before it writes, also that of other tools. If w is
// not a terminal, it returns w.
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
	// In one write, so that no line of another tool comes between.
	n, err := w.w.Write(w.bytes.Bytes())
	return max(0, n-before), err
}

// Shows reports whether something that changes in its place can be shown on a stream: it is a terminal whose cursor can be moved, and
// this tool is in its foreground.
func Shows(w io.Writer) bool {
	f, ok := terminal(w)
	return ok && foreground(f)
}
