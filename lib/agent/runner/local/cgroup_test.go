package local

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/clock"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
	"github.com/ponos-tools/ponos/testscripts/cgrouptest"
	"github.com/ponos-tools/ponos/testscripts/needs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A job that needs more memory than it has asked for is ended by the kernel, in a subtree of
// cgroups that is delegated to the worker; one that does not has no trace of it.
func TestMemoryIsLimitedByTheKernel(t *testing.T) {
	needs.Root(t, "to make a cgroup")
	parent, v1, why := cgrouptest.Subtree(t)
	if parent == "" {
		needs.Missing(t, "a cgroup that can be divided: "+why)
	}
	for name, tt := range map[string]struct {
		script string
		want   task.State
		reason string
	}{
		"more":   {"head -c 300M /dev/zero | tail | wc -c; exit ${PIPESTATUS[1]}", task.Error, "out of memory: it needs more than the requested 64MiB"},
		"enough": {"head -c 1M /dev/zero | tail | wc -c; set -- 0\n" + end, task.Completed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, job := t.TempDir(), "job-"+name
			must(t, os.WriteFile(filepath.Join(dir, "job.sh"), []byte("grep -c ponos-"+job+" /proc/self/cgroup\n"+tt.script), 0o600))
			must(t, os.WriteFile(filepath.Join(dir, ticketFile), fmt.Appendf(nil, `{"job":%q,"attempt":1,"ticket":"1"}`, job), 0o600))
			slot, err := lock.Try(filepath.Join(t.TempDir(), "0"))
			must(t, err)
			defer slot.Close()
			root := t.TempDir()
			must(t, os.Mkdir(filepath.Join(root, runningDir), 0o700))
			_, err = runJob(root, dir, Resources{CPUs: 1, Memory: 64 << 20}, slot)
			must(t, err)
			output, err := os.ReadFile(filepath.Join(dir, runner.Output))
			must(t, err)
			r := Runner{Dir: t.TempDir(), MaxJobs: 1, Now: clock.Now}
			got := r.observe(runner.Ref{Task: "t", Job: job, Dir: dir, Attempt: 1})
			if got.Shows() != tt.want || got.Reason != tt.reason || (got.Cause == need.OOM) != (tt.want == task.Error) {
				t.Errorf("%+v; output %s", got, output)
			}
			if tt.want == task.Error && got.Had.Memory != 64<<20 {
				t.Errorf("it had %d bytes", got.Had.Memory)
			}
			if text := string(output); !strings.HasPrefix(text, "1\n") || strings.Contains(text, "out of memory") != (tt.want == task.Error) {
				t.Errorf("output %s", output)
			}
			if left, _ := filepath.Glob(filepath.Join(parent, "ponos-*")); len(left) > 0 {
				t.Errorf("left: %q, version 1: %v", left, v1)
			}
		})
	}
}
