package bench

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ponos-tools/ponos/testscripts/harness"
)

func TestMain(m *testing.M) {
	// The fakes are not on PATH: one of the benchmarks asks the real Slurm.
	if play, ok := fakes[filepath.Base(os.Args[0])]; ok {
		play()
		return
	}
	harness.Main(m, nil, "ponos-setup", "ponos-poll", "ponos-stop", "ponos-start", "ponos-run", "ponos-submit", "ponos-list", "ponos-worker")
}

func median[T int64 | float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
