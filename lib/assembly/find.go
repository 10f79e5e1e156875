package assembly

import (
	"context"

	"github.com/ponos-tools/ponos/lib/config"
	"github.com/ponos-tools/ponos/lib/fault"
)

// Find turns a resource request into options of sbatch.
func Find(context.Context, string) (config.Options, error) {
	return nil, fault.Errorf(fault.Usage, "resource requests are not part of this build")
}
