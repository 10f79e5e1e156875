package worker

import (
	"context"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/command"
	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/executor/cgroup"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// newLimiter returns what limits tasks to the memory that they have declared; nil: it is only counted.
func newLimiter(s *wire.Setup) *executor.Limiter {
	if !s.LimitMem {
		return nil
	}
	cgroup.Divide(delegates)
	return executor.NewLimiter()
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
func how(m *executor.Limiter) wire.MemLimit {
	if m.Kernel() {
		return wire.ByKernel
	}
	return wire.Measured
}
