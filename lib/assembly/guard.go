package assembly

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/ponos-tools/ponos/lib/fault"
	"github.com/ponos-tools/ponos/lib/lock"
)

// Guard holds the place of the one agent of a configuration on a host.
type Guard struct {
	path string
	lock *lock.Lock
}

// Guard makes sure that no other agent works with this configuration: no living
// process named by the PID file. With hold, no other job of Slurm either, and this
// process takes the place until Release.
func (p *Parts) Guard(ctx context.Context, hold bool) (*Guard, error) {
	path := p.Config.PIDFile
	if pid, alive := readPID(path); alive && pid != os.Getpid() {
		return nil, fault.Hint(
			fault.Errorf(fault.Busy, "another agent is running: process %d, by %q", pid, path),
			"end it, or give this one a pid_file and a data_dir of its own")
	}
	if !hold {
		return &Guard{}, nil
	}
	if err := p.CheckNoDaemon(ctx); err != nil {
		return nil, err
	}
	l, err := lock.Try(path)
	if errors.Is(err, lock.ErrHeld) {
		return nil, fault.Errorf(fault.Busy, "another agent is running: it has locked %q", path)
	}
	if err == nil {
		if err = l.File().Truncate(0); err == nil {
			_, err = l.File().WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0)
		}
	}
	if err != nil {
		return nil, fault.Errorf(fault.Usage, "pid_file: %w", err)
	}
	return &Guard{path, l}, nil
}

// CheckNoDaemon makes sure that no other agent is a job of Slurm.
func (p *Parts) CheckNoDaemon(ctx context.Context) error {
	job, err := p.otherDaemon(ctx)
	if err == nil && job != "" {
		err = fault.Hint(
			fault.Errorf(fault.Busy, "another agent is running: job %s of Slurm", job), fmt.Sprintf(`end it with "scancel %s"`, job))
	}
	return err
}

// readPID reads a PID file and reports whether the process lives.
func readPID(path string) (pid int, alive bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 1 {
		return 0, false
	}
	err = syscall.Kill(pid, 0)
	return pid, err == nil || errors.Is(err, syscall.EPERM)
}

// Release gives the place away.
func (g *Guard) Release() {
	if g.lock == nil {
		return
	}
	if err := os.Remove(g.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		_ = g.lock.File().Truncate(0) // an empty file names nobody
	}
	_ = g.lock.Close() // released in any case when the process ends
}
