package fairshare

import (
	"testing"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// The size of a request is its GPUs, or else its nodes, or else its CPUs.
func TestSizes(t *testing.T) {
	for want, tres := range map[string]slurm.TRES{
		"1 CPU": {"cpu": 1, "node": 1}, "9-32 CPUs": {"cpu": 32, "node": 1}, "33+ CPUs": {"cpu": 33}, "2-4 nodes": {"cpu": 400, "node": 2},
		"17+ nodes": {"cpu": 1, "node": 17}, "1 GPU": {"cpu": 64, "gres/gpu": 1}, "5-8 GPUs": {"node": 4, "gres/gpu": 8}, "9+ GPUs": {"gres/gpu": 9},
	} {
		if got := sizeOf(&slurm.Waited{Record: slurm.Record{TRES: tres}}).name; got != want {
			t.Errorf("%v: %s, not %s", tres, got, want)
		}
	}
}
