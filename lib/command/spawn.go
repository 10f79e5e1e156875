package command

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Launch is a program for a Spawner to start. It gets a session of its own and
// dies with this process.
type Launch struct {
	Path                  string // with a slash: no search
	Argv                  []string
	Env                   []string
	Dir                   string
	Stdin, Stdout, Stderr uintptr
	CPUs                  []int // the CPUs it may use; nil: those of this process
	Tag                   any   // comes back in the events
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

// Spawner starts many short programs at the speed of the machine. It waits for
// every child of the process, so nothing else in the process may start any.
//
// Its threads never end: the kernel sends the death signal of a child when the
// thread that has started it goes. As a thread keeps its CPU mask, a child
// inherits it at no cost, and a thread serves the same CPUs again where it can.
type Spawner struct {
	queues []chan *Launch
	events chan SpawnEvent

	mu       sync.Mutex
	children sync.Cond          // some may be there to wait for
	flying   int                // forks under way
	poked    bool               // there may be orphans to wait for
	known    map[int]any        // running, by pid
	early    map[int]SpawnEvent // ended before their start was noted
	all      unix.CPUSet
}

// NewSpawner starts a spawner with that many threads. Its events come on a
// channel that must be read; a program's start comes before its end.
func NewSpawner(threads int) *Spawner {
	s := &Spawner{
		events: make(chan SpawnEvent, 1024), known: map[int]any{}, early: map[int]SpawnEvent{},
	}
	s.children.L = &s.mu
	if err := unix.SchedGetaffinity(0, &s.all); err != nil {
		s.all.Set(0)
	}
	for range max(1, threads) {
		queue := make(chan *Launch, 4096)
		s.queues = append(s.queues, queue)
		go s.serve(queue)
	}
	go s.reap()
	return s
}

// Events is where starts and ends are told.
func (s *Spawner) Events() <-chan SpawnEvent { return s.events }

// Start queues l; what becomes of it is told by an event.
func (s *Spawner) Start(l Launch) {
	i := 0
	if len(l.CPUs) > 0 {
		i = l.CPUs[0] % len(s.queues)
	} else {
		for j := range s.queues {
			if len(s.queues[j]) < len(s.queues[i]) {
				i = j
			}
		}
	}
	s.queues[i] <- &l
}

// Signal sends sig to the session that pid leads, if it still runs.
func (*Spawner) Signal(pid int, sig syscall.Signal) error { return syscall.Kill(-pid, sig) }

func (s *Spawner) serve(queue <-chan *Launch) {
	runtime.LockOSThread()
	var mask []int
	for l := range queue {
		if !slices.Equal(mask, l.CPUs) {
			set := s.all
			if len(l.CPUs) > 0 {
				set.Zero()
				for _, id := range l.CPUs {
					set.Set(id)
				}
			}
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				s.events <- SpawnEvent{Tag: l.Tag, Err: err}
				continue
			}
			mask = l.CPUs
		}
		s.fork(l)
	}
}

func (s *Spawner) fork(l *Launch) {
	s.mu.Lock()
	s.flying++
	s.mu.Unlock()
	pid, err := syscall.ForkExec(l.Path, l.Argv, &syscall.ProcAttr{
		Dir: l.Dir, Env: l.Env, Files: []uintptr{l.Stdin, l.Stdout, l.Stderr},
		Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		s.events <- SpawnEvent{Tag: l.Tag, Err: err}
	} else {
		s.events <- SpawnEvent{Tag: l.Tag, PID: pid}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.flying--
	if err == nil {
		if e, ok := s.early[pid]; ok {
			delete(s.early, pid)
			e.Tag = l.Tag
			s.mu.Unlock()
			s.events <- e
			s.mu.Lock()
		} else {
			s.known[pid] = l.Tag
		}
		s.children.Signal()
	}
	if s.flying == 0 {
		// What is left are orphans that came to this process. Process ids are
		// given out in turn, so none of them can be that of a fork under way.
		clear(s.early)
	}
}

// reap waits for children, for ever.
func (s *Spawner) reap() {
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
			s.events <- e
		}
	}
}

// AdoptOrphans makes this process the parent of whatever its children leave
// behind, so that it can be found and ended.
func AdoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// Reap has orphans waited for that ended while nothing else ran.
func (s *Spawner) Reap() {
	s.mu.Lock()
	s.poked = true
	s.children.Signal()
	s.mu.Unlock()
}
