package launcher

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/advise/probe"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// Surveyed is a number of nodes of a Slurm launcher that have the same GPUs, and how that is known.
type Surveyed struct {
	Launcher   *Launcher
	Hosts      string // a hostlist
	Count      int
	Partitions []string
	GPUs       []SurveyedGPU
	// Probe are the options of sbatch for a job of a minute that looks at one of the nodes; nil: the user cannot
	// submit one there, and Why says why.
	Probe *Answer
	Why   string
	Mixed bool // others that Slurm describes in the same way have other GPUs
}

// SurveyedGPU is a number of GPUs of a node.
type SurveyedGPU struct {
	Count   int
	Type    string // Slurm's; "": none
	Is      string // what is known: the model, or what several have in common, and the memory
	Sources []string
	// Unknown is what of the GPU is not known: "model", "memory", or "".
	Unknown     string
	Contradicts []string  // names that mean other GPUs than a source that counts more
	Probed      time.Time // zero: not by a probe
	Old         bool      // it was long ago
}

// Open reports whether a probe would tell more.
func (s *Surveyed) Open() bool {
	return slices.ContainsFunc(s.GPUs, func(g SurveyedGPU) bool { return g.Unknown != "" || g.Old })
}

// sourcesOf are what decided what a set of GPUs is, in words.
func (g *gpuSet) sourcesOf() []string {
	all := slices.Clone(g.is.sources)
	if g.said != "" && !slices.Contains(all, g.said) {
		all = append(all, g.said)
	}
	return all
}

// unknown is what is not known of a set: "model", "memory" or "".
func (g *gpuSet) unknown() string {
	switch {
	case g.is.Slice != "" && g.most > 0:
	case len(g.is.Models) == 0 && g.most == 0:
		return "model"
	case g.least < g.most || g.most == 0:
		return "memory"
	}
	return ""
}

// Survey asks Slurm for the launchers that need it, and returns the nodes with GPUs that these have. With clusters that do not
// answer, the error is of one of them, and the nodes of the others are returned beside it: nil, if none answers.
func (s *Search) Survey(ctx context.Context) ([]*Surveyed, error) {
	var all []*Surveyed
	var missed error
	for _, l := range s.Launchers {
		if s.skips(l) != nil || l.Entry.Kind != file.Slurm || !l.Entry.QuerySlurm {
			continue
		}
		if err := s.ask(ctx, l); err != nil {
			if missed = l.unreachable(ctx, err); l.passes(ctx) {
				continue
			}
			return nil, missed
		}
		l.setup(s)
		all = append(all, l.survey()...)
		if all == nil {
			all = []*Surveyed{}
		}
	}
	return all, missed
}

func (l *Launcher) survey() []*Surveyed {
	var all []*Surveyed
	at := map[string]*Surveyed{}
	var matching []*candidate
	a := &request.Alternative{GPUs: []request.GPU{{Kind: request.AnyGPU, Count: 1}}, Cores: 1, Duration: time.Minute}
	slice := &request.Alternative{GPUs: []request.GPU{{Kind: request.Slice, Count: 1}}, Cores: 1, Duration: time.Minute}
	for _, p := range l.partitions {
		for _, g := range p.groups {
			if g.gpus == nil || g.hostList == "" {
				continue
			}
			if s := at[g.hostList]; s != nil {
				s.Partitions = append(s.Partitions, p.name)
				continue
			}
			s := &Surveyed{
				Launcher: l, Hosts: hostlist.Compress(g.names()), Count: g.nodes, Partitions: []string{p.name}, Mixed: g.mixed,
			}
			for i := range g.gpus {
				s.GPUs = append(s.GPUs, l.surveyed(&g.gpus[i]))
			}
			at[g.hostList] = s
			all = append(all, s)
		}
	}
	for _, s := range all {
		if !s.Open() {
			continue
		}
		if matching == nil { // a job gets a GPU of whatever kind, and a slice where there are slices
			matching, _ = l.candidates(a)
			slices, _ := l.candidates(slice)
			matching = append(matching, slices...)
		}
		s.Probe, s.Why = l.probe(a, s, matching)
	}
	return all
}

func (l *Launcher) surveyed(g *gpuSet) SurveyedGPU {
	d := SurveyedGPU{
		Count: g.count, Type: g.gres, Is: g.is.Label(), Sources: g.sourcesOf(), Unknown: g.unknown(),
		Contradicts: g.is.Contradicts, Probed: g.is.probed,
	}
	d.Old = !d.Probed.IsZero() && probe.Older(d.Probed, l.now, probe.Stale)
	if d.Is != g.is.Slice && g.is.Slice != "" {
		d.Is += " " + g.is.Slice
	}
	if g.most > 0 {
		d.Is = strings.TrimSpace(d.Is + " " + g.size())
	}
	return d
}

