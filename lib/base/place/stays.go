package place

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Stays watches whether a directory stays where it is. Programs that write by path put a part of their files elsewhere while its file
// system is away, and root may make the missing directories.
type Stays struct{ events *os.File } // nil: nothing is watched

// Watch begins to watch a directory and those above it. Those that this user may not read are not watched, and none where the user has
// as many watches as the system allows.
func Watch(dir string) Stays {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Stays{}
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return Stays{}
	}
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		_, _ = unix.InotifyAddWatch(fd, dir, unix.IN_MOVE_SELF|unix.IN_DELETE_SELF|unix.IN_ONLYDIR|unix.IN_DONT_FOLLOW)
	}
	return Stays{os.NewFile(uintptr(fd), "inotify")}
}

// Moved ends the watch, and reports whether the directory was moved, removed or unmounted since it began, by this host. That it is back
// does not matter.
func (s Stays) Moved() bool {
	if s.events == nil {
		return false
	}
	defer s.events.Close()
	var event [unix.SizeofInotifyEvent + unix.PathMax]byte
	n, err := unix.Read(int(s.events.Fd()), event[:])
	return err == nil && n > 0
}
