package launcher

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/unit"
)

// Reason is why a candidate does not match. Its text is made when it is asked for: of thousands of
// candidates, few are printed.
type Reason struct {
	Code   string // such as gpu_memory; lfind(1) lists them
	format string
	args   []any
}

func because(code, format string, args ...any) Reason { return Reason{code, format, args} }

// Text returns the reason in words.
func (r Reason) Text() string { return fmt.Sprintf(r.format, r.args...) }

// MarshalJSON writes {"code": ..., "text": ...}.
func (r Reason) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Code string `json:"code"`
		Text string `json:"text"`
	}{r.Code, r.Text()})
}

// Arguments of reasons that are formatted with the text.
type (
	byteSize int64         // bytes
	gpuCount int           // "2 GPUs"
	gpuList  []gpuSet      // "2 x a100 40G"
	length   time.Duration // of a job
	anyOf    []string      // "a or b"
)

func (s byteSize) String() string { return unit.ShortSize(int64(s)) }
func (n gpuCount) String() string { return countGPUs(int(n)) }
func (l gpuList) String() string  { return describeGPUs(l) }
func (w anyOf) String() string    { return strings.Join(w, " or ") }
func (d length) String() string   { return unit.FormatDuration(time.Duration(d)) }

// report is called for each reason.
type report func(code, format string, args ...any)

// unreported is for those who want the answer only.
func unreported(string, string, ...any) {}

// matchNode reports whether one node has the requested resources. It does not look at the
// duration, on which the QoS decides. Unknown means that it depends on properties of GPUs that
// are unknown.
func matchNode(g *figures, a *request.Alternative, why report) gpu.Answer {
	is := matchGPUs(g, a, why)
	cores := a.Cores * max(1, a.Tasks)
	no := func(code, format string, args ...any) {
		is = gpu.No
		why(code, format, args...)
	}
	if g.cores > 0 && cores > g.cores {
		no("cores", "%d cores requested, %d available", cores, g.cores)
	}
	if g.memory > 0 && a.Memory > g.memory {
		no("memory", "%s of memory requested, %s available", byteSize(a.Memory), byteSize(g.memory))
	}
	switch {
	case a.Disk <= max(g.disk, g.found):
	case g.disk > 0:
		no("disk", "%s of local disk requested, %s available", byteSize(a.Disk), byteSize(g.disk))
	case g.found > 0:
		no("disk", "%s of local disk requested, a probe found %s", byteSize(a.Disk), byteSize(g.found))
	case g.complete:
		no("disk", "%s of local disk requested, its size is not configured (TmpDisk)", byteSize(a.Disk))
	}
	for _, x := range a.GRES {
		if have, known := g.gresCount(x.Name); known && have < int64(x.Count) {
			where := ""
			if x.Sharing() {
				where = " on one GPU"
			}
			no("gres", "%d of gres %s requested, %d available%s", x.Count, x.Name, have, where)
		}
	}
	return is
}

// gresCount returns how many of a GRES (NAME or NAME:TYPE) a job can have of a node, and whether
// its GRES are known. Slurm gives a job shards of one GPU, and never starts one that wants more.
func (g *figures) gresCount(name string) (int64, bool) {
	if !g.complete {
		return 0, false
	}
	n := int64(0)
	for _, x := range g.gres {
		switch {
		case x.Name != name && x.Name+":"+x.Type != name:
		case x.Name == "shard" && !g.manyShared:
			n = max(n, x.Count/max(1, g.gpusOfType(x.Type)))
		default:
			n += x.Count
		}
	}
	return n, true
}

// gpusOfType returns the number of GPUs of a type of Slurm's, or of all.
func (g *figures) gpusOfType(name string) int64 {
	n := int64(0)
	for _, x := range g.gres {
		if x.Name == "gpu" && (name == "" || x.Type == name) {
			n += x.Count
		}
	}
	return n
}

