package launcher

import (
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/advise/admission"
	"github.com/ponos-tools/ponos/lib/advise/gpu"
	"github.com/ponos-tools/ponos/lib/advise/launcher/request"
	"github.com/ponos-tools/ponos/lib/base/unit"
)

// candidate is a group of nodes of a partition, with a QoS and an account to use there.
type candidate struct {
	group     *group
	choice    *choice
	priority  int
	class     class
	billed    float64        // by Slurm, for each node
	gpuMemory float64        // of the GPUs that it would take, in bytes
	need      admission.Need // of each node
	reasons   []Reason       // why it does not match, or is not used
	uncertain []Reason       // why Slurm may refuse it
	verdict   Verdict
}

// admitted is how Slurm would judge a request in a partition with a QoS and an account: reasons
// to refuse it, reasons that make the answer uncertain, and the resources of each node that the
// partition's rules make of it.
type admitted struct {
	refused, uncertain []Reason
	need               admission.Need
}

// noTmp reports whether the requested disk is there by a probe only, so that Slurm would refuse --tmp.
func (c *candidate) noTmp(a *request.Alternative) bool {
	return a.Disk > c.group.disk && c.group.found > 0
}

// Verdict is the result of the search for a candidate.
type Verdict string

// The verdicts.
const (
	No    Verdict = "no"      // does not satisfy the request
	Maybe Verdict = "unknown" // may satisfy it; the model or memory of its GPUs is unknown
	Yes   Verdict = "yes"     // satisfies it, and is in the answer
	Spare Verdict = "spare"   // satisfies it, but is not in the answer
)

// candidates evaluates all candidates of a Slurm launcher. It returns those that match, best
// first, and every one in the order of the file, with all reasons against it.
func (l *Launcher) candidates(a *request.Alternative) (matching, all []*candidate) {
	for _, p := range l.partitions {
		count := map[*choice]int{} // matching nodes
		start := len(matching)
		refused := slices.Clone(p.refused)
		if !holds(a.Where, "partition", p.name) {
			refused = append(refused, because("partition", "the request rules the partition out"))
		}
		refused = append(refused, l.refusedBy(p, a)...)
		if len(refused) > 0 || len(p.groups) == 0 {
			if len(p.groups) == 0 {
				refused = append(refused, because("no_nodes", "no nodes of it are known"))
			}
			all = append(all, &candidate{group: &group{partition: p}, choice: &choice{}, verdict: No, reasons: refused})
			continue
		}
		ways := make([]admitted, len(p.choices))
		for i := range p.choices {
			c := &p.choices[i]
			ways[i].refused, ways[i].uncertain, ways[i].need = l.admits(p, c, a)
		}
		var reasons []Reason
		why := func(code, format string, args ...any) { reasons = append(reasons, because(code, format, args...)) }
		names := p.joinedChoices()
		for _, g := range p.groups {
			reasons = nil
			is := l.groupMatches(g, a, why)
			if is == gpu.Unknown {
				l.unknown++
			}
			if is == gpu.No || is == gpu.Unknown && !l.allowUnknown {
				c := p.explainGroup(g, a, names, ways, reasons)
				if is == gpu.Unknown && len(c.reasons) == len(reasons) {
					c.verdict = Maybe
				}
				all = append(all, c)
				continue
			}
			unknown := reasons
			for i := range p.choices {
				c := &p.choices[i]
				reasons = slices.Clone(unknown)
				ok := c.matches(g, a, why) && len(ways[i].refused) == 0
				reasons = append(reasons, ways[i].refused...)
				if lacks := l.lacks(g, c, a, ways[i].need); len(lacks) > 0 {
					ok, reasons = false, append(reasons, lacks...)
				}
				uncertain := ways[i].uncertain
				if g.reserved != "" {
					uncertain = append(slices.Clone(uncertain), because("reservation", "%s", g.reserved))
				}
				if ok {
					reasons = append(reasons, uncertain...)
				}
				cand := &candidate{
					group: g, choice: c, priority: p.priority + c.priority, need: ways[i].need,
					verdict: No, reasons: reasons, uncertain: uncertain,
				}
				if is == gpu.Unknown {
					cand.class = classUnknown
				}
				all = append(all, cand)
				if ok {
					matching = append(matching, cand)
					count[c] += g.usable(a.Where)
				}
			}
		}
		matching = enough(matching, start, count, a)
	}
	l.classify(a, matching)
	slices.SortStableFunc(matching, better)
	for _, c := range matching {
		c.verdict = Spare
	}
	return matching, all
}

