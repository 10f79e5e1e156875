package executor

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Launch is a program for a System to start, in a session of its own.
type Launch struct {
	Path  string // with a slash: no search
	Argv  []string
	Env   []string
	Dir   string
	Files []uintptr // open in it as descriptors 0, 1, 2, …
	CPUs  []int     // the CPUs it may use; nil: those of this process
	Nice  int       // the niceness, if that of this process is lower; from 0 on
	// Outlives: it goes on when this process is killed, instead of dying with it.
	Outlives bool
	Tag      any // comes back in the events
}

// SpawnEvent tells that a program has started, could not be started, or has ended.
type SpawnEvent struct {
	Tag   any
	PID   int
	Err   error // could not be started
	Ended bool
	// Of a program that has ended:
	Status syscall.WaitStatus
	Usage  syscall.Rusage
}

// Handler is called with every event, by the thread that has seen it: several may call
// it at once. What it returns, if anything, is started by that thread at once: the
// end of a program leads to the start of the next without waking up another thread,
// which takes longer than to start a program.
type Handler func(SpawnEvent) *Launch

// A System starts programs, and tells a Handler of their starts and ends.
type System interface {
	Start(Launch)
	// Signal sends a signal to the session that a program leads.
	Signal(pid int, sig syscall.Signal) error
	// Reap has orphans waited for that have come to this process.
	Reap()
}

// Spawner starts many short programs at the speed of the machine. It waits for
// every child of the process, so nothing else in the process may start any.
//
// Its threads never end: the kernel sends the death signal of a child when the
// thread that has started it goes. As a thread keeps its CPU mask, a child
// inherits it at no cost, and a thread serves the same CPUs again where it can.
type Spawner struct {
	handle Handler
	lanes  []*lane
	all    unix.CPUSet

	mu       sync.Mutex
	children sync.Cond          // some may be there to wait for
	flying   int                // forks under way
	poked    bool               // there may be orphans to wait for
	known    map[int]any        // running, by pid
	early    map[int]SpawnEvent // ended before their start was noted
}

// lane is a thread that starts programs.
type lane struct {
	s     *Spawner
	mask  []int // the CPUs it may use; nil: all
	nice  int   // what its niceness was set to
	mu    sync.Mutex
	more  sync.Cond
	queue []*Launch
}

// NewSpawner starts a spawner with that many threads. The event of a start comes before that of its
// end.
func NewSpawner(threads int, handle Handler) *Spawner {
	s := &Spawner{handle: handle, known: map[int]any{}, early: map[int]SpawnEvent{}}
	s.children.L = &s.mu
	if err := unix.SchedGetaffinity(0, &s.all); err != nil {
		s.all.Set(0)
	}
	for range max(1, threads) {
		l := s.newLane()
		s.lanes = append(s.lanes, l)
		go l.serve()
	}
	go s.reap()
	return s
}

func (s *Spawner) newLane() *lane {
	l := &lane{s: s}
	l.more.L = &l.mu
	return l
}

// Start queues l; the handler gets the events of its process.
func (s *Spawner) Start(l Launch) {
	to := s.lanes[0]
	if len(l.CPUs) > 0 {
		to = s.lanes[l.CPUs[0]%len(s.lanes)]
	} else {
		for _, o := range s.lanes[1:] {
			if o.waiting() < to.waiting() {
				to = o
			}
		}
	}
	to.mu.Lock()
	to.queue = append(to.queue, &l)
	to.mu.Unlock()
	to.more.Signal()
}

// Signal sends sig to the session that pid leads, if it still runs.
func (*Spawner) Signal(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }

func (l *lane) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.queue)
}

func (l *lane) serve() {
	runtime.LockOSThread()
	for {
		l.mu.Lock()
		for len(l.queue) == 0 {
			l.more.Wait()
		}
		next := l.queue[0]
		l.queue = l.queue[1:]
		l.mu.Unlock()
		l.start(next)
	}
}

