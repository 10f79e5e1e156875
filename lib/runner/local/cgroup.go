package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/clock"
)

// mounted is where the hierarchies of cgroups are, and selfCgroup says where this process is
// in them. Tests have others.
var (
	mounted    = "/sys/fs/cgroup"
	selfCgroup = "/proc/self/cgroup"
)

// A group is the cgroup of a job, in which the kernel limits its memory.
type group struct {
	Dir   string `json:"dir"`
	V1    bool   `json:"v1,omitempty"`
	Limit int64  `json:"limit"` // bytes
}

const (
	groupFile   = "cgroup." // and the job: where its group is
	groupPrefix = "ponos-"  // and the job: the name of its group
	// sweepAge is how old a group must be to be one whose worker was killed.
	sweepAge = 10 * time.Minute
)

// makeGroup makes a cgroup for a job, where one is delegated to this process in which memory
// can be limited. Where to find it is written down before, so that whoever looks for the end
// of the job can ask the kernel how it came to it.
func makeGroup(dir, job string, limit int64) (g group, ok bool) {
	parent, v1 := delegated()
	if parent == "" {
		return g, false
	}
	sweep(parent)
	g = group{filepath.Join(parent, groupPrefix+job), v1, limit}
	b, err := json.Marshal(g)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, groupFile+job), b, 0o600)
	}
	if err == nil {
		err = os.Mkdir(g.Dir, 0o700)
	}
	if err != nil {
		return g, false
	}
	if bytes := strconv.FormatInt(limit, 10); v1 {
		err = set(filepath.Join(g.Dir, "memory.limit_in_bytes"), bytes)
		_ = set(filepath.Join(g.Dir, "memory.memsw.limit_in_bytes"), bytes) // not all kernels count swap
	} else {
		err = set(filepath.Join(g.Dir, "memory.max"), bytes)
		_ = set(filepath.Join(g.Dir, "memory.swap.max"), "0")
	}
	if err != nil {
		g.remove()
	}
	return g, err == nil
}

// set writes a value to a file of a cgroup, which must be there.
func set(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// delegated is the directory in which this process may make cgroups that limit memory, or "".
// In version 2 that is the one above its own: below one with processes in it, none limits
// anything.
func delegated() (dir string, v1 bool) {
	b, err := os.ReadFile(selfCgroup)
	if err != nil {
		return "", false
	}
	own, memory := "", ""
	for line := range strings.Lines(string(b)) { // ID:CONTROLLERS:PATH
		switch fields := strings.SplitN(strings.TrimSpace(line), ":", 3); {
		case len(fields) == 3 && fields[1] == "":
			own = fields[2]
		case len(fields) == 3 && fields[1] == "memory":
			memory = fields[2]
		}
	}
	if memory != "" {
		dir = filepath.Join(mounted, "memory", memory)
		if !isDelegated(dir) {
			return "", false
		}
		return dir, true
	}
	if dir = filepath.Join(mounted, filepath.Dir(own)); own == "" || own == "/" || !isDelegated(dir) {
		return "", false
	}
	control := filepath.Join(dir, "cgroup.subtree_control")
	if b, err = os.ReadFile(control); err == nil && !strings.Contains(" "+strings.TrimSpace(string(b))+" ", " memory ") {
		err = set(control, "+memory")
	}
	if err != nil {
		return "", false
	}
	return dir, false
}

// isDelegated reports whether a cgroup is this user's to divide. Systemd marks those that it
// leaves to others; slices it divides itself, whoever owns them.
func isDelegated(dir string) bool {
	value := make([]byte, 8)
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		if n, err := unix.Getxattr(dir, name, value); err == nil && string(value[:n]) == "1" {
			return unix.Access(dir, unix.W_OK) == nil
		}
	}
	var info unix.Stat_t
	err := unix.Stat(dir, &info)
	return err == nil && info.Uid != 0 && int(info.Uid) == os.Geteuid() && !strings.HasSuffix(dir, ".slice")
}

// enter is the command line of a job script that begins in the group. Where it cannot, its
// memory is still watched.
func (g group) enter(script string) []string {
	return []string{"-c", `{ echo $$ >"$0"; } 2>/dev/null; exec bash -- "$1"`, filepath.Join(g.Dir, "cgroup.procs"), script}
}

// entered reports whether a process is in the group of a job.
func entered(pid int, job string) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && strings.Contains(string(b), "/"+groupPrefix+job+"\n")
}

// killed reports whether the kernel has ended processes of the group for their memory.
func (g group) killed() bool {
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

// remove removes the group; the kernel refuses while there are processes in it.
func (g group) remove() { _ = unix.Rmdir(g.Dir) }

// sweep removes the groups of jobs that are over, whose workers were killed.
func sweep(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && e.IsDir() && strings.HasPrefix(e.Name(), groupPrefix) && clock.Since(clock.Modified(info)) > sweepAge {
			group{Dir: filepath.Join(parent, e.Name())}.remove()
		}
	}
}

// groupOf is the group of a job, which may be gone.
func groupOf(dir, job string) (g group, ok bool) {
	b, err := os.ReadFile(filepath.Join(dir, groupFile+job))
	return g, err == nil && json.Unmarshal(b, &g) == nil
}
