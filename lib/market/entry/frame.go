package entry

import (
	"bytes"
	"encoding/base64"
	"io"
	"strconv"
	"sync"
	"unicode/utf8"
)

// The log of an instance shows the last lines of what its container has written. So each line says at which byte of the
// output its text begins: whatever part of a log is read, it is known what is new in it, and what is missing.
//
//	@OFFSET TEXT     a line
//	@OFFSET+TEXT     a part of one, without its end
//	@OFFSET=BASE64   bytes that are no text
//
// Lines without that are not output.

// piece is how long the text of a line is at most: the market cuts longer ones.
const piece = 400

// Framer writes output to a log.
type Framer struct {
	mu   sync.Mutex
	to   io.Writer
	at   int64
	rest []byte // of a line whose end has not come
	line []byte
}

// NewFramer returns a framer that writes to a log.
func NewFramer(to io.Writer) *Framer { return &Framer{to: to} }

// Write writes output. An incomplete line waits for its end, or for Flush.
func (f *Framer) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rest = append(f.rest, p...)
	return len(p), f.flush(false)
}

// Flush writes an incomplete line as well.
func (f *Framer) Flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flush(true)
}

// Written is how much output there was.
func (f *Framer) Written() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at + int64(len(f.rest))
}

func (f *Framer) flush(all bool) error {
	f.line = f.line[:0]
	for {
		text, ended := f.rest, false
		if at := bytes.IndexByte(text, '\n'); at >= 0 {
			text, ended = text[:at], true
		}
		if !ended && len(text) <= piece && !all || len(f.rest) == 0 {
			break
		}
		if len(text) > piece {
			text, ended = text[:whole(text[:piece])], false
		}
		f.line = append(strconv.AppendInt(append(f.line, '@'), f.at, 10), " +"[btoi(!ended)])
		n := len(text) + btoi(ended)
		if !utf8.Valid(text) || bytes.ContainsAny(text, "\x00\r") {
			f.line[len(f.line)-1] = '='
			f.line = base64.StdEncoding.AppendEncode(f.line, f.rest[:n])
		} else {
			f.line = append(f.line, text...)
		}
		f.line = append(f.line, '\n')
		f.at += int64(n)
		f.rest = f.rest[n:]
	}
	f.rest = append([]byte(nil), f.rest...) // and not what came before it
	_, err := f.to.Write(f.line)
	return err
}

// whole returns how much of a text ends with a whole character.
func whole(text []byte) int {
	for n := len(text); n > len(text)-utf8.UTFMax; n-- {
		if r, size := utf8.DecodeLastRune(text[:n]); r != utf8.RuneError || size != 1 {
			return n
		}
	}
	return len(text)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Piece is output, and where it begins.
type Piece struct {
	At   int64
	Text []byte
}

// Parse returns the output that a line of a log has.
func Parse(line []byte) (p Piece, ok bool) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	if len(line) < 3 || line[0] != '@' {
		return p, false
	}
	end := bytes.IndexAny(line, " +=")
	if end < 0 {
		return p, false
	}
	var err error
	if p.At, err = strconv.ParseInt(string(line[1:end]), 10, 64); err != nil || p.At < 0 {
		return p, false
	}
	switch p.Text = line[end+1:]; line[end] {
	case ' ':
		p.Text = append(append([]byte(nil), p.Text...), '\n')
	case '=':
		p.Text, err = base64.StdEncoding.AppendDecode(nil, p.Text)
	}
	return p, err == nil
}
