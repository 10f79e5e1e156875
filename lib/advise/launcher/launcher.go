package launcher

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/unit"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Launcher is one entry with inheritance resolved.
type Launcher struct {
	Entry *file.Entry
	Name  string // its id, or KIND#N for the Nth launcher of a kind

	machine    *group       // of a local launcher
	partitions []*partition // of a Slurm launcher
	asked      bool         // Slurm was queried, or need not be
	err        error        // why the query failed
	features   map[string]featureFigures
	regexes    []file.Regex
	guessing   bool // regexes are commonRegexes
	catalogue  *gpu.Catalogue
	admission  *admission.Cluster // Slurm's rules; nil: it was not queried
	// allowUnknown: groups that may satisfy the request are used, too; unknown
	// counts those that were seen.
	allowUnknown bool
	joined       class // classes that an answer joins with others
	unknown      int
	now          time.Time // for deadlines
	facts        map[string]*facts
}

// partition is a partition of a Slurm launcher.
type partition struct {
	name      string
	order     int
	priority  int
	class     class // classPreemptible, or 0
	exclusive bool  // its jobs get whole nodes
	refused   []Reason
	groups    []*group
	choices   []choice
	complete  bool             // Slurm has listed all nodes of the partition
	slurm     *slurm.Partition // from Slurm; nil: the file alone describes it
	minNodes  int
	maxNodes  int // 0: no limit
}

// choice is a QoS and an account that can be used in a partition.
type choice struct {
	qos, account string // as passed to sbatch; "": the user's default
	isQOS        string // the name of the default, if known
	isAccount    string
	refused      []Reason
	priority     int
	maxDuration  time.Duration // overrides that of the nodes, unless 0
	minGPU       int
	hardMax      time.Duration // Slurm's limit, for Describe; 0: none
	hardMinGPU   int           // Slurm's limit, for Describe
}

// group is a number of identical nodes, or a local machine.
type group struct {
	partition *partition
	order     int
	features  []string // sorted, without duplicates
	clause    string   // features joined by "&"
	hosts     []string
	hostList  string // hosts joined by commas, not split yet
	nodes     int    // how many; 0: unknown
	down      int    // how many of them are unusable
	mixed     bool   // nodes that Slurm describes in the same way were found to have other GPUs
	reserved  string // text of a reservation that keeps jobs off all of them, with its end; "": none
	figures
}

// figures is the resources of one node; sizes are in bytes, and 0 is unknown.
type figures struct {
	maxDuration time.Duration
	gpus        []gpuSet
	cores       int
	memory      int64
	memPerCPU   int64
	disk        int64        // as configured in Slurm (TmpDisk)
	found       int64        // the disk that a probe found where Slurm is not told: Slurm refuses --tmp there
	gres        []slurm.GRES // as configured in Slurm
	complete    bool         // from Slurm: a resource that is not listed does not exist
	manyShared  bool         // a job can have shards of several GPUs
}

// gpuSet is a number of identical GPUs of a node.
type gpuSet struct {
	kind, model, gres string
	count             int    // anyNumber: unknown
	is                *facts // what the catalogue says of its names
	least, most       int64  // limits of its memory in bytes; 0: unknown
	said              string // who says the memory, if that is not the catalogue; ""
	floor             int64  // requests for less memory are refused (min_mem_ratio, min_memory)
	ratio             float64
	minMemory         int64
}

// facts is what is known of a GPU: found by its model, by Slurm's type, by the features of its node or the names of its
// partitions, or by a probe.
type facts struct {
	gpu.Evidence
	catalogue *gpu.Catalogue
	sources   []string              // what of these decided, in words
	probed    time.Time             // when a probe saw it; zero: none did
	answers   map[string]gpu.Answer // of isModel, by model
}

const anyNumber = math.MaxInt32

// names returns the hosts of the group.
func (g *group) names() []string {
	if g.hosts == nil && g.hostList != "" {
		g.hosts = strings.Split(g.hostList, ",")
	}
	return g.hosts
}

// New prepares the launchers of a file for a search, sorted by decreasing weight and then in
// the order of the file.
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
		p := &partition{
			name: from.Name, order: i, priority: from.Priority, exclusive: from.Exclusive,
			minNodes: from.MinNodes, maxNodes: from.MaxNodes, choices: choices(from, rules),
		}
		if from.Preemptible {
			p.class = classPreemptible
		}
		if from.Disabled {
			p.refused = append(p.refused, because("disabled", "the partition is disabled in the file"))
		}
		for j := range from.Nodes {
			p.groups = append(p.groups, l.newGroup(p, &from.Nodes[j], from.Configuration))
		}
		l.partitions = append(l.partitions, p)
	}
	return l
}

