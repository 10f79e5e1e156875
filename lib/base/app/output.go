package app

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"

	"github.com/ponos-tools/ponos/lib/base/spelling"
)

// PrintJSON writes v as an indented document.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// PrintJSONLine writes v as one line.
func PrintJSONLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// IsTerminal reports whether w (or a reader) is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Color reports whether to use colour on w: NO_COLOR, FORCE_COLOR, TERM=dumb and
// then whether it is a terminal decide.
func Color(w io.Writer) bool {
	switch {
	case os.Getenv("NO_COLOR") != "":
		return false
	case os.Getenv("FORCE_COLOR") != "":
		return true
	case os.Getenv("TERM") == "dumb":
		return false
	}
	return IsTerminal(w)
}

// Width is the number of columns of the terminal w, or 80.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// Room is the number of columns of the terminal w; 0: it is none, and lines may be of any length.
func Room(w io.Writer) int {
	if !IsTerminal(w) {
		return 0
	}
	return Width(w)
}

// Height is the number of lines of the terminal w, or 24.
func Height(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if _, height, err := term.GetSize(int(f.Fd())); err == nil && height > 0 {
			return height
		}
	}
	return 24
}

// Sanitize takes out of s what would move the cursor or change the colours of a
// terminal: control characters become '?', a tab becomes a blank. What changes the direction of
// text is shown as \u202e.
func Sanitize(s string) string {
	plain := true
	for i := range len(s) {
		plain = plain && s[i] >= ' ' && s[i] < 0x7f
	}
	if plain {
		return s
	}
	var b strings.Builder
	for _, r := range strings.ToValidUTF8(s, "?") {
		switch {
		case r == '\t':
			b.WriteByte(' ')
		case r < ' ', r >= 0x7f && r < 0xa0:
			b.WriteByte('?')
		case turns(r):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// turns reports whether a character changes the direction of text, or breaks a line.
func turns(r rune) bool {
	return r == 0x061c || r >= 0x200e && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

// Nearest returns the candidate that word most likely means, or "".
func Nearest(word string, candidates []string) string { return spelling.Nearest(word, candidates) }
