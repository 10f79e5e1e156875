// Package proc reads what the kernel shows of processes in /proc: which there are, of which session, task
// and parent, when they were started, and what memory they use.
package proc

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Kernel identifies the boot of the machine and the process namespace in which process ids are valid.
// It is empty if that is unknown.
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

// Clock returns the time since the machine was booted, in nanoseconds. It includes suspension, and
// cannot be set.
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
	r := environments{looks: 200}
	for _, dir := range dirs {
		environ := append([]byte{0}, r.of(dir)...)
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

// environments reads the environments of processes.
type environments struct {
	looks int // how often to look again, at all of them together
	text  bytes.Buffer
}

// of returns the environment of a process, by its directory, until the next call. A process that
// becomes another program or ends shows none for a moment, while it may still have files open and
// locked: this waits until it has one, or has ended.
func (r *environments) of(dir string) []byte {
	for {
		err := r.read(filepath.Join(dir, "environ"))
		if r.text.Len() > 0 || err != nil && !errors.Is(err, unix.ESRCH) || r.looks == 0 || !between(dir) {
			return r.text.Bytes()
		}
		r.looks--
		time.Sleep(5 * time.Millisecond)
	}
}

// read reads a file by one request, if it is not very large: what would be read by a second one may be
// of another program.
func (r *environments) read(name string) error {
	r.text.Reset()
	r.text.Grow(256 << 10)
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = r.text.ReadFrom(f)
	return err
}

// between reports whether a process that has shown no environment may have had one, or have one now.
func between(dir string) bool {
	const kernelThread, flags, code, begin, end = 0x200000, 6, 23, 47, 48
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return false
	}
	f := statFields(b)
	if len(f) <= end || f[0][0] == 'Z' || f[0][0] == 'X' {
		return false
	}
	if n, err := strconv.ParseUint(string(f[flags]), 10, 64); err != nil || n&kernelThread != 0 {
		return false
	}
	// The address of its code is set last.
	return string(f[code]) == "0" || string(f[begin]) != string(f[end])
}

// statFields are the fields of /proc/PID/stat behind the name of the program, which
// may have anything in it.
func statFields(b []byte) [][]byte { return bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:]) }

// Members returns the processes of some sessions, by session, with those that they have started in
// other sessions, and without those that have ended.
func Members(sessions ...int) map[int][]int {
	type process struct {
		session, parent int
		ended           bool
	}
	all := map[int]process{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var pids []int
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		b, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		f := statFields(b)
		if len(f) < 4 {
			continue
		}
		p := process{ended: f[0][0] == 'Z' || f[0][0] == 'X'}
		p.parent, _ = strconv.Atoi(string(f[1]))
		p.session, _ = strconv.Atoi(string(f[3]))
		all[pid] = p
		pids = append(pids, pid)
	}
	out := map[int][]int{}
	for _, pid := range pids {
		if all[pid].ended {
			continue
		}
		for p, depth := all[pid], 0; depth < 100; p, depth = all[p.parent], depth+1 {
			if slices.Contains(sessions, p.session) {
				out[p.session] = append(out[p.session], pid)
				break
			}
		}
	}
	return out
}

// Used returns the memory that processes use, in bytes. Up to enough, the result may be too large:
// memory that they share is then counted for each of them, which is quicker.
func Used(pids []int, enough int64) int64 {
	var resident int64
	each := make([]int64, len(pids))
	for i, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			continue
		}
		if f := bytes.Fields(b); len(f) > 1 {
			pages, _ := strconv.ParseInt(string(f[1]), 10, 64)
			each[i] = pages * int64(os.Getpagesize())
			resident += each[i]
		}
	}
	if resident <= enough {
		return resident
	}
	var used int64
	for i, pid := range pids {
		used += cmp.Or(proportional(pid), each[i])
	}
	return used
}

// proportional returns the memory of a process in bytes, with its share of shared memory; 0 if the
// kernel does not report it.
func proportional(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kib, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 54)
			return kib << 10
		}
	}
	return 0
}

// Orphans returns the processes that were reparented to this one. They become children of the main
// thread, which must not start any itself.
//
// It is called after each task, so the file is kept open.
func Orphans() func() []int {
	f, err := os.Open(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	if err != nil {
		return nil
	}
	b := make([]byte, 64<<10)
	return func() []int {
		n, err := f.ReadAt(b, 0)
		if n == 0 || err != nil && !errors.Is(err, io.EOF) {
			return nil
		}
		return fields(b[:n])
	}
}

// Children returns the children of all threads of this process.
func Children() []int {
	files, _ := filepath.Glob("/proc/self/task/*/children")
	var out []int
	for _, name := range files {
		if b, err := os.ReadFile(name); err == nil {
			out = append(out, fields(b)...)
		}
	}
	return out
}

func fields(b []byte) []int {
	var out []int
	for f := range bytes.FieldsSeq(b) {
		if pid, err := strconv.Atoi(string(f)); err == nil {
			out = append(out, pid)
		}
	}
	return out
}

// Session returns the session of a process, and whether it is a zombie.
func Session(pid int) (session int, zombie bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, true
	}
	f := statFields(b)
	if len(f) < 4 {
		return 0, true
	}
	session, _ = strconv.Atoi(string(f[3]))
	return session, f[0][0] == 'Z'
}

// Entry returns the entry of the environment of a process that begins so; "" if there is none.
func Entry(pid int, prefix string) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	for entry := range bytes.SplitSeq(b, []byte{0}) {
		if bytes.HasPrefix(entry, []byte(prefix)) {
			return string(entry)
		}
	}
	return ""
}
