package command

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// GuardFile is the descriptor by which the child of this process keeps a guard from acting; see
// StartGuard.
const GuardFile = 3

// Guard is a small process that acts when this process and its child are both killed: then nothing has
// the other end of its standard input open any more. It has a session of its own and none of the files of
// this process.
type Guard struct {
	argv        []string
	complain    func(error)
	read, write int // both ends of the pipe: another guard may have to take it over
	pid         int
	began       time.Time
	short       int // guards in succession that have ended at once
}

// StartGuard starts this program as a guard. Problems are passed to complain: without a guard, all else
// goes on.
func StartGuard(argv []string, complain func(error)) *Guard {
	g := &Guard{argv: argv, complain: func(err error) { complain(fmt.Errorf("the guard of its processes: %w", err)) }, read: -1, write: -1}
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		g.complain(err)
		return g
	}
	g.read, g.write = ends[0], ends[1]
	g.start()
	return g
}

func (g *Guard) start() {
	g.pid, g.began = 0, time.Now()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err == nil {
		// With no variables of its tasks, it is not found with them.
		g.pid, err = syscall.ForkExec("/proc/self/exe", g.argv, &syscall.ProcAttr{
			Dir: "/", Env: []string{"GOMAXPROCS=1"}, Files: []uintptr{uintptr(g.read), null.Fd(), null.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
		})
		err = errors.Join(err, null.Close())
	}
	if err != nil {
		g.complain(err)
	}
}

// PID is the id of the guard, or 0.
func (g *Guard) PID() int { return g.pid }

// ended starts another guard if a child that has ended is the guard.
func (g *Guard) ended(pid int) {
	if pid != g.pid {
		return
	}
	if g.short++; time.Since(g.began) > time.Second {
		g.short = 0
	}
	if g.short > 3 {
		g.pid = 0
		g.complain(errors.New("it ends again and again"))
		return
	}
	g.start()
}

// End ends the guard, and waits for that for a moment: it may be stopped.
func (g *Guard) End() {
	if g.write >= 0 {
		_, _ = syscall.Write(g.write, []byte{0})
	}
	for end := time.Now().Add(time.Second); g.pid > 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		if pid, err := syscall.Wait4(g.pid, nil, syscall.WNOHANG, nil); pid != 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
