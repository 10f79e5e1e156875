package fairshare

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// watcher prints a view again and again. On a terminal it does so in place, and
// marks what has changed; elsewhere it prints what differs from the last time.
type watcher struct {
	out, stderr     io.Writer
	color, terminal bool
	now             func() time.Time
	rows, width     func() int // of the terminal; 0: unknown

	keys    <-chan string // nil: it is not steered
	resized <-chan os.Signal
	screen  screen

	before string
	height int
}

// run refreshes until the context ends, or until q is typed. A refresh that fails is reported and
// tried again, as Slurm may be restarting; wrong usage is not. A turn that does not ask
// draws what is known.
func (w *watcher) run(ctx context.Context, every time.Duration, turn func(ctx context.Context, ask bool) ([]byte, error)) error {
	if w.terminal {
		fmt.Fprint(w.out, "\x1b[?25l")       // no cursor
		defer fmt.Fprint(w.out, "\x1b[?25h") // and back
		resized := make(chan os.Signal, 1)
		signal.Notify(resized, syscall.SIGWINCH)
		defer signal.Stop(resized)
		w.resized = resized
	}
	for first, ask := true, true; ; first = false {
		began := w.now()
		if w.screen != nil {
			w.screen.fit(w.rows())
		}
		text, err := turn(ctx, ask)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && (first || fault.KindOf(err) == fault.Usage):
			return err
		case err != nil:
			w.say(fmt.Sprintf("%s  %v\n", w.now().Format("15:04:05"), app.Sanitize(fault.Text(err))))
		default:
			w.print(string(text))
		}
		// Slurm that takes long to answer is asked more rarely.
		var end bool
		if ask, end = w.pause(ctx, max(every, 10*w.now().Sub(began))); end {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// pause waits until the next turn is due, or a key requests one. ask is whether Slurm is
// asked in it.
func (w *watcher) pause(ctx context.Context, long time.Duration) (ask, end bool) {
	timer := time.NewTimer(long)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return false, false
		case <-timer.C:
			return true, false
		case <-w.resized: // nothing is where it was
			w.before, w.height = "", 0
			return false, false
		case key, open := <-w.keys:
			switch {
			case !open:
				w.keys = nil
			case key == app.KeyEnd: // the terminal does not make a signal of it
				if self, err := os.FindProcess(os.Getpid()); err != nil || self.Signal(os.Interrupt) != nil {
					return false, true
				}
			case key == "q" && !w.screen.typed():
				return false, true
			default:
				if draw, ask := w.screen.key(key); draw {
					return ask, false
				}
			}
		}
	}
}

func (w *watcher) say(text string) {
	if !w.terminal {
		fmt.Fprint(w.stderr, text)
		return
	}
	fmt.Fprint(w.out, w.ends(text))
	w.height += strings.Count(text, "\n")
}

func (w *watcher) print(text string) {
	if !w.terminal {
		if text != w.before {
			fmt.Fprint(w.out, text)
			w.before = text
		}
		return
	}
	shown := text
	if w.before != "" && w.color {
		shown = markChanges(w.before, text)
	}
	var b strings.Builder
	if w.before == "" && w.height == 0 {
		b.WriteString("\x1b[2J")
	}
	b.WriteString("\x1b[H")
	for line := range strings.Lines(w.cut(shown)) {
		b.WriteString(strings.TrimSuffix(line, "\n"))
		b.WriteString("\x1b[K\n")
	}
	help := "^C ends"
	if w.screen != nil {
		help = w.screen.help()
	}
	last := w.now().Format("2006-01-02 15:04:05") + "  " + help
	if w.screen != nil { // all of it is to be seen
		if last = w.now().Format(time.TimeOnly) + " " + help; w.width() > 0 {
			last = app.Cut(last, w.width())
		}
	}
	fmt.Fprintf(&b, "%s\x1b[K\n\x1b[J", last)
	fmt.Fprint(w.out, w.ends(b.String()))
	w.before, w.height = text, strings.Count(shown, "\n")+1
}

// ends are the lines as a terminal takes them: one that sends keys at once does not add
// carriage returns.
func (w *watcher) ends(text string) string {
	if w.screen == nil {
		return text
	}
	return strings.ReplaceAll(text, "\n", "\r\n")
}

// cut keeps what fits on the screen: what scrolls away cannot be refreshed.
func (w *watcher) cut(text string) string {
	height := w.rows()
	lines := strings.SplitAfter(text, "\n")
	if height < 4 || len(lines) <= height-1 {
		return text
	}
	keep := height - 3
	return strings.Join(lines[:keep], "") + fmt.Sprintf("%d more lines\n", len(lines)-1-keep)
}

const reverse, forward = "\x1b[7m", "\x1b[27m"

// markChanges returns text with the words reversed that differ from the line of
// before that has the same beginning, or the same place.
func markChanges(before, text string) string {
	old := strings.Split(before, "\n")
	byStart := map[string]string{}
	for _, line := range old {
		if f := strings.Fields(line); len(f) > 0 {
			byStart[f[0]] = line
		}
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		was, known := byStart[f[0]]
		if i < len(old) {
			if g := strings.Fields(old[i]); len(g) > 0 && g[0] == f[0] {
				was, known = old[i], true
			}
		}
		if was == line {
			continue
		}
		lines[i] = markWords(was, line, known)
	}
	return strings.Join(lines, "\n")
}

func markWords(was, line string, known bool) string {
	had := map[string]int{}
	for word := range strings.FieldsSeq(was) {
		had[word]++
	}
	var b strings.Builder
	for line != "" {
		blanks := len(line) - len(strings.TrimLeft(line, " "))
		b.WriteString(line[:blanks])
		line = line[blanks:]
		end := strings.IndexByte(line, ' ')
		if end < 0 {
			end = len(line)
		}
		word := line[:end]
		line = line[end:]
		if word == "" {
			continue
		}
		if known && had[word] > 0 {
			had[word]--
			b.WriteString(word)
			continue
		}
		b.WriteString(reverse + word + forward)
	}
	return b.String()
}
