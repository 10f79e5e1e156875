package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

const ownSpool = "use a spool of your own; for an agent for each user, see THE AGENT FOR A SITE in ponos-tutorial(7)"

// unusable is the error of a file operation in the spool at dir. A refused permission is
// reported with the owner of the spool, or of the directory that hides it.
func unusable(dir string, err error) error {
	failed := fault.Errorf(fault.Unavailable, "spool: %w", err)
	if !errors.Is(err, fs.ErrPermission) {
		return failed
	}
	for ; ; dir = filepath.Dir(dir) {
		uid, err := ownerOf(dir)
		switch {
		case err == nil && uid != os.Geteuid():
			return fault.Hint(fault.Errorf(fault.Unavailable, "%w: %q belongs to user %s", failed, dir, userName(uid)), ownSpool)
		case err == nil || dir == filepath.Dir(dir):
			return failed
		}
	}
}

// CheckOwner reports whether the files that this process writes into the spool belong to
// the owner of the spool. Files of another user, even root, have mode 0600, so that the
// agents of the owner could not read them, and a task in such a file would never start.
func CheckOwner(dir string) error {
	owner, err := ownerOf(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && owner == os.Geteuid() {
		return nil
	}
	if err != nil {
		return unusable(dir, err)
	}
	// The file system may map owners. What it makes of a new file counts.
	f, err := os.CreateTemp(filepath.Join(dir, tmpDir), ".owner.*")
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.CreateTemp(dir, ".owner.*")
	}
	mine := os.Geteuid()
	if err == nil {
		mine, err = ownerOf(f.Name())
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	switch {
	case err != nil && !errors.Is(err, fs.ErrPermission):
		return unusable(dir, err)
	case err == nil && mine == owner:
		return nil
	}
	return fault.Hint(
		fault.Errorf(fault.Unavailable, "spool %q belongs to user %s, and this is user %s", dir, userName(owner), userName(os.Geteuid())),
		fmt.Sprintf("run the tool as user %s, or %s", userName(owner), ownSpool))
}

func ownerOf(path string) (uid int, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return int(info.Sys().(*syscall.Stat_t).Uid), nil
}

// userName is the name of a user, or the number if there is no name.
func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return strconv.Itoa(uid)
}
