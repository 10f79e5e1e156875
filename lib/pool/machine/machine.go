// Package machine reports what this node has for tasks: the CPUs that this process may use, with
// their topology, memory, and GPUs.
package machine

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/ponos-tools/ponos/lib/pool"
)

// Affinity returns the ids of the CPUs this process may use.
func Affinity() []int {
	var set unix.CPUSet
	if unix.SchedGetaffinity(0, &set) != nil {
		return []int{0}
	}
	var ids []int
	for id := 0; len(ids) < set.Count(); id++ {
		if set.IsSet(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Topology returns the location of the CPUs with these ids; root is "/". CPUs that the system does
// not describe are taken as one core each, all near each other.
func Topology(root fs.FS, ids []int) []pool.CPU {
	numa := map[int]int{}
	nodes, _ := fs.Glob(root, "sys/devices/system/node/node[0-9]*")
	for _, dir := range nodes {
		node, err := strconv.Atoi(strings.TrimPrefix(path.Base(dir), "node"))
		if err != nil {
			continue
		}
		for _, id := range ParseList(read(root, dir+"/cpulist")) {
			numa[id] = node
		}
	}
	cores, caches := map[string]int{}, map[string]int{}
	number := func(m map[string]int, key string) int {
		if _, ok := m[key]; !ok {
			m[key] = len(m)
		}
		return m[key]
	}
	out := make([]pool.CPU, 0, len(ids))
	for _, id := range ids {
		dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d", id)
		core := read(root, dir+"/topology/thread_siblings_list")
		if core == "" {
			core = fmt.Sprint("cpu", id)
		}
		cache := ""
		for level := 4; level >= 0 && cache == ""; level-- {
			cache = read(root, fmt.Sprintf("%s/cache/index%d/shared_cpu_list", dir, level))
		}
		out = append(out, pool.CPU{ID: id, Core: number(cores, core), Cache: number(caches, cache), NUMA: numa[id]})
	}
	return out
}

func read(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// maxCPU limits ids, as no machine has more.
const maxCPU = 1 << 14

// ParseList reads a list of numbers as the kernel writes it: "0-3,8". What is
// not a number is left out.
func ParseList(s string) []int {
	var out []int
	for part := range strings.SplitSeq(strings.TrimSpace(s), ",") {
		low, high, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(low)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(high)
		}
		if err != nil || a < 0 || b > maxCPU {
			continue
		}
		for ; a <= b; a++ {
			out = append(out, a)
		}
	}
	return out
}

// FormatList writes numbers as ParseList reads them.
func FormatList(ids []int) string {
	ids = slices.Clone(ids)
	slices.Sort(ids)
	var b strings.Builder
	for i := 0; i < len(ids); {
		j := i
		for j+1 < len(ids) && ids[j+1] == ids[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(ids[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(ids[j]))
		}
		i = j + 1
	}
	return b.String()
}

// Memory returns the memory that tasks may use in all: that of the machine, of the cgroups of this
// process, or of the Slurm job, whichever is least.
func Memory(root fs.FS) int64 {
	least := int64(1<<63 - 1)
	lower := func(n int64) {
		if n > 0 && n < least {
			least = n
		}
	}
	for line := range strings.Lines(read(root, "proc/meminfo") + "\n") {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			lower(kb << 10)
		}
	}
	scan := bufio.NewScanner(strings.NewReader(read(root, "proc/self/cgroup")))
	for scan.Scan() {
		fields := strings.SplitN(scan.Text(), ":", 3)
		if len(fields) != 3 {
			continue
		}
		base, file := "sys/fs/cgroup", "memory.max"
		if fields[1] == "memory" {
			base, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		} else if fields[1] != "" {
			continue
		}
		for dir := path.Clean("/" + fields[2]); ; dir = path.Dir(dir) {
			n, err := strconv.ParseInt(read(root, path.Join(base, dir, file)), 10, 64)
			if err == nil {
				lower(n)
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}

// JobMemory returns the memory, in bytes, that a job has at a node where it has that many CPUs, or for each
// of its GPUs there, as its variables have it. Both are 0 if they do not: with --mem=0, and where Slurm
// does not count memory.
func JobMemory(getenv func(string) string, suffix string, cpus int) (all, perGPU int64) {
	bytes := func(name string) int64 {
		mib, _ := strconv.ParseInt(cmp.Or(getenv(name+suffix), getenv(name)), 10, 64)
		return max(0, mib) << 20
	}
	if all = bytes("SLURM_MEM_PER_NODE"); all > 0 {
		return all, 0
	}
	if perGPU = bytes("SLURM_MEM_PER_GPU"); perGPU > 0 {
		return 0, perGPU
	}
	return bytes("SLURM_MEM_PER_CPU") * int64(cpus), 0
}

// GPUs returns the GPUs tasks may use, as the environment names them, and the
// variable that did; without one, those the NVIDIA driver knows, unless CUDA_VISIBLE_DEVICES is empty.
func GPUs(root fs.FS, lookup func(string) (string, bool)) ([]pool.GPU, string) {
	for _, name := range []string{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS"} {
		value, _ := lookup(name)
		if value = strings.TrimSpace(value); value == "" {
			continue
		}
		if !strings.HasSuffix(name, "DEVICES") {
			name = "CUDA_VISIBLE_DEVICES"
		}
		if value == "NoDevFiles" || value == "-1" {
			return nil, name
		}
		var out []pool.GPU
		for id := range strings.FieldsFuncSeq(value, func(r rune) bool { return r == ',' || r == ' ' }) {
			out = append(out, pool.GPU{ID: id, NUMA: numaOf(root, id)})
		}
		return out, name
	}
	if _, none := lookup("CUDA_VISIBLE_DEVICES"); none {
		return nil, "CUDA_VISIBLE_DEVICES"
	}
	dirs, _ := fs.Glob(root, "proc/driver/nvidia/gpus/*")
	var out []pool.GPU
	for i := range dirs {
		id := strconv.Itoa(i)
		out = append(out, pool.GPU{ID: id, NUMA: numaOf(root, id)})
	}
	return out, "CUDA_VISIBLE_DEVICES"
}

// numaOf returns the NUMA node of a GPU, or -1. Device numbers are those of the
// driver when CUDA_DEVICE_ORDER=PCI_BUS_ID, which is the order of the list.
func numaOf(root fs.FS, id string) int {
	dirs, _ := fs.Glob(root, "proc/driver/nvidia/gpus/*")
	n, err := strconv.Atoi(id)
	if err != nil {
		n = slices.IndexFunc(dirs, func(dir string) bool { return bytes.Contains([]byte(read(root, dir+"/information")), []byte(id)) })
	}
	if n < 0 || n >= len(dirs) {
		return -1
	}
	node, err := strconv.Atoi(read(root, path.Join("sys/bus/pci/devices", path.Base(dirs[n]), "numa_node")))
	if err != nil || node < 0 {
		return -1
	}
	return node
}

// Hostname returns the name of this node in Slurm, or else its own.
func Hostname() string {
	if name := os.Getenv("SLURMD_NODENAME"); name != "" {
		return name
	}
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return name
}

// Available returns the memory in bytes that can be allocated without swapping: MemAvailable of
// proc/meminfo.
func Available(root fs.FS) int64 {
	for line := range strings.Lines(read(root, "proc/meminfo") + "\n") {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return 0
}
