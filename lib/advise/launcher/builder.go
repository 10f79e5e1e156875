package launcher

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// way is a combination of sbatch options that selects the matching nodes within a partition:
// features (--constraint), GPUs by Slurm's type, --exclude or --nodelist.
type way struct{ constraint, typed, exclude, nodelist bool }

// builder makes an answer from matching candidates, starting with first.
type builder struct {
	l     *Launcher
	a     *request.Alternative
	first *candidate
	way   way
	types []gresCount // GPUs to request by Slurm's type, if way.typed
	bad   *unfit
	// joined are classes that may be in one answer with others.
	joined class
	fit    fitting // sure, or possible where unknown GPUs are accepted

	partitions []*partition
	clauses    []string
	exclude    []string
	in         map[*partition]bool
	clause     map[string]bool
	forbidden  map[*partition]bool
	nodes      map[*partition]int
}

type gresCount struct {
	name  string
	count int
}

// attempt identifies nodes for which the search for a way has the same result.
type attempt struct {
	partition *partition
	clause    string
	of        terms
	gpus      string
}

var notSeparable = because("not_separable", "no option distinguishes its nodes from others of the partition that do not match")

// build returns the best answer from the matching candidates, which are sorted best first, and
// sets the verdict of those in it. Without an answer, each candidate has the reason.
func (l *Launcher) build(a *request.Alternative, matching []*candidate) *Answer {
	unfits := map[terms]*unfit{}
	tried := map[attempt]bool{}
	for _, first := range matching {
		of := terms{first.choice.maxDuration > 0, first.class&classUnknown != 0, first.noTmp(a)}
		// Nodes like these were tried before, and cannot be separated from others.
		same := attempt{first.group.partition, first.group.clause, of, fmt.Sprint(first.group.gpus)}
		if l.Entry.UseFeatures && tried[same] {
			first.reasons = append(first.reasons, notSeparable)
			continue
		}
		tried[same] = true
		if unfits[of] == nil {
			unfits[of] = newUnfit(l, a, of)
		}
		b := &builder{l: l, a: a, first: first, bad: unfits[of], joined: l.joined, fit: sure}
		if of.unknown {
			b.fit = possible
		}
		began := false
		for _, w := range b.ways() {
			if !b.begin(w) {
				continue
			}
			if began = true; b.complete(matching) {
				return b.answer()
			}
		}
		if began {
			first.reasons = append(first.reasons, because("nodes", "too few nodes can be requested at once"))
		} else {
			first.reasons = append(first.reasons, notSeparable)
		}
	}
	return nil
}

// complete adds to the answer all candidates that the same options can select. If the answer
// still has too few nodes, it reports false and restores verdicts and reasons.
func (b *builder) complete(matching []*candidate) bool {
	before := make([]int, len(matching))
	for i, c := range matching {
		if before[i] = len(c.reasons); c == b.first {
			continue
		}
		if why := b.add(c); why != nil {
			c.reasons = append(c.reasons, *why)
		} else {
			c.verdict = Yes
		}
	}
	enough := b.enough()
	for i, c := range matching {
		switch {
		case !enough:
			c.verdict, c.reasons = Spare, c.reasons[:before[i]]
		case c.verdict == Yes && !slices.Contains(b.partitions, c.group.partition):
			c.verdict = Spare
			c.reasons = append(c.reasons, because("nodes", "too few nodes of the partition can be requested at once"))
		}
	}
	return enough
}

// begin starts an answer with the first candidate and reports whether w selects its nodes and
// none that do not match.
func (b *builder) begin(w way) bool {
	g := b.first.group
	p := g.partition
	b.way, b.types, b.exclude = w, nil, nil
	if w.typed {
		b.types, _ = b.typesOf(g)
	}
	if b.ambiguous(g) {
		return false
	}
	b.in, b.clause, b.forbidden = map[*partition]bool{p: true}, map[string]bool{}, map[*partition]bool{}
	b.partitions, b.clauses = []*partition{p}, nil
	b.nodes = map[*partition]int{p: g.usable(b.a.Where)}
	switch {
	case w.nodelist:
	case w.constraint:
		clash, elsewhere := b.clashes(g, p)
		if len(clash) > 0 && (!w.exclude || !b.excludeAll(clash, p)) {
			return false
		}
		b.clauses, b.clause[g.clause] = []string{g.clause}, true
		for _, p := range elsewhere {
			b.forbidden[p] = true
		}
	default:
		rest := b.landing(p)
		if len(rest) > 0 && (!w.exclude || !b.excludeAll(rest, p)) {
			return false
		}
	}
	b.first.verdict = Yes
	return true
}

