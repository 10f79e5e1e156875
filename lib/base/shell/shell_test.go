package shell

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/command"
)

func TestSplit(t *testing.T) {
	for line, want := range map[string][]string{
		"/bin/true":           {"/bin/true"},
		"  sleep\t1  ":        {"sleep", "1"},
		"a -b c/d.e,f:g@h+i^": {"a", "-b", "c/d.e,f:g@h+i^"},
		"":                    nil,
		"cd /tmp":             nil,
		"A=1 b":               nil,
		"a 'b c'":             nil,
		"a > b":               nil,
		"a # b":               nil,
		"time a":              nil,
	} {
		got, ok := Split(line)
		if ok != (want != nil) || !slices.Equal(got, want) {
			t.Errorf("Split(%q) = %q, %v; want %q", line, got, ok, want)
		}
	}
}

// What Split takes apart a shell must take apart in the same way.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"a b", "a\tb  c", "é ü", "-n -e", "a\vb", "a\u00a0b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, ok := Split(line)
		if !ok || strings.ContainsRune(line, '\\') {
			return
		}
		got, err := command.System.Run(context.Background(), command.Cmd{Name: "sh", Args: []string{"-c", `printf '%s\0' ` + line}})
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.Join(words, "\x00") + "\x00"; string(got.Stdout) != want {
			t.Errorf("%q: sh has %q, Split %q", line, got.Stdout, want)
		}
	})
}

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{"": "''", "a-b_c=d/e.f:1,2@3%": "a-b_c=d/e.f:1,2@3%", "it's": `'it'\''s'`, "$HOME": "'$HOME'", "a b": "'a b'", "ü": "'ü'"} {
		if got := Quote(word); got != want {
			t.Errorf("Quote(%q) = %s; want %s", word, got, want)
		}
	}
	for word, want := range map[string]string{"a": "a", "a=b": "'a=b'", "%1": "'%1'", "a b": "'a b'"} {
		if got := QuoteAnywhere(word); got != want {
			t.Errorf("QuoteAnywhere(%q) = %s; want %s", word, got, want)
		}
	}
}

func TestJoin(t *testing.T) {
	for _, words := range [][]string{
		{"a", "", "b c", "d'e", "$f", "\n", "é", "-x", "~", "\x01", "g=h", "%1"},
		{"g=h"},
	} {
		got, err := command.System.Run(t.Context(), command.Cmd{Name: "sh", Args: []string{"-c", `printf '%s\0' ` + Join(words)}})
		if err != nil || string(got.Stdout) != strings.Join(words, "\x00")+"\x00" {
			t.Errorf("%q, %v", got.Stdout, err)
		}
	}
	if got, want := Join([]string{"a=b", "c=d"}), "'a=b' c=d"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}
