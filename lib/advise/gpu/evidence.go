package gpu

import (
	"cmp"
	"slices"
	"strings"
)

// Evidence is what features of a node say of its GPUs beside what their type says.
type Evidence struct {
	Match
	// By are the features, and the names of partitions, that decided something.
	By []string
	// Contradicts are the features that name other GPUs than the type.
	Contradicts []string
}

// Narrow applies the features of a node, and then the names of its partitions, to what the type of its GPUs says: a model,
// an instance type of a cloud, a generation or a size of memory that only some of the candidates have decides. Where the
// type tells nothing, the features alone name the GPUs, and where they name none, the partitions; a slice that any of them
// names is one.
func (c *Catalogue) Narrow(of Match, features, places []string) Evidence {
	features = c.greatest(features)
	e := Evidence{Match: of}
	if len(of.Models) == 0 && of.Slice == "" {
		of, e.By = c.divided(of, features, places)
		e.Match = of
	}
	if len(of.Models) == 0 {
		e.name(c, c.Features(features), of, features, c.Feature)
	}
	said := c.both(places, c.place)
	if made, _ := maker(places, c.place); made == Several {
		said = Match{}
	}
	if len(of.Models) == 0 && c.denied(said, e.Match, features) {
		e.Contradicts = append(e.Contradicts, c.naming(places, c.place)...)
		said, places = Match{}, nil
	}
	if len(e.Models) == 0 {
		e.name(c, said, of, places, c.place)
	}
	if len(e.Models) == 0 && e.Maker == "" {
		made, by := maker(features, c.Feature)
		if made == "" {
			made, by = maker(places, c.place)
		}
		if e.Maker = made; made == Several {
			e.Contradicts, by = append(e.Contradicts, by[1:]...), by[:1]
		}
		e.By = append(e.By, by...)
	}
	var ofSize []Model // what sizes leave of the candidates
	var sizes []string
	most := c.most(features)
	for _, f := range features {
		if len(e.Models) < 2 {
			break
		}
		r := c.feature(f)
		if len(r.Models) > 0 && r.Whole {
			switch both := e.Both(r.Match); {
			case len(both.Models) == len(e.Models):
			case len(both.Models) > 0:
				e.keep(both.Models)
				e.By = append(e.By, f)
			case r.about:
				e.Contradicts = append(e.Contradicts, f)
			}
			continue
		}
		some := e.OfSize(r.size).Models
		switch {
		case r.size == 0 || len(some) == len(e.Models) || r.sure && r.size < most:
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
	if all := e.Both(said); len(all.Models) > 0 && len(all.Models) < len(e.Models) {
		e.keep(all.Models)
		e.By = append(e.By, c.naming(places, c.place)...)
	}
	return e
}

// greatest leaves the greatest compute capability that features name, and what is none: sm_61 beside sm_80 says that there is
// at least so much.
func (c *Catalogue) greatest(features []string) []string {
	var most Capability
	for _, f := range features {
		most = max(most, c.feature(f).capability)
	}
	return slices.DeleteFunc(slices.Clone(features), func(f string) bool {
		is := c.feature(f).capability
		return is > 0 && is < most
	})
}

// divided adds to what is known of GPUs the slice that features or partitions of their node name, and is the names that do.
// Of several profiles, a job may get any. Beside a type or a feature, the name of a partition may have foreign words.
func (c *Catalogue) divided(m Match, features, places []string) (Match, []string) {
	var by []string
	add := func(name string, r reading) {
		if r.Slice == "" {
			return
		}
		by = append(by, name)
		switch {
		case m.Slice == "" || m.Slice == SomeSlice && m.Whole:
			m.Slice, m.Least, m.Most, m.Whole = r.Slice, r.Least, r.Most, true
		case r.Slice != m.Slice && r.Slice != SomeSlice:
			m.Slice, m.Least, m.Most, m.Whole = SomeSlice, 0, 0, false
		}
	}
	for _, f := range features {
		if r := c.feature(f); !r.foreign { // no_mig
			add(f, r)
		}
	}
	for _, name := range places {
		add(name, c.feature(strings.Join(c.cutQueues(name), "_")))
	}
	return m, by
}

// denied reports whether the features of a node say other GPUs than the names of its partitions: is, what they name, a maker, or
// a size that can be of nothing else.
func (c *Catalogue) denied(places, is Match, features []string) bool {
	if len(places.Models) == 0 {
		return false
	}
	if len(is.Models) > 0 {
		return len(is.Both(places).Models) == 0
	}
	if made, _ := maker(features, c.Feature); made != "" && made != places.Vendor() {
		return true
	}
	most := c.most(features)
	return most > 0 && !slices.ContainsFunc(places.Models, func(m Model) bool { return m.SoldAs(most) })
}

// most is the memory of a GPU by sizes that can be of nothing else, 0 if there are none. Of several, as vram16 and vram32, each
// says that there is at least so much.
func (c *Catalogue) most(features []string) (bytes int64) {
	for _, f := range features {
		if r := c.feature(f); r.sure {
			bytes = max(bytes, r.size)
		}
	}
	return bytes
}

// maker is who makes the GPUs of a node by what names say, Several if they do not agree, and a name for each maker.
func maker(names []string, says func(string) Match) (is Vendor, by []string) {
	var all []Vendor
	for _, name := range names {
		m := says(name)
		if v := m.Vendor(); v != "" && (m.Whole || len(m.Models) == 0) && !slices.Contains(all, v) {
			all, by = append(all, v), append(by, name)
		}
	}
	switch len(all) {
	case 0:
		return "", nil
	case 1:
		return all[0], by
	}
	return Several, by
}

// naming are those of the names that name GPUs, without those that say no more than others: GPU_GEN:AMP beside GPU_SKU:A100.
func (c *Catalogue) naming(names []string, says func(string) Match) []string {
	var all []string
	for _, name := range names {
		if m := says(name); m.Whole && len(m.Models) > 0 {
			all = append(all, name)
		}
	}
	slices.SortStableFunc(all, func(x, y string) int { return cmp.Compare(len(says(x).Models), len(says(y).Models)) })
	for i := len(all) - 1; i > 0; i-- {
		if others := c.both(all[:i], says); len(others.Models) == len(others.Both(says(all[i])).Models) {
			all = slices.Delete(all, i, i+1)
		}
	}
	return all
}

// name takes over what names say of GPUs of which the type tells nothing, or only the slice.
func (e *Evidence) name(c *Catalogue, m, of Match, names []string, says func(string) Match) {
	if len(m.Models) == 0 || m.Slice != "" && of.Slice == "" { // the type has another name than the slice
		return
	}
	if e.Match = m; of.Slice != "" {
		e.Slice, e.Least, e.Most = of.Slice, of.Least, of.Most
	}
	e.By = append(e.By, c.naming(names, says)...)
}

// keep reduces the candidates to some of them. The memory of a slice stays.
func (m *Match) keep(models []Model) {
	if m.Models = models; m.Slice == "" {
		*m = bounds(*m)
	}
}

// Features finds the GPU that the features of a node name, none if they name none
// or several that are not the same.
func (c *Catalogue) Features(features []string) Match { return c.both(features, c.Feature) }

// both is what names have in common.
func (c *Catalogue) both(names []string, says func(string) Match) Match {
	var m Match
	for _, f := range names {
		found := says(f)
		if !found.Whole || len(found.Models) == 0 {
			continue
		}
		if len(m.Models) == 0 {
			m = found
		} else if m = m.Both(found); len(m.Models) == 0 {
			return Match{}
		}
	}
	return m
}

// Feature is what a feature says of GPUs: a model, a generation, an instance type, or who makes them. It is whole if it can be
// of nothing else.
func (c *Catalogue) Feature(f string) Match {
	r := c.feature(f)
	if !r.about || r.foreign {
		r.Maker = ""
	}
	r.Whole = r.Whole && (r.about || onlyNVIDIA[strings.ToLower(f)]) && r.Slice != SomeSlice // the node can have slices; the type tells
	return r.Match
}

// FeatureSize is the size of a GPU's memory in bytes that a feature names without a model: GPU_MEM:80GB, gpuram48gb,
// vram80, gpu80, 80gb; 0: none. It is sure if the words can mean nothing else.
func (c *Catalogue) FeatureSize(f string) (bytes int64, sure bool) {
	r := c.feature(f)
	return r.size, r.sure
}

// feature reads a feature. Many nodes have the same.
func (c *Catalogue) feature(f string) reading {
	if r, ok := c.named.Load(f); ok {
		return r.(reading)
	}
	name := f
	if model := instance(f[strings.LastIndexAny(f, ":=")+1:]); model != "" {
		name = model
	}
	r := c.read(name)
	c.named.Store(f, r)
	return r
}

// place is what the name of a partition says of GPUs. It may have any words beside, if the model can be nothing else.
func (c *Catalogue) place(name string) Match {
	w := c.cutQueues(name)
	r := c.feature(strings.Join(w, "_"))
	if !r.about || r.foreign || slices.Contains(w, "intel") { // rather CPUs
		r.Maker = ""
	}
	r.Whole = len(r.Models) > 0 && (r.about && (!r.foreign || r.long) || len(w) == 1 && onlyNVIDIA[w[0]])
	return r.Match
}

// cutQueues are the words in the name of a partition that may tell its GPUs.
func (c *Catalogue) cutQueues(name string) []string {
	var w []string
	for _, word := range words(name) {
		if word = c.cutQueue(word); word != "" {
			w = append(w, word)
		}
	}
	return w
}

// cutQueue leaves of a word in the name of a partition what may tell its GPUs, "" if nothing: words of queues are cut off,
// debuga100 and ampereq, and so are one or two letters before a model, ica100. P4 is rather the fourth partition.
func (c *Catalogue) cutQueue(word string) string {
	if queues[word] || len(word) == 2 && strings.Contains("amp", word[:1]) && isDigit(word[1]) {
		return ""
	}
	if len(c.split(word)) > 1 || c.keys[word] != nil || vocabulary[word] != 0 {
		return word
	}
	for n := 1; n < len(word); n++ {
		first, rest := word[:n], word[n:]
		switch {
		case queues[first] && c.keys[rest] != nil:
			return rest
		case queues[rest] && (c.keys[first] != nil || onlyNVIDIA[first]):
			return first
		}
	}
	number := strings.IndexAny(word, "0123456789")
	for n := 1; n < number && n < 3; n++ {
		model := word[n:]
		if c.keys[model] != nil && isLong(model) && vocabulary[word[:number]] == 0 && (n == 1 || model[0] != 'b') { // not lab200
			return model
		}
	}
	return word
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
