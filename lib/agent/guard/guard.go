// Package guard makes sure that one agent at most works with a configuration: on a host by the lock of
// the PID file, and between hosts by a file in the state directory that names the agent that takes turns.
package guard

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/place"
	"github.com/ponos-tools/ponos/lib/base/shell"
)

// Guard is held by the only agent of a configuration. A zero Guard holds nothing.
type Guard struct {
	path, self, host string
	file             *os.File // locked
}

// process identifies a process: its id alone may have been reused, or be from another host.
type process struct {
	PID   int       `json:"pid"`
	Start string    `json:"start"` // in the kernel's own units since the boot
	Boot  string    `json:"boot"`  // id of the boot
	Host  string    `json:"host"`
	Job   string    `json:"job,omitempty"` // of Slurm, that the agent is
	Seen  time.Time `json:"seen"`
	Every float64   `json:"every_seconds"`
}

// thisProcess is the identity of this process.
func thisProcess(host string, every time.Duration) process {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without it, all boots are alike
	return process{
		PID: os.Getpid(), Start: command.StartOf(os.Getpid()), Boot: strings.TrimSpace(string(boot)),
		Host: host, Job: os.Getenv("SLURM_JOB_ID"), Seen: clock.Now().UTC(), Every: every.Seconds(),
	}
}

// alive reports whether the process may be running. A process of this host is running if its id and
// start time exist; one of another host if it has reported within the last few turns.
func (p process) alive(now process) bool {
	// After a requeue, the process of the earlier start of the same job is gone.
	if p.PID == 0 || p.Job != "" && p.Job == now.Job {
		return false
	}
	if p.Host == now.Host {
		return p.Boot == now.Boot && p.Start == command.StartOf(p.PID) && p.Start != ""
	}
	age := now.Seen.Sub(p.Seen)
	return age < max(2*time.Minute, time.Duration(5*p.Every*float64(time.Second))) && age > -24*time.Hour
}

// File, in the state directory, identifies the agent that takes turns.
const File = "agent.json"

// Hold makes this process the only agent, until Release: it locks the PID file, and records in the
// state directory that it takes a turn every so often.
func Hold(path, state, host string, every time.Duration) (*Guard, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fault.Errorf(fault.Usage, "pid_file: %w", err)
	}
	f, pid, err := open(path, os.O_CREATE)
	if err != nil {
		return nil, err
	}
	err = locked(f, path, pid)
	if err == nil {
		if err = f.Truncate(0); err == nil {
			_, err = f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
		}
		err = prefixed(err)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	g := &Guard{path, filepath.Join(state, File), host, f}
	return g, g.Alive(every)
}

// open opens the PID file, if it is ours and holds the id of a process or nothing. Another file in its place, a link among them, is
// never written to: it may be what somebody else wants to see emptied.
func open(path string, create int) (f *os.File, pid int, err error) {
	f, err = place.Open(path, os.O_RDWR|unix.O_NOFOLLOW|create, 0o600)
	if errors.Is(err, unix.ELOOP) {
		err = fault.Hint(fmt.Errorf("%q is a link", path), "rm "+shell.Quote(path))
	}
	if err != nil {
		return nil, 0, prefixed(err)
	}
	if pid, err = idIn(f); err != nil {
		f.Close()
		err = fault.Hint(fmt.Errorf("%q does not hold the id of a process", path),
			"set another pid_file; if an agent wrote this one, rm "+shell.Quote(path))
		return nil, 0, prefixed(err)
	}
	return f, pid, nil
}

// idIn reads a PID file; 0: it is empty.
func idIn(f *os.File) (int, error) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, errors.Join(err, fs.ErrInvalid)
	}
	const longest = 20
	text, err := io.ReadAll(io.LimitReader(f, longest+1))
	if err != nil || len(text) == 0 {
		return 0, err
	}
	pid, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 31)
	return int(pid), err
}

func prefixed(err error) error {
	if err == nil {
		return nil
	}
	return fault.Errorf(fault.Usage, "pid_file: %w", err)
}

// Held returns an error of kind fault.Busy if an agent of this host has locked the PID file, and one of kind fault.Usage if it is no
// file that an agent can lock.
func Held(path string) error {
	f, pid, err := open(path, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return locked(f, path, pid)
}

// locked locks the PID file of an agent whose id is pid.
func locked(f *os.File, path string, pid int) error {
	err := lock.File(f, false)
	if errors.Is(err, lock.ErrHeld) {
		return busy(path, pid)
	}
	return prefixed(err)
}

// Check returns an error of kind fault.Busy if another agent is running: one that has locked the PID
// file on this host, or one that takes turns with the same state directory on another host.
//
// The id in an old PID file may have been reused by any process, so an id alone does not stop another
// agent.
func Check(path, state, host string) error {
	self := filepath.Join(state, File)
	if err := Held(path); err != nil {
		return err
	}
	var other process
	b, err := os.ReadFile(self)
	if err != nil || json.Unmarshal(b, &other) != nil {
		return nil
	}
	now := thisProcess(host, 0)
	if !other.alive(now) {
		return nil
	}
	return fault.Hint(
		fault.Errorf(fault.Busy, "another agent is running: process %d on host %s, which took a turn at %s",
			other.PID, other.Host, other.Seen.Local().Format(time.TimeOnly)),
		fmt.Sprintf("to end it, run kill %d on %s; if that host is down, rm %s", other.PID, other.Host, shell.Quote(self)))
}

func busy(path string, pid int) error {
	return fault.Hint(
		fault.Errorf(fault.Busy, "another agent is running: process %d, which holds %q", pid, path),
		fmt.Sprintf("one agent runs all tasks; to end it, run kill %d", pid))
}

// Alive records that this agent is running and takes a turn every so often.
func (g *Guard) Alive(every time.Duration) error {
	if g.file == nil {
		return nil
	}
	b, err := json.Marshal(thisProcess(g.host, every))
	if err != nil {
		return err
	}
	return renameio.WriteFile(g.self, append(b, '\n'), 0o600, renameio.WithTempDir(filepath.Dir(g.self)))
}

// Release releases the guard.
func (g *Guard) Release() {
	if g.file == nil {
		return
	}
	if err := os.Remove(g.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		_ = g.file.Truncate(0) // an empty file names no process
	}
	_ = os.Remove(g.self) // if it stays, it names a process that is gone
	_ = g.file.Close()    // the kernel releases it when the process ends
}
