package verdict

import (
	"testing"

	"github.com/ponos-tools/ponos/lib/admission"
	"github.com/ponos-tools/ponos/lib/launcher/cluster"
)

// Whether nodes could ever have what a job takes on each.
func TestLarge(t *testing.T) {
	g := cluster.Group{CPUs: 16, Memory: 64 << 30, GRES: "gpu:a100:2,gpu:t4:1"}
	for _, c := range []struct {
		what string
		need admission.Need
		job  admission.Job
		want bool
	}{
		{"nothing", admission.Need{}, admission.Job{}, true},
		{"all of it", admission.Need{AskedCPUs: 16}, admission.Job{MemMB: 64 << 10, GPUs: 3}, true},
		{"a CPU more", admission.Need{AskedCPUs: 17}, admission.Job{}, false},
		{"a megabyte more", admission.Need{}, admission.Job{MemMB: 64<<10 + 1}, false},
		{"a GPU more", admission.Need{}, admission.Job{GPUs: 4}, false},
		{"GPUs of a type", admission.Need{}, admission.Job{GPUs: 2, GPUTypes: map[string]int64{"a100": 2}}, true},
		{"more of a type", admission.Need{}, admission.Job{GPUs: 2, GPUTypes: map[string]int64{"t4": 2}}, false},
		{"another type", admission.Need{}, admission.Job{GPUs: 1, GPUTypes: map[string]int64{"h100": 1}}, false},
	} {
		if got := large(g, c.need, c.job); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}

func TestWords(t *testing.T) {
	f := admission.Finding{Whose: "partition cpu", Text: "it is too long"}
	if got, want := words(f), "Slurm would refuse the job: partition cpu: it is too long"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	f.Waits = true
	if got, want := words(f), "Slurm would accept the job and never start it: partition cpu: it is too long"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
