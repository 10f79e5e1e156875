package launcher

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/admission"
	"github.com/ponos-tools/ponos/lib/gpu"
	"github.com/ponos-tools/ponos/lib/launcher/file"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/unit"
)

// Launcher is one entry with inheritance resolved.
type Launcher struct {
	Entry *file.Entry
	Name  string // its id, or where it stands

	machine    *group       // of a local one
	partitions []*partition // of a Slurm one
	asked      bool         // Slurm has been asked, or need not be
	err        error        // why it could not be
	features   map[string]featureFigures
	regexes    []file.Regex
	guessing   bool // regexes are commonRegexes
	catalogue  *gpu.Catalogue
	admission  *admission.Cluster // what Slurm has said; nil: it was not asked
	// allowUnknown: nodes that may have what is asked for are taken, too; unknown
	// counts those that were seen.
	allowUnknown bool
	unknown      int
	now          time.Time // for deadlines
	facts        map[string]*facts
}

// partition is a partition of a Slurm launcher.
type partition struct {
	name     string
	order    int
	priority int
	class    int // 0: best; see the constants
	refused  []Reason
	groups   []*group
	choices  []choice
	complete bool             // groups are all nodes of the partition, as Slurm said
	slurm    *slurm.Partition // as Slurm said; nil: the file alone has said
	minNodes int
	maxNodes int // 0: no limit
}

// Classes of candidates of equal priority. A job is not put into a worse class if a
// better one can take it, and never into two at once.
const (
	classPreemptible = 1 // its jobs may be ended for others
	classWasteful    = 2 // it has GPUs and the request none
	classUncertain   = 8 // whether Slurm takes the job is not known; comes behind all others
	classUnknown     = 4 // what its GPUs are is not known; comes behind all others
)

// choice is a QoS and an account that can be used in a partition.
type choice struct {
	qos, account string // as passed to sbatch; "": the user's own default
	isQOS        string // what a default stands for, where that is known
	isAccount    string
	refused      []Reason
	priority     int
	maxDuration  time.Duration // replaces that of the nodes; 0: does not
	minGPU       int
	hardMax      time.Duration // Slurm's own limit; 0: none
	hardMinGPU   int           // the same
}

// group is a number of nodes that have the same, or a machine.
type group struct {
	partition *partition
	order     int
	features  []string // sorted, each once
	clause    string   // features joined by "&"
	hosts     []string
	hostList  string // hosts joined by commas, where that is not yet taken apart
	nodes     int    // how many; 0: not known
	down      int    // of these, how many are not usable
	reserved  string // until when a reservation keeps jobs off all of them; "": none does
	figures
}

// figures is what one node has. Zero is not known.
type figures struct {
	maxDuration time.Duration
	gpus        []gpuSet
	cores       int
	memory      int64
	memPerCPU   int64
	disk        int64
	gres        []slurm.GRES // of Slurm
	complete    bool         // Slurm itself has said what there is: what is not known is not there
}

// gpuSet is a number of alike GPUs of a node.
type gpuSet struct {
	kind, model, gres string
	count             int    // anyNumber: not known
	is                *facts // what its names mean
	least, most       int64  // bounds of its memory in bytes; 0: not known
	floor             int64  // requests for less are not welcome
	ratio             float64
	minMemory         int64
}

// facts are what the names of a GPU mean, from its model, Slurm's type or the
// features of its node.
type facts struct {
	gpu.Match
	catalogue *gpu.Catalogue
	answers   map[string]gpu.Answer // to "is it of that model"
}

const anyNumber = math.MaxInt32

// names returns the hosts of the group.
func (g *group) names() []string {
	if g.hosts == nil && g.hostList != "" {
		g.hosts = strings.Split(g.hostList, ",")
	}
	return g.hosts
}

// New makes the launchers of a file ready to be searched: by decreasing weight,
// then in the order of the file. The catalogue says what the names of GPUs mean.
func New(f *file.File, catalogue *gpu.Catalogue) []*Launcher {
	launchers := make([]*Launcher, 0, len(f.Entries))
	for i := range f.Entries {
		launchers = append(launchers, newLauncher(&f.Entries[i], catalogue))
	}
	number := map[file.Kind]int{}
	for _, l := range launchers {
		number[l.Entry.Kind]++
		if l.Name = l.Entry.ID; l.Name == "" {
			l.Name = fmt.Sprintf("%s#%d", l.Entry.Kind, number[l.Entry.Kind])
		}
	}
	slices.SortStableFunc(launchers, func(a, b *Launcher) int {
		switch {
		case a.Entry.Weight > b.Entry.Weight:
			return -1
		case a.Entry.Weight < b.Entry.Weight:
			return 1
		}
		return 0
	})
	return launchers
}

