package cluster

import (
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/probe"
)

// Part is a group of nodes, or those of a group that were found to have the same.
type Part struct {
	Group
	// Facts are what one of the nodes was found to have; nil: none of them was looked at.
	Facts *probe.Facts
	// Found is the least local disk that one of the nodes was found to have, in bytes, where Slurm is not told (TmpDisk);
	// 0: not known.
	Found int64
	// Mixed: nodes of the group were found to have different GPUs.
	Mixed bool
}

// Parts returns the groups with what is known of their nodes. Nodes of a group have the same by Slurm's description, so
// that what one was found to have holds for all, unless others of them were found to have something else.
func (s *Snapshot) Parts() []*Part {
	all := make([]*Part, 0, len(s.Groups))
	for i := range s.Groups {
		g := &s.Groups[i]
		if len(s.Facts) == 0 || g.GRES == "" {
			all = append(all, &Part{Group: *g})
			continue
		}
		var found []*Part
		var hosts [][]string
		var others []string
		for host := range strings.SplitSeq(g.Hosts, ",") {
			f, ok := s.Facts[host]
			if !ok {
				others = append(others, host)
				continue
			}
			at := slices.IndexFunc(found, func(p *Part) bool { return p.Facts.Like(&f) })
			if at < 0 {
				at = len(found)
				found, hosts = append(found, &Part{Group: *g, Facts: &f}), append(hosts, nil)
			}
			if p := found[at]; f.Better(p.Facts) {
				p.Facts = &f
			}
			if p := found[at]; g.Disk == 0 && f.Disk > 0 && (p.Found == 0 || f.Disk < p.Found) {
				p.Found = f.Disk
			}
			hosts[at] = append(hosts[at], host)
		}
		if len(found) < 2 {
			if found == nil {
				found = []*Part{{Group: *g}}
			}
			all = append(all, found...)
			continue
		}
		if others != nil {
			found, hosts = append(found, &Part{Group: *g}), append(hosts, others)
		}
		for i, p := range found {
			p.Mixed, p.Hosts, p.Count = true, strings.Join(hosts[i], ","), len(hosts[i])
			if p.Unusable = 0; g.Unusable == g.Count {
				p.Unusable = p.Count
			}
		}
		all = append(all, found...)
	}
	return all
}
