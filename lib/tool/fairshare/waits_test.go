package fairshare

import (
	"testing"
	"time"

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

// A job that cannot start yet is held back; it is not in the queue.
func TestHeldBack(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, tt := range []struct {
		submit, eligible, start, end int64
		held, queued                 time.Duration
	}{
		{100, 100, 130, 200, 0, 30}, {100, 160, 200, 0, 60, 40}, {100, 0, 0, 0, 900, 0}, {100, 0, 0, 400, 300, 0},
		{100, 150, 0, 400, 50, 250}, {100, 150, 0, 0, 50, 850}, {100, 0, 130, 0, 0, 30}, {0, 0, 130, 0, 0, 0},
		{100, 2000, 0, 0, 1900, 0},
	} {
		w := &slurm.Waited{Eligible: tt.eligible, Record: slurm.Record{Submit: tt.submit, Start: tt.start, End: tt.end}}
		if held, queued := heldBack(w, now), inQueue(w, now); held != tt.held*time.Second || queued != tt.queued*time.Second {
			t.Errorf("%+v: %s, %s", tt, held, queued)
		}
	}
}

// More than was given is marked, as far as two threads of a core do not explain it.
func TestDoubtfulUse(t *testing.T) {
	for _, c := range []struct {
		used, of float64
		want     string
	}{{50, 100, "50%"}, {200, 100, "200%"}, {4630, 100, "4630%?"}, {-1, 100, "-"}, {5, 0, "-"}} {
		if got := part(c.used, c.of); got != c.want {
			t.Errorf("%v of %v: %s, want %s", c.used, c.of, got, c.want)
		}
	}
}
