package local

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/launcher/request"
	"github.com/ponos-tools/ponos/lib/lock"
	"github.com/ponos-tools/ponos/lib/runner"
	"github.com/ponos-tools/ponos/lib/unit"
)

// Resources are what this machine has for jobs, or what a job takes of it.
type Resources struct {
	CPUs   int   `json:"cpus,omitempty"`
	Memory int64 `json:"memory,omitempty"` // bytes
	GPUs   int   `json:"gpus,omitempty"`
	// Taken are the GPUs of a job, as CUDA_VISIBLE_DEVICES names them.
	Taken []string `json:"taken,omitempty"`
}

// Machine is what this machine has.
func Machine() Resources {
	r := Resources{CPUs: runtime.NumCPU(), GPUs: len(devices())}
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return r
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemTotal:"); ok {
			if kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 44); err == nil {
				r.Memory = kib << 10
			}
		}
	}
	return r
}

// devices are the GPUs that jobs of this process may have.
func devices() []string {
	if visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set {
		return strings.FieldsFunc(visible, func(r rune) bool { return r == ',' || r == ' ' })
	}
	files, err := filepath.Glob("/dev/nvidia[0-9]*")
	if err != nil {
		return nil
	}
	return numbered(len(files))
}

func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	return names
}

// devices are the names of the machine's GPUs.
func (r Resources) devices() []string {
	if all := devices(); len(all) >= r.GPUs {
		return all[:r.GPUs]
	}
	return numbered(r.GPUs)
}

// Check reports why this machine can never meet a task's needs, or nil.
func Check(n runner.Needs, machine Resources) error {
	_, err := takes(n, machine)
	return err
}

// takes is what a task asks for, if the machine has it.
func takes(n runner.Needs, machine Resources) (Resources, error) {
	if n.Request.Find == "" {
		return Resources{}, nil
	}
	parsed, err := request.Parse(n.Request.Find)
	if err != nil {
		return Resources{}, fmt.Errorf("the request: %w", err)
	}
	for _, a := range parsed.Alternatives {
		var r Resources
		if r, err = takesOf(a, machine); err == nil {
			return r, nil
		}
	}
	return Resources{}, fmt.Errorf("the request %s: %w", parsed, err)
}

func takesOf(a request.Alternative, machine Resources) (Resources, error) {
	no := func(format string, args ...any) (Resources, error) { return Resources{}, fmt.Errorf(format, args...) }
	if a.Nodes > 1 || len(a.Where) > 0 || len(a.GRES) > 0 || len(a.Licenses) > 0 {
		return no("this machine has no other nodes, partitions, generic resources and licenses")
	}
	r := Resources{CPUs: max(1, a.Cores) * max(1, a.Tasks), Memory: a.Memory}
	for _, g := range a.GPUs {
		if !g.AnyModel() {
			return no("which GPUs this machine has is not known; ask for gpu() * N")
		}
		r.GPUs += max(1, g.Count)
	}
	r.CPUs, r.Memory = max(r.CPUs, a.CPUsPerGPU*r.GPUs), max(r.Memory, a.MemPerGPU*int64(r.GPUs))
	if a.Exclusive {
		r.CPUs = max(r.CPUs, machine.CPUs)
	}
	switch {
	case r.CPUs > machine.CPUs:
		return no("%d CPUs are asked for; this machine has %d", r.CPUs, machine.CPUs)
	case r.Memory > machine.Memory:
		return no("%s of memory are asked for; this machine has %s", unit.ShortSize(r.Memory), unit.ShortSize(machine.Memory))
	case r.GPUs > machine.GPUs:
		return no("%d GPUs are asked for; this machine has %d", r.GPUs, machine.GPUs)
	}
	return r, nil
}

const (
	machineFile = "machine.json"
	chooseLock  = "choose.lock"
)

// describe writes down for workers what the machine has.
func describe(dir string, r Resources) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, machineFile)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, b) {
		return nil
	}
	return renameio.WriteFile(path, b, 0o600, renameio.WithTempDir(dir))
}

// left is what running jobs leave of the machine. Own is the slot that asks.
func left(dir, own string) (Resources, error) {
	var machine Resources
	b, err := os.ReadFile(filepath.Join(dir, machineFile))
	if err == nil {
		err = json.Unmarshal(b, &machine)
	}
	if err != nil {
		return machine, err
	}
	machine.Taken = machine.devices() // those that are free
	slots, err := os.ReadDir(filepath.Join(dir, slotsDir))
	if err != nil {
		return machine, err
	}
	for _, s := range slots {
		path := filepath.Join(dir, slotsDir, s.Name())
		if path == own || strings.HasSuffix(path, takesSuffix) {
			continue
		}
		held, err := lock.Held(path)
		if err != nil {
			return machine, err
		}
		if !held {
			continue
		}
		var job Resources
		if b, err := os.ReadFile(path + takesSuffix); err == nil && json.Unmarshal(b, &job) == nil {
			machine.CPUs -= job.CPUs
			machine.Memory -= job.Memory
			machine.Taken = slices.DeleteFunc(machine.Taken, func(name string) bool { return slices.Contains(job.Taken, name) })
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return machine, err
		}
	}
	machine.GPUs = len(machine.Taken)
	return machine, nil
}

// takesSuffix is behind the name of a slot in the name of the file that says what its job
// takes.
const takesSuffix = ".takes"

// fits gives a job its part of what is left, if that is enough.
func (r Resources) fits(job Resources) (Resources, bool) {
	// A job that asks for nothing is not counted.
	if job.CPUs > max(0, r.CPUs) || job.Memory > max(0, r.Memory) || job.GPUs > r.GPUs {
		return job, false
	}
	job.Taken = slices.Clone(r.Taken[:job.GPUs])
	return job, true
}

// choosing takes the lock under which workers choose jobs.
func choosing(dir string) (*lock.Lock, error) {
	return lock.TryFor(filepath.Join(dir, chooseLock), 30*time.Second)
}
