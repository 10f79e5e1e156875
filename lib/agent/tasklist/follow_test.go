package tasklist

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTail(t *testing.T) {
	name := filepath.Join(t.TempDir(), "log")
	if at, err := Tail(name, 1); at != 0 || err != nil {
		t.Errorf("without a log: %d, %v", at, err)
	}
	long := strings.Repeat("x", 100<<10)
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"", 1, ""}, {"a", 1, "a"}, {"a\n", 1, "a\n"}, {"a\nb", 1, "b"}, {"a\nb\n", 1, "b\n"}, {"a\n\n", 1, "\n"}, {"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb\n", 2, "a\nb\n"}, {"a\nb\n", 9, "a\nb\n"}, {"a\n" + long + "\nb\n", 1, "b\n"}, {"a\n" + long + "\nb\n", 2, long + "\nb\n"},
		{"a\n" + long + "\nb\n", 3, "a\n" + long + "\nb\n"},
	} {
		if err := os.WriteFile(name, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if at, err := Tail(name, tt.n); err != nil || tt.text[at:] != tt.want {
			t.Errorf("%.20q, %d: %.20q, %v; want %.20q", tt.text, tt.n, tt.text[at:], err, tt.want)
		}
	}
}
