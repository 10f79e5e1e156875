package launcher

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/cluster"
	"github.com/ponos-tools/ponos/lib/advise/launcher/file"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Direct returns the launcher that is used without launchers.yaml: it has what Slurm itself
// reports.
func Direct(catalogue *gpu.Catalogue) *Launcher {
	return New(&file.File{Entries: []file.Entry{direct("slurm")}}, catalogue)[0]
}

// Clusters are launchers for clusters that Slurm reaches by name, in place of a file.
func Clusters(names []string) *file.File {
	f := &file.File{}
	for _, name := range names {
		e := direct(name)
		e.Cluster = name
		f.Entries = append(f.Entries, e)
	}
	return f
}

func direct(id string) file.Entry {
	return file.Entry{
		Kind: file.Slurm, ID: id, Connector: "local", QuerySlurm: true, UseFeatures: true, UseHosts: true, UseMemory: true,
	}
}

// commonRegexes read the number of GPUs from the name that administrators often give to a feature. They apply to
// launchers that query Slurm and have no features_regex.
var commonRegexes = func() []file.Regex {
	r, _, _ := file.CompileRegex(`GPU(?P<cuda_count>\d+)$`)
	return []file.Regex{r}
}()

// maybeGPU reports whether a name could tell of GPUs. This quick test skips the
// names of thousands of racks and switches.
func maybeGPU(name string) bool {
	for i := 0; i+2 < len(name); i++ {
		if c := name[i] | 0x20; c == 'g' && name[i+1]|0x20 == 'p' || c == 'v' && name[i+1]|0x20 == 'r' {
			return true
		}
	}
	return false
}

// addSlurm adds Slurm's partitions and nodes to those of the file. What the file says of a
// partition has precedence.
func (l *Launcher) addSlurm(s *cluster.Snapshot) {
	if len(l.regexes) == 0 {
		l.regexes, l.guessing = commonRegexes, true
	}
	l.admission, l.now = s.Admission(), s.Time
	described := map[string]*partition{}
	inherited := map[string]file.Configuration{}
	given := map[string]bool{} // partitions for which the file names QoS or accounts
	for i, p := range l.partitions {
		from := &l.Entry.Partitions[i]
		described[p.name] = p
		inherited[p.name] = from.Configuration
		given[p.name] = len(from.QOS) > 0 || len(from.Accounts) > 0
	}
	highest := int64(0)
	for i := range s.Partitions {
		if s.Partitions[i].State == "UP" {
			highest = max(highest, s.Partitions[i].PriorityTier)
		}
	}
	rules := make(map[string]slurm.QOS, len(s.QOS))
	for _, q := range s.QOS {
		rules[q.Name] = q
	}
	known := make(map[string]*partition, len(s.Partitions))
	for i := range s.Partitions {
		from := &s.Partitions[i]
		p := described[from.Name]
		if p == nil {
			p = &partition{name: from.Name, order: len(l.partitions)}
			l.partitions = append(l.partitions, p)
		}
		known[from.Name] = p
		p.complete = len(p.groups) == 0
		p.slurm = from
		p.exclusive = p.exclusive || from.Exclusive
		if from.Preemptible() && from.PriorityTier < highest {
			p.class = classPreemptible
		}
		for _, f := range l.admission.Access(from) {
			if f.Verdict == admission.No {
				p.refused = append(p.refused, because(f.Code, "%s", f.Text))
			}
		}
		if !given[from.Name] {
			var none []Reason
			p.choices, none = slurmChoices(from, s, l.admission, rules)
			p.refused = append(p.refused, none...)
		}
		for j := range p.choices {
			p.choices[j].limit(from, rules)
		}
	}
	for name, p := range described {
		if known[name] == nil {
			p.refused = append(p.refused, because("partition_state", "Slurm has no such partition, or hides it"))
		}
	}
	reserved := s.Reserved()
	for _, from := range s.Parts() {
		held := reservedText(&from.Group, reserved)
		var features []string
		if from.Features != "" {
			features = slices.DeleteFunc(slices.Collect(from.Features.All()), func(name string) bool { return !file.IsFeature(name) })
		}
		fromFeatures := group{}
		fromFeatures.setFeatures(features)
		for name := range from.Partitions.All() {
			p := known[name]
			if p == nil {
				continue // hidden from this user
			}
			g := &group{
				partition: p, order: len(p.groups), features: fromFeatures.features, clause: fromFeatures.clause,
				hostList: from.Hosts, nodes: from.Count, down: from.Unusable, reserved: held, mixed: from.Mixed,
			}
			c := l.Entry.Configuration
			if inherited := inherited[name]; described[name] != nil {
				overlay(&c, &inherited)
			}
			g.figures = l.slurmFigures(c, from, features)
			p.groups = append(p.groups, g)
		}
	}
}

