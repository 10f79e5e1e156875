package nfs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/testscripts/harness"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

func TestMain(m *testing.M) {
	ownMounts()
	harness.Main(m, map[string]func(){"python3": harness.Python}, "ponos-setup", "ponos-poll", "ponos-start", "ponos-stop", "ponos-submit", "ponos-list", "ponos-cancel")
}

// ownMounts runs the tests in a mount namespace of their own. A slurmd that begins in that of the tests
// has copies of their mounts, and a view cannot be ended while there is one.
func ownMounts() {
	const inside = "PONOS_TEST_OWN_MOUNTS"
	if os.Getenv(inside) != "" || os.Geteuid() != 0 || !strings.HasSuffix(os.Args[0], ".test") {
		return
	}
	runtime.LockOSThread() // for Pdeathsig
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if cmd.Start() != nil {
		return // not allowed here
	}
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() < 0 {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// kept is how long a view keeps what it has seen. NFS does so for 3 to 60 seconds.
const kept = 3 * time.Second

// view mounts a directory as one host of several sees it. The kernel keeps what it
// was told, and locks stay within the mount.
func view(t *testing.T, backing, at string) {
	t.Helper()
	if _, err := os.Stat("/dev/fuse"); err != nil || os.Geteuid() != 0 {
		needs.Missing(t, "FUSE: /dev/fuse, and root")
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := fs.NewLoopbackRoot(backing)
	if err != nil {
		t.Fatal(err)
	}
	keep := kept
	server, err := fs.Mount(at, root, &fs.Options{
		AttrTimeout: &keep, EntryTimeout: &keep, NegativeTimeout: &keep,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "ponos-nfs", Name: "loopback", EnableLocks: false},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 100 {
			if err = server.Unmount(); err == nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("unmounting %s: %v", at, err)
	})
}

// The views behave as the promise supposes: what another host makes or removes is
// seen late, and its locks not at all.
func TestViewsAreLate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	backing, one, two := filepath.Join(dir, "disk"), filepath.Join(dir, "one"), filepath.Join(dir, "two")
	if err := os.Mkdir(backing, 0o755); err != nil {
		t.Fatal(err)
	}
	view(t, backing, one)
	view(t, backing, two)
	seen := func() bool {
		_, err := os.Stat(filepath.Join(two, "file"))
		return err == nil
	}
	eventually := func(want bool) {
		t.Helper()
		for deadline := time.Now().Add(harness.Patience); seen() != want; time.Sleep(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("file seen: %v", !want)
			}
		}
	}
	late := 0
	for range 5 {
		eventually(false)
		if err := os.WriteFile(filepath.Join(one, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if !seen() {
			late++ // its absence was kept
		}
		eventually(true)
		if err := os.Remove(filepath.Join(one, "file")); err != nil {
			t.Fatal(err)
		}
		if seen() {
			late++ // its presence was kept
		}
		if late >= 2 {
			break
		}
	}
	if late < 2 {
		t.Errorf("a change was seen late %d times", late)
	}
	for _, host := range []string{one, two} {
		f, err := os.OpenFile(filepath.Join(host, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			t.Errorf("a lock is shared: %v", err)
		}
	}
}

// Two agents and a user on three hosts share a spool: each task runs once, children
// after their parents, and a task that is stopped ends.
func TestSharedSpool(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	backing := filepath.Join(dir, "disk")
	if err := os.Mkdir(backing, 0o755); err != nil {
		t.Fatal(err)
	}
	hosts := []string{"one", "two", "user"}
	for _, host := range hosts {
		view(t, backing, filepath.Join(dir, host, "mnt"))
		configuration := fmt.Sprintf("mode: local\nqueue: spool:%[1]s/mnt/spool\ndata_dir: %[1]s/mnt/data-%[2]s\npid_file: %[1]s/pid\nlocal: {max_jobs: 4}\n", filepath.Join(dir, host), host)
		if err := os.WriteFile(filepath.Join(dir, host, "ponos.yaml"), []byte(configuration), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(host, name string, args ...string) (string, error) {
		c := exec.Command(name, args...)
		c.Env = append(os.Environ(), "PONOS_CONFIG="+filepath.Join(dir, host, "ponos.yaml"), "HOME="+dir)
		out, err := c.Output()
		return strings.TrimSpace(string(out)), err
	}
	submit := func(args ...string) string {
		t.Helper()
		var out string
		var err error
		// A parent that was just submitted may be on its way here.
		for range 100 {
			if out, err = run("user", "ponos-submit", args...); err == nil {
				return out
			}
			time.Sleep(200 * time.Millisecond)
		}
		t.Fatalf("ponos-submit %q: %v", args, err)
		return ""
	}
	effects := filepath.Join(dir, "effects")
	command := func(words string) []string {
		return []string{"--", "sh", "-c", "echo $PONOS_TASK >>" + shell.Quote(effects) + "; " + words}
	}
	want := map[string]string{}
	for i := range 12 {
		parent := submit(command("exit 0")...)
		want[parent] = "completed"
		want[submit(append([]string{"--after", parent}, command("exit 0")...)...)] = "completed"
		if i%4 == 0 {
			failed := submit(command("exit 3")...)
			want[failed] = "failed"
			want[submit(append([]string{"--after", failed}, command("exit 0")...)...)] = "error"
		}
	}
	stopped := submit(command("exec sleep 600")...)
	want[stopped] = "stopped"

	var agents sync.WaitGroup
	over := make(chan struct{})
	for _, host := range hosts[:2] {
		agents.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(200 * time.Millisecond):
				}
				_, _ = run(host, "bash", "-c", "ponos-poll | ponos-stop | ponos-start")
			}
		})
	}
	states := func() map[string]string {
		out, err := run("user", "ponos-list", "--long")
		if err != nil {
			return nil
		}
		all := map[string]string{}
		for line := range strings.Lines(out) {
			if f := strings.Fields(line); len(f) > 2 {
				all[f[0]] = f[2]
			}
		}
		return all
	}
	asked := false
	var got map[string]string
	for deadline := time.Now().Add(harness.Patience); ; time.Sleep(300 * time.Millisecond) {
		got = states()
		if !asked && got[stopped] == "running" {
			_, err := run("user", "ponos-cancel", stopped)
			asked = err == nil
		}
		done := 0
		for id, state := range want {
			if got[id] == state {
				done++
			}
		}
		if done == len(want) || time.Now().After(deadline) {
			break
		}
	}
	close(over)
	agents.Wait()
	for id, state := range want {
		if got[id] != state {
			t.Errorf("task %s is %q, want %q", id, got[id], state)
		}
	}
	b, err := os.ReadFile(effects)
	if err != nil {
		t.Fatal(err)
	}
	for id, state := range want {
		ran := 1
		if state == "error" {
			ran = 0
		}
		if n := strings.Count(string(b), id+"\n"); n != ran {
			t.Errorf("task %s, %s, ran %d times", id, state, n)
		}
	}
}
