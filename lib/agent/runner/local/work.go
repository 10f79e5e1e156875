package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/record"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Work is a worker: it takes a slot, runs jobs until no ticket is left, and returns. It returns at
// once if no slot is free, as the workers that hold them will take the tickets. Its error is kept as
// the reason of the jobs that wait: a worker has no output that anyone reads.
func Work(dir string, maxJobs int) error {
	err := work(dir, maxJobs)
	return errors.Join(err, noteProblem(filepath.Join(dir, workerProblem), err))
}

// Why the last worker, or the worker of a job, has failed.
const (
	workerProblem = "worker.err"
	jobProblem    = "job.err"
)

// noteProblem writes an error to a file, or removes the file if there is none.
func noteProblem(path string, err error) error {
	if err == nil {
		return ignoreMissing(os.Remove(path))
	}
	return os.WriteFile(path, []byte(task.Clean(fault.Text(err))), 0o600)
}

// problem reads the file; "" if there is none.
func problem(path string) string {
	b, _ := os.ReadFile(path)
	return task.Clean(string(b))
}

func work(dir string, maxJobs int) error {
	for {
		slot, err := takeSlot(dir, maxJobs)
		if err != nil || slot == nil {
			return err
		}
		full := false
		for {
			var found bool
			found, full, err = runNext(dir, slot)
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
		if full {
			return nil // running workers take what waits, or the next turn starts one
		}
		// A worker that was started for a ticket while this one still held the slot may have found no
		// free slot.
		if left, err := os.ReadDir(filepath.Join(dir, waitingDir)); err != nil || len(left) == 0 {
			return err
		}
	}
}

func takeSlot(dir string, maxJobs int) (*lock.Lock, error) {
	for i := range maxJobs {
		l, err := lock.TryFor(filepath.Join(dir, slotsDir, strconv.Itoa(i)), 20*time.Millisecond)
		if err == nil { // what the last job took is free
			err = ignoreMissing(os.Remove(l.File().Name() + takesSuffix))
		}
		if !errors.Is(err, lock.ErrHeld) {
			return l, err
		}
	}
	return nil, nil
}

// runNext runs the oldest pending job for which there is room, and reports whether there was one. Full says that running
// jobs leave too little for those that wait.
func runNext(dir string, slot *lock.Lock) (found, full bool, err error) {
	taken, takes, full, err := choose(dir, slot)
	if err != nil || taken == "" {
		return false, full, err
	}
	begun := false
	b, err := os.ReadFile(taken)
	if err == nil {
		begun, err = runJob(dir, string(b), takes, slot)
	}
	held := errors.Is(err, lock.ErrHeld) && !runs(dir, string(b))
	if !begun && (held || mayPass(err)) { // the next turn starts another worker
		return false, false, errors.Join(err, os.Rename(taken, filepath.Join(dir, waitingDir, filepath.Base(taken))))
	}
	if err := ignoreMissing(err); err != nil && len(b) > 0 {
		_ = noteProblem(filepath.Join(string(b), jobProblem), err)
	}
	// A job that cannot be run must not block the others; it is later found to be gone.
	return true, false, errors.Join(ignoreMissing(err), ignoreMissing(os.Remove(taken)))
}

// runs reports whether the job of a task's directory runs: a ticket of it is one too many. Otherwise it is
// another process that holds the record of the task, such as the worker of the last attempt.
func runs(root, dir string) bool {
	t, err := readTicket(dir)
	has, _, held, _ := running(root, dir)
	return err == nil && held && has.Job == t.Job
}

// mayPass reports whether an error has its cause in the machine and not in the job: a full disk, a
// file system that is read-only, no more processes.
func mayPass(err error) bool {
	return slices.ContainsFunc([]error{
		syscall.ENOSPC, syscall.EDQUOT, syscall.EROFS, syscall.EMFILE, syscall.ENFILE, syscall.EAGAIN, syscall.ENOMEM,
	}, func(cause error) bool { return errors.Is(err, cause) })
}

// choose takes the ticket of the oldest job that can start. Later ones do not delay the first that waits.
func choose(dir string, slot *lock.Lock) (taken string, takes Resources, full bool, err error) {
	held, err := choosing(dir)
	if err != nil {
		return "", takes, false, err
	}
	defer held.Close()
	note := func(o occupied) error {
		b, err := json.Marshal(o)
		if err == nil {
			err = os.WriteFile(slot.File().Name()+takesSuffix, b, 0o600)
		}
		return err
	}
	tickets, err := os.ReadDir(filepath.Join(dir, waitingDir)) // sorted by name, which is by time
	if err != nil || len(tickets) == 0 {
		return "", takes, false, errors.Join(err, note(occupied{}))
	}
	free, err := leftOf(dir, slot.File().Name(), tickets[0].Name())
	if err != nil {
		return "", takes, false, err
	}
	for _, t := range tickets {
		waiting := filepath.Join(dir, waitingDir, t.Name())
		var job ticket
		if b, err := os.ReadFile(waiting); err == nil {
			job, _ = readTicket(string(b))
		}
		takes, fits := free.fits(job.Takes)
		if !fits {
			continue
		}
		if err := note(occupied{takes, t.Name()}); err != nil {
			return "", takes, false, err
		}
		taken := filepath.Join(dir, takenDir, t.Name())
		err = os.Rename(waiting, taken)
		if errors.Is(err, fs.ErrNotExist) {
			return "", takes, false, nil // it was cancelled, and free counts it: the worker looks again
		}
		return taken, takes, false, err
	}
	return "", takes, true, note(occupied{})
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, lock.ErrHeld) {
		return nil
	}
	return err
}

