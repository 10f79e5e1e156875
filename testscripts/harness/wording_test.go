package harness

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestRawLines(t *testing.T) {
	log := "> exec tool\n[stderr]\ntool: asking: context deadline exceeded\ntool: a: EOF\ntool: %!d(string=x)\ntool: an EOF, quoted\n" +
		"> stderr 'no such host'\ntool: cannot connect to 127.0.0.1:1: connection refused\n[stdout]\ntool: dial tcp 127.0.0.1:1: connect: connection refused\n"
	want := []string{
		"tool: asking: context deadline exceeded", "tool: a: EOF", "tool: %!d(string=x)", "tool: dial tcp 127.0.0.1:1: connect: connection refused",
	}
	if got := rawLines(log); !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}

// TestWordedPages looks for errors of Go's library in what the pages show and what the tests of packages expect.
func TestWordedPages(t *testing.T) {
	read := 0
	for _, dir := range []string{"man", "lib", "README.md"} {
		err := filepath.WalkDir(filepath.Join(Root(), dir), func(path string, d fs.DirEntry, err error) error {
			shown := strings.HasSuffix(path, ".md") || strings.HasSuffix(path, ".golden")
			if err != nil || !shown || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			read++
			Worded(t, string(text))
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	if read < 50 {
		t.Errorf("%d files were read", read)
	}
}

// TestWritten finds what is written into files.
func TestWritten(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("input", "x: EOF\n")
	before := files(dir)
	write("data/agent.log", "starts\ntask 1: context deadline exceeded\n")
	write("venv/site-packages/x", "a: EOF\n")
	write("large", "a: EOF\n"+strings.Repeat("x", maxText))
	write("program", "a: EOF\n\xff\x00")
	want := []string{"data/agent.log: task 1: context deadline exceeded"}
	if got := written(dir, before); !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}
