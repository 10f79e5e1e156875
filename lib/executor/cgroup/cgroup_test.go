package cgroup_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ponos-tools/ponos/lib/executor/cgroup"
	"github.com/ponos-tools/ponos/testscripts/cgrouptest"
)

// hierarchy puts a tree of files in the place of those of the kernel.
func hierarchy(t *testing.T, self string, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	before, beforeSelf := cgroup.Mounted, cgroup.Self
	t.Cleanup(func() { cgroup.Mounted, cgroup.Self = before, beforeSelf })
	cgroup.Mounted, cgroup.Self = root, filepath.Join(t.TempDir(), "cgroup")
	must(t, os.WriteFile(cgroup.Self, []byte(self), 0o600))
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
			cgrouptest.Mark(t, filepath.Join(root, tt.mark))
		}
		want := tt.want
		if want != "" {
			want = filepath.Join(root, want)
		}
		p, ok := cgroup.Delegated()
		if g := p.Group("x", 1); ok != (want != "") || ok && (filepath.Dir(g.Dir) != want || g.V1 != tt.v1) {
			t.Errorf("%s: %v, %+v; want %q", tt.name, ok, g, want)
		}
	}
}

// A worker that was killed leaves the group of its job: what the kernel counted there says
// why the job has ended.
func TestKilled(t *testing.T) {
	for events, want := range map[string]bool{"low 0\noom 1\noom_kill 1\n": true, "oom 1\noom_kill 0\noom_group_kill 0\n": false, "": false} {
		root := hierarchy(t, "", map[string]string{"g/memory.events": events, "g/memory.oom_control": events})
		for _, v1 := range []bool{false, true} {
			if got := (cgroup.Group{Dir: filepath.Join(root, "g"), V1: v1}).Killed(); got != want {
				t.Errorf("%q: %v", events, got)
			}
		}
	}
}
