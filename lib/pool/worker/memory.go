package worker

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/executor/cgroup"
	"github.com/ponos-tools/ponos/lib/pool/machine"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// Tasks that have declared how much memory they need get no more: in a cgroup, if one is delegated to
// the worker; otherwise their memory is measured, and a task that uses more is ended.

// watched is the shortest interval between two measurements; they may take a twentieth of the time.
const watched = time.Second

// memory limits the memory of tasks; nil: it is only counted.
type memory struct {
	parent    cgroup.Parent
	divides   bool           // the kernel can do it
	next      time.Time      // of the next measurement
	measuring bool           // a measurement is under way
	left      []cgroup.Group // of tasks that have ended, not yet removed
}

func newMemory(s *wire.Setup) *memory {
	if !s.LimitMem {
		return nil
	}
	m := &memory{}
	cgroup.Divide(delegates)
	m.parent, m.divides = cgroup.Delegated()
	return m
}

// delegates reports whether the systemd of the user has delegated the cgroup of a unit. It is asked
// before the worker starts tasks, whose ends it then waits for.
func delegates(unit string) bool {
	r, err := command.System.Run(context.Background(), command.Cmd{
		Name: "systemctl", Args: []string{"--user", "show", "--property=Delegate", "--value", "--", unit}, Timeout: 10 * time.Second,
	})
	return err == nil && strings.TrimSpace(string(r.Stdout)) == "yes"
}

// how says how memory is limited. For a task whose group cannot be created it is measured still.
func (m *memory) how() wire.MemLimit {
	if m.divides {
		return wire.ByKernel
	}
	return wire.Measured
}

// confined is the memory of a task that is limited.
type confined struct {
	group *cgroup.Group // nil: the kernel does not limit it
	used  int64         // the most that was seen, in bytes
}

// groupOf is the name of the group of a task.
func (w *worker) groupOf(j *job) string {
	return strings.ReplaceAll(w.taskName(j.run.Key), "/", "-")
}

// confine has a program start in a cgroup of its task, if the task has declared its need.
func (w *worker) confine(j *job, l *command.Launch) {
	m := w.memory
	if m == nil || !m.divides || j.run.Need.Mem == 0 {
		return
	}
	path := l.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(l.Dir, path)
	}
	if unix.Access(path, unix.X_OK) != nil {
		return // the start of the program itself gives the best error message
	}
	if j.memory.group == nil {
		g := m.parent.Group(w.groupOf(j), j.run.Need.Mem)
		if g.Make() != nil { // it is measured instead
			return
		}
		j.memory.group = &g
	}
	l.Argv = append([]string{"sh"}, j.memory.group.Enter(append([]string{l.Path}, l.Argv[1:]...)...)...)
	l.Path = "/bin/sh"
}

// measured is what a task was found to use.
type measured struct {
	j      *job
	pids   []int
	used   int64
	killed bool // the kernel has ended processes of it
}

// measure measures running tasks in the background: it may take long if there are many processes.
func (w *worker) measure(now time.Time) {
	m := w.memory
	if m == nil || m.measuring || now.Before(m.next) {
		return
	}
	m.remove()
	var tasks []measured
	var sessions []int
	byTask := map[string]int{} // their sessions
	for _, j := range w.jobs {
		if j.pid != 0 && j.run.Need.Mem > 0 && j.why == "" {
			tasks = append(tasks, measured{j: j})
			sessions = append(sessions, j.pid)
			byTask[w.taskName(j.run.Key)] = j.pid
		}
	}
	if tasks == nil {
		return
	}
	m.measuring = true
	groups := make([]*cgroup.Group, len(tasks))
	names := make([]string, len(tasks))
	for i, t := range tasks {
		groups[i] = t.j.memory.group
		names[i] = w.groupOf(t.j)
	}
	go func() {
		var members map[int][]int
		for i := range tasks {
			t := &tasks[i]
			if g := groups[i]; g != nil && cgroup.Entered(sessions[i], names[i]) {
				t.killed = g.Killed()
				continue
			}
			if members == nil {
				members = w.members(byTask)
			}
			t.pids = members[sessions[i]]
			t.used = machine.Used(t.pids, t.j.run.Need.Mem)
		}
		w.locked(func() {
			m.measuring = false
			took := clock.Since(now)
			m.next = now.Add(max(watched, 20*took))
			for _, t := range tasks {
				w.judge(t)
			}
		})
	}()
}

// members returns the processes of tasks by their sessions, with daemons that tasks have started: in
// sessions of their own, and no children of the task any more, but of the worker.
func (w *worker) members(byTask map[string]int) map[int][]int {
	sessions := slices.Collect(maps.Values(byTask))
	own, _ := machine.Session(os.Getpid())
	daemons := map[int]int{} // sessions of tasks, by those of their daemons
	if w.Orphans != nil {
		for _, pid := range w.Orphans() {
			session, zombie := machine.Session(pid)
			if zombie || session == own || slices.Contains(sessions, session) {
				continue
			}
			if task, known := byTask[machine.Variable(pid, "JOBPOOL_TASK")]; known {
				daemons[session] = task
			}
		}
	}
	out := machine.Members(slices.AppendSeq(sessions, maps.Keys(daemons))...)
	for session, task := range daemons {
		out[task] = append(out[task], out[session]...)
	}
	return out
}

// judge ends a task that uses too much.
func (w *worker) judge(t measured) {
	j := t.j
	if w.jobs[j.run.Key] != j || j.why != "" {
		return
	}
	j.memory.used = max(j.memory.used, t.used)
	if t.killed || t.used > j.run.Need.Mem {
		w.kill(j, wire.OutOfMemory, true)
		for _, pid := range t.pids { // also those that have left its process group
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// memoryEnd records what a task has used, and whether that has ended it.
func (w *worker) memoryEnd(j *job, d *wire.Done) {
	limit := unit.ShortSize(j.run.Need.Mem)
	d.MaxRSS = max(d.MaxRSS, j.memory.used)
	why := fmt.Sprintf("it used %s, its limit is %s", unit.ShortSize(d.MaxRSS&^(1<<20-1)), limit)
	if g := j.memory.group; g != nil {
		d.MaxRSS = max(d.MaxRSS, g.Peak())
		if g.Killed() && (j.why == "" || j.why == wire.OutOfMemory) {
			j.why, why = wire.OutOfMemory, "it needs more than its limit of "+limit
		}
		w.memory.left = append(w.memory.left, *g)
		w.memory.remove()
	}
	if j.why != wire.OutOfMemory {
		return
	}
	if d.Signal == 0 && d.Exit == 0 {
		d.Signal = int(syscall.SIGKILL)
	}
	d.Error = wire.Text(why)
}

// remove removes the groups in which nothing is left.
func (m *memory) remove() {
	if m == nil {
		return
	}
	kept := m.left[:0]
	for _, g := range m.left {
		if g.Remove() != nil {
			kept = append(kept, g)
		}
	}
	m.left = kept
}
