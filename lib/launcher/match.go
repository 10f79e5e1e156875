package launcher

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/launcher/request"
	"github.com/ponos-tools/ponos/lib/launcher/unit"
)

// Reason is why something does not match.
type Reason struct {
	Code string `json:"code"` // such as gpu_memory; the list is in the man page
	Text string `json:"text"`
}

// report is called for each reason; a nil one only wants to know whether there is
// any, so that nothing is written and the first one is the last.
type report func(code, format string, args ...any)

// matchNode looks whether one node of a group has what is asked for, apart from
// the time, of which the QoS decides.
func matchNode(g *figures, a *request.Alternative, why report) bool {
	ok := matchGPUs(g, a, why)
	if !ok && why == nil {
		return false
	}
	if g.cores > 0 && a.Cores > g.cores {
		if ok = false; why == nil {
			return false
		}
		why("cores", "%d cores asked for, %d there", a.Cores, g.cores)
	}
	if g.memory > 0 && a.Memory > g.memory {
		if ok = false; why == nil {
			return false
		}
		why("memory", "%s of memory asked for, %s there", unit.ShortSize(a.Memory), unit.ShortSize(g.memory))
	}
	return ok
}

// matchGPUs looks whether the GPUs asked for can be had at once.
func matchGPUs(g *figures, a *request.Alternative, why report) bool {
	wanted := a.GPUCount()
	if wanted == 0 {
		return true
	}
	there := 0
	for i := range g.gpus {
		there = min(anyNumber, there+g.gpus[i].count)
	}
	if there < wanted {
		if why != nil {
			why("gpu_count", "%s asked for, %s there", gpus(wanted), gpus(there))
		}
		return false
	}
	for i := range a.GPUs {
		have := 0
		for j := range g.gpus {
			if fits(&g.gpus[j], &a.GPUs[i]) {
				have = min(anyNumber, have+g.gpus[j].count)
			}
		}
		if have < a.GPUs[i].Count {
			if why != nil {
				explainGPU(g.gpus, &a.GPUs[i], have, why)
			}
			return false
		}
	}
	if len(a.GPUs) > 1 && assign(g.gpus, a.GPUs) == nil {
		if why != nil {
			why("gpu_memory", "its GPUs (%s) cannot serve all of %s at once", describeGPUs(g.gpus), (request.Alternative{GPUs: a.GPUs}).String())
		}
		return false
	}
	return unified(g, a, why)
}

// unified looks whether GPUs that share the main memory leave enough of it.
func unified(g *figures, a *request.Alternative, why report) bool {
	for i := range g.gpus {
		if g.gpus[i].kind != string(request.MPS) || g.gpus[i].memory == 0 || len(g.gpus) > 1 {
			continue
		}
		sum := a.Memory
		for _, w := range a.GPUs {
			if w.Memory > (1<<62-sum)/int64(w.Count) {
				sum = 1 << 62
				break
			}
			sum += w.Memory * int64(w.Count)
		}
		if sum > g.gpus[i].memory {
			if why != nil {
				why("memory", "%s of memory asked for with that of the GPU, %s there, which they share", unit.ShortSize(sum), unit.ShortSize(g.gpus[i].memory))
			}
			return false
		}
	}
	return true
}

// fits reports whether a GPU is of the kind that is asked for.
func fits(g *gpu, w *request.GPU) bool {
	switch {
	case w.Kind != request.AnyGPU && string(w.Kind) != g.kind:
		return false
	case g.memory > 0 && w.Memory > g.memory, g.memory == 0 && g.most > 0 && w.Memory > g.most:
		return false
	case w.Memory > 0 && w.Memory < g.least: // any GPU is any GPU
		return false
	}
	return w.Model == "" || isModel(g, w.Model)
}

// isModel reports whether a GPU is of a model: a run of the words of its own name
// is that name, whatever is between them. So a100 is NVIDIA A100-SXM4-40GB, and not
// a10. A GPU whose model is not known may be any.
func isModel(g *gpu, model string) bool {
	if g.model == "" && g.gres == "" {
		return true
	}
	want := strings.Join(words(model), "")
	for _, name := range []string{g.model, g.gres} {
		have := words(name)
		for i := range have {
			joined := ""
			for _, w := range have[i:] {
				if joined += w; joined == want {
					return true
				}
				if len(joined) > len(want) {
					break
				}
			}
		}
	}
	return false
}

// words are the runs of letters and digits in a name, in lower case.
func words(name string) []string {
	return strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r < 0x80
	})
}

