package local

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// two is a machine of two NUMA nodes with two cores of two threads each, and a GPU at each node and one elsewhere.
func two() Machine {
	m := Machine{CPUs: 8, Memory: 8 << 30, GPUs: 3, Variable: "CUDA_VISIBLE_DEVICES"}
	for id := range 8 {
		m.Places = append(m.Places, pool.CPU{ID: id, Core: id % 4, Cache: id % 4 / 2, NUMA: id % 4 / 2})
	}
	m.Devices = []pool.GPU{{ID: "7", NUMA: 0}, {ID: "5", NUMA: 1}, {ID: "3", NUMA: -1}}
	return m
}

// takeAt has a job run in a slot with what it has taken.
func takeAt(t *testing.T, dir, slot string, job occupied) {
	t.Helper()
	path := filepath.Join(dir, slotsDir, slot)
	l, err := lock.TryFor(path, 0)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	b, err := json.Marshal(job)
	must(t, err)
	must(t, os.WriteFile(path+takesSuffix, b, 0o600))
}

// Jobs that run at once are bound to CPUs of their own, and see GPUs of their own: as tasks of a pool, whole cores that
// are near each other and near the GPU.
func TestJobsShareNothing(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, slotsDir), 0o700))
	must(t, describe(dir, two()))
	for i, tt := range []struct {
		job  Resources
		ids  []int
		gpus []string
	}{
		{job: Resources{CPUs: 2, GPUs: 1, Memory: 1 << 30}, ids: []int{0, 4}, gpus: []string{"7"}},
		{job: Resources{CPUs: 1}, ids: []int{1}},
		{job: Resources{}},
		{job: Resources{CPUs: 4, GPUs: 1, Memory: 6 << 30}, ids: []int{2, 3, 6, 7}, gpus: []string{"5"}},
		{job: Resources{CPUs: 1, GPUs: 1}, ids: []int{5}, gpus: []string{"3"}},
	} {
		free, err := leftOf(dir, "", "")
		must(t, err)
		for _, more := range []Resources{{CPUs: free.node.Free().CPUs + 1}, {CPUs: 1, GPUs: free.node.Free().GPUs + 1}, {CPUs: 1, Memory: free.node.Free().Mem + 1}} {
			if got, ok := free.fits(more); ok {
				t.Errorf("%+v where less is left: %+v", more, got)
			}
			free, err = leftOf(dir, "", "")
			must(t, err)
		}
		got, ok := free.fits(tt.job)
		if !ok || !slices.Equal(got.IDs, tt.ids) || !slices.Equal(got.Taken, tt.gpus) || (got.Variable != "") != (tt.gpus != nil) {
			t.Errorf("job %d: %+v, %v", i, got, ok)
		}
		takeAt(t, dir, strconv.Itoa(i), occupied{Resources: got})
	}
	free, err := leftOf(dir, filepath.Join(dir, slotsDir, "0"), "")
	must(t, err)
	if got, ok := free.fits(Resources{CPUs: 2, GPUs: 1}); !ok || !slices.Equal(got.IDs, []int{0, 4}) || !slices.Equal(got.Taken, []string{"7"}) {
		t.Errorf("what the slot itself had is not free: %+v, %v", got, ok)
	}
}

// A job that needs more than is left keeps what it needs: later ones run beside it only, however many have begun so.
func TestLaterJobsRunBesideTheFirst(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, slotsDir), 0o700))
	must(t, describe(dir, two()))
	takeAt(t, dir, "0", occupied{Resources{CPUs: 4}, "1"})
	free, err := leftOf(dir, "", "2")
	must(t, err)
	_, ok := free.fits(Resources{CPUs: 6})
	small, first := free.fits(Resources{CPUs: 2})
	if ok || !first {
		t.Fatalf("6 of 8 CPUs beside 4: %v; 2 beside these: %v", ok, first)
	}
	takeAt(t, dir, "1", occupied{small, "3"})
	free, err = leftOf(dir, "", "2")
	must(t, err)
	_, ok = free.fits(Resources{CPUs: 6})
	_, second := free.fits(Resources{CPUs: 2})
	_, uncounted := free.fits(Resources{})
	if ok || second || !uncounted {
		t.Errorf("after that: the first %v, one more that would delay it %v, one that asks for nothing %v", ok, second, uncounted)
	}
}

// Where more CPUs are configured than there are, no job gets some of its own; what is configured may be less than jobs have.
func TestConfiguredMachine(t *testing.T) {
	for _, tt := range []struct {
		cpus, gpus int
		first      []int // of a job of two CPUs and a GPU
		device     string
	}{
		{cpus: 4, gpus: 1, first: []int{0, 1}, device: "7"}, {cpus: 64, gpus: 5, device: "0"}, {first: []int{0, 4}, device: "7"},
	} {
		m := two()
		m.CPUs, m.GPUs = tt.cpus, tt.gpus
		m.size()
		if tt.cpus > 0 && (len(m.Places) != tt.cpus || len(m.Devices) != tt.gpus) || tt.cpus == 0 && (m.CPUs != 8 || m.GPUs != 3) {
			t.Errorf("%d CPUs and %d GPUs are configured: %+v", tt.cpus, tt.gpus, m)
		}
		dir := t.TempDir()
		must(t, os.Mkdir(filepath.Join(dir, slotsDir), 0o700))
		must(t, describe(dir, m))
		free, err := leftOf(dir, "", "")
		must(t, err)
		got, ok := free.fits(Resources{CPUs: 2, GPUs: 1})
		if !ok || !slices.Equal(got.IDs, tt.first) || got.Taken[0] != tt.device {
			t.Errorf("%d CPUs are configured: %+v, %v", tt.cpus, got, ok)
		}
		takeAt(t, dir, "0", occupied{Resources: Resources{CPUs: m.CPUs + 3, Memory: 9 << 30, GPUs: 1, Taken: []string{"gone"}}})
		free, err = leftOf(dir, "", "")
		must(t, err)
		if got, ok := free.fits(Resources{CPUs: 1}); ok {
			t.Errorf("nothing is left: %+v", got)
		}
		if _, ok := free.fits(Resources{}); !ok {
			t.Error("a job that asks for nothing waits")
		}
	}
}

// An attempt after one that had too little memory counts with what it gets.
func TestTheNextAttemptGetsMore(t *testing.T) {
	needs := runner.Needs{Request: task.Request{Find: "cpu(cores=2, mem=1G)"}, Changed: []string{"time=1:00", "mem=3G"}}
	r, err := takes(needs, Machine{CPUs: 2, Memory: 4 << 30})
	if err != nil || r.CPUs != 2 || r.Memory != 3<<30 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := takes(needs, Machine{CPUs: 2, Memory: 2 << 30}); err == nil {
		t.Errorf("more than this machine has: %+v", r)
	}
}
