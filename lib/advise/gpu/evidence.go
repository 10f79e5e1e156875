package gpu

import (
	"slices"
	"strconv"
	"strings"
)

// Evidence is what features of a node say of its GPUs beside what their type says.
type Evidence struct {
	Match
	// By are the features that decided something.
	By []string
	// Contradicts are the features that name other GPUs than the type.
	Contradicts []string
}

// Narrow applies the features of a node to what the type of its GPUs says: a model, an instance type of a
// cloud or a size of memory that is one of the candidates decides. Without a type, the features alone name the GPUs.
func (c *Catalogue) Narrow(of Match, features []string) Evidence {
	e := Evidence{Match: of}
	if len(of.Models) == 0 {
		slice, least, most := of.Slice, of.Least, of.Most
		if e.Match = c.Features(features); slice != "" {
			e.Slice, e.Least, e.Most = slice, least, most
		}
		for _, f := range features {
			if m := c.Feature(f); m.Whole && len(m.Models) > 0 && len(e.Models) > 0 {
				e.By = append(e.By, f)
			}
		}
	}
	var ofSize []Model // what sizes leave of the candidates
	var sizes []string
	for _, f := range features {
		if len(e.Models) < 2 {
			break
		}
		found := c.Feature(f)
		if of := generations[strings.ToLower(f)]; of.most > 0 {
			found = Match{Whole: true}
			for _, x := range e.Models {
				if x.Vendor == NVIDIA && x.CC >= of.least && x.CC <= of.most {
					found.Models = append(found.Models, x)
				}
			}
		}
		if len(found.Models) > 0 && found.Whole {
			switch both := e.Both(found); {
			case len(both.Models) == len(e.Models):
			case len(both.Models) > 0:
				e.keep(both.Models)
				e.By = append(e.By, f)
			default:
				e.Contradicts = append(e.Contradicts, f)
			}
			continue
		}
		bytes, _ := FeatureSize(f)
		some := e.OfSize(bytes).Models
		switch {
		case bytes == 0 || len(some) == len(e.Models):
		case sizes == nil:
			ofSize, sizes = some, []string{f}
		default: // one of them is not of the GPUs, or the other
			if both := (Match{Models: ofSize}).Both(Match{Models: some}); len(both.Models) == 0 {
				ofSize = nil
				e.Contradicts = append(e.Contradicts, f)
			}
		}
	}
	if both := e.Both(Match{Models: ofSize, Whole: true}); len(both.Models) > 0 {
		e.keep(both.Models)
		e.By = append(e.By, sizes...)
	}
	return e
}

// keep reduces the candidates to some of them. The memory of a slice stays.
func (m *Match) keep(models []Model) {
	if m.Models = models; m.Slice == "" {
		*m = bounds(*m)
	}
}

// Feature is what a feature names: a model, or an instance type.
func (c *Catalogue) Feature(f string) Match {
	if m, ok := c.named.Load(f); ok {
		return m.(Match)
	}
	name := f
	if i := strings.LastIndexAny(f, ":=_-"); i > 0 {
		name = f[len(feature.FindString(f)):]
	}
	if model := instance(name); model != "" {
		name = model
	}
	m := c.Lookup(name)
	m.Whole = m.Whole && m.Slice != SomeSlice // the node can have slices; the type tells
	c.named.Store(f, m)
	return m
}

// generations of NVIDIA's GPUs by their compute capabilities. As features they tell models of one name apart.
var generations = map[string]struct{ least, most Capability }{
	"maxwell": {50, 53}, "pascal": {60, 62}, "volta": {70, 72}, "turing": {75, 75}, "ampere": {80, 87},
	"ada": {89, 89}, "lovelace": {89, 89}, "adalovelace": {89, 89}, "hopper": {90, 90}, "blackwell": {100, 121},
}

