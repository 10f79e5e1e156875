package app

import (
	"fmt"
	"io"
	"regexp"
	"unicode/utf8"
)

// Printable returns a writer for text from outside, such as the output of a task. If w is a terminal,
// control sequences other than colours, control characters, and characters that change the direction
// of text are shown in visible form. Any other w gets every byte unchanged.
//
// Close resets a colour that is left on, and shows a truncated sequence. It leaves w open.
func Printable(w io.Writer, terminal bool) io.WriteCloser {
	if !terminal {
		return plain{w}
	}
	return &printable{w: w}
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }

type printable struct {
	w        io.Writer
	rest     []byte // the beginning of a sequence or of a rune
	coloured bool
}

// maxColour limits the length of a colour sequence in bytes.
const maxColour = 40

var (
	colour      = regexp.MustCompile(`^\x1b\[[0-9;:]*m`)
	colourBegun = regexp.MustCompile(`^\x1b(\[[0-9;:]*)?$`)
)

// Write shows the complete part of the text so far.
func (p *printable) Write(b []byte) (int, error) {
	text := append(p.rest, b...)
	out, rest := p.show(text, false)
	p.rest = append([]byte(nil), rest...)
	if _, err := p.w.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Close shows the rest.
func (p *printable) Close() error {
	out, _ := p.show(p.rest, true)
	p.rest = nil
	if p.coloured {
		out = append(out, "\x1b[0m"...)
	}
	if len(out) == 0 {
		return nil
	}
	_, err := p.w.Write(out)
	return err
}

// show returns what may be written to a terminal, and the end of the text that must wait for more.
func (p *printable) show(text []byte, end bool) (out, rest []byte) {
	for len(text) > 0 {
		c := text[0]
		switch {
		case c == '\n' || c == '\t' || c == '\r':
			out, text = append(out, c), text[1:]
		case c == 0x1b:
			if sequence := colour.Find(text[:min(len(text), maxColour)]); sequence != nil {
				out, text, p.coloured = append(out, sequence...), text[len(sequence):], true
				continue
			}
			if !end && len(text) < maxColour && colourBegun.Match(text) {
				return out, text
			}
			out, text = append(out, "^["...), text[1:]
		case c < ' ' || c == 0x7f:
			out, text = append(out, '^', c^0x40), text[1:]
		case c < utf8.RuneSelf:
			out, text = append(out, c), text[1:]
		default:
			if !end && !utf8.FullRune(text) {
				return out, text
			}
			r, size := utf8.DecodeRune(text)
			switch {
			case r == utf8.RuneError && size == 1:
				out = fmt.Appendf(out, "\\x%02x", c)
			case r < 0xa0, turns(r):
				out = fmt.Appendf(out, "\\u%04x", r)
			default:
				out = append(out, text[:size]...)
			}
			text = text[size:]
		}
	}
	return out, nil
}
