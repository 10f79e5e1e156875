package executor

import (
	"errors"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/executor/proc"
)

// programs is a thread for each program.
type programs struct{ handle Handler }

// Programs is the System of a process that runs few programs, and that others start and wait for programs
// in as well. A signal also reaches what has left the session of a program, but has not been orphaned.
func Programs(handle Handler) System { return programs{handle} }

func (p programs) Start(l Launch) { go p.run(&l) }

// run runs a program, and what follows on it.
func (p programs) run(l *Launch) {
	runtime.LockOSThread() // the thread ends with the goroutine: neither its CPUs nor its children are for others
	lane := &lane{s: &Spawner{}}
	err := unix.SchedGetaffinity(0, &lane.s.all)
	for l != nil {
		pid := 0
		if err == nil {
			err = lane.become(l)
		}
		if err == nil {
			pid, err = l.fork()
		}
		next := p.handle(SpawnEvent{Tag: l.Tag, PID: pid, Err: err})
		if err == nil {
			if next != nil {
				p.Start(*next)
			}
			e := SpawnEvent{Tag: l.Tag, PID: pid, Ended: true}
			for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
				_, err = syscall.Wait4(pid, &e.Status, 0, &e.Usage)
			}
			if err != nil { // an end that nobody knows is no success
				e.Status = syscall.WaitStatus(syscall.SIGKILL)
			}
			next = p.handle(e)
		}
		l, err = next, nil
	}
}

func (programs) Signal(pid int, sig syscall.Signal) error {
	strays := slices.DeleteFunc(proc.Members(pid)[pid], func(member int) bool {
		group, err := syscall.Getpgid(member)
		return err != nil || group == pid
	})
	err := syscall.Kill(-pid, sig)
	for _, stray := range strays {
		_ = syscall.Kill(stray, sig) // it may have ended
	}
	return err
}

func (programs) Reap() {}
