package guard

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/executor/proc"
)

// Whoever holds the guard is the only one, until it releases it.
func TestHold(t *testing.T) {
	state := t.TempDir()
	pid := filepath.Join(t.TempDir(), "run", "ponos.pid")
	if err := Check(pid, state, "a"); err != nil {
		t.Fatal(err)
	}
	g, err := Hold(pid, state, "a", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(pid, t.TempDir(), "a"); fault.KindOf(err) != fault.Busy || !strings.Contains(err.Error(), pid) {
		t.Error(err)
	}
	if _, err := Hold(pid, t.TempDir(), "a", time.Minute); fault.KindOf(err) != fault.Busy {
		t.Error(err)
	}
	// Another host does not see the lock, and shares the state directory.
	elsewhere := filepath.Join(t.TempDir(), "ponos.pid")
	if err := Check(elsewhere, state, "b"); fault.KindOf(err) != fault.Busy || !strings.Contains(err.Error(), "on host a") {
		t.Error(err)
	}
	g.Release()
	for _, path := range []string{pid, elsewhere} {
		if err := Check(path, state, "b"); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(pid); err == nil {
		t.Error("the PID file is left")
	}
	(&Guard{}).Release()
}

// What an agent has left behind stops no other one, unless it may be running.
func TestLeftBehind(t *testing.T) {
	now := clock.Now().UTC()
	here := thisProcess("a", time.Minute)
	for what, p := range map[string]process{
		"":                   {},
		"a reused id":        {PID: here.PID, Start: "1", Boot: here.Boot, Host: "a", Seen: now},
		"an earlier boot":    {PID: here.PID, Start: here.Start, Boot: "x", Host: "a", Seen: now},
		"long ago, on b":     {PID: 1, Host: "b", Seen: now.Add(-6 * time.Minute), Every: 60},
		"far ahead, on b":    {PID: 1, Host: "b", Seen: now.Add(25 * time.Hour), Every: 60},
		"running: this":      here,
		"running: lately":    {PID: 1, Host: "b", Seen: now.Add(-4 * time.Minute), Every: 60},
		"running: a bit off": {PID: 1, Host: "b", Seen: now.Add(time.Hour), Every: 60},
	} {
		state := t.TempDir()
		b, err := json.Marshal(p)
		if err == nil {
			err = os.WriteFile(filepath.Join(state, File), b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		err = Check(filepath.Join(state, "ponos.pid"), state, "a")
		if runs := strings.HasPrefix(what, "running"); runs != (fault.KindOf(err) == fault.Busy) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// An earlier start of the same job of Slurm is gone.
	p := process{PID: 1, Host: "b", Job: "7", Seen: now}
	if same := (process{Host: "a", Job: "7", Seen: now}); p.alive(same) {
		t.Error("the start before a requeue counts as running")
	}
}

// An agent that was killed stays in the table of processes until somebody waits for it.
func TestZombie(t *testing.T) {
	c := exec.Command("/bin/sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	now := thisProcess("a", time.Minute)
	agent := now
	agent.PID, agent.Start = c.Process.Pid, command.StartOf(c.Process.Pid)
	if !agent.alive(now) {
		t.Error("it is not alive")
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// Ended, and not waited for.
	for zombie := false; !zombie; time.Sleep(time.Millisecond) {
		_, zombie = proc.Session(c.Process.Pid)
	}
	if agent.alive(now) {
		t.Error("a zombie is alive")
	}
	_ = c.Wait()
}

// Nothing but a PID file is written to: what another user has put in its place is told, and stays as it is.
func TestPlantedPIDFile(t *testing.T) {
	dir := t.TempDir()
	precious, pid := filepath.Join(dir, "precious"), filepath.Join(dir, "pid")
	for what, plant := range map[string]func() error{
		"a link":               func() error { return os.Symlink(precious, pid) },
		"a link to nothing":    func() error { return os.Symlink(filepath.Join(dir, "new"), pid) },
		"a second name":        func() error { return os.Link(precious, pid) },
		"a pipe":               func() error { return unix.Mkfifo(pid, 0o600) },
		"a directory":          func() error { return os.Mkdir(pid, 0o700) },
		"open to others":       func() error { return errors.Join(os.WriteFile(pid, nil, 0o600), os.Chmod(pid, 0o666)) },
		"with a negative id":   func() error { return os.WriteFile(pid, []byte("-1\n"), 0o600) },
		"longer than an id is": func() error { return os.WriteFile(pid, []byte(strings.Repeat(" ", 4096)+"1"), 0o600) },
	} {
		if err := errors.Join(os.WriteFile(precious, []byte("text\n"), 0o600), plant()); err != nil {
			t.Fatal(err)
		}
		if _, err := Hold(pid, dir, "a", time.Minute); !fault.Is(err, fault.Usage) {
			t.Errorf("%s: held: %v", what, err)
		}
		if err := Check(pid, dir, "a"); !fault.Is(err, fault.Usage) {
			t.Errorf("%s: checked: %v", what, err)
		}
		if b, err := os.ReadFile(precious); err != nil || string(b) != "text\n" {
			t.Errorf("%s: the file is %q now, %v", what, b, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, "new")); err == nil {
			t.Errorf("%s: a file was made at the end of it", what)
		}
		if err := os.RemoveAll(pid); err != nil {
			t.Fatal(err)
		}
	}
}
