package launcher

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/slurm"
	"github.com/ponos-tools/ponos/lib/slurm/sbatch"
)

// Answer is a launcher that satisfies a request, and the options of sbatch for it.
type Answer struct {
	Launcher    *Launcher
	Alternative int // of the request, from 0
	Asked       request.Alternative
	Partitions  []string // in order of preference
	QOS         string
	Account     string
	Options     sbatch.Options
	Unknown     []string // unknown properties of the nodes, which were accepted
	Notes       []string // why the job may wait long, such as a reservation
	typed       string   // its GPUs by Slurm's type, where the options do not name the type
	account     string   // the default account, which the options do not name
}

// Forms are other ways to write the same job, which plugins of a site may demand: with the type of the GPUs, the
// number of tasks, the account, and all of these. What is given besides stays.
func (a *Answer) Forms(given sbatch.Options) []sbatch.Options {
	var forms []sbatch.Options
	all := slices.Clone(a.Options)
	add := func(name, value string) {
		if value == "" || given.Has(name) {
			return
		}
		form := slices.Clone(a.Options)
		form.Set(name, value)
		all.Set(name, value)
		forms = append(forms, form)
	}
	add(sbatch.GPUsPerNode, a.typed)
	if !a.Options.Has(sbatch.TasksPerNode) && !given.Has("ntasks") {
		add(sbatch.TasksPerNode, "1")
	}
	if !a.Options.Has("account") {
		add("account", a.account)
	}
	if len(forms) > 1 {
		forms = append(forms, all)
	}
	return forms
}

// Local reports whether the launcher is a machine without Slurm: this one, or one reached over
// ssh.
func (a *Answer) Local() bool { return a.Launcher.Entry.Kind == file.Local }

// Reserved returns a reservation that is active now on some nodes of the answer's partitions,
// or nil if none is known.
func (a *Answer) Reserved() *slurm.Reservation {
	model := a.Launcher.admission
	if model == nil {
		return nil
	}
	now := a.Launcher.now.Unix()
	for i := range model.Reservations {
		r := &model.Reservations[i]
		names, err := hostlist.Expand(r.Nodes)
		if err != nil || r.Start > now || r.End <= now {
			continue
		}
		for _, p := range a.Launcher.partitions {
			if slices.Contains(a.Partitions, p.name) && slices.ContainsFunc(p.groups, func(g *group) bool {
				return slices.ContainsFunc(g.names(), func(n string) bool { return slices.Contains(names, n) })
			}) {
				return r
			}
		}
	}
	return nil
}

// maxClauses limits the alternatives of --constraint, one for each set of features. With more,
// fewClauses looks for features that several sets have in common.
const maxClauses = 64

// maxExclude limits the number of hosts in --exclude.
const maxExclude = 1000

// common sets the options that follow from the request alone.
func (l *Launcher) common(o *sbatch.Options, a *request.Alternative, cores int, at time.Time) {
	o.SetInt("nodes", max(1, a.Nodes))
	o.SetTime("time", a.Duration)
	if l.Entry.UseMemory || l.Entry.Kind == file.Local {
		o.SetMemory("mem", a.Memory)
	}
	o.SetInt(sbatch.CPUsPerTask, cores)
	o.SetInt(sbatch.TasksPerNode, a.Tasks)
	o.SetMemory("tmp", a.Disk)
	o.Set("gres", amounts(a.GRES))
	o.Set("licenses", amounts(a.Licenses))
	if a.Exclusive {
		o.SetFlag("exclusive")
	}
	if !at.IsZero() {
		o.Set("deadline", at.Format("2006-01-02T15:04:05"))
	}
	o.SetInt(sbatch.GPUsPerNode, a.GPUCount())
}

