package file

import (
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/ponos-tools/ponos/lib/base/spelling"
	"github.com/ponos-tools/ponos/lib/base/unit"
)

// checkSlurm finds values of a Slurm launcher that are valid but contradict each other or have
// no effect.
func (d *decoder) checkSlurm(n *yaml.Node, e *Entry) {
	at := func(p Pos) *yaml.Node { return &yaml.Node{Line: p.Line, Column: p.Column} }
	if e.ID == "" {
		d.warn(n, "a slurm launcher without id")
	}
	if len(e.Partitions) == 0 && !e.QuerySlurm {
		d.warn(n, "%s has no partitions and does not ask Slurm: it can never match", name(e))
	}
	defined := make([]string, len(e.QOS))
	for i, q := range e.QOS {
		defined[i] = q.Name
	}
	perCPU := e.Configuration.CPU.MemPerCPU > 0
	seen := map[string]string{} // host and partition -> group
	usedFeatures := map[string]bool{}
	for _, p := range e.Partitions {
		if len(p.Nodes) == 0 && !e.QuerySlurm && !p.Disabled {
			d.warn(at(p.Pos), "partition %q has no nodes: it can never match", p.Name)
		}
		for _, q := range p.QOS {
			if len(defined) > 0 && !slices.Contains(defined, q) {
				hint := ""
				if near := spelling.Nearest(q, defined); near != "" {
					hint = fmt.Sprintf("did you mean %q?", near)
				}
				d.add(at(p.Pos), true, hint, "partition %q: the qos %q is not described below \"qos\"", p.Name, q)
			}
		}
		perCPU = perCPU || p.Configuration.CPU.MemPerCPU > 0
		for _, g := range p.Nodes {
			perCPU = perCPU || g.Configuration.CPU.MemPerCPU > 0
			for _, f := range g.Features {
				usedFeatures[f] = true
			}
			for _, h := range g.Hosts {
				key := p.Name + "\x00" + h
				if seen[key] != "" {
					d.warn(at(g.Pos), "partition %q: host %q is already in the group of %s", p.Name, h, seen[key])
					continue
				}
				seen[key] = fmt.Sprintf("line %d", g.Line)
			}
		}
	}
	if !e.UseMemory && !perCPU && !e.QuerySlurm {
		d.warn(n, "%s: without use_memory_contraint, memory is requested by mem_per_cpu, which is not set", name(e))
	}
	if !e.QuerySlurm {
		for _, f := range e.Features {
			if !usedFeatures[f.Name] {
				d.warn(at(f.Pos), "no node has the feature %q", f.Name)
			}
		}
	}
	d.checkRegexes(e, usedFeatures)
}

// checkRegexes finds features of which a regular expression matches only the beginning, such as
// GPU(\d+) with GPU48GB, and captured sizes that are invalid.
func (d *decoder) checkRegexes(e *Entry, features map[string]bool) {
	names := make([]string, 0, len(features))
	for f := range features {
		names = append(names, f)
	}
	slices.Sort(names)
	for _, r := range e.FeaturesRegex {
		for _, f := range names {
			m := r.Match.FindStringSubmatch(f)
			if m == nil {
				continue
			}
			at := &yaml.Node{Line: r.Line, Column: r.Column}
			if len(m[0]) < len(f) {
				d.add(at, true, `end it with "$" if that is not meant`,
					"features_regex: %q matches only the beginning of the feature %q", r.Text, f)
			}
			if r.Memory > 0 && m[r.Memory] != "" {
				if _, err := unit.Size(m[r.Memory]); err != nil {
					d.fail(at, "features_regex: of the feature %q: %v", f, err)
				}
			}
		}
	}
}

// checkReferences finds duplicate ids, and connectors and tokens that are not defined.
func (d *decoder) checkReferences(f *File, hasTokens bool) {
	ids := []string{"local"}
	for _, c := range f.Connectors {
		ids = append(ids, c.ID)
	}
	counts := map[string]int{}
	for _, t := range f.Tokens {
		counts[t.ID] = t.Count
	}
	first := map[string]int{}
	for i := range f.Entries {
		e := &f.Entries[i]
		at := &yaml.Node{Line: e.Line, Column: e.Column}
		if line := first[e.ID]; line > 0 && e.ID != "" {
			d.warn(at, "%s has the id of the one in line %d", name(e), line)
		}
		first[e.ID] = e.Line
		if !slices.Contains(ids, e.Connector) {
			hint := "define it in connectors.yaml in the same directory"
			if near := spelling.Nearest(e.Connector, ids); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			d.add(at, false, hint, "%s: no connector %q", name(e), e.Connector)
		}
		for _, t := range e.Tokens {
			at := &yaml.Node{Line: t.Line, Column: t.Column}
			switch total, ok := counts[t.ID]; {
			case !ok && !hasTokens:
				d.warn(at, "unknown token %q: without a tokens.yaml in the same directory, this launcher can be found but not run", t.ID)
			case !ok:
				d.fail(at, "no token %q in tokens.yaml", t.ID)
			case t.Count > total:
				d.fail(at, "%d of the token %q are needed, but tokens.yaml has %d", t.Count, t.ID, total)
			}
		}
	}
}

// name returns how messages refer to a launcher.
func name(e *Entry) string {
	if e.ID != "" {
		return fmt.Sprintf("launcher %q", e.ID)
	}
	return fmt.Sprintf("the launcher in line %d", e.Line)
}