// instances are the GPUs of instance types, by the beginning of their names.
var instances = []struct{ name, model string }{
	{"p3dn.", "V100-SXM2-32GB"}, {"p3.", "V100-SXM2-16GB"}, {"p4de.", "A100-SXM4-80GB"}, {"p4d.", "A100-SXM4-40GB"},
	{"p5.", "H100 80GB HBM3"}, {"p5e.", "H200"}, {"p5en.", "H200"}, {"p6-b200.", "B200"}, {"p6-b300.", "B300 SXM6 AC"},
	{"p6e-gb200.", "GB200"}, {"g4dn.", "T4"}, {"g5.", "A10G"},
	{"g6.", "L4"}, {"g6e.", "L40S"}, {"g7e.", "RTX PRO 6000 Blackwell Server Edition"},
	{"standard_nd96asr_v4", "A100-SXM4-40GB"}, {"standard_nd96amsr_a100_v4", "A100-SXM4-80GB"},
	{"standard_nd96isr_h100_v5", "H100 80GB HBM3"},
	{"standard_nd96isr_h200_v5", "H200"}, {"standard_nd96isr_mi300x_v5", "MI300X"}, {"standard_nd40rs_v2", "V100-SXM2-32GB"},
	{"standard_nc40ads_h100_v5", "H100 NVL"}, {"standard_nc80adis_h100_v5", "H100 NVL"},
	{"standard_nc6s_v3", "V100-PCIE-16GB"}, {"standard_nc12s_v3", "V100-PCIE-16GB"}, {"standard_nc24s_v3", "V100-PCIE-16GB"},
	{"standard_nc24rs_v3", "V100-PCIE-16GB"}, {"standard_nc4as_t4_v3", "T4"}, {"standard_nc8as_t4_v3", "T4"},
	{"standard_nc16as_t4_v3", "T4"}, {"standard_nc64as_t4_v3", "T4"}, {"standard_nv36ads_a10_v5", "A10"},
	{"a2-highgpu-", "A100-SXM4-40GB"}, {"a2-ultragpu-", "A100-SXM4-80GB"}, {"a3-highgpu-", "H100 80GB HBM3"},
	{"a3-megagpu-", "H100 80GB HBM3"},
	{"a3-ultragpu-", "H200"}, {"a4-highgpu-", "B200"}, {"a4x-highgpu-", "GB200"}, {"g2-standard-", "L4"},
	{"bm.gpu4.", "A100-SXM4-40GB"}, {"bm.gpu.b4.", "A100-SXM4-40GB"}, {"bm.gpu.a100-v2.", "A100-SXM4-80GB"},
	{"bm.gpu.gm4.", "A100-SXM4-80GB"}, {"bm.gpu.h100.", "H100 80GB HBM3"}, {"bm.gpu.h200.", "H200"}, {"bm.gpu.b200.", "B200"},
	{"bm.gpu.l40s", "L40S"}, {"bm.gpu.mi300x.", "MI300X"}, {"bm.gpu.a10.", "A10"}, {"vm.gpu.a10.", "A10"},
}

// instance is the GPU of a cloud's instance type, "" if the name is none with GPUs.
func instance(name string) string {
	name = strings.ToLower(name)
	for _, x := range instances {
		if strings.HasPrefix(name, x.name) {
			return x.model
		}
	}
	if size, version, ok := strings.Cut(name, "_a100_v4"); ok && version == "" && strings.HasPrefix(size, "standard_nc") {
		return "A100 80GB PCIe"
	}
	return ""
}

// FeatureSize is the size of a GPU's memory in bytes that a feature names by words and one number: GPU_MEM:80GB,
// gpuram48gb, vram80, gpu80, 80gb; 0: none. It is sure if the words can mean nothing else.
func FeatureSize(f string) (bytes int64, sure bool) {
	before, number, after := numbered(strings.ToLower(f))
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 4 || n > 999 {
		return 0, false
	}
	unit := false
	if len(after) > 0 && slices.Contains([]string{"g", "gb", "gib"}, after[0]) {
		unit, after = true, after[1:]
	}
	gpu, memory := false, false
	for _, w := range append(before, after...) {
		switch w {
		case "gpu", "gpus", "cuda", "device":
			gpu = true
		case "mem", "memory", "ram", "size":
			memory = true
		case "vram", "gpumem", "gpumemory", "gpuram", "gpuvram", "gpum", "gmem", "gram", "hbm":
			gpu, memory = true, true
		case "min", "per", "of", "nvidia":
		default:
			return 0, false
		}
	}
	if memory && !gpu || !gpu && !unit {
		return 0, false // main memory, or any number
	}
	return n * 1e9, gpu && (memory || unit)
}

// numbered splits a name at its only number into the words before and behind.
func numbered(name string) (before []string, number string, after []string) {
	from := strings.IndexAny(name, "0123456789")
	if from < 0 {
		return nil, "", nil
	}
	to := from
	for to < len(name) && name[to] >= '0' && name[to] <= '9' {
		to++
	}
	if strings.ContainsAny(name[to:], "0123456789.") {
		return nil, "", nil
	}
	return words(name[:from]), name[from:to], words(name[to:])
}
