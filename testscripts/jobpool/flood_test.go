package jobpool

import (
	"strings"
	"testing"
)

// flood has tasks at several nodes print much more than fits anywhere on the way,
// with a slow one among them.
func flood(t *testing.T, p *pool) {
	t.Helper()
	const size = 6 << 20
	var lines, want strings.Builder
	for _, c := range "abcdef" {
		lines.WriteString("yes " + strings.Repeat(string(c), 63) + " | head -c 6291456\n")
	}
	lines.WriteString("sleep 1; echo slow\n")
	status, stdout, stderr := p.run(lines.String(), "-k", "--run", "run")
	if status != 0 {
		t.Fatalf("exit %d: %s", status, stderr)
	}
	for _, c := range "abcdef" {
		want.WriteString(strings.Repeat(strings.Repeat(string(c), 63)+"\n", size/64))
	}
	want.WriteString("slow\n")
	if stdout != want.String() {
		t.Errorf("%d bytes came, not the %d that were printed", len(stdout), want.Len())
	}
	status, stdout, stderr = p.run(lines.String(), "--line-buffer", "--run", "live")
	if status != 0 {
		t.Fatalf("exit %d: %s", status, stderr)
	}
	if len(stdout) != want.Len() {
		t.Errorf("%d bytes came while they were printed, not %d", len(stdout), want.Len())
	}
	seen := map[string]int{}
	for line := range strings.Lines(stdout) {
		seen[line]++
	}
	if len(seen) != 7 {
		t.Errorf("lines are not whole: there are %d kinds", len(seen))
	}
	p.noneLeft()
}

func TestFloodOverSSH(t *testing.T) {
	t.Parallel()
	p := newPool(t)
	p.args = append(sshd(t), "--nodes", "2/n[1-2]")
	flood(t, p)
}

func TestFloodOverSrun(t *testing.T) {
	p := inSlurm(t, fourNodes, "--jobs", "2")
	flood(t, p)
}