// matchGPUs reports whether a node has all requested GPUs at the same time.
func matchGPUs(g *figures, a *request.Alternative, why report) gpu.Answer {
	wanted := a.GPUCount()
	if wanted == 0 {
		return gpu.Yes
	}
	there := 0
	for i := range g.gpus {
		there = min(anyNumber, there+g.gpus[i].count)
	}
	if there < wanted {
		why("gpu_count", "%s requested, %s available", gpuCount(wanted), gpuCount(there))
		return gpu.No
	}
	is := gpu.Yes
	for i := range a.GPUs {
		surely, perhaps := 0, 0
		for j := range g.gpus {
			switch fits(&g.gpus[j], &a.GPUs[i]) {
			case gpu.Yes:
				surely = min(anyNumber, surely+g.gpus[j].count)
				fallthrough
			case gpu.Unknown:
				perhaps = min(anyNumber, perhaps+g.gpus[j].count)
			}
		}
		if perhaps < a.GPUs[i].Count {
			explainGPU(g.gpus, &a.GPUs[i], perhaps, why)
			return gpu.No
		}
		if surely < a.GPUs[i].Count {
			is = gpu.Unknown
		}
	}
	if len(a.GPUs) > 1 {
		if is == gpu.Yes && assign(g.gpus, a.GPUs, sure) == nil {
			is = gpu.Unknown
		}
		if is == gpu.Unknown && assign(g.gpus, a.GPUs, possible) == nil {
			why("gpu_memory", "its GPUs (%s) cannot serve all of %s at once",
				gpuList(g.gpus), request.Alternative{GPUs: a.GPUs})
			return gpu.No
		}
	}
	if !unified(g, a, why) {
		return gpu.No
	}
	if is == gpu.Unknown {
		why("gpu_unknown", "%s", unknownOf{g.gpus, a.GPUs})
	}
	return is
}

// unknownOf formats unknownGPU.
type unknownOf struct {
	have []gpuSet
	want []request.GPU
}

func (u unknownOf) String() string { return unknownGPU(u.have, u.want) }

// unknownGPU describes which property of GPUs that may match is unknown.
func unknownGPU(have []gpuSet, want []request.GPU) string {
	what := "model"
	for i := range want {
		if want[i].Memory > 0 || want[i].MaxMemory > 0 {
			what = "memory"
		}
		if len(want[i].Models) > 0 || len(want[i].NotModels) > 0 || want[i].CC > 0 || want[i].MaxCC > 0 {
			what = "model"
			break
		}
	}
	for i := range have {
		g := &have[i]
		if what == "memory" && g.least < g.most {
			return fmt.Sprintf("%s has %s to %s of memory, which of these is not known",
				firstOf(g.model, g.gres, g.is.Label()), unit.ShortSize(g.least), unit.ShortSize(g.most))
		}
		if name := firstOf(g.model, g.gres, g.is.Label()); name != "?" {
			return fmt.Sprintf("the %s of its GPUs (%s) is not known", what, name)
		}
	}
	return fmt.Sprintf("the %s of its GPUs is not known", what)
}

