package local

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Jobs that run at once are bound to CPUs of their own, and see GPUs of their own.
func TestJobsShareNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("CUDA_VISIBLE_DEVICES", "7,5,3")
	has := Resources{CPUs: 4, Memory: 8 << 30, GPUs: 3, IDs: []int{0, 2, 1, 3}}
	if err := os.Mkdir(filepath.Join(dir, slotsDir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := describe(dir, has); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		slot, job string // what a job that runs has taken
		want      Resources
	}{
		{"0", `{}`, has},
		{"1", `{"cpus":2,"memory":1073741824,"gpus":1,"taken":["7"],"cpu_ids":[0,2]}`, Resources{CPUs: 2, Memory: 7 << 30, GPUs: 2, Taken: []string{"5", "3"}, IDs: []int{1, 3}}},
		{"2", `{"cpus":1,"gpus":1,"taken":["3"],"cpu_ids":[3]}`, Resources{CPUs: 1, Memory: 7 << 30, GPUs: 1, Taken: []string{"5"}, IDs: []int{1}}},
	} {
		path := filepath.Join(dir, slotsDir, tt.slot)
		slot, err := lock.TryFor(path, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer slot.Close()
		if err := os.WriteFile(path+takesSuffix, []byte(tt.job), 0o600); err != nil {
			t.Fatal(err)
		}
		free, err := left(dir, "")
		if err != nil || free.CPUs != tt.want.CPUs || free.Memory != tt.want.Memory || free.GPUs != tt.want.GPUs || !slices.Equal(free.IDs, tt.want.IDs) {
			t.Errorf("with slot %s: %+v, %v", tt.slot, free, err)
		}
	}
	free, err := left(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if job, ok := free.fits(Resources{CPUs: 1, GPUs: 1}); !ok || !slices.Equal(job.IDs, []int{1}) || !slices.Equal(job.Taken, []string{"5"}) {
		t.Errorf("%+v, %v", job, ok)
	}
	if _, ok := free.fits(Resources{CPUs: 2}); ok {
		t.Error("2 CPUs where 1 is left")
	}
	if job, ok := free.fits(Resources{}); !ok || len(job.IDs) != 0 {
		t.Errorf("a job that asks for nothing: %+v, %v", job, ok)
	}

	// Where more CPUs are configured than there are, no job gets some of its own.
	if err := describe(dir, Resources{CPUs: 64, IDs: []int{0, 1}}); err != nil {
		t.Fatal(err)
	}
	if free, err = left(dir, ""); err != nil || free.IDs != nil || free.CPUs != 61 {
		t.Errorf("%+v, %v", free, err)
	}
}

// An attempt after one that had too little memory counts with what it gets.
func TestTheNextAttemptGetsMore(t *testing.T) {
	needs := runner.Needs{Request: task.Request{Find: "cpu(cores=2, mem=1G)"}, Changed: []string{"time=1:00", "mem=3G"}}
	r, err := takes(needs, Resources{CPUs: 2, Memory: 4 << 30})
	if err != nil || r.CPUs != 2 || r.Memory != 3<<30 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := takes(needs, Resources{CPUs: 2, Memory: 2 << 30}); err == nil {
		t.Errorf("more than this machine has: %+v", r)
	}
}
