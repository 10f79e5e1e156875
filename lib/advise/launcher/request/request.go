package request

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/base/unit"
)

// Request is a parsed request.
type Request struct {
	Alternatives []Alternative // in order of preference, at least one
	Warnings     []Warning
}

// Warning is about a part of a request that is valid but may not mean what its author expects.
type Warning struct {
	Line, Column int // both start at 1
	Message      string
}

func (w Warning) String() string {
	return fmt.Sprintf("request:%d:%d: %s", w.Line, w.Column, w.Message)
}

// Alternative is one way to satisfy a request; all of its terms must hold. Zero is not
// requested. Memory, CPUs, disk, GPUs and GRES are those of each node.
type Alternative struct {
	GPUs     []GPU // smallest memory first; identical ones are one element
	Memory   int64 // bytes of main memory
	Cores    int   // CPUs per task
	Duration time.Duration
	Nodes    int // 0: one
	Where    []Condition

	Tasks          int // per node; 0: one
	CPUsPerGPU     int
	MemPerGPU      int64 // bytes
	Disk           int64 // bytes of local disk
	GRES           []Amount
	Licenses       []Amount // of the whole job
	Exclusive      bool     // whole nodes
	NotPreemptible bool     // only partitions whose jobs are not preempted
	Deadlines      []Deadline
}

// Amount is a number of a named resource: a GRES or a license.
type Amount struct {
	Name  string
	Count int
}

// Deadline is the time by which a job must have ended.
type Deadline struct {
	Clock string        // "15:04:05" (the next occurrence) or "2006-01-02T15:04:05"; "": use In
	In    time.Duration // from now
}

// At returns the time of the deadline, in the time zone of now.
func (d Deadline) At(now time.Time) time.Time {
	if d.Clock == "" {
		return now.Add(d.In)
	}
	if at, err := time.ParseInLocation("2006-01-02T15:04:05", d.Clock, now.Location()); err == nil {
		return at
	}
	at, err := time.ParseInLocation("2006-01-02T15:04:05", now.Format("2006-01-02T")+d.Clock, now.Location())
	if err == nil && !at.After(now) {
		at = at.AddDate(0, 0, 1)
	}
	return at
}

// Kind is a kind of GPU.
type Kind string

// The kinds of GPU that a request can name. AnyGPU matches every kind; Slice is a part of a CUDA GPU (MIG), and the
// others are whole ones.
const (
	Slice  Kind = "slice"
	CUDA   Kind = "cuda"
	MPS    Kind = "mps"
	ROCm   Kind = "rocm"
	XPU    Kind = "xpu"
	AnyGPU Kind = "gpu"
)

func (k Kind) known() bool { return slices.Contains([]Kind{CUDA, MPS, ROCm, XPU, AnyGPU, Slice}, k) }

// GPU is a number of identical GPUs on each node.
type GPU struct {
	Kind      Kind
	Count     int
	Memory    int64    // minimum in bytes; 0: any
	MaxMemory int64    // maximum in bytes; 0: any
	Models    []string // the model is one of these; empty: any
	NotModels []string // the model is not one of these
	CC, MaxCC gpu.Capability
}

// Sliced reports whether parts of GPUs are requested: by the kind, or by the profile of a slice as the model.
func (g *GPU) Sliced() bool {
	return g.Kind == Slice || len(g.Models) > 0 && !slices.ContainsFunc(g.Models, func(m string) bool { return !gpu.IsSlice(m) })
}

// like reports whether two descriptions differ at most in the number of GPUs.
func (g GPU) like(h GPU) bool {
	return g.Kind == h.Kind && g.Memory == h.Memory && g.MaxMemory == h.MaxMemory && g.CC == h.CC && g.MaxCC == h.MaxCC &&
		slices.Equal(g.Models, h.Models) && slices.Equal(g.NotModels, h.NotModels)
}

// AnyModel reports whether only a kind and a number are requested, so that unknown properties
// of the GPU do not matter.
func (g GPU) AnyModel() bool {
	return g.Memory == 0 && g.MaxMemory == 0 && len(g.Models) == 0 && len(g.NotModels) == 0 && g.CC == 0 && g.MaxCC == 0
}

// Condition is a name that the partition, feature, QoS, account or host of the answer must
// have, or must not have.
type Condition struct {
	Field   string // partition, feature, qos, account or host
	Not     bool
	Pattern string // "*" matches any characters, "?" one
}