// choices returns the combinations of QoS and account that the file gives for a partition, in
// its order.
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
			all = append(all, choice{
				qos: q, account: a, isQOS: q, isAccount: a,
				priority: rule.Priority, maxDuration: rule.MaxDuration, minGPU: rule.MinGPU,
			})
		}
	}
	return all
}

// newGroup resolves what a group of nodes inherits from the launcher, the partition, its own
// configuration and its features. The later one overrides.
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

// figures returns the resources of a node from its configuration and its features, which
// override it in their order.
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
		switch {
		case f.memory < 0:
		case l.guessing: // vram16 beside vram32: at least so much
			memory = max(memory, f.memory)
		default:
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
		of := features
		if len(c.GPUs) > 1 && g.GRES != "" {
			of = nil // the features may mean either type
		}
		fig.gpus = append(fig.gpus, l.newGPU(g, of))
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

// newGPU returns the GPUs of a description, identified with the features of the node. If a
// memory or a model is given but no count, the count is unknown.
func (l *Launcher) newGPU(from file.GPU, features []string) gpuSet {
	g := gpuSet{
		kind: from.Kind, model: from.Model, gres: from.GRES, count: from.Count, least: from.Memory, most: from.Memory,
		ratio: from.MinMemRatio, minMemory: from.MinMemory,
	}
	if g.count == 0 && (g.least > 0 || g.model != "" || g.gres != "") {
		g.count = anyNumber
	}
	if g.count > 0 {
		l.identify(&g, features, nil)
	}
	return g
}

// identify sets what the catalogue says of a GPU, found by model, else by Slurm's type, else by
// the node's features, and the names of its partitions. A memory that is set is kept.
func (l *Launcher) identify(g *gpuSet, features, places []string) {
	g.is = l.factsOf(g.model, g.gres, features, places)
	if g.most == 0 {
		g.least, g.most = g.is.Least, g.is.Most
	} else {
		g.said = "the memory in launchers.yaml"
	}
	g.setKind()
	g.setFloor()
}

// setKind sets the kind that follows from the vendor, unless the file says another.
func (g *gpuSet) setKind() {
	if g.kind != "" {
		return
	}
	g.kind = "cuda"
	switch g.is.Vendor() {
	case gpu.AMD:
		g.kind = "rocm"
	case gpu.Intel:
		g.kind = "xpu"
	case gpu.Apple:
		g.kind = "mps"
	case gpu.Habana:
		g.kind = "hpu"
	case gpu.Several:
		g.kind = string(request.AnyGPU)
	}
}

// factsOf returns the facts for these names. The same names share one value, which caches
// answers.
func (l *Launcher) factsOf(model, gres string, features, places []string) *facts {
	key := model + "\x00" + gres + "\x00"
	f := l.facts[key]
	if f == nil {
		f = &facts{catalogue: l.catalogue}
		for i, name := range []string{model, gres} {
			if f.Match = l.catalogue.Lookup(name); len(f.Models) > 0 || f.Slice != "" {
				f.sources = []string{fmt.Sprintf([]string{"the model %q of launchers.yaml", "the type %q"}[i], name)}
				break
			}
		}
		if l.facts == nil {
			l.facts = map[string]*facts{}
		}
		l.facts[key] = f
	}
	if len(features)+len(places) == 0 || len(f.Models) == 1 {
		return f
	}
	key += strings.Join(features, "\x00") + "\x00\x00" + strings.Join(places, "\x00")
	if of := l.facts[key]; of != nil {
		return of
	}
	of := &facts{catalogue: l.catalogue, sources: slices.Clone(f.sources)}
	of.Evidence = l.catalogue.Narrow(f.Match, features, places)
	for _, name := range of.By {
		what := "the feature %q"
		if !slices.Contains(features, name) {
			what = "the name of the partition %q"
		}
		of.sources = append(of.sources, fmt.Sprintf(what, name))
	}
	l.facts[key] = of
	return of
}

func (g *gpuSet) setFloor() {
	g.floor = max(int64(math.Floor(float64(g.most)*g.ratio)), g.minMemory)
}

// featureFigures is what a feature says of its nodes.
type featureFigures struct {
	configuration *file.Configuration // nil: nothing
	count         int                 // -1: nothing
	memory        int64               // -1: nothing
}

// feature returns what the launcher's features and features_regex say of a feature. A later
// regular expression overrides an earlier one.
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
	if bytes, sure := l.catalogue.FeatureSize(name); l.guessing && sure {
		f.memory = bytes
	}
	if l.features == nil {
		l.features = map[string]featureFigures{}
	}
	l.features[name] = f
	return f
}

// overlay sets in c every value that is set in over; zero is not set.
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