func newLauncher(e *file.Entry, catalogue *gpu.Catalogue) *Launcher {
	l := &Launcher{Entry: e, catalogue: catalogue, regexes: e.FeaturesRegex, asked: !e.QuerySlurm}
	if e.Kind == file.Local {
		l.machine = &group{nodes: 1, figures: figures{cores: e.CPU.Cores, memory: e.CPU.Memory}}
		for _, g := range e.GPUs {
			l.machine.gpus = append(l.machine.gpus, l.newGPU(g, nil))
		}
		return l
	}
	rules := map[string]file.QOS{}
	for _, q := range e.QOS {
		rules[q.Name] = q
	}
	for i := range e.Partitions {
		from := &e.Partitions[i]
		p := &partition{name: from.Name, order: i, priority: from.Priority, minNodes: from.MinNodes, maxNodes: from.MaxNodes, choices: choices(from, rules)}
		if from.Preemptible {
			p.class = classPreemptible
		}
		if from.Disabled {
			p.refused = append(p.refused, Reason{"disabled", "the partition is disabled in the file"})
		}
		for j := range from.Nodes {
			p.groups = append(p.groups, l.newGroup(p, &from.Nodes[j], from.Configuration))
		}
		l.partitions = append(l.partitions, p)
	}
	return l
}

// choices are the combinations of QoS and account that the file gives for a
// partition, in its order.
func choices(p *file.Partition, rules map[string]file.QOS) []choice {
	names, accounts := p.QOS, p.Accounts
	if len(names) == 0 {
		names = []string{""}
	}
	if len(accounts) == 0 {
		accounts = []string{""}
	}
	all := make([]choice, 0, len(names)*len(accounts))
	for _, q := range names {
		rule := rules[q]
		for _, a := range accounts {
			all = append(all, choice{qos: q, account: a, isQOS: q, isAccount: a, priority: rule.Priority, maxDuration: rule.MaxDuration, minGPU: rule.MinGPU})
		}
	}
	return all
}

// newGroup resolves what a group of nodes inherits: from the launcher, the
// partition, its own configuration and its features, the later one overriding.
func (l *Launcher) newGroup(p *partition, n *file.Nodes, inherited file.Configuration) *group {
	g := &group{partition: p, order: len(p.groups), hosts: n.Hosts, nodes: max(n.Count, len(n.Hosts))}
	g.setFeatures(n.Features)
	c := l.Entry.Configuration
	overlay(&c, &inherited)
	overlay(&c, &n.Configuration)
	g.figures = l.figures(c, n.Features)
	return g
}

func (g *group) setFeatures(features []string) {
	g.features = slices.Clone(features)
	slices.Sort(g.features)
	g.features = slices.Compact(g.features)
	g.clause = strings.Join(g.features, "&")
}

// figures turns a configuration and what features say into what a node has.
func (l *Launcher) figures(c file.Configuration, features []string) figures {
	count, memory := -1, int64(-1)
	for _, name := range features {
		f := l.feature(name)
		if f.configuration != nil {
			overlay(&c, f.configuration)
			if f.configuration.GPU.Count > 0 {
				count = -1
			}
			if f.configuration.GPU.Memory > 0 {
				memory = -1
			}
		}
		if f.count >= 0 {
			count = f.count
		}
		if f.memory >= 0 {
			memory = f.memory
		}
	}
	fig := figures{maxDuration: c.MaxDuration, cores: c.CPU.Cores, memory: c.CPU.Memory, memPerCPU: c.CPU.MemPerCPU}
	if fig.memory == 0 && fig.cores > 0 {
		fig.memory = fig.memPerCPU * int64(fig.cores)
	}
	for _, g := range c.GPUs {
		if g.MinMemRatio == 0 {
			g.MinMemRatio = c.GPU.MinMemRatio
		}
		fig.gpus = append(fig.gpus, l.newGPU(g, features))
	}
	if len(c.GPUs) > 0 {
		return fig
	}
	if count >= 0 {
		c.GPU.Count = count
	}
	if memory >= 0 {
		c.GPU.Memory = memory
	}
	if g := l.newGPU(c.GPU, features); count != 0 && g.count > 0 {
		fig.gpus = []gpuSet{g}
	}
	return fig
}