// ways returns the ways to try, the simplest first. Slurm lists all nodes of a partition, but a
// file may omit some. For a partition of a file, features are therefore requested even where
// all nodes in the file match.
func (b *builder) ways() []way {
	g := b.first.group
	_, typed := b.typesOf(g)
	clauses := b.l.Entry.UseFeatures && g.clause != ""
	var ways []way
	add := func(w way) {
		if (!w.constraint || clauses) && (!w.typed || typed) && (!w.exclude || b.l.Entry.UseHosts) {
			ways = append(ways, w)
		}
	}
	if !b.l.Entry.UseFeatures && !g.partition.complete && b.l.Entry.UseHosts &&
		len(g.names())-len(g.denied(b.a.Where)) >= max(1, b.a.Nodes) {
		ways = append(ways, way{nodelist: true})
	}
	if g.partition.complete || !clauses || b.hasPlainSibling() {
		add(way{})
		add(way{typed: true})
	}
	add(way{constraint: true})
	add(way{constraint: true, typed: true})
	add(way{constraint: true, exclude: true})
	add(way{exclude: true})
	return ways
}

// hasPlainSibling reports whether the partition also has matching nodes without features, which
// no --constraint can select.
func (b *builder) hasPlainSibling() bool {
	return slices.ContainsFunc(b.first.group.partition.groups, func(g *group) bool {
		return g.clause == "" && !b.bad.groups[g] && matchNode(&g.figures, b.a, unreported) != gpu.No
	})
}

// typesOf returns the GPUs that the request would take on a node of the group, counted by
// Slurm's type, and whether all of them have a type.
func (b *builder) typesOf(g *group) ([]gresCount, bool) {
	if len(b.a.GPUs) == 0 {
		return nil, false
	}
	var types []gresCount
	for i, n := range assign(g.gpus, b.a.GPUs, b.fit) {
		if n == 0 {
			continue
		}
		if g.gpus[i].gres == "" {
			return nil, false
		}
		if j := slices.IndexFunc(types, func(t gresCount) bool { return t.name == g.gpus[i].gres }); j >= 0 {
			types[j].count += n
		} else {
			types = append(types, gresCount{g.gpus[i].gres, n})
		}
	}
	return types, true
}

// ambiguous reports whether Slurm could give a job on a node of the group GPUs that do not
// satisfy the request. If GPUs are requested without a type, Slurm may give any of the node's
// GPUs.
func (b *builder) ambiguous(g *group) bool {
	if len(g.gpus) < 2 || len(b.a.GPUs) == 0 {
		return false
	}
	whole := b.a.Exclusive || g.partition.exclusive // then Slurm gives all GPUs, also those of other types
	var given []gpuSet                              // what Slurm may give
	seen := map[string]int{}
	for i := range g.gpus {
		x := g.gpus[i]
		if b.way.typed && !whole {
			t := slices.IndexFunc(b.types, func(t gresCount) bool { return t.name == x.gres })
			if t < 0 {
				continue
			}
			x.count = min(x.count, b.types[t].count)
		}
		seen[x.gres]++
		given = append(given, x)
	}
	fit := true
	for i := range given {
		for j := range b.a.GPUs {
			fit = fit && b.fit(&given[i], &b.a.GPUs[j])
		}
	}
	if fit || whole {
		return !fit
	}
	for _, n := range seen {
		if n > 1 || !b.way.typed {
			return true
		}
	}
	return assign(given, b.a.GPUs, b.fit) == nil
}

// offends reports whether, without further options, Slurm could place the job on a node that
// does not match, or give it wrong GPUs there.
func (b *builder) offends(g *group) bool {
	return !b.refusedByType(g) && (b.bad.groups[g] || b.ambiguous(g))
}

