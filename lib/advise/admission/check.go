package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/slurm"
)

// checker collects the findings of one job in one partition.
type checker struct {
	c        *Cluster
	j        Job
	p        *slurm.Partition
	need     Need
	assoc    *slurm.Association
	qosName  string
	first    *slurm.QOS    // whose limits count
	second   *slurm.QOS    // where first has none
	time     time.Duration // that the job gets; 0: as long as the partition allows
	byLimit  bool          // time is that of a limit: the job names none
	findings []Finding
}

// Check returns the rules that keep a job out of one partition; none, if Slurm would
// accept it and start it some day, as far as this model knows.
func (c *Cluster) Check(j Job) []Finding {
	p := c.Partition(j.Partition)
	if p == nil {
		return []Finding{{No, "partition", "partition " + j.Partition, "no such partition", false, false}}
	}
	k := checker{c: c, j: j, p: p, need: c.Need(p, j)}
	k.j.Nodes = max(1, j.Nodes)
	k.access()
	k.accounting()
	k.setTime()
	k.partitionLimits()
	if k.limited() {
		k.qosLimits()
		k.accountLimits()
	}
	k.licenses()
	k.reservations()
	return k.findings
}

// Access returns the rules that keep the user out of a partition, whatever the job.
func (c *Cluster) Access(p *slurm.Partition) []Finding {
	k := checker{c: c, p: p}
	k.access()
	return k.findings
}

// May returns the rules that keep all jobs of the user out of a partition with an account
// and a QoS ("": the default), whatever they request.
func (c *Cluster) May(p *slurm.Partition, account, qos string) []Finding {
	k := checker{c: c, p: p, j: Job{Partition: p.Name, Account: account, QOS: qos}}
	k.access()
	k.accounting()
	return k.findings
}

// limited reports whether the limits of QoS and accounts hold, and are known.
func (k *checker) limited() bool { return k.c.enforces("limits") && k.c.Known.Accounting }

func (k *checker) no(code, whose, format string, args ...any) {
	k.findings = append(k.findings, Finding{Verdict: No, Code: code, Whose: whose, Text: fmt.Sprintf(format, args...)})
}

func (k *checker) unknown(code, whose, format string, args ...any) {
	k.findings = append(k.findings, Finding{Verdict: Unknown, Code: code, Whose: whose, Text: fmt.Sprintf(format, args...)})
}

// waits adds a finding for a job that is accepted and never starts.
func (k *checker) waits(code, whose, format string, args ...any) {
	k.no(code, whose, format, args...)
	k.findings[len(k.findings)-1].Waits = true
}

func (k *checker) partition() string { return "partition " + k.p.Name }

// access checks who may use the partition at all.
func (k *checker) access() {
	c, p := k.c, k.p
	if p.State != "UP" && p.State != "" {
		if p.State == "DOWN" {
			k.waits("partition_state", k.partition(), "the partition is DOWN")
		} else {
			k.no("partition_state", k.partition(), "the partition is %s", p.State)
		}
	}
	if p.RootOnly && c.User != "root" {
		k.no("partition_state", k.partition(), "only root may use the partition")
	}
	if p.NoRootJobs && c.User == "root" {
		k.no("partition_state", k.partition(), "root may not use the partition")
	}
	if p.NeedsResv && k.j.Reservation == "" {
		k.no("partition_state", k.partition(), "the partition takes jobs with a reservation only")
	}
	if p.AllowGroups != nil && c.User != "root" {
		switch {
		case !c.Known.Groups:
			k.unknown("group", k.partition(),
				"the partition is for the groups %s only, and yours are not known", strings.Join(p.AllowGroups, ", "))
		case !slices.ContainsFunc(c.Groups, func(g string) bool { return slices.Contains(p.AllowGroups, g) }):
			k.no("group", k.partition(), "the partition is for the groups %s only", strings.Join(p.AllowGroups, ", "))
		}
	}
	if p.AllocNodes != "" {
		switch {
		case c.Host == "":
			k.unknown("host", k.partition(), "jobs may be submitted from %s only", p.AllocNodes)
		case !inHosts(p.AllocNodes, c.Host):
			k.no("host", k.partition(), "jobs may be submitted from %s only, not from %s", p.AllocNodes, c.Host)
		}
	}
}

