package command

import (
	"syscall"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Detach starts a program that continues when this process and its terminal are
// gone: in a session of its own, reading nothing and printing nowhere. Only Name,
// Args, Env, Dir and ExtraFiles of c count.
func Detach(c Cmd) error {
	p := c.program()
	p.Env, p.Dir, p.ExtraFiles = c.Env, c.Dir, c.ExtraFiles
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.Start(); err != nil {
		return fault.Hint(&NotFoundError{c.Name, err}, "is the installation complete?")
	}
	return p.Process.Release()
}
