package place

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemory(t *testing.T) {
	m := Memory{filepath.Join(t.TempDir(), "made", "later")}
	identity := func(dir, want string) {
		t.Helper()
		if id, err := m.Identity(dir); err != nil || id != want {
			t.Errorf("%s: %q, %v, want %q", dir, id, err, want)
		}
	}
	identity("/a", "")
	m.Remember("/a", "one")
	m.Remember("/b c", "two")
	m.Remember("/a", "three")
	identity("/a", "three")
	identity("/b c", "two")
	identity("/c", "")
	if info, err := os.Stat(m.File("/a")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	Memory{"/dev/null/nowhere"}.Remember("/a", "x") // there is no place: it is not remembered
	if err := os.Mkdir(m.File("/d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Identity("/d"); err == nil {
		t.Error("a note that cannot be read is no error")
	}
}
