package launcher

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/unit"
)

// Option is a long option of sbatch without its dashes.
type Option struct {
	Name, Value string
	Bare        bool // it takes no value, as --exclusive
}

// Options are options of sbatch, in a fixed order.
type Options []Option

// order is that in which options are written; others follow as they come.
var order = []string{"nodes", "time", "account", "qos", "partition", "constraint", "mem", "exclude", "mem-per-gpu", "cpus-per-task",
	"ntasks-per-node", "nodelist", "gpus", "gpus-per-node", "gres", "tmp", "licenses", "exclusive", "deadline"}

// Get returns the value of an option, "" if it is not there.
func (o Options) Get(name string) string {
	for _, option := range o {
		if option.Name == name {
			return option.Value
		}
	}
	return ""
}

// Set gives an option a value; an empty one takes the option away. In names "_"
// and "-" are the same.
func (o *Options) Set(name, value string) {
	name = strings.ReplaceAll(name, "_", "-")
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

// SetBare gives an option that takes no value.
func (o *Options) SetBare(name string) {
	o.Set(name, "")
	o.put(Option{Name: strings.ReplaceAll(name, "_", "-"), Bare: true})
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

func (o *Options) setInt(name string, n int) {
	if n > 0 {
		o.Set(name, strconv.Itoa(n))
	}
}

func (o *Options) setTime(name string, d time.Duration) {
	if d > 0 {
		o.Set(name, unit.FormatTime(d))
	}
}

// setMemory rounds up to whole MiB; 0M would be all memory of the node.
func (o *Options) setMemory(name string, bytes int64) {
	if bytes > 0 {
		o.Set(name, fmt.Sprintf("%dM", (bytes-1)>>20+1))
	}
}

// Args are the options as arguments: --name=value.
func (o Options) Args() []string {
	args := make([]string, len(o))
	for i, option := range o {
		if args[i] = "--" + option.Name; !option.Bare {
			args[i] += "=" + option.Value
		}
	}
	return args
}
