package request

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/launcher/unit"
)

// Request is what was asked for.
type Request struct {
	Alternatives []Alternative // in order of preference, at least one
	Warnings     []Warning
}

// Warning is something that can be understood, but is perhaps not what was meant.
type Warning struct {
	Line, Column int // both from 1
	Message      string
}

func (w Warning) String() string {
	return fmt.Sprintf("request:%d:%d: %s", w.Line, w.Column, w.Message)
}

// Alternative is one way to satisfy a request; all of it must hold.
type Alternative struct {
	GPUs     []GPU         // smallest memory first; alike ones are one element
	Memory   int64         // bytes of main memory on each node, 0: not said
	Cores    int           // CPUs of each node, 0: not said
	Duration time.Duration // 0: not said
	Nodes    int           // 0: not said, which is one
	Where    []Condition
}

// Kind is a kind of GPU.
type Kind string

// The kinds of GPU a request can name. AnyGPU is any of the others.
const (
	CUDA   Kind = "cuda"
	MPS    Kind = "mps"
	ROCm   Kind = "rocm"
	AnyGPU Kind = "gpu"
)

// GPU is a number of alike GPUs on each node.
type GPU struct {
	Kind   Kind
	Count  int
	Memory int64  // bytes each must have at least, 0: any
	Model  string // "": any
}

// Condition is a name that must, or must not, be that of the place found.
type Condition struct {
	Field   string // partition, feature, qos, account or host
	Not     bool
	Pattern string // "*" is any letters, "?" one
}

// GPUCount is the number of GPUs asked for on each node.
func (a Alternative) GPUCount() int {
	n := 0
	for _, g := range a.GPUs {
		n += g.Count
	}
	return n
}

// and returns what satisfies both a and b.
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
	a.Where = slices.Clone(a.Where)
	for _, c := range b.Where {
		if !slices.Contains(a.Where, c) {
			a.Where = append(a.Where, c)
		}
	}
	return a
}

func (a *Alternative) addGPU(g GPU) {
	for i, have := range a.GPUs {
		if have.Kind == g.Kind && have.Memory == g.Memory && have.Model == g.Model {
			a.GPUs[i].Count += g.Count
			return
		}
	}
	a.GPUs = append(a.GPUs, g)
}

// String writes the request so that Parse reads the same from it.
func (r Request) String() string {
	alternatives := make([]string, len(r.Alternatives))
	for i, a := range r.Alternatives {
		alternatives[i] = a.String()
	}
	return strings.Join(alternatives, " | ")
}

// String writes the alternative so that Parse reads the same from it.
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
	for _, c := range a.Where {
		terms = append(terms, c.String())
	}
	if len(terms) == 0 {
		return "duration=0s"
	}
	return strings.Join(terms, " & ")
}

func (g GPU) String() string {
	var args []string
	if g.Memory > 0 {
		args = append(args, "mem="+unit.FormatSize(g.Memory))
	}
	if g.Model != "" {
		args = append(args, "model="+quote(g.Model))
	}
	s := string(g.Kind) + "(" + strings.Join(args, ", ") + ")"
	if g.Count > 1 {
		s += fmt.Sprintf(" * %d", g.Count)
	}
	return s
}

func (c Condition) String() string {
	if c.Not {
		return c.Field + "!=" + quote(c.Pattern)
	}
	return c.Field + "=" + quote(c.Pattern)
}

// quote puts a name that is not one token into quotes. A name that holds both
// kinds of quotes cannot be written, and Parse reads none such.
func quote(name string) string {
	switch {
	case name != "" && strings.IndexFunc(name, func(r rune) bool { return !isName(r) }) < 0:
		return name
	case strings.Contains(name, `"`):
		return "'" + name + "'"
	}
	return `"` + name + `"`
}

// Matches reports whether a name fits the pattern of the condition, whatever Not
// says.
func (c Condition) Matches(name string) bool { return glob(c.Pattern, name) }

// glob matches in time linear in len(name) for each "*": it goes back to the
// last one only.
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
