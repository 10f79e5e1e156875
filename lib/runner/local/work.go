package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/command"
	"github.com/ponos-tools/ponos/lib/lock"
	"github.com/ponos-tools/ponos/lib/runner"
)

// Work is a worker: it takes a slot, runs jobs until no ticket is left, and ends.
// It ends at once if there is no free slot, as those who hold them will come to the
// tickets.
func Work(dir string, maxJobs int) error {
	for {
		slot, err := takeSlot(dir, maxJobs)
		if err != nil || slot == nil {
			return err
		}
		for {
			found, err := runNext(dir, slot)
			if err != nil {
				return errors.Join(err, slot.Close())
			}
			if !found {
				break
			}
		}
		if err := slot.Close(); err != nil {
			return err
		}
		// A ticket that came while this worker still had the slot may have found no
		// worker of its own.
		if left, err := os.ReadDir(filepath.Join(dir, waitingDir)); err != nil || len(left) == 0 {
			return err
		}
	}
}

func takeSlot(dir string, maxJobs int) (*lock.Lock, error) {
	for i := range maxJobs {
		l, err := lock.TryFor(filepath.Join(dir, slotsDir, strconv.Itoa(i)), 20*time.Millisecond)
		if !errors.Is(err, lock.ErrHeld) {
			return l, err
		}
	}
	return nil, nil
}

// runNext runs the oldest job that waits, and reports whether there was one.
func runNext(dir string, slot *lock.Lock) (bool, error) {
	tickets, err := os.ReadDir(filepath.Join(dir, waitingDir)) // sorted by name, so by time
	if err != nil {
		return false, err
	}
	for _, t := range tickets {
		taken := filepath.Join(dir, takenDir, t.Name())
		err := os.Rename(filepath.Join(dir, waitingDir, t.Name()), taken)
		if errors.Is(err, fs.ErrNotExist) {
			continue // another worker was faster, or it was cancelled
		}
		if err != nil {
			return false, err
		}
		b, err := os.ReadFile(taken)
		if err == nil {
			err = runJob(string(b), slot)
		}
		// A job that cannot be run must not keep the others waiting; it is found to
		// be gone.
		return true, errors.Join(ignoreMissing(err), os.Remove(taken))
	}
	return false, nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, lock.ErrHeld) {
		return nil
	}
	return err
}

// runJob runs the job of a task's directory to its end.
func runJob(dir string, slot *lock.Lock) error {
	t, err := readTicket(dir)
	if err != nil {
		return err
	}
	alive, err := lock.TryFor(filepath.Join(dir, jobLock), 5*time.Second)
	if err != nil {
		return err
	}
	defer alive.Close()
	if run, err := runner.ReadRun(dir, t.Job); err != nil || run.Over() {
		return err
	}
	// Whoever cancels the job looks at the lock after having said so: either the
	// lock is seen, or this is.
	if cancelled(dir, t.Job) {
		return nil
	}
	if owner, err := runner.ReadOwner(dir, t.Attempt); err != nil || owner == t.Job {
		return err // it has begun before and was killed: not a second time
	}
	output, err := os.OpenFile(filepath.Join(dir, runner.Output), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close()
	session, err := command.StartSession(command.Cmd{
		Name: "bash", Args: []string{"--", filepath.Join(dir, "job.sh")}, Dir: dir,
		Env: append(environ(os.Environ()), "PONOS_JOB="+t.Job), ExtraFiles: []*os.File{alive.File(), slot.File()},
	}, output)
	if err != nil {
		return err
	}
	pid := session.PID()
	pidErr := os.WriteFile(filepath.Join(dir, pidFile), fmt.Appendf(nil, "%d %s\n", pid, command.StartOf(pid)), 0o600)
	code, err := session.Wait()
	if run, readErr := runner.ReadRun(dir, t.Job); err == nil && readErr == nil && !run.Over() {
		// The script was killed before it could write down its end.
		err = runner.WriteRun(dir, t.Job, 0, "cut", code)
	}
	return errors.Join(pidErr, err)
}

// environ is the part of the agent's environment that jobs get.
func environ(env []string) []string {
	var kept []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "CUDA_VISIBLE_DEVICES":
			kept = append(kept, v)
		}
	}
	return kept
}