// explainGroup returns one candidate, with all QoS and accounts joined, for a group that does
// not match. If no QoS and account would admit the request either, the reasons of the last one
// are added.
func (p *partition) explainGroup(g *group, a *request.Alternative, names *choice, ways []admitted, reasons []Reason) *candidate {
	var more []Reason
	would := false
	for i := range p.choices {
		more = append(more[:0], ways[i].refused...)
		would = p.choices[i].matches(g, a, func(code, format string, args ...any) {
			more = append(more, because(code, format, args...))
		}) && len(ways[i].refused) == 0 || would
	}
	if !would {
		reasons = append(reasons, more...)
	}
	return &candidate{group: g, choice: names, verdict: No, reasons: reasons}
}

// joinedChoices returns the QoS and accounts of a partition as one choice, for its groups that match with none.
func (p *partition) joinedChoices() *choice {
	var qos, accounts []string
	for i := range p.choices {
		c := &p.choices[i]
		if c.isQOS != "" && !slices.Contains(qos, c.isQOS) {
			qos = append(qos, c.isQOS)
		}
		if c.isAccount != "" && !slices.Contains(accounts, c.isAccount) {
			accounts = append(accounts, c.isAccount)
		}
	}
	joined, accountsJoined := strings.Join(qos, ","), strings.Join(accounts, ",")
	return &choice{qos: joined, isQOS: joined, account: accountsJoined, isAccount: accountsJoined}
}

// enough removes the candidates from matching[start:], those of one partition, whose choice has
// fewer matching nodes than requested.
func enough(matching []*candidate, start int, count map[*choice]int, a *request.Alternative) []*candidate {
	kept := matching[:start]
	for _, c := range matching[start:] {
		if n := count[c.choice]; n < max(1, a.Nodes) {
			c.reasons = append(c.reasons, because("nodes", "%d nodes requested, %d of the partition match", a.Nodes, n))
			continue
		}
		kept = append(kept, c)
	}
	return kept
}

// usable returns the number of nodes that can run a job under the conditions on hosts, or
// anyNumber if it is unknown.
func (g *group) usable(where []request.Condition) int {
	if g.nodes == 0 {
		return anyNumber
	}
	n := g.nodes - g.down
	if names := g.names(); len(names) > 0 && namesHosts(where) {
		n = min(n, len(names)-len(g.denied(where)))
	}
	return n
}

// refusedBy returns the reasons why no node of a partition can take the request.
func (l *Launcher) refusedBy(p *partition, a *request.Alternative) []Reason {
	var all []Reason
	no := func(code, format string, args ...any) {
		all = append(all, because(code, format, args...))
	}
	if nodes := max(1, a.Nodes); p.maxNodes > 0 && nodes > p.maxNodes {
		no("nodes", "%d nodes requested, the partition allows %d", nodes, p.maxNodes)
	} else if nodes < p.minNodes {
		no("nodes", "the partition takes jobs of %d nodes or more", p.minNodes)
	}
	// Slurm would accept a job that misses its deadline, and end it at once.
	takes := a.Duration
	if takes == 0 && p.slurm != nil {
		takes = p.slurm.DefaultTime
	}
	if l.misses(a, takes) {
		no("deadline", "a job of %s cannot end by the deadline", length(takes))
	}
	if a.NotPreemptible && p.class&classPreemptible != 0 {
		no("preemptible", "its jobs may be ended for others")
	}
	return all
}

