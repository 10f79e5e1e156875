package launcher

import (
	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
)

// unfit indexes the groups of a launcher on which Slurm could place a job that requests only
// GPUs, CPUs and memory, although they do not match the request. Other options, such as
// --constraint, must keep the job off them. Matching groups with several kinds of GPUs are
// included, as Slurm could give the job the wrong kind.
type unfit struct {
	groups      map[*group]bool // true: does not match
	byPartition map[*partition][]*group
	byFeature   map[string][]*group
}

// terms are what the first candidate of an answer decides of the others.
type terms struct {
	qosDecides bool // the QoS limits the duration: the limits of nodes are ignored
	unknown    bool // groups with unknown GPUs count as matching
	noTmp      bool // the disk is known from a probe only: without --tmp, Slurm keeps no job off small ones
}

// newUnfit finds these groups.
func newUnfit(l *Launcher, a *request.Alternative, of terms) *unfit {
	u := &unfit{map[*group]bool{}, map[*partition][]*group{}, map[string][]*group{}}
	wanted := a.GPUCount()
	for _, p := range l.partitions {
		for _, g := range p.groups {
			if slurmRefuses(l, g, a, wanted, of.noTmp) {
				continue
			}
			late := !of.qosDecides && g.maxDuration > 0 && a.Duration > g.maxDuration
			is := matchNode(&g.figures, a, unreported)
			matches := !late && (is == gpu.Yes || of.unknown && is == gpu.Unknown) && g.allowed(a.Where)
			if matches && len(g.gpus) < 2 {
				continue
			}
			u.groups[g] = !matches
			u.byPartition[p] = append(u.byPartition[p], g)
			for _, f := range g.features {
				u.byFeature[f] = append(u.byFeature[f], g)
			}
		}
	}
	return u
}

// slurmRefuses reports whether the nodes have too little for the requested GPUs, CPUs, memory,
// disk and GRES, so that Slurm keeps the job off them.
func slurmRefuses(l *Launcher, g *group, a *request.Alternative, wanted int, noTmp bool) bool {
	if wanted > 0 {
		there := 0
		for i := range g.gpus {
			there = min(anyNumber, there+g.gpus[i].count)
		}
		if there < wanted {
			return true
		}
	}
	if !noTmp && (g.disk > 0 || g.complete) && a.Disk > g.disk {
		return true
	}
	for _, x := range a.GRES {
		if have, known := g.gresCount(x.Name); known && have < int64(x.Count) {
			return true
		}
	}
	return g.cores > 0 && a.Cores*max(1, a.Tasks) > g.cores || l.Entry.UseMemory && g.memory > 0 && a.Memory > g.memory
}

// with returns the groups that have all of the features, which are sorted.
func (u *unfit) with(features []string) []*group {
	if len(features) == 0 {
		return nil
	}
	rarest := u.byFeature[features[0]]
	for _, f := range features[1:] {
		if list := u.byFeature[f]; len(list) < len(rarest) {
			rarest = list
		}
	}
	var all []*group
	for _, g := range rarest {
		if contains(g.features, features) {
			all = append(all, g)
		}
	}
	return all
}

// contains reports whether all contains every element of few; both are sorted.
func contains(all, few []string) bool {
	i := 0
	for _, f := range few {
		for i < len(all) && all[i] < f {
			i++
		}
		if i == len(all) || all[i] != f {
			return false
		}
	}
	return true
}