// deadline returns the earliest deadline of the request, or the zero time if it has none.
func (l *Launcher) deadline(a *request.Alternative) time.Time {
	var first time.Time
	for _, d := range a.Deadlines {
		if at := d.At(l.now); first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}

// misses reports whether a job that starts now and runs for takes cannot end by the deadline.
func (l *Launcher) misses(a *request.Alternative, takes time.Duration) bool {
	at := l.deadline(a)
	return !at.IsZero() && l.now.Add(takes).After(at)
}

// amounts formats GRES and licenses as sbatch expects them: NAME:COUNT,...
func amounts(list []request.Amount) string {
	words := make([]string, len(list))
	for i, x := range list {
		words[i] = fmt.Sprintf("%s:%d", x.Name, x.Count)
	}
	return strings.Join(words, ",")
}

// constraint formats alternatives for --constraint: (a&b)|(c).
func constraint(clauses []string) string {
	if len(clauses) == 0 {
		return ""
	}
	return "(" + strings.Join(clauses, ")|(") + ")"
}

// shortClauses returns alternatives for --constraint with as few features as select the same nodes, where Slurm has listed all
// nodes: of "GPU_GEN:AMP&GPU_MEM:80GB&rome", the size may do.
func (b *builder) shortClauses() []string {
	if len(b.clauses) == 0 || slices.ContainsFunc(b.partitions, func(p *partition) bool { return !p.complete }) {
		return b.fewClauses()
	}
	by := map[string][]*group{}
	for _, p := range b.partitions {
		for _, g := range p.groups {
			for _, f := range g.features {
				by[f] = append(by[f], g)
			}
		}
	}
	having := func(features []string) iter.Seq[*group] {
		rarest := slices.MinFunc(features, func(x, y string) int { return len(by[x]) - len(by[y]) })
		return func(yield func(*group) bool) {
			for _, g := range by[rarest] {
				lacks := func(f string) bool {
					_, has := slices.BinarySearch(g.features, f)
					return !has
				}
				if !slices.ContainsFunc(features, lacks) && !yield(g) {
					return
				}
			}
		}
	}
	some := func(features []string, is func(*group) bool) bool {
		for g := range having(features) {
			if is(g) {
				return true
			}
		}
		return false
	}
	wanted, missing := map[*group]bool{}, map[*group]bool{}
	for _, c := range b.clauses {
		for g := range having(strings.Split(c, "&")) {
			wanted[g], missing[g] = true, true
		}
	}
	// others reports whether features select nodes that are not wanted, and that Slurm itself does not keep the job off.
	others := func(features []string) bool {
		return some(features, func(g *group) bool { return !wanted[g] && !b.refusedByType(g) })
	}
	// Of features: whether it is requested, how many of these nodes have it, and whether it is about GPUs.
	worth := map[string]int{}
	for g := range wanted {
		for _, f := range g.features {
			worth[f] += 2
		}
	}
	for f := range worth {
		if size, _ := b.l.catalogue.FeatureSize(f); size > 0 || b.l.catalogue.Feature(f).Whole {
			worth[f]++
		}
		if slices.ContainsFunc(b.a.Where, func(c request.Condition) bool { return c.Field == "feature" && !c.Not && c.Matches(f) }) {
			worth[f] += 2*len(wanted) + 2
		}
	}
	whole := b.clauses
	b.clauses = nil
	for _, c := range whole {
		features := strings.Split(c, "&")
		if !some(features, func(g *group) bool { return missing[g] }) {
			continue // another alternative selects them
		}
		slices.SortStableFunc(features, func(x, y string) int { return worth[x] - worth[y] })
		for i := 0; i < len(features) && len(features) > 1; {
			if left := slices.Delete(slices.Clone(features), i, i+1); others(left) {
				i++
			} else {
				features = left
			}
		}
		for g := range having(features) {
			delete(missing, g)
		}
		slices.Sort(features)
		b.clauses = append(b.clauses, strings.Join(features, "&"))
	}
	return b.fewClauses()
}

// fewClauses returns at most maxClauses alternatives for --constraint. If there are more, it
// replaces sets of features by single features that only matching nodes have, and drops the
// rest. Slurm then has fewer nodes to choose from, but never a wrong one.
func (b *builder) fewClauses() []string {
	if len(b.clauses) <= maxClauses {
		return b.clauses
	}
	count := map[string]int{}
	for _, c := range b.clauses {
		for f := range strings.SplitSeq(c, "&") {
			count[f]++
		}
	}
	for f := range count {
		if slices.ContainsFunc(b.bad.with([]string{f}), func(g *group) bool { return b.in[g.partition] && b.offends(g) }) {
			delete(count, f)
		}
	}
	var few []string
	have := map[string]bool{}
	for _, c := range b.clauses {
		best := ""
		for f := range strings.SplitSeq(c, "&") {
			if count[f] > count[best] {
				best = f
			}
		}
		if best == "" {
			best = c
		}
		if !have[best] {
			have[best] = true
			few = append(few, best)
		}
	}
	return few[:min(len(few), maxClauses)]
}