// reservedText returns a text about the reservation that keeps jobs off all nodes of a group
// and ends first, or "" if some node is free.
func reservedText(g *cluster.Group, reserved map[string]*slurm.Reservation) string {
	if len(reserved) == 0 {
		return ""
	}
	var first *slurm.Reservation
	for host := range strings.SplitSeq(g.Hosts, ",") {
		r := reserved[host]
		if r == nil {
			return ""
		}
		if first == nil || r.End < first.End {
			first = r
		}
	}
	return fmt.Sprintf("its nodes are reserved (%s) until %s", first.Name, slurm.Time(first.End).Format("2006-01-02T15:04:05"))
}

// slurmFigures returns the resources of a node. Slurm's figures have precedence over the node's
// features, and these over what the node inherits from the file.
//
// The names of its partitions are the last source: of GPUs of which type, model and features do not tell all.
func (l *Launcher) slurmFigures(c file.Configuration, from *cluster.Part, features []string) figures {
	set(&c.CPU.Cores, from.CPUs)
	set(&c.CPU.Memory, from.Memory)
	fig := l.figures(c, features)
	fig.disk, fig.found, fig.complete = from.Disk, from.Found, true
	gres, err := slurm.ParseGRES(from.GRES)
	if err != nil {
		fig.complete = false
		return fig // an unknown format: use the features alone
	}
	fig.gres = gres
	fig.manyShared = strings.Contains(strings.ToUpper(l.admission.Config.Get("SelectTypeParameters")), "MULTIPLE_SHARING_GRES_PJ")
	said := int64(0) // memory of each GPU from the features or the file
	if len(fig.gpus) > 0 {
		said = fig.gpus[0].most
		if c.GPU.Model != "" && c.GPU.Memory == 0 && l.saysMemory(features) == "" {
			said = 0 // it comes from the catalogue only
		}
	}
	places := slices.Collect(from.Partitions.All())
	var found []gpuSet
	for _, g := range gres {
		if g.Name == "gpu" && g.Count > 0 {
			found = append(found, gpuSet{
				kind: c.GPU.Kind, gres: g.Type, model: c.GPU.Model, count: int(g.Count),
				ratio: c.GPU.MinMemRatio, minMemory: c.GPU.MinMemory,
			})
		}
	}
	for i := range found {
		g := &found[i]
		if len(found) > 1 && g.gres != "" { // the names may mean either type
			l.identify(g, nil, nil)
		} else {
			l.identify(g, features, places)
		}
		if len(found) == 1 && said > 0 {
			narrowed := g.is.OfSize(said)
			g.said = "the memory in launchers.yaml"
			if l.guessing && c.GPU.Memory == 0 && narrowed.Most > 0 && len(narrowed.Models) > 0 && narrowed.Models[0].SoldAs(said) {
				g.is = &facts{Evidence: gpu.Evidence{Match: narrowed, By: g.is.By}, catalogue: l.catalogue, sources: g.is.sources}
				g.least, g.most = narrowed.Least, narrowed.Most
			} else {
				g.least, g.most = said, said
			}
			if c.GPU.Memory == 0 {
				g.said = l.saysMemory(features)
			}
			g.setFloor()
		}
	}
	found = l.measure(found, from, features, c.GPU.Memory > 0)
	switch {
	case len(found) > 0:
		fig.gpus = found
	case c.GPU.Count == 0 && len(c.GPUs) == 0: // Slurm lists no GPU, whatever the names of features suggest
		fig.gpus = nil
	}
	return fig
}

// saysMemory returns the feature that gives the memory of a GPU, in words, or "".
func (l *Launcher) saysMemory(features []string) string {
	for _, name := range features {
		if f := l.feature(name); f.memory > 0 || f.configuration != nil && f.configuration.GPU.Memory > 0 {
			return fmt.Sprintf("the feature %q", name)
		}
	}
	return ""
}