// refusedByType reports whether Slurm itself keeps the job off the nodes because they have too
// few GPUs of the requested types.
func (b *builder) refusedByType(g *group) bool {
	if !b.way.typed {
		return false
	}
	for _, t := range b.types {
		have := 0
		for i := range g.gpus {
			if g.gpus[i].gres == t.name {
				have = min(anyNumber, have+g.gpus[i].count)
			}
		}
		if have < t.count {
			return true
		}
	}
	return false
}

// landing returns the groups of a partition on which Slurm could place the job although they do
// not match, if only the partition were requested.
func (b *builder) landing(p *partition) []*group {
	var all []*group
	for _, g := range b.bad.byPartition[p] {
		if b.offends(g) {
			all = append(all, g)
		}
	}
	return all
}

// clashes returns the groups that do not match but have all features of g, so that --constraint
// would admit them: those in p or in a partition of the answer, and the other partitions that
// have such groups.
func (b *builder) clashes(g *group, p *partition) (here []*group, elsewhere []*partition) {
	for _, o := range b.bad.with(g.features) {
		switch {
		case !b.offends(o):
		case o.partition == p || b.in[o.partition]:
			here = append(here, o)
		default:
			elsewhere = append(elsewhere, o.partition)
		}
	}
	return here, elsewhere
}

// excludeAll puts the nodes of groups into --exclude. It reports false if their names are
// unknown, if there are too many, or if another group of p has one of them.
func (b *builder) excludeAll(groups []*group, p *partition) bool {
	var hosts []string
	for _, g := range groups {
		if len(g.names()) == 0 {
			return false
		}
		if hosts = append(hosts, g.names()...); len(hosts) > maxExclude {
			return false
		}
	}
	out := make(map[string]bool, len(hosts))
	for _, h := range hosts {
		out[h] = true
	}
	left := make(map[*group]bool, len(groups))
	for _, g := range groups {
		left[g] = true
	}
	for _, g := range p.groups {
		if !left[g] && slices.ContainsFunc(g.names(), func(h string) bool { return out[h] }) {
			return false
		}
	}
	b.exclude = hosts
	return true
}

// add adds a candidate to the answer, or returns the reason why the same options cannot select
// it.
func (b *builder) add(c *candidate) *Reason {
	g, p := c.group, c.group.partition
	if other := b.otherClass(c); other != nil {
		return other
	}
	switch types, typed := b.typesOf(g); {
	case c.choice.qos != b.first.choice.qos:
		return &Reason{Code: "other_qos", format: "it would need another QoS"}
	case c.choice.account != b.first.choice.account:
		return &Reason{Code: "other_account", format: "it would need another account"}
	case b.way.nodelist:
		return &Reason{Code: "nodelist", format: "the node found is requested by name"}
	case b.l.cores(g, b.a) != b.l.cores(b.first.group, b.a):
		return &Reason{Code: "other_cores", format: "its memory would need another number of CPUs"}
	case c.noTmp(b.a) && !b.first.noTmp(b.a):
		return &Reason{Code: "other_disk", format: "its disk is known from a probe only, and Slurm refuses --tmp there"}
	case b.way.typed && (!typed || !slices.Equal(types, b.types)):
		return &Reason{Code: "other_type", format: "its GPUs would have to be requested by another type"}
	case b.ambiguous(g):
		return &Reason{Code: "other_type", format: "its GPUs would have to be requested by their type"}
	case c.choice.maxDuration > 0 != (b.first.choice.maxDuration > 0):
		return &Reason{Code: "other_qos", format: "its time limit comes from elsewhere"}
	}
	cannot := &Reason{Code: "not_separable", format: "with it, nodes that do not match could get the job"}
	if b.way.constraint {
		if g.clause == "" {
			return &Reason{Code: "no_features", format: "it has no features to ask for"}
		}
		if !b.in[p] && (b.forbidden[p] || b.way.exclude) {
			return cannot
		}
		if !b.clause[g.clause] {
			here, elsewhere := b.clashes(g, p)
			if len(here) > 0 {
				return cannot
			}
			for _, p := range elsewhere {
				b.forbidden[p] = true
			}
			b.clause[g.clause] = true
			b.clauses = append(b.clauses, g.clause)
		}
	} else if !b.in[p] && (b.way.exclude || len(b.landing(p)) > 0) {
		return cannot
	}
	if !b.in[p] {
		b.in[p] = true
		b.partitions = append(b.partitions, p)
	}
	b.nodes[p] = min(anyNumber, b.nodes[p]+g.usable(b.a.Where))
	return nil
}