// unified reports whether GPUs that share the main memory (mps) leave enough of it.
func unified(g *figures, a *request.Alternative, why report) bool {
	for i := range g.gpus {
		if g.gpus[i].kind != string(request.MPS) || g.gpus[i].most == 0 || len(g.gpus) > 1 {
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
		if sum > g.gpus[i].most {
			why("memory", "%s of memory requested with that of the GPU, %s available, which they share",
				byteSize(sum), byteSize(g.gpus[i].most))
			return false
		}
	}
	return true
}

// fits reports whether a GPU satisfies a request.
func fits(g *gpuSet, w *request.GPU) gpu.Answer {
	is := kindFits(g, w)
	if is == gpu.No || w.Memory > 0 && w.Memory < g.floor {
		return gpu.No
	}
	if w.Memory > 0 {
		is = is.And(g.hasAtLeast(w.Memory))
	}
	if w.MaxMemory > 0 {
		is = is.And(g.hasAtMost(w.MaxMemory))
	}
	if w.CC > 0 || w.MaxCC > 0 {
		is = is.And(g.hasCapability(w.CC, w.MaxCC))
	}
	if len(w.Models) > 0 {
		is = is.And(g.isOneOf(w.Models))
	}
	if len(w.NotModels) > 0 {
		is = is.And(g.isOneOf(w.NotModels).Not())
	}
	return is
}

// kindFits reports whether a GPU is of the requested kind. A slice is one only for requests of slices.
func kindFits(g *gpuSet, w *request.GPU) gpu.Answer {
	kind := w.Kind
	if kind == request.Slice {
		kind = request.CUDA
	}
	switch {
	case (g.is.Slice != "") != w.Sliced():
		return gpu.No
	case kind == request.AnyGPU, string(kind) == g.kind:
		return gpu.Yes
	case g.kind == string(request.AnyGPU): // of one of several makers
		return gpu.Unknown
	}
	return gpu.No
}

// fitting decides whether a GPU may serve a request.
type fitting func(*gpuSet, *request.GPU) bool

// sure accepts GPUs that satisfy a request, and possible also those of which that is unknown.
func sure(g *gpuSet, w *request.GPU) bool     { return fits(g, w) == gpu.Yes }
func possible(g *gpuSet, w *request.GPU) bool { return fits(g, w) != gpu.No }

func (g *gpuSet) hasAtLeast(bytes int64) gpu.Answer {
	switch {
	case g.most == 0:
		return gpu.Unknown
	case bytes <= g.least:
		return gpu.Yes
	case bytes > g.most:
		return gpu.No
	}
	return gpu.Unknown
}

// hasAtMost compares with the size that GPUs are sold with: a V100 of 16 GB has 16 GiB.
func (g *gpuSet) hasAtMost(bytes int64) gpu.Answer {
	nominal := bytes + bytes/100*8
	switch {
	case g.most == 0:
		return gpu.Unknown
	case nominal >= g.most:
		return gpu.Yes
	case nominal < g.least:
		return gpu.No
	}
	return gpu.Unknown
}

// hasCapability reports whether the compute capability is in the range; 0 means unlimited.
func (g *gpuSet) hasCapability(from, to gpu.Capability) gpu.Answer {
	least, most := g.is.Capability()
	switch {
	case len(g.is.Models) == 0:
		return gpu.Unknown
	case most == 0 || most < from || to > 0 && least > to:
		return gpu.No
	case least >= from && (to == 0 || most <= to):
		return gpu.Yes
	}
	return gpu.Unknown
}

// isOneOf reports whether the GPU is one of the models.
func (g *gpuSet) isOneOf(models []string) gpu.Answer {
	is := gpu.No
	for _, m := range models {
		switch g.isModel(m) {
		case gpu.Yes:
			return gpu.Yes
		case gpu.Unknown:
			is = gpu.Unknown
		}
	}
	return is
}

// isModel reports whether the GPU is of a model, by any name of it in the catalogue.
func (g *gpuSet) isModel(model string) gpu.Answer {
	if a, known := g.is.answers[model]; known {
		return a
	}
	names := []string{g.model, g.gres}
	if slices.Contains(g.is.Contradicts, g.gres) { // the type is of another GPU than was found
		names = names[:1]
	}
	is := g.is.catalogue.IsModel(names, g.is.Match, model)
	if g.is.answers == nil {
		g.is.answers = map[string]gpu.Answer{}
	}
	g.is.answers[model] = is
	return is
}

// assign assigns a GPU of have to each requested GPU, and returns how many of each element of
// have are taken, or nil if not all can be served. It computes a maximum flow from requests to
// GPUs; both sides are short, as identical GPUs are one element. Smaller GPUs are taken first.
func assign(have []gpuSet, want []request.GPU, fit fitting) []int {
	if !slices.IsSortedFunc(have, bySize) {
		sorted := slices.Clone(have)
		slices.SortStableFunc(sorted, bySize)
		of := assign(sorted, want, fit)
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
	flow := make([][]int, len(want)) // flow[i][j]: GPUs of have[j] assigned to want[i]
	taken := make([]int, len(have))
	for i := range flow {
		flow[i] = make([]int, len(have))
	}
	for i := range want {
		for left := want[i].Count; left > 0; {
			n := augment(have, want, fit, flow, taken, i, left, make([]bool, len(have)))
			if n == 0 {
				return nil
			}
			left -= n
		}
	}
	return taken
}

func bySize(a, b gpuSet) int { return cmp.Compare(a.most, b.most) }

// augment assigns up to n more GPUs to request i, along an augmenting path that may move other
// requests, and returns how many it assigned.
func augment(have []gpuSet, want []request.GPU, fit fitting, flow [][]int, taken []int, i, n int, seen []bool) int {
	for j := range have {
		if seen[j] || !fit(&have[j], &want[i]) {
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
			if moved := augment(have, want, fit, flow, taken, k, min(n, flow[k][j]), seen); moved > 0 {
				flow[k][j] -= moved
				flow[i][j] += moved
				return moved
			}
		}
	}
	return 0
}

// explainGPU reports why too few of the GPUs satisfy a request.
func explainGPU(have []gpuSet, w *request.GPU, fitting int, why report) {
	if fitting > 0 {
		why("gpu_memory", "%s like %s requested, only %d of %s available", gpuCount(w.Count), oneGPU(w), fitting, gpuList(have))
		return
	}
	for i := range have {
		g := &have[i]
		name := firstOf(g.model, g.gres, g.is.Label())
		switch {
		case g.is.Slice != "" && !w.Sliced():
			why("gpu_slice", "whole GPUs requested, it has slices (%s); slice() requests one", name)
		case g.is.Slice == "" && w.Sliced():
			why("gpu_slice", "a slice requested, it has whole GPUs (%s)", name)
		case kindFits(g, w) == gpu.No:
			why("gpu_kind", "%s requested, the GPU is of kind %s", w.Kind, g.kind)
		case len(w.Models) > 0 && g.isOneOf(w.Models) == gpu.No:
			why("gpu_model", "model %s requested, the GPU is %s", anyOf(w.Models), name)
		case len(w.NotModels) > 0 && g.isOneOf(w.NotModels) == gpu.Yes:
			why("gpu_model", "the model %s is ruled out", name)
		case w.Memory > 0 && g.hasAtLeast(w.Memory) == gpu.No && g.least == g.most:
			why("gpu_memory", "%s of GPU memory requested, %s available", byteSize(w.Memory), byteSize(g.most))
		case w.Memory > 0 && g.hasAtLeast(w.Memory) == gpu.No:
			why("gpu_memory", "%s of GPU memory requested, %s has at most %s", byteSize(w.Memory), name, byteSize(g.most))
		case w.MaxMemory > 0 && g.hasAtMost(w.MaxMemory) == gpu.No:
			why("gpu_memory", "at most %s of GPU memory requested, %s available", byteSize(w.MaxMemory), byteSize(g.least))
		case (w.CC > 0 || w.MaxCC > 0) && g.hasCapability(w.CC, w.MaxCC) == gpu.No:
			why("gpu_cc", "compute capability %s requested, %s", capabilities(w.CC, w.MaxCC), g.capability(name))
		case w.Memory < g.floor && g.floor == g.minMemory:
			why("gpu_min_memory", "%s of GPU memory requested, it accepts requests from %s on (min_memory)",
				byteSize(w.Memory), byteSize(g.floor))
		case w.Memory < g.floor:
			why("gpu_min_memory", "%s of GPU memory requested, it accepts requests from %s on (min_mem_ratio %v of %s)",
				byteSize(w.Memory), byteSize(g.floor), g.ratio, byteSize(g.most))
		}
	}
}

// capabilities formats a range of compute capabilities.
func capabilities(from, to gpu.Capability) string {
	switch {
	case to == 0:
		return from.String() + " or more"
	case from == 0:
		return to.String() + " or less"
	case from == to:
		return from.String()
	}
	return from.String() + " to " + to.String()
}

func (g *gpuSet) capability(name string) string {
	if _, most := g.is.Capability(); most > 0 {
		return fmt.Sprintf("%s has %s", name, most)
	}
	return fmt.Sprintf("%s has none", name)
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

func countGPUs(n int) string {
	switch n {
	case 0:
		return "no GPU"
	case 1:
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}

// describeGPUs formats the GPUs of a node for messages.
func describeGPUs(have []gpuSet) string {
	var list []string
	for i := range have {
		g := &have[i]
		var s string
		if g.count != anyNumber {
			s = fmt.Sprintf("%d x ", g.count)
		}
		name := firstOf(g.model, g.gres, g.is.Label())
		switch {
		case g.most > 0 && name != "?":
			s += name + " " + g.size()
		case g.most > 0:
			s += g.size()
		case name != "?":
			s += name
		default:
			s += "GPU"
		}
		list = append(list, s)
	}
	return strings.Join(list, ", ")
}

// size formats the memory of a GPU, or its possible range.
func (g *gpuSet) size() string {
	if g.least == g.most {
		return unit.ShortSize(g.most)
	}
	return unit.ShortSize(g.least) + "-" + unit.ShortSize(g.most)
}
