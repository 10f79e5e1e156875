package machine

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Kernel names what process ids mean something in: this boot of the machine, and
// the process namespace. It is empty if that cannot be known.
func Kernel() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + namespace
}

// Clock is the time since the machine was booted, in nanoseconds. It goes on while
// the machine is suspended, and nobody sets it.
func Clock() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return 0
	}
	return t.Nano()
}

// Started tells when a process was started, in clock ticks since the boot; false if
// there is no such process, or it has ended.
func Started(pid int) (uint64, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, false
	}
	f := statFields(b)
	if len(f) < 20 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return 0, false
	}
	start, err := strconv.ParseUint(string(f[19]), 10, 64)
	return start, err == nil
}

// WithVariables returns the processes whose environment has all of these entries,
// the last of which need only begin so.
func WithVariables(entries ...string) []int {
	var out []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil {
			continue
		}
		environ = append([]byte{0}, environ...)
		has := true
		for i, e := range entries {
			want := "\x00" + e
			if i < len(entries)-1 {
				want += "\x00"
			}
			has = has && bytes.Contains(environ, []byte(want))
		}
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && has {
			out = append(out, pid)
		}
	}
	return out
}

// statFields are the fields of /proc/PID/stat behind the name of the program, which
// may have anything in it.
func statFields(b []byte) [][]byte { return bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) }
