// Package lock locks files between processes with flock(2).
//
// The lock belongs to the open file, not to the process: a child that inherits it keeps the lock for
// as long as it runs. On NFS and Lustre, whether other hosts see a lock depends on the mount, so it
// only saves work there; guarantees rely on rename and O_EXCL.
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

// Lock is a held lock.
type Lock struct{ f *os.File }

// Try takes the lock, or fails with ErrHeld. A missing file is created, and stays when the lock is
// released.
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

// File locks an open file: shared, or exclusively. It fails with ErrHeld.
func File(f *os.File, shared bool) error {
	if shared {
		return take(f, unix.LOCK_SH|unix.LOCK_NB)
	}
	return take(f, unix.LOCK_EX|unix.LOCK_NB)
}

// Share converts an exclusive lock to a shared one. It waits for processes that get the lock in
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

// Wait takes the lock as soon as it is free. It polls, at most ten times a second, as flock(2) cannot
// be cancelled by a context.
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

// TryFor is Try, but tolerates that Held takes the lock for a moment: it fails with ErrHeld only
// after a while.
func TryFor(path string, d time.Duration) (*Lock, error) {
	for deadline := time.Now().Add(d); ; time.Sleep(5 * time.Millisecond) {
		l, err := Try(path)
		if !errors.Is(err, ErrHeld) || time.Now().After(deadline) {
			return l, err
		}
	}
}

// Held reports whether a process holds the lock; a missing file is not locked. To find out, it takes
// the lock for a moment.
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

// File returns the open file, for a child that is to inherit the lock.
func (l *Lock) File() *os.File { return l.f }

// Close releases the lock, unless a child still holds it.
func (l *Lock) Close() error { return l.f.Close() }