// accounting checks whether the user may charge the account and use the QoS here.
func (k *checker) accounting() {
	c, p := k.c, k.p
	if !c.Known.Accounting {
		if p.AllowAccounts != nil || p.DenyAccounts != nil {
			k.unknown("account", k.partition(), "the partition is not for all accounts, and yours are not known")
		}
		if p.AllowQOS != nil || p.DenyQOS != nil {
			k.unknown("qos", k.partition(), "the partition is not for all QoS, and yours are not known")
		}
		if c.enforces("associations") {
			k.unknown("accounting", "user "+c.User, "your accounts and QoS, and their limits, are not known")
		}
		return
	}
	k.assoc = c.association(k.j.Account, p.Name)
	if k.assoc == nil && c.enforces("associations") {
		if k.j.Account == "" && c.DefaultAccount == "" {
			k.no("account", "user "+c.User, "%s has no account", c.User)
		} else {
			k.no("account", "user "+c.User, "%s has no association with the account %s here", c.User, cmp.Or(k.j.Account, c.DefaultAccount))
		}
		return
	}
	account := cmp.Or(k.j.Account, c.DefaultAccount)
	if k.assoc != nil {
		account = k.assoc.Account
	}
	if account != "" || c.enforces("associations") {
		k.allowedAccount(account)
	}
	k.qosName = cmp.Or(k.j.QOS, c.DefaultQOS(k.assoc))
	if k.assoc != nil && c.enforces("qos") && len(c.QOS) > 0 {
		switch {
		case c.qos(k.qosName) == nil:
			k.no("qos", "QoS "+k.qosName, "no such QoS")
		case !slices.ContainsFunc(k.assoc.QOS, func(q string) bool { return strings.EqualFold(q, k.qosName) }):
			k.no("qos", "account "+account, "%s may not use the QoS %s with the account %s", c.User, k.qosName, account)
		}
	}
	if (len(c.QOS) > 0 || k.j.QOS != "") && !allows(k.qosName, p.AllowQOS, p.DenyQOS) {
		if p.AllowQOS != nil {
			k.no("qos", k.partition(), "the partition is for the QoS %s only, not %s", strings.Join(p.AllowQOS, ", "), k.qosName)
		} else {
			k.no("qos", k.partition(), "the partition does not take the QoS %s", k.qosName)
		}
	}
	k.first, k.second = c.qos(p.QOS), c.qos(k.qosName)
	if k.first == nil || k.second != nil && k.second.Is("OverPartQOS") {
		k.first, k.second = k.second, k.first
	}
	if k.first == k.second {
		k.second = nil
	}
}

// MayCharge says whether jobs in a partition may be charged to an account. Since 23.02
// the accounts of a partition stand for those below them, too.
func (c *Cluster) MayCharge(p *slurm.Partition, account string) Verdict {
	is := func(list []string, name string) bool {
		return slices.ContainsFunc(list, func(n string) bool { return strings.EqualFold(n, name) })
	}
	named, found, other := p.AllowAccounts, Yes, No
	if named == nil {
		named, found, other = p.DenyAccounts, No, Yes // Deny is not considered where there is Allow
	}
	if is(named, account) {
		return found
	}
	if len(named) == 0 || c.Known.Config && !c.Config.AtLeast(23, 2) {
		return other
	}
	up := c.account(account)
	for depth := 0; up != nil && up.Parent != "" && depth < 64; depth++ {
		if is(named, up.Parent) {
			if !c.Known.Config {
				return Unknown
			}
			return found
		}
		up = c.account(up.Parent)
	}
	if up == nil && account != "" {
		return Unknown // what is above is not known
	}
	return other
}

func (k *checker) allowedAccount(account string) {
	p := k.p
	switch verdict := k.c.MayCharge(p, account); {
	case verdict == Yes:
	case verdict == Unknown && p.AllowAccounts != nil:
		k.unknown("account", k.partition(),
			"the partition is for the accounts %s and those below them, and the parent accounts of %s are unknown",
			strings.Join(p.AllowAccounts, ", "), account)
	case verdict == Unknown:
		k.unknown("account", k.partition(),
			"the partition denies the accounts %s and those below them, and the parent accounts of %s are unknown",
			strings.Join(p.DenyAccounts, ", "), account)
	case p.AllowAccounts != nil:
		k.no("account", k.partition(), "the partition is for the accounts %s only, not %s",
			strings.Join(p.AllowAccounts, ", "), cmp.Or(account, "(none)"))
	default:
		k.no("account", k.partition(), "the partition does not take the account %s", account)
	}
}

func allows(name string, allow, deny []string) bool {
	is := func(n string) bool { return strings.EqualFold(n, name) }
	if allow != nil {
		return slices.ContainsFunc(allow, is) // Deny is not considered then
	}
	return !slices.ContainsFunc(deny, is)
}

// enforced adds a finding for a limit of the partition. With EnforcePartLimits=NO, a job
// may exceed it, and then waits for ever.
func (k *checker) enforced(code, format string, args ...any) {
	if k.c.Known.Config && strings.EqualFold(k.c.Config.Get("EnforcePartLimits"), "NO") {
		k.waits(code, k.partition(), format, args...)
	} else {
		k.no(code, k.partition(), format, args...)
	}
}

