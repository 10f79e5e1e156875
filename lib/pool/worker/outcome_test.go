package worker

import (
	"testing"

	"github.com/ponos-tools/ponos/lib/executor"
	"github.com/ponos-tools/ponos/lib/pool/wire"
)

// A task whose processes got SIGTERM before the worker, and ended before it could end them, is cut off.
func TestOutcome(t *testing.T) {
	for _, tt := range []struct {
		what     wire.Outcome
		why      executor.Why
		signaled bool
		want     wire.Outcome
	}{
		{"", "", false, ""},
		{"", "", true, wire.Stopped},
		{wire.NoStart, "", true, wire.NoStart},
		{"", executor.Why(wire.Timeout), true, wire.Timeout},
		{"", executor.Why(wire.Cancelled), false, wire.Cancelled},
	} {
		if got := outcome(tt.what, tt.why, tt.signaled); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}
