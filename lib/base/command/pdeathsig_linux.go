package command

import (
	"os/exec"
	"runtime"
	"syscall"
)

// run runs p; with die, p is killed when this process ends.
func run(p *exec.Cmd, die bool) error {
	if !die {
		return p.Run()
	}
	// The kernel sends the signal when the thread that has started p ends, so
	// that thread must stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return p.Run()
}
