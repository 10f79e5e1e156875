package place

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// refused checks that an error refuses a file, and that its hint mends it.
func refused(t *testing.T, what string, again func() error) {
	t.Helper()
	err := again()
	if !fault.Is(err, fault.Usage) {
		t.Errorf("%s: %v", what, err)
		return
	}
	_, mend, _ := strings.Cut(fault.HintOf(err), "as root, ")
	if mend == "" {
		mend = fault.HintOf(err)
	}
	if out, err := exec.Command("sh", "-c", mend).CombinedOutput(); err != nil {
		t.Errorf("%s: %s: %v\n%s", what, mend, err, out)
	}
	if err := again(); err != nil {
		t.Errorf("%s: after %s: %v", what, mend, err)
	}
}

func opens(path string) func() error {
	return func() error {
		f, err := Open(path, os.O_RDONLY, 0)
		if err == nil {
			f.Close()
		}
		return err
	}
}

func write(t *testing.T, path string, mode fs.FileMode) string {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte("x"), 0o600), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
	return path
}

// What others can write is not used, by whichever means they can.
func TestOpenToOthers(t *testing.T) {
	dir := t.TempDir()
	for _, mode := range []fs.FileMode{0o600, 0o644, 0o440} {
		if err := opens(write(t, filepath.Join(dir, "ours"), mode))(); err != nil {
			t.Errorf("%o: %v", mode, err)
		}
	}
	for _, mode := range []fs.FileMode{0o620, 0o602, 0o666} {
		refused(t, mode.String(), opens(write(t, filepath.Join(dir, "it's open"), mode)))
	}
	// An access list: user 65534 may write, and the mask allows it.
	entry := func(tag, perm uint16, id uint32) []byte {
		b := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, tag), perm)
		return binary.LittleEndian.AppendUint32(b, id)
	}
	const none = 1<<32 - 1
	list := func(mask uint16) []byte {
		return slices.Concat(binary.LittleEndian.AppendUint32(nil, 2),
			entry(1, 6, none), entry(2, 6, 65534), entry(4, 4, none), entry(16, mask, none), entry(32, 0, none))
	}
	listed := write(t, filepath.Join(dir, "listed"), 0o600)
	if err := unix.Setxattr(listed, "system.posix_acl_access", list(6), 0); err == nil { // else the file system has none
		refused(t, "an access list", opens(listed))
		if err := errors.Join(unix.Setxattr(listed, "system.posix_acl_access", list(4), 0), opens(listed)()); err != nil {
			t.Errorf("an access list whose mask lets nobody else write: %v", err)
		}
	}
	own := filepath.Join(dir, "link")
	if err := os.Symlink("ours", own); err != nil {
		t.Fatal(err)
	}
	if err := opens(own)(); err != nil {
		t.Errorf("a link of one's own: %v", err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := opens(filepath.Join(dir, "fifo"))(); err != nil { // it does not hang
		t.Errorf("a pipe of one's own: %v", err)
	}
	if err := opens(filepath.Join(dir, "none"))(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestDirOpenToOthers(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spool")
	check := func() error { return Dir(dir, os.Geteuid()) }
	if err := check(); err != nil {
		t.Errorf("a missing directory: %v", err)
	}
	elsewhere := t.TempDir()
	err := errors.Join(os.MkdirAll(filepath.Join(dir, "new"), 0o755), os.Symlink(elsewhere, filepath.Join(dir, "logs")),
		os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "file"), 0o666) // whoever can reach it may write to it, but put nothing else there
	if err := check(); err != nil {
		t.Error(err)
	}
	for _, open := range [][]string{{dir}, {filepath.Join(dir, "new")}, {elsewhere}, {dir, elsewhere}} {
		for _, path := range open {
			if err := os.Chmod(path, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		refused(t, strings.Join(open, " "), check)
	}
}

func TestOfAnotherUser(t *testing.T) {
	needs.Root(t, "a file of another user")
	dir := t.TempDir()
	const bob = 65534
	theirs := write(t, filepath.Join(dir, "theirs"), 0o600)
	if err := os.Chown(theirs, bob, bob); err != nil {
		t.Fatal(err)
	}
	refused(t, "a file", opens(theirs))
	link, chain := filepath.Join(dir, "link"), filepath.Join(dir, "chain")
	if err := errors.Join(os.Symlink("theirs", link), os.Lchown(link, bob, bob), os.Symlink("link", chain)); err != nil {
		t.Fatal(err)
	}
	refused(t, "a link", opens(chain))
	sub := filepath.Join(dir, "sub")
	if err := errors.Join(os.Mkdir(sub, 0o700), os.Chown(sub, bob, bob)); err != nil {
		t.Fatal(err)
	}
	refused(t, "a directory", func() error { return Dir(dir, 0) })
	if err := os.Chown(sub, bob, bob); err != nil {
		t.Fatal(err)
	}
	if err := Dir(sub, bob); err != nil {
		t.Errorf("that of its owner: %v", err)
	}
	if open := OpenParents(filepath.Join(sub, "x", "y")); !slices.Equal(open, []string{sub}) {
		t.Errorf("parents of others: %q", open)
	}
	if err := errors.Join(os.Chown(sub, 0, 0), os.Chmod(sub, 0o777)); err != nil {
		t.Fatal(err)
	}
	if open := OpenParents(filepath.Join(sub, "x")); !slices.Equal(open, []string{sub}) {
		t.Errorf("parents that others can write: %q", open)
	}
	if err := os.Chmod(sub, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if open := OpenParents(filepath.Join(sub, "x")); len(open) > 0 {
		t.Errorf("in a place such as /tmp nobody renames what is others': %q", open)
	}
}