// newGPU makes a GPU of its description and the features of its node. GPUs of which
// there is a memory or a model, but no number, are of a number not known.
func (l *Launcher) newGPU(from file.GPU, features []string) gpuSet {
	g := gpuSet{
		kind: from.Kind, model: from.Model, gres: from.GRES, count: from.Count, least: from.Memory, most: from.Memory,
		ratio: from.MinMemRatio, minMemory: from.MinMemory,
	}
	if g.count == 0 && (g.least > 0 || g.model != "" || g.gres != "") {
		g.count = anyNumber
	}
	if g.count > 0 {
		l.identify(&g, features)
	}
	return g
}

// identify finds out what a GPU is: by its model, else by Slurm's type, else by the
// features of the node. What is known of its memory stays.
func (l *Launcher) identify(g *gpuSet, features []string) {
	g.is = l.factsOf(g.model, g.gres, features)
	if g.most == 0 {
		g.least, g.most = g.is.Least, g.is.Most
	}
	if g.kind == "" {
		g.kind = "cuda"
		switch g.is.Vendor() {
		case gpu.AMD:
			g.kind = "rocm"
		case gpu.Intel:
			g.kind = "xpu"
		case gpu.Apple:
			g.kind = "mps"
		}
	}
	g.setFloor()
}

// factsOf are what names mean; the same names have the same facts.
func (l *Launcher) factsOf(model, gres string, features []string) *facts {
	key := model + "\x00" + gres + "\x00"
	f := l.facts[key]
	if f == nil {
		f = &facts{catalogue: l.catalogue}
		for _, name := range []string{model, gres} {
			if f.Match = l.catalogue.Lookup(name); len(f.Models) > 0 || f.Slice != "" {
				break
			}
		}
		if l.facts == nil {
			l.facts = map[string]*facts{}
		}
		l.facts[key] = f
	}
	if len(f.Models) > 0 || len(features) == 0 {
		return f
	}
	key += strings.Join(features, "\x00")
	if of := l.facts[key]; of != nil {
		return of
	}
	of := &facts{Match: l.catalogue.Features(features), catalogue: l.catalogue}
	if f.Slice != "" {
		of.Slice, of.Least, of.Most = f.Slice, f.Least, f.Most
	}
	l.facts[key] = of
	return of
}

func (g *gpuSet) setFloor() {
	g.floor = max(int64(math.Floor(float64(g.most)*g.ratio)), g.minMemory)
}

// featureFigures is what one feature says.
type featureFigures struct {
	configuration *file.Configuration // nil: nothing
	count         int                 // -1: nothing
	memory        int64               // -1: nothing
}

// feature returns what the features and features_regex of the launcher say of a
// feature; a later regular expression overrides an earlier one.
func (l *Launcher) feature(name string) featureFigures {
	if f, ok := l.features[name]; ok {
		return f
	}
	f := featureFigures{count: -1, memory: -1}
	for i := range l.Entry.Features {
		if l.Entry.Features[i].Name == name {
			f.configuration = &l.Entry.Features[i].Configuration
		}
	}
	for _, r := range l.regexes {
		if l.guessing && !maybeGPU(name) {
			break
		}
		m := r.Match.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		if r.Count > 0 && m[r.Count] != "" {
			if n, err := unit.Multiply(m[r.Count], 1); err == nil && n < anyNumber {
				f.count = int(n)
			}
		}
		if r.Memory > 0 && m[r.Memory] != "" {
			if n, err := unit.Size(m[r.Memory]); err == nil {
				f.memory = n
			}
		}
	}
	if l.features == nil {
		l.features = map[string]featureFigures{}
	}
	l.features[name] = f
	return f
}

// overlay puts what over says onto c; zero says nothing.
func overlay(c, over *file.Configuration) {
	set(&c.MaxDuration, over.MaxDuration)
	set(&c.GPU.Kind, over.GPU.Kind)
	set(&c.GPU.Model, over.GPU.Model)
	set(&c.GPU.GRES, over.GPU.GRES)
	set(&c.GPU.Count, over.GPU.Count)
	set(&c.GPU.Memory, over.GPU.Memory)
	set(&c.GPU.MinMemory, over.GPU.MinMemory)
	set(&c.GPU.MinMemRatio, over.GPU.MinMemRatio)
	set(&c.CPU.Cores, over.CPU.Cores)
	set(&c.CPU.Memory, over.CPU.Memory)
	set(&c.CPU.MemPerCPU, over.CPU.MemPerCPU)
	set(&c.CPU.CPUPerGPU, over.CPU.CPUPerGPU)
	if len(over.GPUs) > 0 {
		c.GPUs = over.GPUs
	}
}

func set[T comparable](to *T, value T) {
	var zero T
	if value != zero {
		*to = value
	}
}
