// Package find converts resource requests, in the language of lfind, into filters of the market's
// offers.
package find

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/spelling"
	"github.com/ponos-tools/ponos/lib/market/vastai"
)

// Filters converts a resource request into filters of offers. The market has its own names of GPUs,
// so it is asked for memory and compute capability, and the names in its answers are looked up in the
// local catalogue.
func Filters(spec string) (vastai.Filters, error) {
	parsed, err := request.Parse(spec)
	if err != nil {
		return nil, err
	}
	if len(parsed.Alternatives) != 1 {
		return nil, errors.New("expected one alternative: offers are already ranked by price")
	}
	a := parsed.Alternatives[0]
	refused := func(what, why string) (vastai.Filters, error) { return nil, fmt.Errorf("%s: %s", what, why) }
	switch {
	case a.Nodes > 1:
		return refused("nodes", "a task runs on one rented machine")
	case a.Tasks > 1:
		return refused("tasks", "a rented machine runs one")
	case len(a.Where) > 0:
		return refused(a.Where[0].Field, "machines are not chosen by this; use offer_filters")
	case len(a.GRES) > 0:
		return refused("gres", "the market rents GPUs only")
	case len(a.Licenses) > 0:
		return refused("licenses", "the market has none")
	case len(a.Deadlines) > 0:
		return refused("deadline", "the market keeps none; use duration")
	case a.Disk > 0:
		return refused("disk", "set vast_api.disk instead")
	case len(a.GPUs) > 1:
		return refused("GPUs", "a rented machine has GPUs of one kind")
	case len(a.GPUs) == 0:
		return refused("GPUs", "a request must have GPUs: only machines with GPUs are rented")
	}
	var out vastai.Filters
	add := func(field, op string, value any) {
		text := fmt.Sprintf("find: %s %s %s", field, op, words(value))
		out = append(out, vastai.Condition{Field: field, Op: op, Value: value, Text: text})
	}
	test := func(field, text string, holds func(have any) bool) {
		out = append(out, vastai.Condition{Field: field, Text: "find: " + text, Test: holds})
	}
	g := a.GPUs[0]
	switch g.Kind {
	case request.CUDA:
		add("gpu_arch", "eq", "nvidia")
	case request.ROCm:
		add("gpu_arch", "eq", "amd")
	case request.AnyGPU:
	default:
		return nil, fmt.Errorf("%s: the market has no such GPUs", g.Kind)
	}
	count := float64(max(1, g.Count))
	add("num_gpus", "eq", count)
	// The market's megabytes are slightly less than 1/1000 of a gigabyte: cards with 24 GB have about
	// 24564.
	megabytes := func(bytes int64) float64 { return float64(bytes) / (1 << 30) * 1000 }
	if g.Memory > 0 {
		add("gpu_ram", "gte", megabytes(g.Memory))
	}
	if g.MaxMemory > 0 {
		add("gpu_ram", "lte", math.Ceil(1.05*megabytes(g.MaxMemory)))
	}
	least, most := g.CC, g.MaxCC
	if len(g.Models) > 0 {
		lowest, low, high := int64(math.MaxInt64), gpu.Capability(math.MaxInt), gpu.Capability(0)
		for _, name := range g.Models {
			model, err := knownModel(name)
			if err != nil {
				return nil, err
			}
			lowest = min(lowest, model.Least)
			l, h := model.Capability()
			low, high = min(low, l), max(high, h)
			if h == 0 {
				low = 0
			}
		}
		if lowest > 0 {
			add("gpu_ram", "gte", math.Floor(0.95*megabytes(lowest)))
		}
		if low > 0 {
			least = max(least, low)
			if most == 0 || high < most {
				most = high
			}
		}
		test("gpu_name", strings.Join(g.Models, "|"), func(have any) bool {
			name, ok := have.(string)
			return ok && slices.ContainsFunc(g.Models, func(model string) bool { return gpu.Builtin().Is(name, model) == gpu.Yes })
		})
	}
	for _, model := range g.NotModels {
		if _, err := knownModel(model); err != nil {
			return nil, err
		}
		test("gpu_name", "not "+model, func(have any) bool {
			name, ok := have.(string)
			return ok && gpu.Builtin().Is(name, model) == gpu.No
		})
	}
	if least > 0 {
		add("compute_cap", "gte", float64(least)*10)
	}
	if most > 0 {
		add("compute_cap", "lte", float64(most)*10)
	}
	if memory := max(a.Memory, a.MemPerGPU*int64(count)); memory > 0 {
		add("cpu_ram", "gte", megabytes(memory))
	}
	if cores := max(float64(a.Cores), float64(a.CPUsPerGPU)*count); cores > 0 {
		add("cpu_cores_effective", "gte", cores)
	}
	if a.Duration > 0 {
		add("duration", "gte", a.Duration.Seconds())
	}
	if a.Exclusive {
		test("gpu_frac", "exclusive", func(have any) bool { return have == 1.0 })
	}
	if a.NotPreemptible {
		test("is_bid", "not preemptible", func(have any) bool { return have == false })
	}
	return out, nil
}

// words is a value for people: in MB and seconds, what is behind the point says nothing.
func words(value any) string {
	if f, ok := value.(float64); ok && f >= 1000 {
		return strconv.FormatFloat(f, 'f', 0, 64)
	}
	return fmt.Sprint(value)
}

// knownModel returns the catalogue's match for the name of a model.
func knownModel(name string) (gpu.Match, error) {
	model := gpu.Builtin().Lookup(name)
	if len(model.Models) > 0 {
		return model, nil
	}
	if near := spelling.Nearest(name, gpu.Builtin().Names()); near != "" {
		return model, fmt.Errorf("unknown GPU model %q; did you mean %q?", name, near)
	}
	return model, fmt.Errorf("unknown GPU model %q", name)
}
