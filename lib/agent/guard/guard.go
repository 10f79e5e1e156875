// Package guard makes sure that one agent at most works with a configuration: on a host by the lock of
// the PID file, and between hosts by a file in the state directory that names the agent that takes turns.
package guard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/lock"
)

// Guard is held by the only agent of a configuration. A zero Guard holds nothing.
type Guard struct {
	path, self, host string
	lock             *lock.Lock
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
	l, err := lock.Try(path)
	if errors.Is(err, lock.ErrHeld) {
		return nil, busy(path, readPID(path))
	}
	if err == nil {
		if err = l.File().Truncate(0); err == nil {
			_, err = l.File().WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
		}
	}
	if err != nil {
		return nil, fault.Errorf(fault.Usage, "pid_file: %w", err)
	}
	g := &Guard{path, filepath.Join(state, File), host, l}
	return g, g.Alive(every)
}

// Check returns an error of kind fault.Busy if another agent is running: one that has locked the PID
// file on this host, or one that takes turns with the same state directory on another host.
//
// The id in an old PID file may have been reused by any process, so an id alone does not stop another
// agent.
func Check(path, state, host string) error {
	self := filepath.Join(state, File)
	held, err := lock.Held(path)
	switch {
	case held:
		return busy(path, readPID(path))
	case err != nil:
		return fault.Errorf(fault.Usage, "pid_file: %w", err)
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
		fmt.Sprintf("end it; if that host is down, remove %q", self))
}

func busy(path string, pid int) error {
	return fault.Hint(
		fault.Errorf(fault.Busy, "another agent is running: process %d, which holds %q", pid, path),
		fmt.Sprintf("to end it, run kill %d; two agents need two configurations, each with its own pid_file and data_dir", pid))
}

// Alive records that this agent is running and takes a turn every so often.
func (g *Guard) Alive(every time.Duration) error {
	if g.lock == nil {
		return nil
	}
	b, err := json.Marshal(thisProcess(g.host, every))
	if err != nil {
		return err
	}
	return renameio.WriteFile(g.self, append(b, '\n'), 0o600, renameio.WithTempDir(filepath.Dir(g.self)))
}

// readPID reads a PID file, for messages; 0 if it has no id.
func readPID(path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// Release releases the guard.
func (g *Guard) Release() {
	if g.lock == nil {
		return
	}
	if err := os.Remove(g.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		_ = g.lock.File().Truncate(0) // an empty file names no process
	}
	_ = os.Remove(g.self) // if it stays, it names a process that is gone
	_ = g.lock.Close()    // the kernel releases it when the process ends
}
