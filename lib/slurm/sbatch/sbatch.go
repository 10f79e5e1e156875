// Package sbatch knows what the options of sbatch are: names, values, who may set them for a job, and what
// they request. It reads them from command lines, scripts and settings, merges and prints them.
package sbatch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/unit"
)

// Option is a long option of sbatch without its dashes. An option that may stand without a value has
// none if Value is empty.
type Option struct {
	Name, Value string
	Off         bool // it takes the option of an earlier source away, and is not given to sbatch
}

// Options are options of sbatch, in the order in which they are given, each at most once.
type Options []Option

// no is what a setting has that takes an option away.
const no = "no"

// Arg returns the option as an argument: --name=value, --name=no for one that is off.
func (o Option) Arg() string {
	if o.Off {
		return "--" + o.Name + "=" + no
	}
	if o.Value == "" {
		if d := byName[o.Name]; d == nil || d.Form == Flag || d.Optional {
			return "--" + o.Name
		}
	}
	return "--" + o.Name + "=" + o.Value
}

// Directive returns the option as a line of a batch script, without its end.
func (o Option) Directive() string {
	arg := o.Arg()
	if strings.ContainsAny(o.Value, " \t#\"'\\") {
		arg = "--" + o.Name + `="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(o.Value) + `"`
	}
	return directive + " " + arg
}

// Update returns the option as an argument of "scontrol update", "" if a submitted job cannot change it.
func (o Option) Update() string {
	d := byName[o.Name]
	switch {
	case d == nil || d.Update == "":
		return ""
	case d.Form == Flag || d.Name == "requeue":
		if o.Off {
			return d.Update + "=0"
		}
		return d.Update + "=1"
	case d.Name == "nice" && o.Value == "":
		return "Nice=100"
	}
	return d.Update + "=" + o.Value
}

// Args returns the options as arguments.
func (o Options) Args() []string {
	args := []string{}
	for _, option := range o {
		if !option.Off {
			args = append(args, option.Arg())
		}
	}
	return args
}

// String returns the options as people write them.
func (o Options) String() string { return strings.Join(o.Args(), " ") }

// Get returns the value of an option, and whether it is given.
func (o Options) Get(name string) (value string, ok bool) {
	for _, option := range o {
		if option.Name == name && !option.Off {
			return option.Value, true
		}
	}
	return "", false
}

// Value returns the value of an option, "" if it is not given.
func (o Options) Value(name string) string {
	value, _ := o.Get(name)
	return value
}

// Has reports whether an option is given.
func (o Options) Has(name string) bool {
	_, ok := o.Get(name)
	return ok
}

// Says reports whether an option is given, or one that says the same in another way.
func (o Options) Says(name string) bool {
	return slices.ContainsFunc(o, func(e Option) bool { return !e.Off && (e.Name == name || e.other(Option{Name: name}) != nil) })
}

// With returns the options with those of a later source, such as a task after a configuration. They replace what is said of the same
// thing: by the same option, by one that excludes it, and for GPUs by another way to request them. It leaves o unchanged.
func (o Options) With(later ...Option) Options {
	if !slices.ContainsFunc(later, Option.GPUs) {
		return o.Then(later...)
	}
	var kept Options
	for _, e := range o {
		if e, left := e.withoutGPUs(); left {
			kept = append(kept, e)
		}
	}
	return kept.Then(later...)
}

// Then returns the options with those that sbatch reads after them, as from its command line after a script. It differs from With
// for GPUs: --gpus and --gres of one job are one request together, as several options of one source are.
func (o Options) Then(later ...Option) Options {
	merged := slices.DeleteFunc(slices.Clone(o), func(e Option) bool {
		return slices.ContainsFunc(later, func(l Option) bool { return e.other(l) != nil })
	})
	for _, l := range later {
		merged = append(slices.DeleteFunc(merged, func(e Option) bool {
			p := e.other(l)
			return e.Name == l.Name || p != nil && p.refused == 0
		}), l)
	}
	return merged
}

// other returns the pair of two options one of which replaces the other, or nil.
func (o Option) other(later Option) *pair {
	i := slices.IndexFunc(pairs, func(p pair) bool {
		return p.b != "gres" && (p.a == o.Name && p.b == later.Name || p.a == later.Name && p.b == o.Name)
	})
	if i < 0 || o.Off || later.Off {
		return nil
	}
	return &pairs[i]
}

// Set gives an option a value, and sorts the options as the table does: what people look for first. An
// empty value removes the option.
func (o *Options) Set(name, value string) {
	name = Name(name)
	*o = slices.DeleteFunc(*o, func(option Option) bool { return option.Name == name })
	if value != "" {
		o.put(Option{Name: name, Value: value})
	}
}

// SetFlag gives an option without a value.
func (o *Options) SetFlag(name string) {
	o.Set(name, "")
	o.put(Option{Name: Name(name)})
}

// SetInt sets a number, if it is positive.
func (o *Options) SetInt(name string, n int) {
	if n > 0 {
		o.Set(name, strconv.Itoa(n))
	}
}

// SetTime sets a time, if it is positive.
func (o *Options) SetTime(name string, d time.Duration) {
	if d > 0 {
		o.Set(name, unit.FormatTime(d))
	}
}

// SetMemory sets a size, if it is positive. It rounds up to whole MiB: 0M would be all memory of the
// node.
func (o *Options) SetMemory(name string, bytes int64) {
	if bytes > 0 {
		o.Set(name, fmt.Sprintf("%dM", (bytes-1)>>20+1))
	}
}

func (o *Options) put(option Option) {
	*o = append(*o, option)
	slices.SortStableFunc(*o, func(a, b Option) int { return place(a.Name) - place(b.Name) })
}

func place(name string) int {
	if i := slices.IndexFunc(table, func(d Definition) bool { return d.Name == name }); i >= 0 {
		return i
	}
	return len(table)
}
