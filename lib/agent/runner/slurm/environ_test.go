package slurm

import (
	"slices"
	"strings"
	"testing"
)

func TestEnviron(t *testing.T) {
	got := Environ([]string{
		"PATH=/bin", "HOME=/home/a", "USER=a", "LOGNAME=a", "SHELL=/bin/sh", "LANG=C", "TZ=UTC", "SLURM_CONF=/etc/slurm/slurm.conf",
		"ARKINDEX_API_TOKEN=secret", "VAST_API_KEY=secret", "LD_PRELOAD=x.so", "BASH_ENV=x", "PYTHONPATH=x", "SBATCH_EXPORT=ALL", "PONOS_CONFIG=x", "PATHS=x",
	})
	want := []string{"PATH=/bin", "HOME=/home/a", "USER=a", "LOGNAME=a", "SHELL=/bin/sh", "LANG=C", "TZ=UTC", "SLURM_CONF=/etc/slurm/slurm.conf"}
	if !slices.Equal(got, want) {
		t.Errorf("a job gets %q, want %q", got, want)
	}
}

func TestJobName(t *testing.T) {
	for label, want := range map[string]string{
		"worker-1.2":             "ponos-worker-1.2",
		"--wrap=id":              "ponos---wrap-id",
		"a b\nPONOS_TASK=x\x1b[": "ponos-a-b-PONOS_TASK-x--",
		"é$(id)`id`":             "ponos----id--id-",
		strings.Repeat("x", 99):  "ponos-" + strings.Repeat("x", 60),
	} {
		if got := jobName(label); got != want {
			t.Errorf("jobName(%q) = %q, want %q", label, got, want)
		}
	}
}