// GPUCount is the number of GPUs requested on each node.
func (a Alternative) GPUCount() int {
	n := 0
	for _, g := range a.GPUs {
		n += g.Count
	}
	return n
}

// Resolved returns the alternative with Cores and Memory raised to CPUsPerGPU and MemPerGPU
// times the number of GPUs.
func (a Alternative) Resolved() Alternative {
	gpus := a.GPUCount()
	if a.CPUsPerGPU > 0 && gpus > 0 {
		tasks := max(1, a.Tasks)
		a.Cores = max(a.Cores, (min(a.CPUsPerGPU, maxCount)*gpus-1)/tasks+1)
	}
	if a.MemPerGPU > 0 && gpus > 0 {
		if a.MemPerGPU > (1<<62)/int64(gpus) {
			a.Memory = 1 << 62
		} else {
			a.Memory = max(a.Memory, a.MemPerGPU*int64(gpus))
		}
	}
	return a
}

// and returns the alternative that requires both a and b.
func (a Alternative) and(b Alternative) Alternative {
	a.GPUs = slices.Clone(a.GPUs)
	for _, g := range b.GPUs {
		a.addGPU(g)
	}
	slices.SortStableFunc(a.GPUs, func(x, y GPU) int {
		switch {
		case x.Memory < y.Memory:
			return -1
		case x.Memory > y.Memory:
			return 1
		}
		return 0
	})
	a.Memory, a.Cores = max(a.Memory, b.Memory), max(a.Cores, b.Cores)
	a.Duration, a.Nodes = max(a.Duration, b.Duration), max(a.Nodes, b.Nodes)
	a.Tasks, a.Disk = max(a.Tasks, b.Tasks), max(a.Disk, b.Disk)
	a.CPUsPerGPU, a.MemPerGPU = max(a.CPUsPerGPU, b.CPUsPerGPU), max(a.MemPerGPU, b.MemPerGPU)
	a.Exclusive, a.NotPreemptible = a.Exclusive || b.Exclusive, a.NotPreemptible || b.NotPreemptible
	a.GRES, a.Licenses = sum(a.GRES, b.GRES), sum(a.Licenses, b.Licenses)
	a.Deadlines = slices.Clone(a.Deadlines)
	for _, d := range b.Deadlines {
		if !slices.Contains(a.Deadlines, d) {
			a.Deadlines = append(a.Deadlines, d)
		}
	}
	a.Where = slices.Clone(a.Where)
	for _, c := range b.Where {
		if !slices.Contains(a.Where, c) {
			a.Where = append(a.Where, c)
		}
	}
	return a
}

// sum adds up the amounts of each name.
func sum(a, b []Amount) []Amount {
	all := slices.Clone(a)
	for _, x := range b {
		if i := slices.IndexFunc(all, func(y Amount) bool { return x.Name == y.Name }); i >= 0 {
			all[i].Count += x.Count
		} else {
			all = append(all, x)
		}
	}
	return all
}

func (a *Alternative) addGPU(g GPU) {
	for i, have := range a.GPUs {
		if have.like(g) {
			a.GPUs[i].Count += g.Count
			return
		}
	}
	a.GPUs = append(a.GPUs, g)
}

// String returns the request in the form that Parse reads.
func (r Request) String() string {
	alternatives := make([]string, len(r.Alternatives))
	for i, a := range r.Alternatives {
		alternatives[i] = a.String()
	}
	return strings.Join(alternatives, " | ")
}

// String returns the alternative in the form that Parse reads.
func (a Alternative) String() string {
	var terms []string
	if a.Duration > 0 {
		terms = append(terms, "duration="+unit.FormatDuration(a.Duration))
	}
	for _, g := range a.GPUs {
		terms = append(terms, g.String())
	}
	if a.Memory > 0 || a.Cores > 0 {
		var args []string
		if a.Memory > 0 {
			args = append(args, "mem="+unit.FormatSize(a.Memory))
		}
		if a.Cores > 0 {
			args = append(args, fmt.Sprintf("cores=%d", a.Cores))
		}
		terms = append(terms, "cpu("+strings.Join(args, ", ")+")")
	}
	if a.Nodes > 0 {
		terms = append(terms, fmt.Sprintf("nodes=%d", a.Nodes))
	}
	terms = append(terms, a.moreTerms()...)
	for _, c := range a.Where {
		terms = append(terms, c.String())
	}
	if len(terms) == 0 {
		return "duration=0s"
	}
	return strings.Join(terms, " & ")
}

