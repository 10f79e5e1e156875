package slurm

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/agent/program"
	"github.com/ponos-tools/ponos/lib/slurm"
)

func TestWithoutProgram(t *testing.T) {
	t.Parallel()
	nodes := []slurm.Node{{Name: "a1", Arch: "x86_64"}, {Name: "g1", Arch: "aarch64"}, {Name: "g2", Arch: "aarch64"}, {Name: "new"}, {Name: "p1", Arch: "ppc64le"}}
	got := strings.Join(withoutProgram(nodes, map[string]program.Programs{"x86_64": {}}), "\n")
	if want := "no task can begin on g[1-2], as there is no ponos-worker for aarch64: see MACHINES in ponos-install(7)\n" +
		"no task can begin on p1, as there is no ponos-worker for ppc64le: see MACHINES in ponos-install(7)"; got != want {
		t.Errorf("%s", got)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	const space, few = "jobs get the limit of address space", "jobs get the limit of processes"
	for _, tt := range []struct {
		config    slurm.Config
		as, nproc uint64
		small     bool
		want      string
	}{
		{slurm.Config{}, unix.RLIM_INFINITY, 100, false, ""},
		{slurm.Config{}, 500 << 20, 20, false, space + " " + few},
		{slurm.Config{"PropagateResourceLimits": "ALL"}, 500 << 20, 20, true, few},
		{slurm.Config{"PropagateResourceLimits": "NONE"}, 500 << 20, 20, false, ""},
		{slurm.Config{"PropagateResourceLimits": "CPU,as"}, 500 << 20, 20, false, space},
		{slurm.Config{"PropagateResourceLimitsExcept": "AS"}, 500 << 20, 20, false, few},
		{slurm.Config{"PropagateResourceLimits": "(null)", "PropagateResourceLimitsExcept": "MEMLOCK"}, 500 << 20, 100, false, space},
		{slurm.Config{"VSizeFactor": "110 percent"}, unix.RLIM_INFINITY, 100, true, ""},
		{slurm.Config{"VSizeFactor": "110 percent"}, unix.RLIM_INFINITY, 100, false, "VSizeFactor"},
		{slurm.Config{"VSizeFactor": "0 percent"}, unix.RLIM_INFINITY, 100, false, ""},
	} {
		var begins []string
		for _, w := range limits(tt.config, tt.small, func(resource int) uint64 {
			return map[int]uint64{unix.RLIMIT_AS: tt.as, unix.RLIMIT_NPROC: tt.nproc}[resource]
		}) {
			for _, begin := range []string{space, few, "VSizeFactor"} {
				if strings.HasPrefix(w, begin) {
					begins = append(begins, begin)
				}
			}
		}
		if got := strings.Join(begins, " "); got != tt.want {
			t.Errorf("%v: %q; want %q", tt.config, got, tt.want)
		}
	}
}
