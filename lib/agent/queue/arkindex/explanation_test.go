package arkindex

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// What a server says of a refusal ends in one line of a log.
func FuzzExplanation(f *testing.F) {
	f.Add(`{"detail": "no"}`)
	f.Add(`{"a": ["x", {"errors": [1, "y\n\u001b[31m"]}]}`)
	f.Add(`<Error><Code>AccessDenied</Code><Message>expired</Message>`)
	f.Add("<html>")
	f.Fuzz(func(t *testing.T, body string) {
		words := explanation([]byte(body))
		if len(words) > 310 || !utf8.ValidString(words) || strings.ContainsAny(words, "\n\r\x1b\x00") {
			t.Errorf("%q is told as %q", body, words)
		}
	})
}
