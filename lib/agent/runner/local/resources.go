package local

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/lock"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/pool"
	"github.com/ponos-tools/ponos/lib/pool/machine"
	"github.com/ponos-tools/ponos/lib/task/need"
	"github.com/ponos-tools/ponos/lib/task/runner"
)

// Machine is what this machine has for jobs.
type Machine struct {
	CPUs   int   `json:"cpus"`
	Memory int64 `json:"memory"` // bytes
	GPUs   int   `json:"gpus"`
	// Places are the CPUs. Unbound: they stand for no real ones, to which jobs could be bound.
	Places  []pool.CPU `json:"cpu_list"`
	Unbound bool       `json:"unbound,omitempty"`
	Devices []pool.GPU `json:"gpu_list"`
	// Variable names the GPUs of a job.
	Variable string `json:"gpu_variable"`
}

// Resources are what a job takes of a machine.
type Resources struct {
	CPUs   int   `json:"cpus,omitempty"`
	Memory int64 `json:"memory,omitempty"` // bytes
	GPUs   int   `json:"gpus,omitempty"`
	// Taken are the GPUs of the job, which Variable names, and IDs the CPUs that it is bound to.
	Taken    []string `json:"taken,omitempty"`
	Variable string   `json:"gpu_variable,omitempty"`
	IDs      []int    `json:"cpu_ids,omitempty"`
}

// NewMachine returns what this machine has, or as much as the configuration says; 0: nothing is configured.
func NewMachine(cpus int, memory int64, gpus int) Machine {
	m := Machine{CPUs: cpus, Memory: memory, GPUs: gpus, Places: machine.Topology(os.DirFS("/"), machine.Affinity())}
	m.Devices, m.Variable = machine.GPUs(os.DirFS("/"), os.LookupEnv)
	m.size()
	if m.Memory == 0 {
		m.Memory = machine.Memory(os.DirFS("/"))
		if job, _ := machine.JobMemory(os.Getenv, "", m.CPUs); job > 0 {
			m.Memory = min(m.Memory, job)
		}
	}
	return m
}

// size makes the numbers and the lists agree.
func (m *Machine) size() {
	if m.CPUs == 0 {
		m.CPUs = len(m.Places)
	}
	if m.Unbound = m.CPUs > len(m.Places); m.Unbound {
		m.Places = pool.Numbered(m.CPUs)
	}
	m.Places = m.Places[:m.CPUs]
	if m.GPUs == 0 {
		m.GPUs = len(m.Devices)
	}
	if m.GPUs > len(m.Devices) {
		m.Devices = nil
		for i := range m.GPUs {
			m.Devices = append(m.Devices, pool.GPU{ID: strconv.Itoa(i), NUMA: -1})
		}
	}
	m.Devices = m.Devices[:m.GPUs]
}

// Check reports why this machine can never meet a task's needs, or nil.
func Check(n runner.Needs, has Machine) error {
	_, err := takes(n, has)
	return err
}

// takes returns what a task requests, if the machine has it.
func takes(n runner.Needs, has Machine) (Resources, error) {
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

func takesOf(a request.Alternative, has Machine) (Resources, error) {
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
func describe(dir string, m Machine) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, machineFile)
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, b) {
		return nil
	}
	return renameio.WriteFile(path, b, 0o600, renameio.WithTempDir(dir))
}

// occupied is the job that a slot runs.
type occupied struct {
	Resources
	Ticket string `json:"ticket"`
}

// left is what running jobs leave of the machine, for one round of waiting jobs.
type left struct {
	Machine
	pool   *pool.Pool
	node   *pool.Node
	beside pool.Need // what jobs have that were submitted after the first that waits
	waits  int64     // jobs for which there was no room
}

// leftOf returns what running jobs leave. Own is the slot that asks, first the ticket of the first job that waits.
func leftOf(dir, own, first string) (l left, err error) {
	b, err := os.ReadFile(filepath.Join(dir, machineFile))
	if err == nil {
		err = json.Unmarshal(b, &l.Machine)
	}
	if err != nil {
		return l, err
	}
	l.node = pool.NewNode("", l.Places, l.Devices, l.Memory, pool.Named{})
	slots, err := os.ReadDir(filepath.Join(dir, slotsDir))
	if err != nil {
		return l, err
	}
	for _, s := range slots {
		path := filepath.Join(dir, slotsDir, s.Name())
		if path == own || strings.HasSuffix(path, takesSuffix) {
			continue
		}
		held, err := lock.Held(path)
		if err != nil {
			return l, err
		}
		if !held {
			continue
		}
		var job occupied
		if b, err := os.ReadFile(path + takesSuffix); err == nil && json.Unmarshal(b, &job) == nil {
			l.node.Given(job.need(), job.IDs, job.Taken)
			if job.Ticket > first {
				l.beside = l.beside.And(job.need())
			}
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return l, err
		}
	}
	l.pool = &pool.Pool{}
	l.pool.AddNode(l.node)
	return l, nil
}

// takesSuffix, appended to the name of a slot, names the file that says what its job takes.
const takesSuffix = ".takes"

func (r Resources) need() pool.Need { return pool.Need{CPUs: r.CPUs, GPUs: r.GPUs, Mem: r.Memory} }

// fits allocates what the next job in the order of tickets needs, if there is room for it beside the first one that waits.
// A job that requests nothing is not counted.
func (l *left) fits(job Resources) (Resources, bool) {
	if job.need() == (pool.Need{}) {
		return job, true
	}
	l.pool.Push(&pool.Task{Seq: l.waits, Spec: &pool.Spec{Need: job.need()}})
	if l.waits == 1 {
		l.pool.Reserve(l.node, l.beside)
	}
	slot := l.pool.Next()
	if slot == nil {
		l.waits++
		return job, false
	}
	if job.GPUs > 0 {
		job.Taken, job.Variable = slot.GPUs, l.Variable
	}
	if !l.Unbound {
		job.IDs = slot.CPUs
	}
	return job, true
}

// choosing takes the lock under which workers choose jobs.
func choosing(dir string) (*lock.Lock, error) {
	return lock.TryFor(filepath.Join(dir, chooseLock), 30*time.Second)
}