// start starts a program, and what follows on it at once.
func (l *lane) start(next *Launch) {
	for next != nil {
		if err := l.become(next); err != nil {
			next = l.s.handle(SpawnEvent{Tag: next.Tag, Err: err})
			continue
		}
		next = l.fork(next)
	}
}

// become gives the thread what the program inherits of it.
func (l *lane) become(next *Launch) error {
	err := l.bind(next.CPUs)
	if err == nil {
		err = l.setNice(next.Nice)
	}
	return err
}

// bind moves the thread to some CPUs; if none of them is there any more, to all.
func (l *lane) bind(cpus []int) error {
	if slices.Equal(l.mask, cpus) {
		return nil
	}
	set := l.s.all
	if len(cpus) > 0 {
		set.Zero()
		for _, id := range cpus {
			set.Set(id)
		}
	}
	err := unix.SchedSetaffinity(0, &set)
	if errors.Is(err, unix.EINVAL) {
		err = unix.SchedSetaffinity(0, &l.s.all)
	}
	if err == nil {
		l.mask = cpus
	}
	return err
}

// setNice changes the niceness of the thread, which its children inherit.
func (l *lane) setNice(nice int) error {
	if l.nice == nice {
		return nil
	}
	now, err := unix.Getpriority(unix.PRIO_PROCESS, 0) // 20 minus the niceness
	if err != nil {
		return err
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, max(20-now, nice)); err != nil {
		return err
	}
	l.nice = nice
	return nil
}

func (l *lane) fork(n *Launch) (next *Launch) {
	s := l.s
	s.mu.Lock()
	s.flying++
	s.mu.Unlock()
	pid, err := n.fork()
	next = s.handle(SpawnEvent{Tag: n.Tag, PID: pid, Err: err})
	s.mu.Lock()
	s.flying--
	var ended SpawnEvent
	if err == nil {
		var early bool
		if ended, early = s.early[pid]; early {
			delete(s.early, pid)
			ended.Tag = n.Tag
		} else {
			s.known[pid] = n.Tag
		}
		s.children.Signal()
	}
	if s.flying == 0 {
		// What is left are orphans that came to this process. Process ids are
		// given out in turn, so none of them can be that of a fork under way.
		clear(s.early)
	}
	s.mu.Unlock()
	if ended.Ended {
		if next != nil {
			s.Start(*next)
		}
		next = s.handle(ended)
	}
	return next
}

// fork starts the program as a child of this thread.
func (n *Launch) fork() (pid int, err error) {
	attr := &syscall.SysProcAttr{Setsid: true}
	if !n.Outlives {
		attr.Pdeathsig = syscall.SIGKILL
	}
	return syscall.ForkExec(n.Path, n.Argv, &syscall.ProcAttr{Dir: n.Dir, Env: n.Env, Files: n.Files, Sys: attr})
}

// reap waits for children, for ever, and starts what follows on them.
func (s *Spawner) reap() {
	runtime.LockOSThread()
	l := s.newLane()
	for {
		e := SpawnEvent{Ended: true}
		pid, err := syscall.Wait4(-1, &e.Status, 0, &e.Usage)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil: // no child at present
			s.mu.Lock()
			for len(s.known) == 0 && !s.poked {
				s.children.Wait()
			}
			s.poked = false
			s.mu.Unlock()
			continue
		}
		e.PID = pid
		s.mu.Lock()
		tag, ok := s.known[pid]
		if ok {
			delete(s.known, pid)
		} else if s.flying > 0 {
			s.early[pid] = e
		}
		s.mu.Unlock()
		if ok {
			e.Tag = tag
			l.start(s.handle(e))
		}
	}
}

// Reap has orphans waited for that ended while nothing else ran.
func (s *Spawner) Reap() {
	s.mu.Lock()
	s.poked = true
	s.children.Signal()
	s.mu.Unlock()
}
