package guard

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/fault"
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