// job returns the job that would be submitted to a partition with a QoS and an account.
func (l *Launcher) job(p *partition, c *choice, a *request.Alternative) admission.Job {
	j := admission.Job{
		Partition: p.name, Account: c.account, QOS: c.qos, Time: a.Duration, Nodes: int64(a.Nodes), Tasks: int64(a.Tasks),
		CPUsPerTask: int64(a.Cores), GPUs: int64(a.GPUCount()), Exclusive: a.Exclusive,
	}
	if l.Entry.UseMemory && a.Memory > 0 {
		j.MemMB = (a.Memory-1)>>20 + 1
	}
	for _, x := range a.Licenses {
		if j.Licenses == nil {
			j.Licenses = map[string]int64{}
		}
		j.Licenses[x.Name] += int64(x.Count)
	}
	return j
}

// admits returns how Slurm would judge the request in a partition with a QoS and an account:
// reasons to refuse it, reasons why that is uncertain, and what each node must have.
func (l *Launcher) admits(p *partition, c *choice, a *request.Alternative) (refused, uncertain []Reason, need admission.Need) {
	if l.admission == nil || p.slurm == nil {
		return nil, nil, need
	}
	job := l.job(p, c, a)
	for _, f := range l.admission.Check(job) {
		switch {
		case f.Verdict == admission.No:
			refused = append(refused, because(f.Code, "%s", f.Text))
		case f.Code == "accounting": // noted for the whole cluster
		case !l.allowUnknown && slices.Contains([]string{"account", "qos", "group"}, f.Code):
			refused = append(refused, because(f.Code, "%s", f.Text))
		default:
			uncertain = append(uncertain, because(f.Code, "%s", f.Text))
		}
	}
	return refused, uncertain, l.admission.Need(p.slurm, job)
}

// lacks returns the reasons why nodes are too small for the CPUs and memory that the
// partition's defaults and limits make of the request.
func (l *Launcher) lacks(g *group, c *choice, a *request.Alternative, need admission.Need) []Reason {
	var all []Reason
	p := g.partition.slurm
	if p != nil && l.admission != nil {
		need.MemMB = max(need.MemMB, l.admission.WholeMemMB(p, l.job(g.partition, c, a), int64(g.cores)))
	}
	if p != nil && (a.Exclusive || p.Exclusive) && !p.MaxCPUsPerNode.Allows(int64(g.cores)) {
		all = append(all, because("cores", "jobs get whole nodes of %d cores, the partition allows %d on a node",
			g.cores, p.MaxCPUsPerNode.Max))
	}
	if p != nil && (a.Exclusive || p.Exclusive) && slices.ContainsFunc(a.GRES, request.Amount.Sharing) {
		all = append(all, because("gres", "jobs get whole nodes, and Slurm never starts one of these with parts of a GPU"))
	}
	if p != nil && l.admission != nil && g.cores > 0 && (a.Exclusive || p.Exclusive) {
		all = append(all, l.wholeNodes(g, c, a)...)
	}
	if g.cores > 0 && need.CPUs > int64(g.cores) && a.Cores*max(1, a.Tasks) <= g.cores {
		all = append(all, because("cores", "%d cores are needed by the rules of the partition, %d there", need.CPUs, g.cores))
	}
	if memory := need.MemMB << 20; g.memory > 0 && memory > g.memory && a.Memory <= g.memory {
		all = append(all, because("memory", "%s of memory is needed by the rules of the partition, %s there",
			unit.ShortSize(memory), unit.ShortSize(g.memory)))
	}
	return all
}

// wholeNodes returns the limits that whole nodes of a group exceed, which Slurm counts with all their CPUs and, for a job
// with GPUs, all their GPUs. Slurm accepts such a job, and never starts it.
func (l *Launcher) wholeNodes(g *group, c *choice, a *request.Alternative) []Reason {
	job := l.job(g.partition, c, a)
	job.CPUsPerTask, job.Tasks = int64(g.cores), 0
	if n, known := g.gresCount("gpu"); known && job.GPUs > 0 {
		job.GPUs = n
	}
	var all []Reason
	for _, f := range l.admission.Check(job) {
		if f.Verdict == admission.No && (f.Code == "account_limit" || f.Code == "qos_limit") {
			all = append(all, because(f.Code, "jobs get whole nodes: %s", f.Text))
		}
	}
	return all
}

