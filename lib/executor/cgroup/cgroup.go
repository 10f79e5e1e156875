// Package cgroup lets the kernel limit the memory of programs, if a cgroup is delegated to this
// process.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/clock"
)

// Mounted is the mount point of the cgroup hierarchies, and Self the file with the cgroups of this
// process. Tests replace them.
var (
	Mounted = "/sys/fs/cgroup"
	Self    = "/proc/self/cgroup"
)

// Parent is a cgroup that is delegated to this process, so that it may create cgroups in it.
type Parent struct {
	dir string
	v1  bool
}

// Group is a cgroup of one task, in which the kernel limits its memory.
type Group struct {
	Dir   string `json:"dir"`
	V1    bool   `json:"v1,omitempty"`
	Limit int64  `json:"limit"` // bytes
}

const (
	prefix = "ponos-" // of the names of groups
	// sweepAge is the age from which a group is taken to be that of a killed worker.
	sweepAge = 10 * time.Minute
)

// Delegated returns the cgroup that is delegated to this process and can limit memory; ok says
// whether there is one. It removes groups of killed workers.
func Delegated() (p Parent, ok bool) {
	dir, v1 := delegated()
	if dir == "" {
		return p, false
	}
	sweep(dir)
	return Parent{dir, v1}, true
}

// Group returns the group of a task, which is not created.
func (p Parent) Group(task string, limit int64) Group {
	return Group{filepath.Join(p.dir, prefix+task), p.v1, limit}
}

// Make creates the group.
func (g Group) Make() error {
	err := os.Mkdir(g.Dir, 0o700)
	if err != nil {
		return err
	}
	if bytes := strconv.FormatInt(g.Limit, 10); g.V1 {
		err = set(filepath.Join(g.Dir, "memory.limit_in_bytes"), bytes)
		_ = set(filepath.Join(g.Dir, "memory.memsw.limit_in_bytes"), bytes) // not all kernels count swap
	} else {
		err = set(filepath.Join(g.Dir, "memory.max"), bytes)
		_ = set(filepath.Join(g.Dir, "memory.swap.max"), "0")
	}
	if err != nil {
		_ = g.Remove()
	}
	return err
}

// set writes a value to a file of a cgroup, which must exist.
func set(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// delegated returns the directory in which this process may create cgroups that limit memory, or "".
// In version 2 that is the parent of its own: a cgroup that has processes cannot limit others below
// it.
func delegated() (dir string, v1 bool) {
	own, memory := self()
	if memory != "" {
		dir = filepath.Join(Mounted, "memory", memory)
		if !isDelegated(dir) {
			return "", false
		}
		return dir, true
	}
	if dir = filepath.Join(Mounted, filepath.Dir(own)); own == "" || own == "/" || !isDelegated(dir) {
		return "", false
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	limits, err := lists(control)
	if err == nil && !limits {
		err = set(control, "+memory")
	}
	if err != nil {
		return "", false
	}
	return dir, false
}

// self returns the cgroup of this process in version 2, and that of the controller memory of version
// 1; empty: there is none.
func self() (own, memory string) {
	b, _ := os.ReadFile(Self)                    // where there is none, there are no cgroups
	for line := range strings.Lines(string(b)) { // ID:CONTROLLERS:PATH
		switch fields := strings.SplitN(strings.TrimSpace(line), ":", 3); {
		case len(fields) == 3 && fields[1] == "":
			own = fields[2]
		case len(fields) == 3 && fields[1] == "memory":
			memory = fields[2]
		}
	}
	return own, memory
}

// lists reports whether a file of controllers has memory.
func lists(file string) (bool, error) {
	b, err := os.ReadFile(file)
	return slices.Contains(strings.Fields(string(b)), "memory"), err
}

// Divide prepares for Delegated where the cgroup of this process is itself delegated, as by "systemd-run
// --scope -p Delegate=yes". The kernel divides only the memory of cgroups without processes, so all
// processes in there move to a cgroup below it. The systemd of a user marks nothing: by asks it whether it
// has delegated a unit.
func Divide(by func(unit string) bool) {
	own, memory := self()
	dir := filepath.Join(Mounted, own)
	if own == "" || own == "/" || memory != "" || isDelegated(filepath.Dir(dir)) || unix.Access(dir, unix.W_OK) != nil {
		return
	}
	if limits, err := lists(filepath.Join(dir, "cgroup.controllers")); err != nil || !limits {
		return
	}
	var info unix.Stat_t
	if marked(dir) || unix.Stat(dir, &info) == nil && int(info.Uid) == os.Geteuid() && by(filepath.Base(own)) {
		vacate(dir)
	}
}

// vacate moves the processes of a cgroup to the cgroup main in there. A process can start another one
// meanwhile, so it looks again, but not without end.
func vacate(dir string) {
	main := filepath.Join(dir, "main")
	if err := os.Mkdir(main, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return
	}
	for range 10 {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		pids := strings.Fields(string(b))
		if err != nil || len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = set(filepath.Join(main, "cgroup.procs"), pid) // it may have ended
		}
	}
}

// marked reports whether systemd has delegated a cgroup.
func marked(dir string) bool {
	value := make([]byte, 8)
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, value); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// isDelegated reports whether a cgroup is this user's to divide. Systemd marks those that it
// delegates; it manages slices itself, even if a user owns them.
func isDelegated(dir string) bool {
	if marked(dir) {
		return unix.Access(dir, unix.W_OK) == nil
	}
	var info unix.Stat_t
	err := unix.Stat(dir, &info)
	return err == nil && info.Uid != 0 && int(info.Uid) == os.Geteuid() && !strings.HasSuffix(dir, ".slice")
}

// Enter returns the arguments of a shell that starts a command in the group. If that fails, the
// command is not limited: see Entered.
func (g Group) Enter(command ...string) []string {
	return append([]string{"-c", `{ echo $$ >"$0"; } 2>/dev/null; exec "$@"`, filepath.Join(g.Dir, "cgroup.procs")}, command...)
}

// Entered reports whether a process is in the group of a task.
func Entered(pid int, task string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && strings.Contains(string(b), "/"+prefix+task+"\n")
}

// Killed reports whether the kernel has killed processes of the group for their memory.
func (g Group) Killed() bool {
	events := "memory.events"
	if g.V1 {
		events = "memory.oom_control"
	}
	b, _ := os.ReadFile(filepath.Join(g.Dir, events)) // the group may be gone
	for line := range strings.Lines(string(b)) {
		if count, ok := strings.CutPrefix(strings.TrimSpace(line), "oom_kill "); ok && count != "0" {
			return true
		}
	}
	return false
}

// Peak returns the most memory that the group has used, in bytes; 0 if the kernel does not report it.
func (g Group) Peak() int64 {
	peak := "memory.peak"
	if g.V1 {
		peak = "memory.max_usage_in_bytes"
	}
	b, _ := os.ReadFile(filepath.Join(g.Dir, peak))
	n, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n
}

// Remove removes the group; the kernel refuses while it has processes.
func (g Group) Remove() error {
	if err := unix.Rmdir(g.Dir); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// sweep removes the groups of ended tasks whose workers were killed.
func sweep(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), prefix) && clock.Since(clock.Modified(info)) > sweepAge {
			_ = Group{Dir: filepath.Join(parent, e.Name())}.Remove()
		}
	}
}
