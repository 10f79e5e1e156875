package assembly

import (
	"context"
	"fmt"
	"time"

	"github.com/ponos-tools/ponos/lib/agent/guard"
	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Guard makes sure that no other agent works with this configuration. With hold, also no other job of
// Slurm, and this process holds the guard until Release; it takes a turn every so often.
func (p *System) Guard(ctx context.Context, hold bool, every time.Duration) (*guard.Guard, error) {
	if err := guard.Check(p.Config.PIDFile, p.Config.StateDir(), hostname()); err != nil {
		return nil, err
	}
	if !hold {
		return &guard.Guard{}, nil
	}
	if err := p.CheckNoDaemon(ctx); err != nil {
		return nil, err
	}
	return guard.Hold(p.Config.PIDFile, p.Config.StateDir(), hostname(), every)
}

// CheckNoDaemon makes sure that no other agent is a job of Slurm.
func (p *System) CheckNoDaemon(ctx context.Context) error {
	job, err := p.otherDaemon(ctx)
	if err == nil && job != "" {
		err = fault.Hint(
			fault.Errorf(fault.Busy, "another agent is running: job %s of Slurm", job), fmt.Sprintf(`end it with "scancel %s"`, job))
	}
	return err
}