// groupMatches reports whether the nodes of a group satisfy the request, regardless of QoS and
// account.
func (l *Launcher) groupMatches(g *group, a *request.Alternative, why report) gpu.Answer {
	is := matchNode(&g.figures, a, why)
	byCPUs := !l.Entry.UseMemory && a.Memory > 0 // memory comes with CPUs
	no := func(code, format string, args ...any) {
		is = gpu.No
		why(code, format, args...)
	}
	if g.nodes > 0 && g.down == g.nodes {
		no("nodes_down", "all nodes (%d) are down or drained", g.nodes)
	}
	if !g.allowed(a.Where) {
		no("condition", "its features or hosts are not the requested ones")
	}
	if !l.Entry.UseHosts && namesHosts(a.Where) {
		no("condition", "its hosts may not be named")
	}
	switch {
	case byCPUs && g.memPerCPU == 0:
		no("mem_per_cpu", "memory is requested by CPUs here, and mem_per_cpu is not set")
	case byCPUs && g.cores > 0 && l.cores(g, a)*max(1, a.Tasks) > g.cores:
		no("memory", "%d cores are needed for %s of memory, %d there", l.cores(g, a), byteSize(a.Memory), g.cores)
	}
	return is
}

// cores returns the CPUs per task to request. Where memory cannot be requested (use_memory is
// off) and comes with CPUs, these are as many as the requested memory needs.
func (l *Launcher) cores(g *group, a *request.Alternative) int {
	if l.Entry.UseMemory || g.memPerCPU == 0 || a.Memory == 0 {
		return a.Cores
	}
	needed := (a.Memory-1)/g.memPerCPU + 1
	tasks := int64(max(1, a.Tasks))
	return max(a.Cores, int(min((needed-1)/tasks+1, anyNumber)))
}

// holds reports whether a name satisfies all conditions on a field.
func holds(where []request.Condition, field, name string) bool {
	for _, c := range where {
		if c.Field == field && c.Matches(name) == c.Not {
			return false
		}
	}
	return true
}

// allowed reports whether the features and hosts of a group satisfy the conditions: a required
// feature is present, an excluded one is not, and at least one host remains.
func (g *group) allowed(where []request.Condition) bool {
	for _, c := range where {
		switch {
		case c.Field == "feature" && slices.ContainsFunc(g.features, c.Matches) == c.Not:
			return false
		case c.Field == "host" && !c.Not && len(g.names()) == 0:
			return false
		}
	}
	if names := g.names(); len(names) > 0 && namesHosts(where) {
		return len(g.denied(where)) < len(names)
	}
	return true
}

func namesHosts(where []request.Condition) bool {
	return slices.ContainsFunc(where, func(c request.Condition) bool { return c.Field == "host" })
}

// denied returns the hosts of a group that the conditions rule out.
func (g *group) denied(where []request.Condition) []string {
	var hosts []string
	for _, h := range g.names() {
		if !holds(where, "host", h) {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// matches reports whether the QoS and the account allow the request on a group of nodes.
func (c *choice) matches(g *group, a *request.Alternative, why report) bool {
	ok := true
	no := func(code, format string, args ...any) {
		ok = false
		why(code, format, args...)
	}
	for _, r := range c.refused {
		no(r.Code, r.format, r.args...)
	}
	if wanted := a.GPUCount(); wanted < c.minGPU {
		no("min_gpu", "%s requested, the QoS requires %d or more", gpuCount(wanted), c.minGPU)
	}
	if limit := c.longest(g); limit > 0 && a.Duration > limit {
		no("duration", "%s requested, %s allowed", length(a.Duration), length(limit))
	}
	if !holds(a.Where, "qos", c.isQOS) {
		no("qos", "the request rules the QoS out")
	}
	if !holds(a.Where, "account", c.isAccount) {
		no("account", "the request rules the account out")
	}
	return ok
}

// longest returns the maximum duration of a job on a group with this QoS; 0 means no limit.
func (c *choice) longest(g *group) time.Duration {
	limit := g.maxDuration
	if c.maxDuration > 0 {
		limit = c.maxDuration
	}
	return limit
}
