package jobpool

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/testscripts/cgrouptest"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

// TestMemoryIsLimitedByTheKernel has a pool in a subtree of cgroups that is delegated to it: the
// kernel ends a task at its limit, and no cgroup is left.
func TestMemoryIsLimitedByTheKernel(t *testing.T) {
	parent, v1, why := cgrouptest.Subtree(t)
	if parent == "" {
		needs.Missing(t, "a cgroup that can be divided: "+why)
	}
	own := parent
	if !v1 {
		own = filepath.Join(parent, "agent")
		if err := os.Mkdir(own, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(own) })
	}
	p := newPool(t)
	tasks := strings.Join([]string{
		"head -c 300M /dev/zero | tail -c 300M | sleep 600", // a process of it is ended, so all are
		"head -c 300M /dev/zero | tail -c 300M | wc -c; true",
		"head -c 10M /dev/zero | tail -c 10M | wc -c; grep -c memory.*/ponos-.*-3.1 /proc/self/cgroup || grep -c /ponos-.*-3.1 /proc/self/cgroup",
		"/no/such/program",
	}, "\n") + "\n"
	c := p.command("-k", "--run", "run", "-j1", "--mem", "100M")
	c.Args = append([]string{"sh", "-c", `echo $$ >"$0" && exec "$@"`, filepath.Join(own, "cgroup.procs"), c.Path}, c.Args[1:]...)
	c.Path = "/bin/sh"
	c.Stdin = strings.NewReader(tasks)
	var complaints bytes.Buffer
	c.Stderr = &complaints
	out, err := c.Output()
	if err == nil || !strings.Contains(string(out), "10485760\n1\n") {
		t.Errorf("%v: %s", err, out)
	}
	if want := "jobpool: 2 tasks exceeded --mem, a limit that the kernel enforces\n"; !strings.Contains(complaints.String(), want) {
		t.Errorf("%q, want %q", &complaints, want)
	}
	journal, err := os.ReadFile(filepath.Join(p.dir, "run/journal.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	ends := map[string]string{}
	for line := range strings.Lines(string(journal)) {
		for _, seq := range []string{"1", "2", "3", "4"} {
			if strings.Contains(line, `"k":"end"`) && strings.Contains(line, `"seq":`+seq+`,`) {
				ends[seq] = line
			}
		}
	}
	for seq, want := range map[string][]string{
		"1": {`"what":"oom"`, "its limit of 100M"}, "2": {`"what":"oom"`, "its limit of 100M"}, "3": {`"what":"ok"`},
		"4": {`"what":"nostart"`, `program not found`},
	} {
		for _, w := range want {
			if !strings.Contains(ends[seq], w) {
				t.Errorf("task %s: no %s in %s", seq, w, ends[seq])
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(parent, "ponos-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
