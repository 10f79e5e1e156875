package worker

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/lib/pool/machine"
)

// A process that ends after the list was read leaves its children to be found in the next list.
func TestKillAllFindsWhatAnEndedProcessLeaves(t *testing.T) {
	var pids []int
	for range 2 {
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
		pids = append(pids, c.Process.Pid)
	}
	parent, child := pids[0], pids[1]
	dead := func(pid int) bool { _, zombie := machine.Session(pid); return zombie }
	lists := 0
	list := func() []int {
		if lists++; lists > 1 {
			return []int{child}
		}
		_ = syscall.Kill(parent, syscall.SIGKILL)
		for end := time.Now().Add(time.Minute); !dead(parent); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("SIGKILL did not end a process")
			}
		}
		return []int{parent}
	}
	if !killAll(list, func() {}) || !dead(child) {
		t.Errorf("the child is dead: %v", dead(child))
	}
}
