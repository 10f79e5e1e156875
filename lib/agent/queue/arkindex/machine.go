package arkindex

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Hardware is what the agent declares as available.
type Hardware struct {
	CPUs      int   `json:"cpu_cores"`
	Frequency int64 `json:"cpu_frequency"` // Hz
	RAM       int64 `json:"ram_total"`     // bytes
	GPUs      []GPU `json:"gpus"`          // without one, no task that needs a GPU is assigned
}

// GPU is one declared GPU.
type GPU struct {
	ID    string `json:"id"` // a UUID, without the prefix "GPU-"
	Index int    `json:"index"`
	Name  string `json:"name"`
	RAM   int64  `json:"ram_total"` // bytes
}

// machine reads the figures of this machine. What cannot be read stays zero.
func machine() Hardware {
	h := Hardware{CPUs: runtime.NumCPU(), GPUs: []GPU{}}
	h.RAM = memory("MemTotal")
	if b, err := os.ReadFile("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"); err == nil {
		khz, _ := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		h.Frequency = khz * 1000
	} else if mhz, err := strconv.ParseFloat(field("/proc/cpuinfo", "cpu MHz"), 64); err == nil {
		h.Frequency = int64(mhz * 1e6)
	}
	files, _ := filepath.Glob("/proc/driver/nvidia/gpus/*/information")
	for i, file := range files {
		id := strings.TrimPrefix(field(file, "GPU UUID"), "GPU-")
		if id != "" && !strings.Contains(id, "?") {
			h.GPUs = append(h.GPUs, GPU{ID: id, Index: i, Name: field(file, "Model")})
		}
	}
	return h
}

// machineLoad returns how busy this machine is: the run queue per CPU, and the fraction of memory in
// use.
func machineLoad() (cpu, ram float64) {
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(b), " ")
		if load, err := strconv.ParseFloat(first, 64); err == nil {
			cpu = load / float64(runtime.NumCPU())
		}
	}
	if total := memory("MemTotal"); total > 0 {
		ram = 1 - float64(memory("MemAvailable"))/float64(total)
	}
	return share(cpu), share(ram)
}

// share rounds to two digits within 0 and 1.
func share(x float64) float64 { return math.Round(100*max(0, min(1, x))) / 100 }

// memory reads a figure of /proc/meminfo, in bytes.
func memory(name string) int64 {
	kib, err := strconv.ParseInt(strings.TrimSuffix(field("/proc/meminfo", name), " kB"), 10, 64)
	if err != nil {
		return 0
	}
	return kib << 10
}

// field returns the value of the first line "name: value" of a file.
func field(file, name string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		key, value, ok := strings.Cut(lines.Text(), ":")
		if ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