// grace is how long a job script may take to record that its command was killed for its memory.
const grace = 10 * time.Second

// runJob runs the job of a task's directory to its end, in the root of all jobs. Begun says that its
// script was started.
func runJob(root, dir string, takes Resources, slot *lock.Lock) (begun bool, err error) {
	t, err := readTicket(dir)
	if err != nil {
		return false, err
	}
	live, err := goLive(root, dir, t)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, live.end()) }()
	if run, err := record.ReadRun(dir, t.Job); err != nil || run.Over() {
		return false, err
	}
	// A canceller marks the job and then checks the lock: either it sees the lock, or this sees the
	// mark.
	if cancelled(dir, t.Job) {
		return false, nil
	}
	if owner, err := record.ReadOwner(dir, t.Attempt); err != nil || owner == t.Job {
		return false, err // it has begun before and was killed: it is not run a second time
	}
	output, err := runner.OpenOutput(dir)
	if err != nil {
		return false, err
	}
	defer output.Close()
	own := []string{"PONOS_JOB=" + t.Job}
	if takes.GPUs > 0 {
		own = append(own, takes.Variable+"="+strings.Join(takes.Taken, ","))
	}
	bash, err := command.Path("bash")
	if err != nil {
		return false, err
	}
	self, err := command.Self("ponos-worker")
	if err != nil {
		return false, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return false, err
	}
	defer null.Close()
	var pidErr error
	o := executor.Options{
		System: executor.Programs, Grace: grace,
		Before: func(_ *executor.Command, _ executor.Why, used int64) bool {
			return excess{used, takes.Memory}.note(dir, t.Job, output)
		},
		Handle: func(e executor.Event) *executor.Command {
			if e.Err == nil && e.End == nil {
				pidErr = live.has(e.PID)
			}
			if _, known := noted(dir, t.Job); e.End != nil && e.End.ByKernel && !known {
				excess{Limit: takes.Memory}.note(dir, t.Job, output)
			}
			return nil
		},
	}
	if takes.Memory > 0 {
		o.Limiter = newLimiter(dir, t.Job)
	}
	end, err := executor.Run(o, &executor.Command{
		Launch: executor.Launch{
			Path: bash, Argv: append([]string{"bash", "--", filepath.Join(dir, "job.sh")}, self...), Dir: dir,
			Env: append(environ(os.Environ()), own...),
			// The job keeps the locks if this process is killed.
			Files: []uintptr{null.Fd(), output.Fd(), output.Fd(), live.File().Fd(), slot.File().Fd()}, Outlives: true, CPUs: takes.IDs,
		},
		Name: t.Job, Memory: takes.Memory, Script: true,
		Marks: []string{"PONOS_TASK=" + filepath.Base(dir), "PONOS_JOB=" + t.Job},
	})
	if err != nil {
		return false, fmt.Errorf("%s: %w", bash, err)
	}
	if run, readErr := record.ReadRun(dir, t.Job); readErr == nil && !run.Over() {
		// The script was killed before it could record its end.
		err = record.WriteRun(dir, t.Job, 0, "cut", end.Code())
	}
	return true, errors.Join(pidErr, err)
}

// environ is the part of the agent's environment that jobs get.
func environ(env []string) []string {
	var kept []string
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES":
			kept = append(kept, v)
		}
	}
	return kept
}
