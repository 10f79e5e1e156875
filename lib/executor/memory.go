package executor

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/executor/cgroup"
	"github.com/ponos-tools/ponos/lib/executor/proc"
)

// watched is the shortest interval between two measurements; they may take a twentieth of the time.
const watched = time.Second

// A Limiter limits the memory of commands: by the kernel, in a cgroup, if one is delegated to this process;
// otherwise their memory is measured, and a command that uses more is ended. The zero value only does that.
type Limiter struct {
	parent cgroup.Parent
	kernel bool
	// Note is called with a group before it is made, so that other processes can ask the kernel what became
	// of it. May be nil.
	Note func(cgroup.Group) error
}

// NewLimiter returns a limiter.
func NewLimiter() *Limiter {
	m := &Limiter{}
	m.parent, m.kernel = cgroup.Delegated()
	return m
}

// Kernel reports whether the kernel limits memory. A command whose group cannot be made is measured still.
func (m *Limiter) Kernel() bool { return m.kernel }

// confine has a program start in a cgroup of its command, if that has a limit.
func (m *Limiter) confine(c *Command, l *Launch) {
	if m == nil || !m.kernel || c.Memory == 0 || c.Memory == Unlimited {
		return
	}
	path := l.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join(l.Dir, path)
	}
	if unix.Access(path, unix.X_OK) != nil {
		return // the start of the program itself gives the best error message
	}
	if c.group == nil {
		g := m.parent.Group(c.Name, c.Memory)
		if m.Note != nil && m.Note(g) != nil || g.Make() != nil { // it is measured instead
			return
		}
		c.group = &g
	}
	l.Argv = append([]string{"sh"}, c.group.Enter(append([]string{l.Path}, l.Argv[1:]...)...)...)
	l.Path = "/bin/sh"
}

// measured is what a command was found to use.
type measured struct {
	*Command
	group  *cgroup.Group
	pids   []int
	used   int64
	killed bool // the kernel has ended processes of it
}

// judge ends commands that were found to use too much, and has them measured again.
func (e *Executor) judge(now time.Time) {
	if e.o.Limiter == nil {
		return
	}
	e.mu.Lock()
	found := e.measured
	e.measured = nil
	e.removeGroups()
	e.mu.Unlock()
	for _, m := range found {
		if e.excess(m) && (e.o.Before == nil || e.o.Before(m.Command, OutOfMemory, m.used)) {
			e.endMembers(m)
		}
	}
	e.measure(now)
}

// excess notes what a command uses, and reports whether it is to be ended for that.
func (e *Executor) excess(m measured) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	m.Command.used = max(m.Command.used, m.used)
	return e.commands[m.Command] && m.life.why == "" && (m.killed || m.used > m.Memory)
}

// endMembers ends a command that uses too much, also what has left its process group.
func (e *Executor) endMembers(m measured) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.commands[m.Command] {
		return
	}
	if m.Script {
		m.life.end(OutOfMemory, Asked, clock.Now(), e.o.Grace)
	} else {
		e.signal(m.Command, m.life.end(OutOfMemory, Killed, clock.Now(), e.o.Grace))
	}
	for _, pid := range m.pids {
		if pid != m.pid {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}

// measure measures running commands in the background: it may take long if there are many processes.
func (e *Executor) measure(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.measuring || now.Before(e.next) {
		return
	}
	var all []measured
	for c := range e.commands {
		if c.pid != 0 && c.Memory > 0 && c.life.why == "" {
			all = append(all, measured{Command: c, group: c.group})
		}
	}
	if all == nil {
		return
	}
	e.measuring = true
	leaders, marks := make([]int, len(all)), map[string]int{}
	for i, m := range all {
		leaders[i] = m.pid
		if len(m.Marks) > 0 {
			marks[m.Marks[0]] = m.pid
		}
	}
	go func() {
		var members map[int][]int
		for i := range all {
			m := &all[i]
			if m.group != nil && cgroup.Entered(leaders[i], m.Name) {
				m.killed = m.group.Killed()
				continue
			}
			if members == nil {
				members = e.members(leaders, marks)
			}
			m.pids = members[leaders[i]]
			m.used = proc.Used(m.pids, m.Memory)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.measuring, e.measured = false, all
		e.next = now.Add(max(watched, 20*clock.Since(now)))
	}()
}

// members returns the processes of commands by their sessions, with daemons that they have started: in
// sessions of their own, and no children of the command any more, but of this process.
func (e *Executor) members(leaders []int, marks map[string]int) map[int][]int {
	own, _ := proc.Session(os.Getpid())
	daemons := map[int]int{} // sessions of commands, by those of their daemons
	if e.o.Orphans != nil {
		for _, pid := range e.o.Orphans() {
			session, zombie := proc.Session(pid)
			if zombie || session == own || slices.Contains(leaders, session) {
				continue
			}
			if leader, known := marks[proc.Entry(pid, e.o.Family)]; known {
				daemons[session] = leader
			}
		}
	}
	out := proc.Members(slices.AppendSeq(slices.Clone(leaders), maps.Keys(daemons))...)
	for session, leader := range daemons {
		out[leader] = append(out[leader], out[session]...)
	}
	return out
}
