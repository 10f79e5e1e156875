package replace

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	for _, text := range []string{"one", "", "two"} {
		if err := File(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != text {
			t.Errorf("%q, %v; want %q", b, err, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	// Where the file cannot be replaced, nothing is left.
	if err := os.MkdirAll(filepath.Join(dir, "full", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := File(filepath.Join(dir, "full"), nil, 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if err := File(filepath.Join(dir, "missing", "state"), nil, 0o600); err == nil {
		t.Error("a file was created in a directory that does not exist")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

// What is staged replaces the file when it is kept, and not before.
func TestStage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	if err := File(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	keep, err := Stage(path, []byte("new"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"old", "new"} {
		if b, err := os.ReadFile(path); err != nil || string(b) != want {
			t.Errorf("%q, %v; want %q", b, err, want)
		}
		if want == "old" {
			if err := keep(); err != nil {
				t.Error(err)
			}
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}
