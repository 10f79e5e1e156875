package place

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/needs"
)

func TestMemory(t *testing.T) {
	m := Memory{Dir: filepath.Join(t.TempDir(), "made", "later"), Failed: func(err error) { t.Errorf("not recorded: %v", err) }}
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
	Memory{}.Remember("/a", "x")
	var said []error
	Memory{"/dev/null/nowhere", func(err error) { said = append(said, err) }}.Remember("/a", "x")
	if len(said) != 1 || !errors.Is(said[0], syscall.ENOTDIR) {
		t.Errorf("a record that cannot be written: %v", said)
	}
	if err := os.Mkdir(m.File("/d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Identity("/d"); err == nil {
		t.Error("a note that cannot be read is no error")
	}
}

// A path that another user has taken is left to that user, and all processes agree on the next.
func TestUnclaimed(t *testing.T) {
	needs.Root(t, "a file of another user")
	path := filepath.Join(t.TempDir(), "tokens-7")
	for i, taken := range []string{"", ".1", ".2"} {
		if got := Unclaimed(path); got != path+taken {
			t.Errorf("%d taken: %s", i, got)
		}
		if err := os.Symlink("/etc/passwd", path+taken); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(path+taken, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path+".3", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := Unclaimed(path); got != path+".3" {
		t.Errorf("the one that is there: %s", got)
	}
}
