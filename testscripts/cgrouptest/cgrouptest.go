// Package cgrouptest has tests run below a cgroup of their own.
package cgrouptest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/executor/cgroup"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// Mark marks a directory as systemd does what it has delegated: by the attribute that root reads, and
// else by the one that a user reads as well.
func Mark(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() == 0 && unix.Setxattr(dir, "trusted.delegate", []byte("1"), 0) == nil {
		return
	}
	if err := unix.Setxattr(dir, "user.delegate", []byte("1"), 0); err != nil {
		needs.Missing(t, "extended attributes of files in the directory for temporary ones: "+err.Error())
	}
}

// Subtree makes a cgroup that is delegated to a worker of this test, as far as it looks.
func Subtree(t *testing.T) (parent string, v1 bool, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return "", false, "this is not root"
	}
	b, err := os.ReadFile(cgroup.Self)
	if err != nil {
		t.Fatal(err)
	}
	name, own, memory := "ponos-test-"+strconv.Itoa(os.Getpid()), "", ""
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			own = path
		}
		if _, path, ok := strings.Cut(strings.TrimSpace(line), ":memory:"); ok {
			memory = path
		}
	}
	self := "1:memory:" + filepath.Join(memory, name) + "\n"
	parent = filepath.Join(cgroup.Mounted, "memory", memory, name)
	if v1 = memory != ""; !v1 {
		self = "0::" + filepath.Join(own, name, "agent") + "\n"
		parent = filepath.Join(cgroup.Mounted, own, name)
	}
	if err := os.Mkdir(parent, 0o700); err != nil {
		return "", v1, err.Error()
	}
	t.Cleanup(func() {
		if err := os.Remove(parent); err != nil {
			t.Error(err)
		}
	})
	file := "memory.limit_in_bytes"
	if !v1 {
		file = "memory.max"
	}
	if _, err := os.Stat(filepath.Join(parent, file)); err != nil {
		return "", v1, err.Error()
	}
	Mark(t, parent)
	before := cgroup.Self
	t.Cleanup(func() { cgroup.Self = before })
	cgroup.Self = filepath.Join(t.TempDir(), "cgroup")
	if err := os.WriteFile(cgroup.Self, []byte(self), 0o600); err != nil {
		t.Fatal(err)
	}
	return parent, v1, ""
}
