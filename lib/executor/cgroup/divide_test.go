package cgroup_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/executor/cgroup"
	"github.com/ponos-tools/ponos/testscripts/cgrouptest"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

const scope = "user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope"

// A scope that systemd has delegated is vacated, so that its memory can be divided; any other is left
// as it is, even if the user owns it, as do terminals of a desktop.
func TestDivide(t *testing.T) {
	for name, tt := range map[string]struct {
		controllers string
		mark        bool // by the systemd of the machine
		says        bool // the systemd of the user
		want        bool
	}{
		"delegated by that of the machine": {"cpu memory pids\n", true, false, true},
		"delegated by that of the user":    {"cpu memory pids\n", false, true, true},
		"not delegated":                    {"cpu memory pids\n", false, false, false},
		"another resource":                 {"cpu pids\n", true, true, false},
	} {
		root := hierarchy(t, "0::/"+scope+"\n", map[string]string{
			scope + "/cgroup.controllers": tt.controllers, scope + "/cgroup.procs": "", scope + "/cgroup.subtree_control": "",
		})
		dir := filepath.Join(root, scope)
		if tt.mark {
			cgrouptest.Mark(t, dir)
		}
		cgroup.Divide(func(unit string) bool { return tt.says && unit == "run-1.scope" })
		if _, err := os.Stat(filepath.Join(dir, "main")); (err == nil) != tt.want {
			t.Errorf("%s: %v", name, err)
		}
		if !tt.want || !tt.mark && os.Geteuid() == 0 { // what root owns is not delegated for that
			continue
		}
		must(t, os.WriteFile(cgroup.Self, []byte("0::/"+scope+"/main\n"), 0o600))
		p, ok := cgroup.Delegated()
		control, err := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
		if g := p.Group("x", 1); !ok || filepath.Dir(g.Dir) != dir || string(control) != "+memory" {
			t.Errorf("%s: delegated %v, %q, controls %q, %v", name, ok, g.Dir, control, err)
		}
	}
}

// The processes of a real cgroup move. Its controllers are those of a file, as the kernel may have memory
// in version 1.
func TestProcessesMove(t *testing.T) {
	mounts, err := os.ReadFile("/proc/mounts")
	must(t, err)
	root := ""
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[2] == "cgroup2" {
			root = f[1]
		}
	}
	dir := filepath.Join(root, "ponos-divide-"+strconv.Itoa(os.Getpid()))
	if root == "" || os.Mkdir(dir, 0o700) != nil {
		needs.Missing(t, "root: to make a cgroup of version 2")
	}
	main := filepath.Join(dir, "main")
	t.Cleanup(func() {
		for _, d := range []string{main, dir} {
			if err := os.Remove(d); err != nil {
				t.Error(err)
			}
		}
	})
	var sleeps []*exec.Cmd
	defer func() {
		for _, c := range sleeps {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}()
	for range 3 {
		c := exec.Command("sleep", "600")
		must(t, c.Start())
		sleeps = append(sleeps, c)
		must(t, os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(c.Process.Pid)), 0o600))
	}
	cgroup.Vacate(dir)
	for _, c := range sleeps {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(c.Process.Pid) + "/cgroup")
		if !strings.Contains(string(b), filepath.Base(dir)+"/main\n") {
			t.Errorf("a process stays: %q, %v", b, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")); err != nil || len(b) > 0 {
		t.Errorf("left: %q, %v", b, err)
	}
}
