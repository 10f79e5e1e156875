package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/ponos-tools/ponos/lib/pool"
)

func files(m map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for name, text := range m {
		out[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return out
}

func env(kv ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(kv); i += 2 {
			if kv[i] == name {
				return kv[i+1]
			}
		}
		return ""
	}
}

func TestTopology(t *testing.T) {
	m := map[string]string{"sys/devices/system/node/node0/cpulist": "0,2", "sys/devices/system/node/node1/cpulist": "1,3"}
	for id := range 4 {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d", id)
		m[dir+"/topology/thread_siblings_list"] = fmt.Sprintf("%d,%d", id%2, id%2+2)
		m[dir+"/cache/index3/shared_cpu_list"] = fmt.Sprintf("%d,%d", id%2, id%2+2)
	}
	got := Topology(files(m), []int{0, 1, 3})
	want := []pool.CPU{{ID: 0}, {ID: 1, Core: 1, Cache: 1, NUMA: 1}, {ID: 3, Core: 1, Cache: 1, NUMA: 1}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
	if got := Topology(files(nil), []int{5, 6}); len(got) != 2 || got[0].Core == got[1].Core || got[0].Cache != got[1].Cache {
		t.Errorf("without /sys: %v", got)
	}
}

func TestLists(t *testing.T) {
	for s, want := range map[string]string{"0-3,8": "0-3,8", "": "", "5": "5", "3,1,2": "1-3", "x,1-,7": "7", "0-99999": ""} {
		if got := FormatList(ParseList(s)); got != want {
			t.Errorf("%q becomes %q; want %q", s, got, want)
		}
	}
}

func FuzzParseList(f *testing.F) {
	f.Add("0-3,8")
	f.Add("1-1,,-")
	f.Fuzz(func(t *testing.T, s string) {
		ids := ParseList(s)
		slices.Sort(ids)
		ids = slices.Compact(ids)
		if got := ParseList(FormatList(ids)); !slices.Equal(got, ids) {
			t.Errorf("%v becomes %v", ids, got)
		}
	})
}

func TestMemory(t *testing.T) {
	root := files(map[string]string{
		"proc/meminfo":                         "MemTotal:       16000000 kB\nMemFree: 1 kB",
		"proc/self/cgroup":                     "0::/slurm/job_7/step_0",
		"sys/fs/cgroup/slurm/memory.max":       "max",
		"sys/fs/cgroup/slurm/job_7/memory.max": "8589934592",
	})
	if got := Memory(root); got != 8<<30 {
		t.Errorf("got %d; want 8 GiB", got)
	}
}

func TestJobMemory(t *testing.T) {
	type memory struct{ all, perGPU int64 }
	for _, tt := range []struct {
		env  func(string) string
		want memory
	}{
		{env("SLURM_MEM_PER_NODE", "4000"), memory{all: 4000 << 20}},
		{env("SLURM_MEM_PER_CPU", "500"), memory{all: 2000 << 20}},
		{env("SLURM_MEM_PER_CPU_HET_GROUP_1", "300", "SLURM_MEM_PER_CPU_HET_GROUP_0", "100"), memory{all: 1200 << 20}},
		{env("SLURM_MEM_PER_GPU", "700"), memory{perGPU: 700 << 20}},
		{env("SLURM_MEM_PER_NODE", "0"), memory{}},
	} {
		all, perGPU := JobMemory(tt.env, "_HET_GROUP_1", 4)
		if got := (memory{all, perGPU}); got != tt.want {
			t.Errorf("got %v; want %v", got, tt.want)
		}
	}
}

func TestGPUs(t *testing.T) {
	driver := files(map[string]string{
		"proc/driver/nvidia/gpus/0000:01:00.0/information": "GPU UUID: GPU-a",
		"proc/driver/nvidia/gpus/0000:81:00.0/information": "GPU UUID: GPU-b",
		"sys/bus/pci/devices/0000:81:00.0/numa_node":       "1",
	})
	for _, tt := range []struct {
		env      func(string) string
		want     []pool.GPU
		variable string
	}{
		{env(), []pool.GPU{{ID: "0", NUMA: -1}, {ID: "1", NUMA: 1}}, "CUDA_VISIBLE_DEVICES"},
		{env("CUDA_VISIBLE_DEVICES", "GPU-b,MIG-7"), []pool.GPU{{ID: "GPU-b", NUMA: 1}, {ID: "MIG-7", NUMA: -1}}, "CUDA_VISIBLE_DEVICES"},
		{env("ROCR_VISIBLE_DEVICES", "0"), []pool.GPU{{ID: "0", NUMA: -1}}, "ROCR_VISIBLE_DEVICES"},
		{env("SLURM_JOB_GPUS", "1"), []pool.GPU{{ID: "1", NUMA: 1}}, "CUDA_VISIBLE_DEVICES"},
		{env("CUDA_VISIBLE_DEVICES", "NoDevFiles"), nil, "CUDA_VISIBLE_DEVICES"},
		{env("CUDA_VISIBLE_DEVICES", " "), nil, "CUDA_VISIBLE_DEVICES"}, // it is empty
		{env("CUDA_VISIBLE_DEVICES", "0, 1"), []pool.GPU{{ID: "0", NUMA: -1}, {ID: "1", NUMA: 1}}, "CUDA_VISIBLE_DEVICES"},
	} {
		got, variable := GPUs(driver, func(name string) (string, bool) { v := tt.env(name); return strings.TrimSpace(v), v != "" })
		if !slices.Equal(got, tt.want) || variable != tt.variable {
			t.Errorf("got %v, %s; want %v, %s", got, variable, tt.want, tt.variable)
		}
	}
}
