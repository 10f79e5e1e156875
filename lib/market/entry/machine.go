package entry

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Machine is what was ordered; 0 and "" are not looked at. Only what contradicts it counts: that a container does not
// show something proves nothing.
type Machine struct {
	GPUs      int    `json:"gpus,omitempty"`
	GPU       string `json:"gpu,omitempty"`        // by the market's name of it
	GPUMemory int    `json:"gpu_memory,omitempty"` // of each, in MB
	Memory    int    `json:"memory,omitempty"`     // MB
	Disk      int    `json:"disk,omitempty"`       // GB
}

// Sizes are rounded, and a part of them is used by others.
const slack = 0.8

// driverTime is how long the driver may take to tell its GPUs.
const driverTime = 90 * time.Second

// seen is what a container shows of its machine.
type seen struct {
	count  string // of GPUs, as the market says
	driver func() (csv string, err error)
	memory int // MB; 0: unknown
	disk   int // GB
}

var model = regexp.MustCompile(`[A-Za-z]*[0-9]+`)

// lacks returns why a machine is not what was ordered, or does not work; "": nothing says so.
func (m Machine) lacks(s seen) string {
	if n, err := strconv.Atoi(s.count); err == nil && m.GPUs > 0 && n != m.GPUs {
		return fmt.Sprintf("it has %d GPUs instead of %d", n, m.GPUs)
	}
	if m.Memory > 0 && s.memory > 0 && float64(s.memory) < slack*float64(m.Memory) {
		return fmt.Sprintf("it has %d MB of memory instead of %d", s.memory, m.Memory)
	}
	if m.Disk > 0 && s.disk > 0 && float64(s.disk) < slack*float64(m.Disk) {
		return fmt.Sprintf("its disk has %d GB instead of %d", s.disk, m.Disk)
	}
	if m.GPUs == 0 || s.driver == nil {
		return ""
	}
	csv, err := s.driver()
	if err != nil {
		return fmt.Sprintf("the driver of its GPUs does not work: %v", err)
	}
	gpus := slices.DeleteFunc(strings.Split(csv, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
	if len(gpus) != m.GPUs {
		return fmt.Sprintf("its driver shows %d GPUs instead of %d", len(gpus), m.GPUs)
	}
	for _, gpu := range gpus {
		name, memory, _ := strings.Cut(gpu, ",")
		if want := model.FindString(m.GPU); !strings.Contains(plain(name), plain(want)) {
			return fmt.Sprintf("its GPU is a %s instead of a %s", strings.TrimSpace(name), m.GPU)
		}
		memory, _, _ = strings.Cut(memory, ",")
		if mb, err := strconv.Atoi(strings.TrimSpace(memory)); err == nil && float64(mb) < slack*float64(m.GPUMemory) {
			return fmt.Sprintf("its GPU has %d MB instead of %d", mb, m.GPUMemory)
		}
	}
	return ""
}

// plain is a name without what is written in several ways.
func plain(s string) string {
	return strings.NewReplacer(" ", "", "-", "", "_", "").Replace(strings.ToLower(s))
}

// memoryHere returns how much memory a container may use, in MB: that of the machine, or the limit of its cgroup.
func memoryHere() int {
	least := int64(0)
	b, _ := os.ReadFile("/proc/meminfo")
	if f := strings.Fields(string(b)); len(f) > 1 && f[0] == "MemTotal:" {
		kb, _ := strconv.ParseInt(f[1], 10, 64)
		least = kb << 10
	}
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		b, _ := os.ReadFile(path)
		if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 && n < least {
			least = n
		}
	}
	return int(least >> 20)
}

// diskHere returns how large the disk of a directory is, in GB.
func diskHere(dir string) int {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return 0
	}
	return int(float64(fs.Blocks) * float64(fs.Bsize) / 1e9)
}

// find returns where a program is, as a shell finds it.
func find(name string) (string, error) {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	if strings.Contains(name, "/") {
		dirs = []string{""}
	}
	found := os.ErrNotExist
	for _, dir := range dirs {
		path := name
		if !strings.Contains(name, "/") {
			path = filepath.Join(dir, "./"+name)
		}
		if !strings.Contains(path, "/") {
			path = "./" + path
		}
		info, err := os.Stat(path)
		switch {
		case err != nil || info.IsDir():
		case unix.Access(path, unix.X_OK) != nil:
			found = os.ErrPermission
		default:
			return path, nil
		}
	}
	return "", found
}
