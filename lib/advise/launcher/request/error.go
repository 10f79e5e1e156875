package request

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Error describes a request that cannot be parsed.
type Error struct {
	Name    string // origin of the request; "": "request"
	Text    string // the whole request
	Offset  int    // of the error in Text, in bytes
	Message string // such as: unknown unit "X"
	Want    string // what was expected; may be empty
	Hint    string // what to write instead; may be empty
}

// Error returns the position and the message and, below them, the line with a caret.
func (e *Error) Error() string {
	line, column, text := e.place()
	name := e.Name
	if name == "" {
		name = "request"
	}
	message := fmt.Sprintf("%s:%d:%d: %s", name, line, column, e.Message)
	if e.Want != "" {
		message += ": expected " + e.Want
	}
	if strings.TrimSpace(text) == "" {
		return message
	}
	text, before := shorten(text, text[:min(len(text), column-1)])
	text, before = visible(text), visible(before)
	return fmt.Sprintf("%s\n  %s\n  %s^", message, text, strings.Repeat(" ", utf8.RuneCountInString(before)))
}

// place returns the line and the column in bytes, both from 1, and that line.
func (e *Error) place() (line, column int, text string) {
	offset := min(e.Offset, len(e.Text))
	start := strings.LastIndexByte(e.Text[:offset], '\n') + 1
	text = e.Text[start:]
	if end := strings.IndexByte(text, '\n'); end >= 0 {
		text = text[:end]
	}
	return strings.Count(e.Text[:offset], "\n") + 1, offset - start + 1, text
}

// visible replaces characters that a terminal would not show as one character: control
// characters and marks of text direction.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t', unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, text)
}

// maxLine limits the length of the line that an error shows.
const maxLine = 200

// shorten cuts a long line around the position of the error.
func shorten(text, before string) (string, string) {
	if len(text) <= maxLine {
		return text, before
	}
	start := max(0, len(before)-maxLine/2)
	end := min(len(text), start+maxLine)
	return strings.ToValidUTF8(text[start:end], "?"), strings.ToValidUTF8(text[start:len(before)], "?")
}