func allows(name string, allow, deny []string) bool {
	return (allow == nil || slices.Contains(allow, name)) && !slices.Contains(deny, name)
}

// slurmChoices returns the accounts and QoS that the user can use in a partition: the default
// account and QoS first, then the QoS with the tightest time limit. Without any, it returns the
// reason.
func slurmChoices(p *slurm.Partition, s *cluster.Snapshot, model *admission.Cluster, rules map[string]slurm.QOS) ([]choice, []Reason) {
	if len(s.Associations) == 0 {
		return qosChoices(p, slurm.Association{}, "", "", rules), nil
	}
	var mine []string
	var usable []slurm.Association
	for _, m := range s.Associations {
		if m.Partition != "" && m.Partition != p.Name {
			continue
		}
		if !slices.Contains(mine, m.Account) {
			mine = append(mine, m.Account)
		}
		if model.MayCharge(p, m.Account) != admission.No {
			usable = append(usable, m)
		}
	}
	if len(usable) == 0 {
		text := fmt.Sprintf("none of your accounts (%s) may use the partition", strings.Join(mine, ", "))
		if p.AllowAccounts != nil {
			text = fmt.Sprintf("the partition is for the accounts %s only, yours are %s",
				strings.Join(p.AllowAccounts, ", "), strings.Join(mine, ", "))
		}
		return nil, []Reason{because("account", "%s", text)}
	}
	slices.SortStableFunc(usable, func(a, b slurm.Association) int {
		return rank(a.Account != s.DefaultAccount) - rank(b.Account != s.DefaultAccount)
	})
	var all []choice
	for _, m := range usable {
		account := m.Account
		if account == s.DefaultAccount {
			account = ""
		}
		all = append(all, qosChoices(p, m, account, model.DefaultQOS(&m), rules)...)
	}
	if len(all) == 0 {
		text := fmt.Sprintf("none of your QoS may use the partition, which is for %s", strings.Join(p.AllowQOS, ", "))
		return nil, []Reason{because("qos", "%s", text)}
	}
	return all, nil
}

func rank(last bool) int {
	if last {
		return 1
	}
	return 0
}

func qosChoices(p *slurm.Partition, m slurm.Association, account, byDefault string, rules map[string]slurm.QOS) []choice {
	var all []choice
	add := func(name string) {
		c := choice{qos: name, isQOS: name, account: account, isAccount: m.Account}
		if name == byDefault {
			c.qos = ""
		}
		all = append(all, c)
	}
	if len(m.QOS) == 0 { // unknown, or the cluster has none
		if p.AllowQOS == nil {
			add(byDefault)
		}
		for _, q := range p.AllowQOS {
			add(q)
		}
		return all
	}
	names := slices.Clone(m.QOS)
	slices.SortStableFunc(names, func(a, b string) int {
		if a == byDefault || b == byDefault {
			return rank(a != byDefault) - rank(b != byDefault)
		}
		x, y := rules[a].MaxWall.Or(0), rules[b].MaxWall.Or(0)
		switch {
		case x == y:
			return strings.Compare(a, b)
		case y == 0 || x != 0 && x < y:
			return -1
		}
		return 1
	})
	for _, q := range names {
		if allows(q, p.AllowQOS, p.DenyQOS) {
			add(q)
		}
	}
	return all
}

// limit sets the longest job and the fewest GPUs that Slurm allows with the QoS in the
// partition. A limit of the partition's QoS overrides that of the job's QoS, unless the latter
// has OverPartQOS.
func (c *choice) limit(p *slurm.Partition, rules map[string]slurm.QOS) {
	own, ofPartition := rules[c.isQOS], rules[p.QOS]
	before, after := ofPartition, own
	if own.Is("OverPartQOS") {
		before, after = own, ofPartition
	}
	if p.MaxTime != slurm.Unlimited && !own.Is("PartitionTimeLimit") {
		c.hardMax = p.MaxTime
	}
	least(&c.hardMax, cmp.Or(before.MaxWall, after.MaxWall).Max)
	c.hardMinGPU = int(cmp.Or(before.MinTRESPerJob.GPUs(), after.MinTRESPerJob.GPUs()))
}

// least lowers a limit to value; 0 means no limit.
func least[T ~int | ~int64](limit *T, value T) {
	if value > 0 && (*limit == 0 || value < *limit) {
		*limit = value
	}
}
