package app

import (
	"bytes"
	"testing"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"a\tb\r\nc":                    "a\tb\r\nc",
		"\x1b[1;31mred\x1b[0m":         "\x1b[1;31mred\x1b[0m\x1b[0m",
		"\x1b]0;title\a":               "^[]0;title^G",
		"\x1b[2J\x1b[1;1Hx":            "^[[2J^[[1;1Hx",
		"\x1b]52;c;cm0gLXJmIH4=\x1b\\": "^[]52;c;cm0gLXJmIH4=^[\\",
		"\u009b31m":                    `\u009b31m`,
		"é\u202etxt":                   "é" + `\u202etxt`,
		"\xff\x00\x7f":                 `\xff^@^?`,
		"end\x1b[3":                    "end^[[3",
	} {
		for size := 1; size <= len(text); size++ {
			var out bytes.Buffer
			w := Printable(&out, true)
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				if n, err := w.Write(rest[:min(size, len(rest))]); err != nil || n != min(size, len(rest)) {
					t.Fatalf("Write: %d, %v", n, err)
				}
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if out.String() != want {
				t.Errorf("%q in pieces of %d: %q, want %q", text, size, out.String(), want)
			}
		}
		var out bytes.Buffer
		w := Printable(&out, false)
		if _, err := w.Write([]byte(text)); err != nil || w.Close() != nil || out.String() != text {
			t.Errorf("no terminal: %q became %q, %v", text, out.String(), err)
		}
	}
}

// Whatever is written, in whatever pieces, a terminal gets nothing but text and
// colours.
func FuzzPrintable(f *testing.F) {
	f.Add([]byte("a\x1b[31mb\x1b]0;x\a\u009b\xff"), 3)
	f.Add([]byte("\x1b[\x1b[\x1b[0;;;1m\u202e"), 1)
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		size = max(1, min(size, len(text)))
		var out bytes.Buffer
		w := Printable(&out, true)
		for rest := text; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if _, err := w.Write(rest[:min(size, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		left := out.Bytes()
		if !utf8.Valid(left) {
			t.Fatalf("%q became %q", text, left)
		}
		for len(left) > 0 {
			if sequence := colour.Find(left); sequence != nil {
				left = left[len(sequence):]
				continue
			}
			r, n := utf8.DecodeRune(left)
			if r < ' ' && r != '\n' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0 {
				t.Fatalf("%q became %q", text, out.Bytes())
			}
			left = left[n:]
		}
	})
}

func TestSanitize(t *testing.T) {
	for text, want := range map[string]string{
		"plain": "plain", "a\tb": "a b", "\x1b[2J\r\n": "?[2J??", "é\u202egnp.exe": `é\u202egnp.exe`, "a\u2028b\u2066": `a\u2028b\u2066`, "\u009b": "?", "\xff": "?",
	} {
		if got := Sanitize(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
