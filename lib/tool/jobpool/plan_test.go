package jobpool

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/testscripts/executable"
)

// A plan is the options of jobs of the user: one that others could have written is not used.
func TestPlanOfAnotherUser(t *testing.T) {
	dir := t.TempDir()
	records, err := filepath.Abs("../../slurm/testdata/22.05.8/partitions.txt")
	if err != nil {
		t.Fatal(err)
	}
	executable.Write(t, filepath.Join(dir, "scontrol"), "#!/bin/sh\nexec cat '"+records+"'\n")
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	t.Setenv("XDG_CACHE_HOME", filepath.Join(dir, "cache"))
	keepPlan("cpu", &earliest{Args: []string{"--partition=cpu"}})
	if p := keptPlan(t.Context(), "cpu"); p == nil || clock.Since(p.made) > planAge {
		t.Fatalf("%+v", p)
	}
	if err := os.Chmod(planFile("cpu"), 0o666); err != nil {
		t.Fatal(err)
	}
	if p := keptPlan(t.Context(), "cpu"); p != nil {
		t.Errorf("a plan that others can write: %+v", p)
	}
	keepPlan("cpu", &earliest{Args: []string{"--partition=cpu"}})
	if os.Geteuid() == 0 {
		if err := os.Chown(planFile("cpu"), 65534, 65534); err != nil {
			t.Fatal(err)
		}
		if p := keptPlan(t.Context(), "cpu"); p != nil {
			t.Errorf("a plan of another user: %+v", p)
		}
	}
}
