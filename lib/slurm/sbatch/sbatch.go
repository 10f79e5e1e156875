// Package sbatch has the options of sbatch: one type for what is configured, found for a request,
// given on a command line, learned, and submitted. It knows no meaning of an option.
package sbatch

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/unit"
)

// Option is a long option of sbatch without its dashes.
type Option struct {
	Name, Value string
	Bare        bool // it has no value, as --exclusive
}

// Parse reads NAME=VALUE or NAME, with or without dashes in front. In names, "_" and "-" are the same.
func Parse(text string) Option {
	name, value, hasValue := strings.Cut(text, "=")
	return Option{Name: Name(strings.TrimPrefix(name, "--")), Value: value, Bare: !hasValue}
}

// Name returns the name of an option as sbatch has it: people also write "_" for "-".
func Name(name string) string { return strings.ReplaceAll(name, "_", "-") }

// Arg returns the option as an argument: --name=value.
func (o Option) Arg() string {
	if o.Bare {
		return "--" + o.Name
	}
	return "--" + o.Name + "=" + o.Value
}

// Options are options of sbatch, in the order in which they are given.
type Options []Option

// Args returns the options as arguments.
func (o Options) Args() []string {
	args := make([]string, len(o))
	for i, option := range o {
		args[i] = option.Arg()
	}
	return args
}

// String returns the options as people write them.
func (o Options) String() string { return strings.Join(o.Args(), " ") }

// Get returns the value of an option, and whether it is given.
func (o Options) Get(name string) (value string, ok bool) {
	for _, option := range o {
		if option.Name == name {
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

// With returns the options with later ones, which replace options of the same name. It leaves o
// unchanged.
func (o Options) With(later ...Option) Options {
	merged := slices.Clone(o)
	for _, l := range later {
		merged = append(slices.DeleteFunc(merged, func(e Option) bool { return e.Name == l.Name }), l)
	}
	return merged
}

// order is that in which Set keeps options; others follow as they come.
var order = []string{"nodes", "time", "account", "qos", "partition", "constraint", "mem", "exclude", "mem-per-gpu", "cpus-per-task",
	"ntasks-per-node", "nodelist", "gpus", "gpus-per-node", "gres", "tmp", "licenses", "exclusive", "deadline"}

// Set gives an option a value, and sorts the options by what people look for first. An empty value
// removes the option.
func (o *Options) Set(name, value string) {
	name = Name(name)
	i := slices.IndexFunc(*o, func(option Option) bool { return option.Name == name })
	switch {
	case value == "" && i >= 0:
		*o = slices.Delete(*o, i, i+1)
	case value == "":
	case i >= 0:
		(*o)[i] = Option{Name: name, Value: value}
	default:
		o.put(Option{Name: name, Value: value})
	}
}

// SetBare sets an option that has no value.
func (o *Options) SetBare(name string) {
	o.Set(name, "")
	o.put(Option{Name: Name(name), Bare: true})
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
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}