// probe returns a job of a minute on one of the nodes, with a GPU of which something is not known.
func (l *Launcher) probe(a *request.Alternative, s *Surveyed, matching []*candidate) (*Answer, string) {
	names, _ := hostlist.Expand(s.Hosts)
	for _, c := range matching {
		g := c.group
		if hostlist.Compress(g.names()) != s.Hosts {
			continue
		}
		answer := &Answer{Launcher: l, Asked: *a, Partitions: []string{g.partition.name}, QOS: c.choice.qos, Account: c.choice.account}
		o := &answer.Options
		o.Set("clusters", l.Entry.Cluster)
		l.common(o, a, 1, time.Time{})
		o.Set("account", answer.Account)
		o.Set("qos", answer.QOS)
		o.Set("partition", g.partition.name)
		for _, x := range s.GPUs {
			if x.Type != "" && (x.Unknown != "" || x.Old) {
				o.Set(sbatch.GPUsPerNode, x.Type+":1")
				break
			}
		}
		var others []string
		for _, other := range g.partition.groups {
			if other != g {
				others = append(others, other.names()...)
			}
		}
		switch { // Slurm chooses among the nodes, unless that would take a long list
		case len(others) > maxProbeExclude:
			o.Set("nodelist", names[0])
		case len(others) > 0:
			o.Set("exclude", hostlist.Compress(others))
		}
		return answer, ""
	}
	return nil, "no partition, QoS and account of yours takes a job of a minute with one GPU there"
}

const maxProbeExclude = 200

// HowToAdd says how to add what is not known of GPUs with a type (Slurm's; "": none) in a partition.
func HowToAdd(gres, partition string) string {
	if gres != "" {
		return fmt.Sprintf(`"lfind probe --submit" finds it out; or gpus.yaml: - { name: NAME, aliases: [%s] }`, gres)
	}
	return fmt.Sprintf(`"lfind probe --submit" finds it out; or launchers.yaml, with query_slurm: `+
		`partitions: { %s: { configuration: { gpu: { model: NAME, memory: SIZE } } } }`, partition)
}

// Problems are what the sources of a survey leave open, and where they contradict each other. They are of the file with the
// path, or of the cluster that was named.
func Problems(all []*Surveyed, path string) []file.Problem {
	d := warnings{path: path}
	for _, s := range all {
		if d.path = path; s.Launcher.Entry.Cluster != "" {
			d.path = s.Launcher.Entry.Cluster
		}
		whose := "nodes " + s.Hosts
		if s.Count == 1 {
			whose = "node " + s.Hosts
		}
		at := s.Launcher.Entry.Pos
		if s.Mixed {
			d.warn(at, "", "%s: others with the same description in Slurm were found to have other GPUs", whose)
		}
		for _, g := range s.GPUs {
			what := fmt.Sprintf("%s: %d x %s", whose, g.Count, strings.TrimSpace(firstOf(g.Is, g.Type, "GPU")))
			by := strings.Join(g.Sources, " and ")
			if len(g.Contradicts) > 0 {
				d.warn(at, "", "%s, by %s; %q does not agree", what, by, strings.Join(g.Contradicts, ", "))
			}
			switch {
			case g.Unknown != "" && by != "":
				d.warn(at, HowToAdd(g.Type, s.Partitions[0]), "%s, by %s: the %s is not known", what, by, g.Unknown)
			case g.Unknown != "":
				d.warn(at, HowToAdd(g.Type, s.Partitions[0]), "%s: the %s is not known", what, g.Unknown)
			case g.Old:
				on, why := g.Probed.Format("2006-01-02"), "which is long ago"
				if probe.Ahead(g.Probed, s.Launcher.now) {
					why = "when the clock was wrong"
				}
				d.warn(at, `"lfind probe --submit" looks again`, "%s: found out on %s, %s", what, on, why)
			}
		}
	}
	return d.problems
}

// knownBy describes the sources of the GPUs of a group that Slurm describes: a100 80GiB by the type "a100" and the feature
// "gpu80".
func (g *group) knownBy() []string {
	if !g.complete {
		return nil
	}
	var all []string
	for i := range g.gpus {
		x := &g.gpus[i]
		if sources := x.sourcesOf(); len(sources) > 0 && x.most > 0 {
			name := firstOf(x.gres, x.model, x.is.Label(), "GPU")
			all = append(all, fmt.Sprintf("%s %s by %s", name, x.size(), strings.Join(sources, " and ")))
		}
	}
	return all
}
