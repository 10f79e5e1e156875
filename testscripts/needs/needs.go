// Package needs says what a test needs of the machine. Where something is missing, the test is skipped
// with a reason that begins with "needs". Where all tests must run, testscripts/gotest refuses that.
package needs

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Missing ends a test for which something is missing: "git", "root: to mount a file system".
func Missing(t testing.TB, what string) {
	t.Helper()
	t.Skip("needs " + what)
}

// Programs are all needed.
func Programs(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		OneOf(t, name)
	}
}

// OneOf these programs is needed.
func OneOf(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			return
		}
	}
	Missing(t, strings.Join(names, " or "))
}

// Root is needed for this: "to be another user".
func Root(t testing.TB, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "root: "+why)
	}
}

// Localhost is needed as a name, beside 127.0.0.1, for a second host. Where the file has no such name, a
// server elsewhere would be asked for it.
func Localhost(t testing.TB) {
	t.Helper()
	hosts, _ := os.ReadFile("/etc/hosts")
	for line := range strings.Lines(string(hosts)) {
		if names, _, _ := strings.Cut(line, "#"); slices.Contains(strings.Fields(names), "localhost") {
			return
		}
	}
	Missing(t, "localhost in /etc/hosts")
}

// Mount mounts a file system for the test. In a container, root may not be allowed to.
func Mount(t testing.TB, dir, kind string, flags uintptr, options string) {
	t.Helper()
	switch err := syscall.Mount("ponos-test", dir, kind, flags, options); {
	case errors.Is(err, syscall.EPERM):
		Missing(t, "root: to mount a file system")
	case errors.Is(err, syscall.ENODEV):
		Missing(t, "the file system "+kind)
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }) // unless the test has done so
}
