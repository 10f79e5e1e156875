package jobpool

import (
	"strings"
	"testing"
)

// A broken host is always the free one: the next jobs are to get others.
func TestPilotsAvoidABrokenHost(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--time=5 --nodes=1", "--max-jobs", "2", "--linger", "10s",
		"--node-setup", "case $JOBPOOL_NODE in cpu1@*) echo no scratch; exit 1;; esac")
	status, _, stderr := p.run(strings.Repeat("until [ -e go ]; do sleep 0.1; done\n", 40))
	if status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	excluded := "host cpu1 is excluded from the next jobs"
	await(p, "the host is excluded", func() bool { return strings.Contains(p.said(), excluded+" for 1h: its setup failed") })
	if out := p.quietly("jobpool", "ctl", "status", "--run", "run"); !strings.Contains(out, excluded+" until ") || !strings.Contains(out, "no scratch") {
		t.Errorf("status: %s", out)
	}
	p.touch("go")
	await(p, "the run is over", func() bool { return p.over() >= 0 })
	if p.over() != 0 {
		t.Errorf("status %d: %s", p.over(), p.said())
	}
	p.endsOnce(40)
	// Slurm may start both of the first jobs on the broken host.
	if n := p.submitted(); n > 4 {
		t.Errorf("%d jobs were submitted: %s", n, p.said())
	}
}

// Where all hosts are broken, the run says so, and does not submit job after job.
func TestPilotsWithoutAHostLeft(t *testing.T) {
	p := pilots(t, "--alloc-sbatch=--time=1 --nodes=1", "--max-jobs", "1", "--linger", "1s", "--node-setup", "false")
	if status, _, stderr := p.run(strings.Repeat("true\n", 4)); status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	await(p, "no host is left", func() bool { return strings.Contains(p.said(), "no host may be left beside those that are excluded") })
	for _, id := range p.jobs() {
		p.slurm("scancel", id)
	}
	await(p, "all jobs end", func() bool { return len(p.jobs()) == 0 })
	if said := p.said(); strings.Contains(said, "before the job does") || p.submitted() > 2 {
		t.Errorf("%d jobs: %s", p.submitted(), said)
	}
}
