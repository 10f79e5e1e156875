package docs

import (
	"testing"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

// TestUnits holds what ponos(7) says of durations and sizes to all tools.
func TestUnits(t *testing.T) { harness.Run(t, harness.Options{}) }
