// Package lock locks files between processes with flock(2).
//
// The lock belongs to the open file, not to the process: a child that inherits it
// keeps the lock for as long as it runs. On NFS and Lustre it depends on the mount
// whether other hosts see a lock, so it is a courtesy there; what must hold, holds by
// rename, O_EXCL and looking first.
package lock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld says that another process holds the lock.
var ErrHeld = errors.New("locked by another process")

// Lock is a lock that is held.
type Lock struct{ f *os.File }

// Try takes the lock, or fails with ErrHeld. The file is made if it is missing,
// and stays when the lock is released.
func Try(path string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := File(f, false); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Lock{f}, nil
}

// File takes the lock of a file that is open: shared with others that do so, or alone. It
// fails with ErrHeld.
func File(f *os.File, shared bool) error {
	if shared {
		return take(f, unix.LOCK_SH|unix.LOCK_NB)
	}
	return take(f, unix.LOCK_EX|unix.LOCK_NB)
}

// Share shares the lock of a file that was held alone. It waits for those who get it in
// between.
func Share(f *os.File) error { return take(f, unix.LOCK_SH) }

func take(f *os.File, how int) error {
	for {
		switch err := unix.Flock(int(f.Fd()), how); {
		case err == nil:
			return nil
		case errors.Is(err, unix.EWOULDBLOCK):
			return ErrHeld
		case !errors.Is(err, unix.EINTR):
			return fmt.Errorf("locking %q: %w", f.Name(), err)
		}
	}
}

// Unlock releases the lock of a file that stays open.
func Unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// Missing reports whether an error says that a file system has no locks.
func Missing(err error) bool {
	return errors.Is(err, unix.ENOLCK) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP)
}

// Wait takes the lock as soon as it is free. It asks again and again, at most ten
// times a second, as a lock cannot be waited for with a context.
func Wait(ctx context.Context, path string) (*Lock, error) {
	for delay := time.Millisecond; ; delay = min(2*delay, 100*time.Millisecond) {
		l, err := Try(path)
		if !errors.Is(err, ErrHeld) {
			return l, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(delay):
		}
	}
}

// TryFor is Try for those whom a look by Held must not turn away: it gives up with
// ErrHeld only after a while.
func TryFor(path string, d time.Duration) (*Lock, error) {
	for deadline := time.Now().Add(d); ; time.Sleep(5 * time.Millisecond) {
		l, err := Try(path)
		if !errors.Is(err, ErrHeld) || time.Now().After(deadline) {
			return l, err
		}
	}
}

// Held reports whether a process holds the lock; a file that is not there is not
// locked. For the moment of the look, the lock is taken.
func Held(path string) (bool, error) {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	l, err := Try(path)
	if errors.Is(err, ErrHeld) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, l.Close()
}

// File is the open file, to be inherited by a child that shall keep the lock.
func (l *Lock) File() *os.File { return l.f }

// Close releases the lock, unless a child still holds it.
func (l *Lock) Close() error { return l.f.Close() }
