package place

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/nss"
	"github.com/ponos-tools/ponos/lib/base/shell"
)

// Who may write. What a tool acts on (a configuration, a key, a spool, a data_dir, a PID file) is one of:
//
//	ours       it belongs to this user or to root, and nobody else may write to it: it is used
//	another's  refused; also where a link of another user leads to it
//	open       others may write to it, by its mode or an access list, whose mask is the group's part of the mode: refused
//
// The file that was opened is judged, not its name. An error of [Open], [Dir] and [File] is of kind fault.Usage if the file is not ours,
// and has the command that mends it as hint.

// othersWrite are the bits of a mode by which others may write.
const othersWrite = 0o022

// Owner is the user id to whom a file belongs.
func Owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// Mine reports whether a file belongs to this user.
func Mine(info fs.FileInfo) bool { return Owner(info) == os.Geteuid() }

// Trusted returns why what was opened or found at a path is not used: it belongs neither to the owner nor to root, or others may write
// to it. The error is nil if it is ours.
func Trusted(path string, info fs.FileInfo, owner int) error {
	var b bad
	b.judge(path, info, owner)
	return b.err()
}

// Open is os.OpenFile of a file that must be ours.
func Open(path string, flag int, perm fs.FileMode) (*os.File, error) {
	owner := os.Geteuid()
	var b bad
	b.links(path, owner)
	if err := b.err(); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, flag|unix.O_NONBLOCK, perm) // a planted FIFO would not open
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && Owner(info) != owner {
		owner = NewFiles(filepath.Dir(path))
	}
	if err == nil {
		err = Trusted(path, info, owner)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// ReadFile is os.ReadFile of a file that must be ours.
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// Dir returns an error if a directory, or one of those directly in it, does not belong to the owner or to root, or if others may write
// to one of them. A missing directory is fine.
func Dir(path string, owner int) error {
	var b bad
	b.links(path, owner)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b.err()
	}
	if errors.Is(err, fs.ErrPermission) {
		return cmp.Or(File(path, owner), err)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	b.judge(path, info, owner)
	entries, err := f.ReadDir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		if e.Type()&fs.ModeSymlink != 0 {
			b.links(name, owner)
		} else if !e.IsDir() {
			continue
		}
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			b.judge(name, info, owner)
		}
	}
	return b.err()
}

// File is Dir of a file, which this user need not be able to open.
func File(path string, owner int) error {
	var b bad
	b.links(path, owner)
	if info, err := os.Stat(path); err == nil {
		b.judge(path, info, owner)
	}
	return b.err()
}

// NewFiles returns to whom files belong that this process makes in a directory: to this user, unless the file system maps owners.
func NewFiles(dir string) int {
	f, err := os.CreateTemp(dir, ".owner.*")
	if err != nil {
		return os.Geteuid()
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		return Owner(info)
	}
	return os.Geteuid()
}

// OpenParents returns the directories above a path in which others could put something else in its place.
func OpenParents(path string) []string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	var open []string
	for path != filepath.Dir(path) {
		path = filepath.Dir(path)
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		owner := Owner(info)
		if info.Mode()&othersWrite != 0 && info.Mode()&fs.ModeSticky == 0 || owner != 0 && owner != os.Geteuid() {
			open = append(open, path)
		}
	}
	return open
}

// bad is what is not ours.
type bad struct {
	why           []string
	foreign, open []string
	owner         int
}

// judge notes the file at a path if it is not ours. What is neither a file nor a directory, such as /dev/null, has no owner that counts.
func (b *bad) judge(path string, info fs.FileInfo, owner int) {
	b.owner = owner
	mode := info.Mode()
	if !mode.IsRegular() && !mode.IsDir() {
		return
	}
	if by := Owner(info); by != owner && by != 0 {
		b.why = append(b.why, fmt.Sprintf("%q belongs to user %s", path, UserName(by)))
		b.foreign = append(b.foreign, shell.Quote(path))
	}
	if mode&othersWrite != 0 {
		b.why = append(b.why, fmt.Sprintf("others can write to %q (mode %04o)", path, mode.Perm()))
		b.open = append(b.open, shell.Quote(path))
	}
}

// links notes the links of other users that a path leads through, at its end.
func (b *bad) links(path string, owner int) {
	b.owner = owner
	const most = 40 // as the kernel
	for range most {
		info, err := os.Lstat(path)
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return
		}
		if by := Owner(info); by != owner && by != 0 && by != os.Geteuid() {
			b.why = append(b.why, fmt.Sprintf("%q is a link of user %s", path, UserName(by)))
			b.foreign = append(b.foreign, shell.Quote(path))
			return
		}
		to, err := os.Readlink(path)
		if err != nil {
			return
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
}

func (b *bad) err() error {
	if len(b.why) == 0 {
		return nil
	}
	why := b.why[0]
	if n := len(b.why) - 1; n > 0 {
		why += fmt.Sprintf(", and %d more", n)
	}
	var mend []string
	if len(b.open) > 0 {
		mend = append(mend, "chmod go-w "+strings.Join(b.open, " "))
	}
	if len(b.foreign) > 0 {
		mend = append(mend, fmt.Sprintf("name another one, or, as root, chown -h %s %s", UserName(b.owner), strings.Join(b.foreign, " ")))
	}
	return fault.Hint(fault.Errorf(fault.Usage, "%s", why), strings.Join(mend, "; "))
}

// UserName is the name of a user, or the number if there is no name.
func UserName(uid int) string {
	if name, err := nss.UserName(uid); err == nil {
		return name
	}
	return strconv.Itoa(uid)
}
