package token

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/place"
)

// Want is a number of tokens to take: Count of Total.
type Want struct {
	ID    string
	Count int
	Total int
}

// ErrTaken reports that not enough tokens are free, if Take does not wait.
var ErrTaken = errors.New("taken")

// queue is the offset of the byte that the first waiting process locks, far beyond the bytes of
// tokens.
const queue = 1 << 40

// again is the interval at which a waiting process tries again.
const again = 50 * time.Millisecond

// Dir returns the directory of the user's tokens: local to this machine, and the same in every
// session, cron job and batch job.
func Dir(env func(string) string) string {
	if dir := env("LFIND_TOKENS"); dir != "" {
		return dir
	}
	return place.Unclaimed(filepath.Join("/tmp", fmt.Sprintf("lfind-tokens-%d", os.Getuid())))
}

// Take takes all tokens in wants, or none. If wait is false and too few are free, the error is
// ErrTaken. The tokens are held until the files are closed, or until all processes that have
// them open have ended.
func Take(ctx context.Context, dir string, wants []Want, wait bool) ([]*os.File, error) {
	if err := prepare(dir); err != nil {
		return nil, err
	}
	// The same order in all processes prevents deadlocks.
	wants = slices.Clone(wants)
	slices.SortFunc(wants, func(a, b Want) int { return strings.Compare(a.ID, b.ID) })
	var files []*os.File
	for _, w := range wants {
		if w.Count == 0 {
			continue
		}
		f, err := take(ctx, filepath.Join(dir, w.ID), w, wait)
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			return nil, fmt.Errorf("token %q: %w", w.ID, err)
		}
		files = append(files, f)
	}
	return files, nil
}

// prepare creates the directory. It rejects one of another user, unless that is writable for
// all.
func prepare(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err == nil || !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() || !place.Mine(info) && info.Mode().Perm()&0o002 == 0 {
		return fmt.Errorf("%s: not a directory of this user", dir)
	}
	return nil
}

func take(ctx context.Context, path string, w Want, wait bool) (f *os.File, err error) {
	if w.Count > w.Total {
		return nil, fmt.Errorf("%d requested, but the total is %d", w.Count, w.Total)
	}
	if f, err = open(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
			f = nil
		}
	}()
	for {
		free, err := lock(f, queue, 1)
		if err == nil && free {
			break
		}
		if err == nil {
			err = pause(ctx, wait)
		}
		if err != nil {
			return f, err
		}
	}
	defer unlock(f, queue)
	for {
		done, err := takeBytes(f, w)
		if err == nil && done {
			return f, nil
		}
		if err == nil {
			err = pause(ctx, wait)
		}
		if err != nil {
			return f, err
		}
	}
}

// open opens the file of a token. If other users can write to the directory, they can share the
// token.
func open(path string) (*os.File, error) {
	// First without O_CREATE: in a sticky directory, the kernel may refuse O_CREATE for
	// the existing file of another user (fs.protected_regular).
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	if f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600); err != nil {
		return nil, err
	}
	if info, err := os.Stat(filepath.Dir(path)); err == nil {
		_ = f.Chmod(0o600 | info.Mode().Perm()&0o022*3)
	}
	return f, nil
}

func pause(ctx context.Context, wait bool) error {
	if !wait {
		return ErrTaken
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(again):
		return nil
	}
}

// takeBytes locks Count free bytes among the first Total. Only the first process in the queue
// calls it, so bytes that are free stay free.
func takeBytes(f *os.File, w Want) (bool, error) {
	type span struct{ start, length int64 }
	var free []span
	need, total := int64(w.Count), int64(w.Total)
	for at := int64(0); at < total && need > 0; {
		held := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: at, Len: total - at}
		if err := syscall.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &held); err != nil {
			return false, err
		}
		end, next := total, total
		if held.Type != syscall.F_UNLCK {
			end, next = max(at, held.Start), held.Start+held.Len
		}
		if n := min(need, end-at); n > 0 {
			free = append(free, span{at, n})
			need -= n
		}
		if held.Type != syscall.F_UNLCK && held.Len == 0 {
			break
		}
		at = next
	}
	if need > 0 {
		return false, nil
	}
	for i, s := range free {
		ok, err := lock(f, s.start, s.length)
		if err != nil || !ok {
			for _, s := range free[:i] {
				unlock(f, s.start, s.length)
			}
			return false, err
		}
	}
	return true, nil
}

// lock locks bytes of the file and returns true, or false if another process has locked some.
func lock(f *os.File, start, length int64) (bool, error) {
	l := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: start, Len: length}
	err := syscall.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return false, nil
	}
	return err == nil, err
}

func unlock(f *os.File, start int64, length ...int64) {
	l := syscall.Flock_t{Type: syscall.F_UNLCK, Whence: io.SeekStart, Start: start, Len: 1}
	if len(length) > 0 {
		l.Len = length[0]
	}
	_ = syscall.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
}