// assign gives each GPU asked for one that is there, and returns how many of each
// of have are taken, or nil if it cannot be done. It looks for a maximum flow from
// the requests to the GPUs: both sides are few, as alike ones are counted together.
// The smallest GPU that will do is taken first.
func assign(have []gpu, want []request.GPU) []int {
	if !slices.IsSortedFunc(have, bySize) {
		sorted := slices.Clone(have)
		slices.SortStableFunc(sorted, bySize)
		of := assign(sorted, want)
		if of == nil {
			return nil
		}
		taken := make([]int, len(have))
		for i := range have {
			for j := range sorted {
				if sorted[j] == have[i] && of[j] > 0 {
					taken[i], of[j] = of[j], 0
					break
				}
			}
		}
		return taken
	}
	flow := make([][]int, len(want)) // of request i, how many go to GPUs j
	taken := make([]int, len(have))
	for i := range flow {
		flow[i] = make([]int, len(have))
	}
	for i := range want {
		for left := want[i].Count; left > 0; {
			n := augment(have, want, flow, taken, i, left, make([]bool, len(have)))
			if n == 0 {
				return nil
			}
			left -= n
		}
	}
	return taken
}

func bySize(a, b gpu) int { return cmp.Compare(max(a.memory, a.most), max(b.memory, b.most)) }

// augment finds room for up to n of request i, moving other requests where that
// makes room, and returns for how many it did.
func augment(have []gpu, want []request.GPU, flow [][]int, taken []int, i, n int, seen []bool) int {
	for j := range have {
		if seen[j] || !fits(&have[j], &want[i]) {
			continue
		}
		seen[j] = true
		if free := min(n, have[j].count-taken[j]); free > 0 {
			flow[i][j] += free
			taken[j] += free
			return free
		}
		for k := range want {
			if flow[k][j] == 0 || k == i {
				continue
			}
			if moved := augment(have, want, flow, taken, k, min(n, flow[k][j]), seen); moved > 0 {
				flow[k][j] -= moved
				flow[i][j] += moved
				return moved
			}
		}
	}
	return 0
}

// explainGPU says why too few of the GPUs there fit.
func explainGPU(have []gpu, w *request.GPU, fitting int, why report) {
	if fitting > 0 {
		why("gpu_memory", "%s like %s asked for, only %d of %s there", gpus(w.Count), oneGPU(w), fitting, describeGPUs(have))
		return
	}
	for i := range have {
		g := &have[i]
		switch {
		case w.Kind != request.AnyGPU && string(w.Kind) != g.kind:
			why("gpu_kind", "%s asked for, the GPU is of kind %s", w.Kind, g.kind)
		case w.Model != "" && !isModel(g, w.Model):
			why("gpu_model", "model %s asked for, the GPU is %s", w.Model, firstOf(g.model, g.gres))
		case g.memory > 0 && w.Memory > g.memory:
			why("gpu_memory", "%s of GPU memory asked for, %s there", unit.ShortSize(w.Memory), unit.ShortSize(g.memory))
		case g.memory == 0 && g.most > 0 && w.Memory > g.most:
			why("gpu_memory", "%s of GPU memory asked for, a %s has at most %s", unit.ShortSize(w.Memory), firstOf(g.model, g.gres), unit.ShortSize(g.most))
		case w.Memory < g.least && g.least == g.minMemory:
			why("gpu_min_memory", "%s of GPU memory asked for, it takes requests from %s on (min_memory)", unit.ShortSize(w.Memory), unit.ShortSize(g.least))
		case w.Memory < g.least:
			why("gpu_min_memory", "%s of GPU memory asked for, it takes requests from %s on (min_mem_ratio %v of %s)",
				unit.ShortSize(w.Memory), unit.ShortSize(g.least), g.ratio, unit.ShortSize(g.memory))
		}
	}
}

func oneGPU(w *request.GPU) string {
	one := *w
	one.Count = 1
	return one.String()
}

func firstOf(names ...string) string {
	for _, n := range names {
		if n != "" {
			return n
		}
	}
	return "?"
}

func gpus(n int) string {
	switch n {
	case 0:
		return "no GPU"
	case 1:
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}

// describeGPUs writes the GPUs of a node for people.
func describeGPUs(have []gpu) string {
	var list []string
	for i := range have {
		g := &have[i]
		var s string
		if g.count != anyNumber {
			s = fmt.Sprintf("%d x ", g.count)
		}
		name := firstOf(g.model, g.gres)
		switch {
		case g.memory > 0 && name != "?":
			s += name + " " + unit.ShortSize(g.memory)
		case g.memory > 0:
			s += unit.ShortSize(g.memory)
		case name != "?":
			s += name
		default:
			s += "GPU"
		}
		list = append(list, s)
	}
	return strings.Join(list, ", ")
}
