package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/lock"
)

// live is the record of a running job, which the worker and the job keep locked. Its first line is the
// ticket, its second the id and the start of the process. It is not in the directory of the task,
// which the job may remove.
type live struct {
	*lock.Lock
	ticket []byte
}

// recordOf returns the path of the record of the job of a task.
func recordOf(dir, taskDir string) string {
	return filepath.Join(dir, runningDir, filepath.Base(taskDir))
}

// goLive creates the record of a job and locks it. An earlier job of the task may have left processes
// that hold the lock: if they do so for a while, it fails with lock.ErrHeld.
func goLive(dir, taskDir string, t ticket) (*live, error) {
	b, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	l, err := lockRecord(recordOf(dir, taskDir), 5*time.Second)
	if err != nil {
		return nil, err
	}
	r := &live{l, b}
	if err := r.write(""); err != nil {
		return nil, errors.Join(err, r.end())
	}
	return r, nil
}

// lockRecord locks a record, and creates a missing one. It fails with lock.ErrHeld if the record is
// locked for that long.
func lockRecord(path string, most time.Duration) (*lock.Lock, error) {
	for range 10 {
		l, err := lock.TryFor(path, most)
		if err != nil {
			return nil, err
		}
		named, err := os.Stat(path)
		locked, lockedErr := l.File().Stat()
		if err == nil && lockedErr == nil && os.SameFile(named, locked) {
			return l, nil
		}
		// Its last holder has removed the file in between.
		if err := errors.Join(lockedErr, l.Close()); err != nil {
			return nil, err
		}
	}
	return nil, lock.ErrHeld
}

// sweep removes the records that killed workers have left, unless a job still holds them.
func sweep(dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, runningDir))
	errs := []error{err}
	for _, e := range entries {
		l, err := lockRecord(filepath.Join(dir, runningDir, e.Name()), 0)
		if err == nil {
			err = (&live{Lock: l}).end()
		}
		errs = append(errs, ignoreMissing(err))
	}
	return errors.Join(errs...)
}

func (r *live) write(process string) error {
	b := fmt.Appendf(nil, "%s\n%s", r.ticket, process)
	_, err := r.File().WriteAt(b, 0)
	if err == nil {
		err = r.File().Truncate(int64(len(b))) // a killed worker may have left a longer one
	}
	return err
}

// has records the process of the job.
func (r *live) has(pid int) error {
	return r.write(fmt.Sprintf("%d %s\n", pid, command.StartOf(pid)))
}

// end removes the record and releases the lock.
func (r *live) end() error {
	return errors.Join(ignoreMissing(os.Remove(r.File().Name())), r.Close())
}

// running returns the ticket of the job of a task that runs, and its process: 0 as long as there is
// none. Runs says that there is such a job, or that the processes of one are left.
func running(dir, taskDir string) (t ticket, pid int, runs bool, err error) {
	path := recordOf(dir, taskDir)
	runs, err = lock.Held(path)
	if err != nil || !runs {
		return t, 0, runs, err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return t, 0, true, ignoreMissing(err)
	}
	first, process, _ := bytes.Cut(b, []byte("\n"))
	_ = json.Unmarshal(first, &t) // a job that begins has written nothing yet
	id, started, _ := strings.Cut(strings.TrimSpace(string(process)), " ")
	if n, err := strconv.Atoi(id); err == nil && n > 1 && command.StartOf(n) == started {
		pid = n
	}
	return t, pid, true, nil
}

// kill sends a signal to the processes of a job. It reports whether it was sent: a job that is about
// to begin has no process yet.
func kill(dir, taskDir string, signal syscall.Signal) (bool, error) {
	_, pid, _, err := running(dir, taskDir)
	if err != nil || pid == 0 {
		return false, err
	}
	if err := syscall.Kill(-pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return false, fmt.Errorf("process group %d: %w", pid, err)
	}
	return true, nil
}
