package local

import (
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

	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/pool/machine"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Resources are what this machine has for jobs, or what a job takes of it.
type Resources struct {
	CPUs   int   `json:"cpus,omitempty"`
	Memory int64 `json:"memory,omitempty"` // bytes
	GPUs   int   `json:"gpus,omitempty"`
	// Taken are the GPUs of a job, as CUDA_VISIBLE_DEVICES names them.
	Taken []string `json:"taken,omitempty"`
	// IDs are the CPUs that jobs may use, adjacent where they share a core or NUMA node, or those
	// that a job is bound to.
	IDs []int `json:"cpu_ids,omitempty"`
}

// Machine returns what this machine has.
func Machine() Resources {
	r := Resources{CPUs: runtime.NumCPU(), GPUs: len(devices()), IDs: nearest()}
	r.Memory = machine.Memory(os.DirFS("/"))
	if job, _ := machine.JobMemory(os.Getenv, "", r.CPUs); job > 0 {
		r.Memory = min(r.Memory, job)
	}
	return r
}

// devices returns the GPUs that jobs of this process may use.
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

// devices returns the names of the machine's GPUs.
func (r Resources) devices() []string {
	if all := devices(); len(all) >= r.GPUs {
		return all[:r.GPUs]
	}
	return numbered(r.GPUs)
}

// Check reports why this machine can never meet a task's needs, or nil.
func Check(n runner.Needs, has Resources) error {
	_, err := takes(n, has)
	return err
}

// takes returns what a task requests, if the machine has it.
func takes(n runner.Needs, has Resources) (Resources, error) {
	if n.Request.Find == "" {
		return Resources{}, nil
	}
	parsed, err := request.Parse(n.Request.Find)
	if err != nil {
		return Resources{}, fmt.Errorf("the request: %w", err)
	}
	memory, err := grown(n.Changed)
	if err != nil {
		return Resources{}, err
	}
	for _, a := range parsed.Alternatives {
		if memory > 0 { // after an attempt that had too little
			a.Memory = memory
		}
		var r Resources
		if r, err = takesOf(a, has); err == nil {
			return r, nil
		}
	}
	return Resources{}, fmt.Errorf("the request %s: %w", parsed, err)
}

// grown returns the memory in bytes among the options by which an attempt differs from the first one,
// or 0.
func grown(changed []string) (int64, error) {
	for _, option := range changed {
		if size, ok := strings.CutPrefix(option, "mem="); ok {
			return need.Memory(size)
		}
	}
	return 0, nil
}

func takesOf(a request.Alternative, has Resources) (Resources, error) {
	no := func(format string, args ...any) (Resources, error) { return Resources{}, fmt.Errorf(format, args...) }
	if a.Nodes > 1 || len(a.Where) > 0 || len(a.GRES) > 0 || len(a.Licenses) > 0 {
		return no("this machine has no other nodes, partitions, generic resources and licenses")
	}
	r := Resources{CPUs: max(1, a.Cores) * max(1, a.Tasks), Memory: a.Memory}
	for _, g := range a.GPUs {
		if !g.AnyModel() {
			return no("the models of this machine's GPUs are not known; request gpu() * N")
		}
		r.GPUs += max(1, g.Count)
	}
	r.CPUs, r.Memory = max(r.CPUs, a.CPUsPerGPU*r.GPUs), max(r.Memory, a.MemPerGPU*int64(r.GPUs))
	if a.Exclusive {
		r.CPUs = max(r.CPUs, has.CPUs)
	}
	switch {
	case r.CPUs > has.CPUs:
		return no("%d CPUs are requested; this machine has %d", r.CPUs, has.CPUs)
	case r.Memory > has.Memory:
		return no("%s of memory are requested; this machine has %s", unit.ShortSize(r.Memory), unit.ShortSize(has.Memory))
	case r.GPUs > has.GPUs:
		return no("%d GPUs are requested; this machine has %d", r.GPUs, has.GPUs)
	}
	return r, nil
}

const (
	machineFile = "machine.json"
	chooseLock  = "choose.lock"
)

// describe records for workers what the machine has.
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

// left returns what running jobs leave of the machine. Own is the slot that asks.
func left(dir, own string) (Resources, error) {
	var has Resources
	b, err := os.ReadFile(filepath.Join(dir, machineFile))
	if err == nil {
		err = json.Unmarshal(b, &has)
	}
	if err != nil {
		return has, err
	}
	has.Taken = has.devices() // those that are free
	if len(has.IDs) < has.CPUs {
		has.IDs = nil // more are configured than the machine has: jobs are not bound to CPUs
	}
	slots, err := os.ReadDir(filepath.Join(dir, slotsDir))
	if err != nil {
		return has, err
	}
	for _, s := range slots {
		path := filepath.Join(dir, slotsDir, s.Name())
		if path == own || strings.HasSuffix(path, takesSuffix) {
			continue
		}
		held, err := lock.Held(path)
		if err != nil {
			return has, err
		}
		if !held {
			continue
		}
		var job Resources
		if b, err := os.ReadFile(path + takesSuffix); err == nil && json.Unmarshal(b, &job) == nil {
			has.CPUs -= job.CPUs
			has.Memory -= job.Memory
			has.Taken = slices.DeleteFunc(has.Taken, func(name string) bool { return slices.Contains(job.Taken, name) })
			has.IDs = slices.DeleteFunc(has.IDs, func(id int) bool { return slices.Contains(job.IDs, id) })
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return has, err
		}
	}
	has.GPUs = len(has.Taken)
	return has, nil
}

// takesSuffix, appended to the name of a slot, names the file that says what its job takes.
const takesSuffix = ".takes"

// fits allocates what a job needs of what is left, if that is enough.
func (r Resources) fits(job Resources) (Resources, bool) {
	// A job that requests nothing is not counted.
	if job.CPUs > max(0, r.CPUs) || job.Memory > max(0, r.Memory) || job.GPUs > r.GPUs {
		return job, false
	}
	job.Taken = slices.Clone(r.Taken[:job.GPUs])
	if job.CPUs <= len(r.IDs) {
		job.IDs = slices.Clone(r.IDs[:job.CPUs])
	}
	return job, true
}

// choosing takes the lock under which workers choose jobs.
func choosing(dir string) (*lock.Lock, error) {
	return lock.TryFor(filepath.Join(dir, chooseLock), 30*time.Second)
}
