package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/place"
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
			return fault.Hint(fault.Errorf(fault.Unavailable, "%w: %q belongs to user %s", failed, dir, place.UserName(uid)), ownSpool)
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
	if place.NewFiles(dir) == owner { // the file system maps owners
		return nil
	}
	return fault.Hint(
		fault.Errorf(fault.Unavailable, "spool %q belongs to user %s, and this is user %s",
			dir, place.UserName(owner), place.UserName(os.Geteuid())),
		fmt.Sprintf("run the tool as user %s, or %s", place.UserName(owner), ownSpool))
}

// Writable is CheckOwner of this spool.
func (s *Spool) Writable() error { return CheckOwner(s.Dir) }

// ours returns an error unless the spool is one whose tasks this user may see, and nobody but its owner writes to it. Root may look
// into the spool of every user.
func ours(dir string) (owner int, err error) {
	if os.Geteuid() != 0 {
		if err := CheckOwner(dir); err != nil {
			return 0, err
		}
	}
	if owner, err = ownerOf(dir); err != nil {
		return 0, unusable(dir, err)
	}
	switch err = place.Dir(dir, owner); {
	case fault.Is(err, fault.Usage):
		return 0, fault.Errorf(fault.Usage, "spool: %w", err)
	case err != nil:
		return 0, unusable(dir, err)
	}
	return owner, nil
}

// Usable reports whether this user can submit to the spool and run its tasks; a missing spool is usable.
func Usable(dir string) error {
	if err := CheckOwner(dir); err != nil {
		return err
	}
	_, err := ours(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func ownerOf(path string) (uid int, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return place.Owner(info), nil
}