// enough removes partitions with fewer nodes in the answer than requested, and reports whether
// the partition of the first candidate remains and --exclude is not too long.
func (b *builder) enough() bool {
	b.partitions = slices.DeleteFunc(b.partitions, func(p *partition) bool { return b.nodes[p] < b.a.Nodes })
	if len(b.partitions) == 0 || b.partitions[0] != b.first.group.partition {
		return false
	}
	b.excludeHosts()
	return len(b.exclude) <= maxExclude
}

// excludeHosts adds to --exclude the hosts of matching groups that the request rules out by
// name.
func (b *builder) excludeHosts() {
	if !namesHosts(b.a.Where) || b.way.nodelist {
		return
	}
	out := map[string]bool{}
	for _, h := range b.exclude {
		out[h] = true
	}
	for _, p := range b.partitions {
		for _, g := range p.groups {
			if b.bad.groups[g] {
				continue
			}
			for _, h := range g.denied(b.a.Where) {
				if !out[h] {
					out[h] = true
					b.exclude = append(b.exclude, h)
				}
			}
		}
	}
}

func (b *builder) answer() *Answer {
	answer := &Answer{Launcher: b.l, Asked: *b.a, QOS: b.first.choice.qos, Account: b.first.choice.account}
	if b.first.class&classUnknown != 0 {
		answer.Unknown = []string{fmt.Sprintf("partition %s: %s", b.partitions[0].name, unknownGPU(b.first.group.gpus, b.a.GPUs))}
	}
	for _, d := range b.first.uncertain {
		to := &answer.Unknown
		if d.Code == "reservation" {
			to = &answer.Notes
		}
		*to = append(*to, fmt.Sprintf("partition %s: %s", b.partitions[0].name, d.Text()))
	}
	// For the job in a partition that gives whole nodes, Slurm computes the memory of one, and keeps
	// that when it checks the limits of the partitions behind.
	slices.SortStableFunc(b.partitions, func(x, y *partition) int { return rank(x.exclusive) - rank(y.exclusive) })
	for _, p := range b.partitions {
		answer.Partitions = append(answer.Partitions, p.name)
	}
	o := &answer.Options
	o.Set("clusters", b.l.Entry.Cluster)
	b.l.common(o, b.a, b.l.cores(b.first.group, b.a), b.l.deadline(b.a))
	if b.first.noTmp(b.a) {
		o.Set("tmp", "")
	}
	o.Set("account", answer.Account)
	o.Set("qos", answer.QOS)
	o.Set("partition", strings.Join(answer.Partitions, ","))
	o.Set("constraint", constraint(b.shortClauses()))
	o.Set("exclude", strings.Join(b.exclude, ","))
	if b.way.nodelist {
		names := slices.Clone(b.first.group.names())
		denied := b.first.group.denied(b.a.Where)
		names = slices.DeleteFunc(names, func(h string) bool { return slices.Contains(denied, h) })
		o.Set("nodelist", strings.Join(names[:max(1, b.a.Nodes)], ","))
	}
	if len(b.types) > 0 {
		o.Set(sbatch.GPUsPerNode, typed(b.types))
	} else if types, ok := b.typesOf(b.first.group); ok {
		answer.typed = typed(types)
	}
	if answer.Account == "" {
		answer.account = b.first.choice.isAccount
	}
	return answer
}

// typed formats GPUs by type for sbatch.
func typed(types []gresCount) string {
	words := make([]string, len(types))
	for i, t := range types {
		words[i] = fmt.Sprintf("%s:%d", t.name, t.count)
	}
	return strings.Join(words, ",")
}
