package assembly

import (
	"context"
	"path/filepath"

	"github.com/ponos-tools/ponos/lib/agent/queue/arkindex"
)

func openArkindex(_ context.Context, p *System, _ Options) (opened, error) {
	c := p.Config
	q, err := arkindex.New(arkindex.Config{
		URL: c.URL, FarmID: c.FarmID, Seed: c.Seed, AuthScheme: c.Arkindex.AuthScheme, LogContentType: c.Arkindex.LogContentType,
		IdentityFile: filepath.Join(c.StateDir(), "identity.json"), Memory: p.places, Mode: c.Mode, Logger: p.log.Logger,
		// GPUs of Slurm and of rented machines are on other machines.
		DeclareGPU: p.mode.can().otherGPUs,
	})
	return opened{Queue: q}, err
}