func (a Alternative) moreTerms() []string {
	var terms []string
	if a.Tasks > 0 {
		terms = append(terms, fmt.Sprintf("tasks=%d", a.Tasks))
	}
	if a.CPUsPerGPU > 0 {
		terms = append(terms, fmt.Sprintf("cpus per gpu=%d", a.CPUsPerGPU))
	}
	if a.MemPerGPU > 0 {
		terms = append(terms, "mem per gpu="+unit.FormatSize(a.MemPerGPU))
	}
	if a.Disk > 0 {
		terms = append(terms, "disk="+unit.FormatSize(a.Disk))
	}
	for _, x := range a.GRES {
		terms = append(terms, x.term("gres"))
	}
	for _, x := range a.Licenses {
		terms = append(terms, x.term("license"))
	}
	if a.Exclusive {
		terms = append(terms, "exclusive")
	}
	if a.NotPreemptible {
		terms = append(terms, "preemptible=no")
	}
	for _, d := range a.Deadlines {
		if d.Clock != "" {
			terms = append(terms, "deadline="+d.Clock)
		} else {
			terms = append(terms, "deadline="+unit.FormatDuration(d.In))
		}
	}
	return terms
}

// Sharing reports whether a GRES is a part of a GPU that several jobs share.
func (x Amount) Sharing() bool {
	name, _, _ := strings.Cut(x.Name, ":")
	return name == "shard" || name == "mps"
}

func (x Amount) term(word string) string {
	s := word + "(" + x.Name + ")"
	if x.Count > 1 {
		s += fmt.Sprintf(" * %d", x.Count)
	}
	return s
}

func (g GPU) String() string {
	var args []string
	switch {
	case g.Memory > 0 && g.MaxMemory > 0:
		args = append(args, "mem="+unit.FormatSize(g.Memory)+".."+unit.FormatSize(g.MaxMemory))
	case g.MaxMemory > 0:
		args = append(args, "mem<="+unit.FormatSize(g.MaxMemory))
	case g.Memory > 0:
		args = append(args, "mem="+unit.FormatSize(g.Memory))
	}
	if len(g.Models) > 0 {
		args = append(args, "model="+list(g.Models))
	}
	if len(g.NotModels) > 0 {
		args = append(args, "model!="+list(g.NotModels))
	}
	switch {
	case g.CC > 0 && g.CC == g.MaxCC:
		args = append(args, "cc="+g.CC.String())
	case g.CC > 0 && g.MaxCC > 0:
		args = append(args, "cc="+g.CC.String()+".."+g.MaxCC.String())
	case g.CC > 0:
		args = append(args, "cc>="+g.CC.String())
	case g.MaxCC > 0:
		args = append(args, "cc<="+g.MaxCC.String())
	}
	s := string(g.Kind) + "(" + strings.Join(args, ", ") + ")"
	if g.Count > 1 {
		s += fmt.Sprintf(" * %d", g.Count)
	}
	return s
}

// list writes one name, or several in brackets.
func list(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	if len(names) == 1 {
		return quoted[0]
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

func (c Condition) String() string {
	if c.Not {
		return c.Field + "!=" + quote(c.Pattern)
	}
	return c.Field + "=" + quote(c.Pattern)
}

// quote quotes a name that is not one token. A name with both kinds of quotes cannot be
// written, and Parse returns none.
func quote(name string) string {
	switch {
	case name != "" && strings.IndexFunc(name, func(r rune) bool { return !isName(r) }) < 0:
		return name
	case strings.Contains(name, `"`):
		return "'" + name + "'"
	}
	return `"` + name + `"`
}

// Matches reports whether a name matches the pattern, ignoring Not.
func (c Condition) Matches(name string) bool { return glob(c.Pattern, name) }

// glob needs time linear in len(name) for each "*", as it backtracks to the last one only.
func glob(pattern, name string) bool {
	p, n, star, mark := 0, 0, -1, 0
	for n < len(name) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, n
			p++
		case p < len(pattern) && (pattern[p] == '?' || pattern[p] == name[n]):
			p++
			n++
		case star >= 0:
			mark++
			p, n = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
