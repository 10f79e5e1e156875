package worker

import (
	"strings"
	"syscall"
	"time"

	"github.com/ponos-tools/ponos/lib/pool/machine"
)

// endLeftovers kills what an ended task left behind in its process group, and what has left that and
// was reparented to the worker.
func (w *worker) endLeftovers(j *job) {
	if w.setup.Keep {
		return
	}
	if j != nil {
		_ = w.procs.Signal(j.pid, syscall.SIGKILL)
	}
	if w.Orphans == nil {
		return
	}
	orphans := w.Orphans()
	w.strange = false
	if len(orphans) == 0 {
		return
	}
	alive := map[string]bool{}
	sessions := map[int]bool{}
	for key, other := range w.jobs {
		if other != j {
			alive[w.taskName(key)] = true
			sessions[other.pid] = true
		}
	}
	for _, pid := range orphans {
		session, zombie := machine.Session(pid)
		// Checked again later: it may belong to a task that still runs, or to none. What a zombie has
		// left may have become an orphan after the list was read.
		w.strange = true
		if zombie {
			w.procs.Reap()
			continue
		}
		task := machine.Variable(pid, "JOBPOOL_TASK")
		if !sessions[session] && !alive[task] && strings.HasPrefix(task, w.setup.Session+"/") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			w.procs.Reap()
		}
	}
}

// endOrphans kills whatever is left when the worker ends.
func (w *worker) endOrphans() {
	if w.setup.Keep || w.Orphans == nil {
		return
	}
	killAll(w.Orphans, w.procs.Reap)
}

// killAll kills processes until there are no more; some may still be starting others meanwhile. It
// reports whether none is left.
func killAll(list func() []int, reap func()) bool {
	// A process that ended after the list was read may have left children that are not in it. So only
	// what was a zombie before does not count.
	zombies := map[int]bool{}
	for range 200 {
		left := 0
		for _, pid := range list() {
			_, zombie := machine.Session(pid)
			if zombie && zombies[pid] {
				continue
			}
			left++
			if zombies[pid] = zombie; !zombie {
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
