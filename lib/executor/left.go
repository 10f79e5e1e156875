package executor

import (
	"slices"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/executor/proc"
)

// endLeft kills what an ended command has left: in its process group, and what has left that and has its
// marks.
func (e *Executor) endLeft(c *Command) {
	if e.o.Keep {
		return
	}
	_ = e.system.Signal(c.pid, syscall.SIGKILL)
	switch {
	case e.o.Orphans != nil:
		e.endAdopted()
	case len(c.Marks) > 0:
		KillAll(func() []int { return proc.WithVariables(append(slices.Clone(c.Marks), "")...) }, func() {})
	}
}

// endAdopted kills processes that have come to this one, and belong to no command that runs.
func (e *Executor) endAdopted() {
	orphans := e.o.Orphans()
	e.mu.Lock()
	e.strange = len(orphans) > 0
	if len(orphans) == 0 {
		e.mu.Unlock()
		return
	}
	alive, sessions := map[string]bool{}, map[int]bool{}
	for c := range e.commands {
		alive[c.Marks[0]], sessions[c.pid] = true, true
	}
	e.mu.Unlock()
	for _, pid := range orphans {
		session, zombie := proc.Session(pid)
		// Looked at again later: it may belong to a command that still runs, or to none. What a zombie has
		// left may have become an orphan after the list was read.
		if zombie {
			e.system.Reap()
			continue
		}
		mark := proc.Entry(pid, e.o.Family)
		if !sessions[session] && !alive[mark] && mark != "" {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			e.system.Reap()
		}
	}
}

// Strange reports whether processes that ended commands have left may still be alive.
func (e *Executor) Strange() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.strange
}

// KillAll kills processes until there are no more; some may still be starting others meanwhile. What was killed counts until
// it has ended, though a list by environments no longer has it. It reports whether none is left.
func KillAll(list func() []int, reap func()) bool {
	// A process that ended after the list was read may have left children that are not in it. So only
	// what was a zombie before does not count.
	zombies := map[int]bool{}
	killed := map[int]uint64{} // when they were started
	for range 200 {
		left := 0
		pids := list()
		for pid, start := range killed {
			if now, alive := proc.Started(pid); alive && now == start && !slices.Contains(pids, pid) {
				left++
			}
		}
		for _, pid := range pids {
			_, zombie := proc.Session(pid)
			if zombie && zombies[pid] {
				continue
			}
			left++
			if zombies[pid] = zombie; !zombie {
				if start, alive := proc.Started(pid); alive {
					killed[pid] = start
				}
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		reap()
		if left == 0 {
			return true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return false
}