// partitionLimits are what the partition allows one job.
func (k *checker) partitionLimits() {
	p, j := k.p, k.j
	// That of the partition does not free a job from the partition's own limits.
	own := func(flag string) bool { q := k.c.qos(k.qosName); return q != nil && q.Is(flag) }
	if !p.MaxNodes.Allows(j.Nodes) && !own("PartitionMaxNodes") {
		k.enforced("nodes", "%d nodes requested, the partition allows %d", j.Nodes, p.MaxNodes.Max)
	}
	if j.Nodes < p.MinNodes && !own("PartitionMinNodes") {
		k.enforced("nodes", "the partition takes jobs of %d nodes or more", p.MinNodes)
	}
	if p.MaxTime != slurm.Unlimited && k.time > p.MaxTime && !own("PartitionTimeLimit") {
		k.enforced("duration", "%s, the partition allows %s", k.asked(), slurm.FormatDuration(p.MaxTime))
		k.findings[len(k.findings)-1].Late = k.byLimit
	}
	need := k.c.Need(p, j.Smallest())
	if p.MaxCPUsPerNode.Allows(need.AskedCPUs) && !p.MaxCPUsPerNode.Allows(need.CPUs) {
		k.unknown("cores", k.partition(), "%d cores come with the memory, the partition allows %d on a node",
			need.CPUs, p.MaxCPUsPerNode.Max)
	}
	if !p.MaxCPUsPerNode.Allows(need.AskedCPUs) {
		k.no("cores", k.partition(), "%d cores needed, the partition allows %d on a node", need.AskedCPUs, p.MaxCPUsPerNode.Max)
	}
	maxMem := p.MaxMemPerNode
	if most := k.c.defaults().maxMemPerNode; !maxMem.Set && !p.MaxMemPerCPU.Set && most > 0 {
		maxMem = slurm.AtMost(most)
	}
	asked := max(need.AskedMemMB, k.c.WholeMemMB(p, j, k.c.firstCPUs(p)))
	if j.AllMemory && k.c.countsMemory() {
		switch {
		case maxMem.Max > 0:
			k.no("memory", k.partition(), "all memory of the nodes requested, the partition allows %d MiB on a node", maxMem.Max)
		case p.MaxMemPerCPU.Set:
			k.unknown("memory", k.partition(),
				"all memory of the nodes requested, the partition allows %d MiB for each CPU", p.MaxMemPerCPU.Max)
		}
	} else if maxMem.Max > 0 && !maxMem.Allows(asked) && k.c.countsMemory() {
		k.no("memory", k.partition(), "%d MiB of memory needed, the partition allows %d on a node", asked, maxMem.Max)
		// A default for each CPU is multiplied only when the job is there.
		k.findings[len(k.findings)-1].Late = j.MemMB == 0 && j.MemPerCPU == 0 &&
			(p.DefMemPerCPU.Set || !p.DefMemPerNode.Set && k.c.defaults().memPerCPU > 0)
	}
}

// setTime finds out the time limit of the job. One that names none gets the default
// of the partition, or else the longest that a QoS or the account allows, even where
// that is more than the partition does.
func (k *checker) setTime() {
	if k.time = cmp.Or(k.j.Time, k.p.DefaultTime); k.time > 0 || !k.limited() {
		return
	}
	limit := func(l slurm.Limit[time.Duration]) {
		if l.Set && l.Max > 0 && (k.time == 0 || l.Max < k.time) {
			k.time, k.byLimit = l.Max, true
		}
	}
	byQOS := false
	for _, q := range k.inOrder() {
		if !byQOS {
			limit(q.MaxWall)
			byQOS = q.MaxWall.Set
		}
		limit(q.Grp.Wall)
	}
	if k.assoc != nil && !byQOS {
		limit(k.assoc.MaxWall)
	}
}

// asked describes the time limit of the job.
func (k *checker) asked() string {
	if k.j.Time == 0 {
		return "a job without a time limit requests " + slurm.FormatDuration(k.time)
	}
	return slurm.FormatDuration(k.time) + " requested"
}

func (k *checker) licenses() {
	if len(k.j.Licenses) > 0 && !k.c.Known.Licenses {
		k.unknown("license", "licenses", "the licenses of the cluster are not known")
		return
	}
	for name, n := range k.j.Licenses {
		i := slices.IndexFunc(k.c.Licenses, func(l slurm.License) bool { return l.Name == name })
		switch {
		case i < 0:
			k.no("license", "license "+name, "no such license %s", name)
		case n > k.c.Licenses[i].Total:
			k.no("license", "license "+name, "%d of the license %s requested, the total is %d", n, name, k.c.Licenses[i].Total)
		}
	}
}
