package launcher

import (
	"fmt"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/advise/probe"
)

// measure puts what a node was found to have in the place of what names say of its GPUs. Memory that the file states is
// kept. GPUs of several kinds that have one type in Slurm become several sets, if all of them are known.
func (l *Launcher) measure(sets []gpuSet, from *cluster.Part, features []string, stated bool) []gpuSet {
	if from.Facts == nil || len(sets) == 0 {
		return sets
	}
	total := 0
	for i := range sets {
		total += sets[i].count
	}
	devices, complete := from.Facts.All(total)
	kinds := map[probe.Device]int{}
	var order []probe.Device
	for _, d := range devices {
		if kinds[d] == 0 {
			order = append(order, d)
		}
		kinds[d]++
	}
	if len(sets) == 1 && len(order) > 1 {
		if !complete {
			return sets
		}
		var parts []gpuSet
		for _, d := range order {
			g := sets[0]
			g.count = kinds[d]
			l.found(&g, d, from.Facts, features, stated)
			parts = append(parts, g)
		}
		return parts
	}
	for i := range sets {
		var is []probe.Device
		for _, d := range order {
			if l.belongs(d, i, sets) {
				is = append(is, d)
			}
		}
		if len(is) == 1 {
			l.found(&sets[i], is[0], from.Facts, features, stated)
		}
	}
	return sets
}

// belongs reports whether a device is one of a set of a node: of the set whose type can mean it, or else of the only set
// whose type means nothing.
func (l *Launcher) belongs(d probe.Device, i int, sets []gpuSet) bool {
	if len(sets) == 1 {
		return true
	}
	means := func(g *gpuSet) gpu.Answer {
		if len(g.is.Models) == 0 && g.is.Slice == "" {
			return gpu.Unknown
		}
		of := l.deviceMatch(d)
		if gpu.OtherSlice(of.Slice, g.is.Slice) || len(g.is.Models) > 0 && len(g.is.Both(of).Models) == 0 {
			return gpu.No
		}
		return gpu.Yes
	}
	unknown := 0
	for j := range sets {
		switch means(&sets[j]) {
		case gpu.Yes:
			if j == i {
				return true
			}
			unknown = len(sets) // it has its set
		case gpu.Unknown:
			unknown++
		}
	}
	return unknown == 1 && means(&sets[i]) == gpu.Unknown
}

// deviceMatch is what the catalogue says of a device, with what its driver reports.
func (l *Launcher) deviceMatch(d probe.Device) gpu.Match {
	if d.Slice != "" {
		return l.catalogue.Lookup(d.Name + " " + d.Slice)
	}
	m := l.catalogue.Lookup(d.Name)
	if len(m.Models) > 1 && d.Memory > 0 {
		m = m.OfSize(d.Memory)
	}
	model := gpu.Model{Name: d.Name, Vendor: d.Vendor}
	if len(m.Models) > 0 {
		model = m.Models[0]
	}
	if d.CC > 0 {
		model.CC = d.CC
	}
	if d.Memory > 0 {
		model.Memory = d.Memory
		return gpu.Match{Models: []gpu.Model{model}, Whole: true, Least: d.Memory, Most: d.Memory}
	}
	if len(m.Models) < 2 {
		m = gpu.Match{Models: []gpu.Model{model}, Whole: true, Least: model.Memory, Most: model.Memory}
	}
	return m
}

// found sets what a probe saw of a set of GPUs.
func (l *Launcher) found(g *gpuSet, d probe.Device, f *probe.Facts, features []string, stated bool) {
	is := &facts{catalogue: l.catalogue, probed: f.Time}
	is.Match = l.deviceMatch(d)
	text := fmt.Sprintf("the probe of %s on %s", f.Node, f.Time.Format("2006-01-02"))
	if probe.Older(f.Time, l.now, probe.Stale) {
		text += " (old)"
	}
	is.sources = []string{text}
	for i, name := range append([]string{g.gres, g.model}, features...) {
		said := l.catalogue.Feature(name)
		if i < 2 {
			said = l.catalogue.Lookup(name)
		}
		other := said.Whole && len(said.Models) > 0 && len(l.catalogue.Lookup(d.Name).Models) > 0 && len(said.Both(is.Match).Models) == 0
		if other || i == 0 && said.Whole && gpu.OtherSlice(said.Slice, is.Slice) {
			is.Contradicts = append(is.Contradicts, name)
		}
	}
	if len(is.Models) == 1 {
		g.model = strings.TrimSpace(is.Models[0].Name + " " + is.Slice)
	}
	g.is = is
	if !stated {
		g.least, g.most, g.said = is.Least, is.Most, ""
	}
	g.kind = ""
	g.setKind()
	g.setFloor()
}
