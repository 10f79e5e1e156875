package worker

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/executor/proc"
)

// A process that ends after the list was read leaves its children to be found in the next list.
func TestKillAllFindsWhatAnEndedProcessLeaves(t *testing.T) {
	// Their own parent does not wait for them: they stay zombies.
	s := open(t, nil)
	s.run(task(1, "sleep 1000 & a=$!; sleep 1000 & echo $a $! > pids; exec sleep 1000"))
	s.runs(1)
	var parent, child int
	until(t, "the task names its processes", func() bool {
		n, _ := fmt.Sscan(content(t, s.dir, "pids"), &parent, &child)
		return n == 2
	})
	dead := func(pid int) bool { _, zombie := proc.Session(pid); return zombie }
	lists := 0
	list := func() []int {
		if lists++; lists > 1 {
			return []int{child}
		}
		_ = syscall.Kill(parent, syscall.SIGKILL)
		until(t, "SIGKILL ends a process", func() bool { return dead(parent) })
		return []int{parent}
	}
	if !executor.KillAll(list, func() {}) || !dead(child) {
		t.Errorf("the child is dead: %v", dead(child))
	}
}
