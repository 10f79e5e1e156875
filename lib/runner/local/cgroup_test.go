package local

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/clock"
	"github.com/ponos-tools/ponos/lib/lock"
	"github.com/ponos-tools/ponos/lib/need"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/task"
)

// hierarchy puts a tree of files in the place of those of the kernel.
func hierarchy(t *testing.T, self string, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	before, beforeSelf := mounted, selfCgroup
	t.Cleanup(func() { mounted, selfCgroup = before, beforeSelf })
	mounted, selfCgroup = root, filepath.Join(t.TempDir(), "cgroup")
	must(t, os.WriteFile(selfCgroup, []byte(self), 0o600))
	for name, text := range files {
		path := filepath.Join(root, name)
		must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)))
	}
	return root
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mark marks a directory as systemd does, of root by an attribute and else by its owner.
func mark(t *testing.T, dir string) {
	t.Helper()
	if os.Geteuid() == 0 {
		must(t, unix.Setxattr(dir, "trusted.delegate", []byte("1"), 0))
	}
}

func TestDelegated(t *testing.T) {
	const service = "0::/system.slice/ponos@lab.service/agent\n"
	control := map[string]string{"system.slice/ponos@lab.service/cgroup.subtree_control": "pids memory\n"}
	for _, tt := range []struct {
		name, self string
		files      map[string]string
		mark       string
		want       string
		v1         bool
	}{
		{"version 2", service, control, "system.slice/ponos@lab.service", "system.slice/ponos@lab.service", false},
		{"version 2, whose memory is not yet limited", service, map[string]string{"system.slice/ponos@lab.service/cgroup.subtree_control": ""}, "system.slice/ponos@lab.service", "system.slice/ponos@lab.service", false},
		{"a slice", "0::/user.slice/a.scope\n", map[string]string{"user.slice/cgroup.subtree_control": "memory"}, "", "", false},
		{"the root", "0::/\n", map[string]string{"cgroup.subtree_control": "memory"}, "", "", false},
		{"without controllers", service, map[string]string{"system.slice/ponos@lab.service/x": ""}, "system.slice/ponos@lab.service", "", false},
		{"version 1", "9:name=systemd:/\n4:memory:/a/b\n0::/\n", map[string]string{"memory/a/b/tasks": ""}, "memory/a/b", "memory/a/b", true},
		{"of a slice in version 1", "4:memory:/a.slice\n0::/x/y\n", map[string]string{"memory/a.slice/tasks": "", "x/cgroup.subtree_control": "memory"}, "", "", false},
		{"what cannot be read", "4:memory\nx\n", nil, "", "", false},
	} {
		root := hierarchy(t, tt.self, tt.files)
		if tt.mark != "" {
			mark(t, filepath.Join(root, tt.mark))
		}
		want := tt.want
		if want != "" {
			want = filepath.Join(root, want)
		}
		if dir, v1 := delegated(); dir != want || v1 != tt.v1 {
			t.Errorf("%s: %q, %v; want %q", tt.name, dir, v1, want)
		}
	}
}

// A worker that was killed leaves the group of its job: what the kernel counted there says
// why the job has ended.
func TestKilled(t *testing.T) {
	for events, want := range map[string]bool{"low 0\noom 1\noom_kill 1\n": true, "oom 1\noom_kill 0\noom_group_kill 0\n": false, "": false} {
		root := hierarchy(t, "", map[string]string{"g/memory.events": events, "g/memory.oom_control": events})
		for _, v1 := range []bool{false, true} {
			if got := (group{Dir: filepath.Join(root, "g"), V1: v1}).killed(); got != want {
				t.Errorf("%q: %v", events, got)
			}
		}
	}
}

// A job that needs more memory than it has asked for is ended by the kernel, in a subtree of
// cgroups that is delegated to the worker; one that does not has no trace of it.
func TestMemoryIsLimitedByTheKernel(t *testing.T) {
	parent, v1, why := subtree(t)
	if parent == "" {
		t.Skip("needs a cgroup that can be divided: " + why)
	}
	for name, tt := range map[string]struct {
		script string
		want   task.State
		reason string
	}{
		"more":   {"head -c 300M /dev/zero | tail | wc -c; exit ${PIPESTATUS[1]}", task.Error, "out of memory: it needs more than the 64MiB that it asked for"},
		"enough": {"head -c 1M /dev/zero | tail | wc -c", task.Completed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, job := t.TempDir(), "job-"+name
			must(t, os.WriteFile(filepath.Join(dir, "job.sh"), []byte("grep -c "+groupPrefix+job+" /proc/self/cgroup\n"+tt.script), 0o600))
			must(t, os.WriteFile(filepath.Join(dir, ticketFile), fmt.Appendf(nil, `{"job":%q,"attempt":1,"ticket":"1"}`, job), 0o600))
			slot, err := lock.Try(filepath.Join(t.TempDir(), "0"))
			must(t, err)
			defer slot.Close()
			must(t, runJob(dir, Resources{CPUs: 1, Memory: 64 << 20}, slot))
			output, err := os.ReadFile(filepath.Join(dir, runner.Output))
			must(t, err)
			r := Runner{Dir: t.TempDir(), MaxJobs: 1, Now: clock.Now}
			got := r.observe(runner.Ref{Task: "t", Job: job, Dir: dir, Attempt: 1})
			if got.State != tt.want || got.Reason != tt.reason || (got.Cause == need.OOM) != (tt.want == task.Error) {
				t.Errorf("%+v; output %s", got, output)
			}
			if tt.want == task.Error && got.Had.Memory != 64<<20 {
				t.Errorf("it had %d bytes", got.Had.Memory)
			}
			if text := string(output); !strings.HasPrefix(text, "1\n") || strings.Contains(text, "out of memory") != (tt.want == task.Error) {
				t.Errorf("output %s", output)
			}
			if left, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"*")); len(left) > 0 {
				t.Errorf("left: %q, version 1: %v", left, v1)
			}
		})
	}
}

// subtree makes a cgroup that is delegated to a worker of this test, as far as it looks.
func subtree(t *testing.T) (parent string, v1 bool, why string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return "", false, "this is not root"
	}
	b, err := os.ReadFile(selfCgroup)
	must(t, err)
	name, own, memory := "ponos-test-"+strconv.Itoa(os.Getpid()), "", ""
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			own = path
		}
		if _, path, ok := strings.Cut(strings.TrimSpace(line), ":memory:"); ok {
			memory = path
		}
	}
	self := "1:memory:" + filepath.Join(memory, name) + "\n"
	parent = filepath.Join(mounted, "memory", memory, name)
	if v1 = memory != ""; !v1 {
		self = "0::" + filepath.Join(own, name, "agent") + "\n"
		parent = filepath.Join(mounted, own, name)
	}
	if err := os.Mkdir(parent, 0o700); err != nil {
		return "", v1, err.Error()
	}
	t.Cleanup(func() {
		if err := os.Remove(parent); err != nil {
			t.Error(err)
		}
	})
	file := "memory.limit_in_bytes"
	if !v1 {
		file = "memory.max"
	}
	if _, err := os.Stat(filepath.Join(parent, file)); err != nil {
		return "", v1, err.Error()
	}
	mark(t, parent)
	before := selfCgroup
	t.Cleanup(func() { selfCgroup = before })
	selfCgroup = filepath.Join(t.TempDir(), "cgroup")
	must(t, os.WriteFile(selfCgroup, []byte(self), 0o600))
	return parent, v1, ""
}
