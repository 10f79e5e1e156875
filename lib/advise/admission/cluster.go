package admission

import (
	"cmp"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/ponos-tools/ponos/lib/base/hostlist"
	"github.com/ponos-tools/ponos/lib/slurm"
)

// Cluster is what is known of a cluster and of one of its users. A nil field is empty,
// unless Known says that it could not be queried.
type Cluster struct {
	Partitions   []slurm.Partition
	QOS          []slurm.QOS
	Associations []slurm.Association // of the user, on this cluster
	Accounts     []slurm.Association // of the accounts themselves, for what bounds all users of one
	Licenses     []slurm.License
	Reservations []slurm.Reservation
	Config       slurm.Config

	Nodes []slurm.Node // in Slurm's order, of equal ones perhaps the first only

	User           string
	Groups         []string // Unix groups of the user
	Host           string   // on which sbatch is called; "": not known
	DefaultAccount string

	Known Known
}

// Known says what could be queried.
type Known struct {
	Accounting   bool // QOS, Associations, DefaultAccount; that the cluster has no accounting is known, too
	Accounts     bool
	Groups       bool
	Licenses     bool
	Reservations bool
	Config       bool
}

// Job is what options of sbatch request. Zero means not requested. Nodes apart, numbers are
// those of each node.
type Job struct {
	Partition    string
	Account, QOS string
	Reservation  string // or several, separated by commas
	Time         time.Duration
	Nodes        int64 // 0 is one
	Tasks        int64 // 0 is one
	CPUsPerTask  int64
	MemMB        int64
	MemPerCPU    int64 // in MiB, in place of MemMB
	MemPerGPU    int64 // likewise
	GPUs         int64
	GPUTypes     map[string]int64 // by Slurm's type, where the job names types
	GRES         map[string]int64 // others than GPUs, such as shard
	Licenses     map[string]int64
	Exclusive    bool
	AllMemory    bool // that of whole nodes (--mem=0)
	Least        *Job // the job on as many nodes as it may get; nil: on no more than Nodes
}

// Smallest is the job on as many nodes as it may get: no node has to have more for it.
func (j Job) Smallest() Job {
	if j.Least != nil {
		return *j.Least
	}
	return j
}

// Verdict is the expected answer of Slurm.
type Verdict int

// The verdicts.
const (
	Yes Verdict = iota
	No
	Unknown
)

func (v Verdict) String() string { return [...]string{"yes", "no", "unknown"}[v] }

// Finding is a rule that keeps a job out.
type Finding struct {
	Verdict Verdict // No or Unknown
	// Code is partition_state, nodes, duration, memory, cores, group, account, qos, qos_limit,
	// account_limit, reservation or license.
	Code  string
	Whose string // such as "partition gpu", "QoS long", "account lab"
	Text  string
	Waits bool // Slurm accepts the job, which then never starts
	Late  bool // sbatch refuses the job, and sbatch --test-only does not
}

// Of is the verdict of some findings.
func Of(findings []Finding) Verdict {
	v := Yes
	for _, f := range findings {
		if f.Verdict == No {
			return No
		}
		v = Unknown
	}
	return v
}

// Partition returns a partition, nil if no partition has that name.
func (c *Cluster) Partition(name string) *slurm.Partition {
	for i := range c.Partitions {
		if c.Partitions[i].Name == name {
			return &c.Partitions[i]
		}
	}
	return nil
}

func (c *Cluster) qos(name string) *slurm.QOS {
	if name == "" {
		return nil
	}
	for i := range c.QOS {
		if strings.EqualFold(c.QOS[i].Name, name) {
			return &c.QOS[i]
		}
	}
	return nil
}

func (c *Cluster) account(name string) *slurm.Association {
	for i := range c.Accounts {
		if a := &c.Accounts[i]; a.User == "" && strings.EqualFold(a.Account, name) {
			return a
		}
	}
	return nil
}

// enforces reports whether AccountingStorageEnforce has something, given or implied.
// Of a configuration that is not known it is assumed where there is accounting.
func (c *Cluster) enforces(what string) bool {
	if !c.Known.Config {
		return len(c.Associations) > 0 || len(c.QOS) > 0
	}
	if !c.Config.Accounting() {
		return false
	}
	enforced := strings.ToLower(c.Config.Get("AccountingStorageEnforce"))
	for word := range strings.FieldsFuncSeq(enforced, func(r rune) bool { return r == ',' || r == ' ' }) {
		switch {
		case word == what || word == "all" || word == "safe" && what == "limits":
			return true
		case what == "associations" && slices.Contains([]string{"limits", "qos", "safe", "wckeys"}, word):
			return true
		}
	}
	return false
}

// association is the one by which a job is charged: of the account and, if there is
// one, of the partition.
func (c *Cluster) association(account, partition string) *slurm.Association {
	if account == "" {
		account = c.DefaultAccount
	}
	var found *slurm.Association
	for i := range c.Associations {
		a := &c.Associations[i]
		if !strings.EqualFold(a.Account, account) || a.User == "" {
			continue
		}
		if a.Partition == partition && partition != "" {
			return a
		}
		if a.Partition == "" {
			found = a
		}
	}
	return found
}

// QOSOf is the QoS of a job of an account, "" for the default one, in a partition that names none.
func (c *Cluster) QOSOf(account, partition string) string {
	return c.DefaultQOS(c.association(account, partition))
}

// DefaultQOS is the QoS of a job that names none: the only one of the association, its default, that of an
// account above it, or else Slurm's own.
func (c *Cluster) DefaultQOS(a *slurm.Association) string {
	if a == nil {
		return ownQOS
	}
	if len(a.QOS) == 1 {
		return a.QOS[0]
	}
	up := a.Account
	for depth := 0; a != nil && depth < 64; depth++ {
		if a.DefaultQOS != "" {
			return a.DefaultQOS
		}
		if a.User == "" {
			up = a.Parent
		}
		a = c.account(up)
	}
	if root := c.account("root"); root != nil && root.DefaultQOS != "" {
		return root.DefaultQOS
	}
	return ownQOS
}

// ownQOS is the QoS that each cluster has.
const ownQOS = "normal"

// remembersMemory reports whether Slurm counts memory at all.
func (c *Cluster) countsMemory() bool {
	return !c.Known.Config || strings.Contains(strings.ToUpper(c.Config.Get("SelectTypeParameters")), "MEMORY")
}

// threads returns how many CPUs of a core a job gets together, at least and at most on a node of the partition: a job gets
// whole cores.
func (c *Cluster) threads(p *slurm.Partition) (least, most int64) {
	by := strings.ToUpper(c.Config.Get("SelectTypeParameters"))
	if c.Known.Config && !strings.Contains(by, "CORE") && !strings.Contains(by, "SOCKET") {
		return 1, 1
	}
	for n := range c.nodesOf(p) {
		of := n.CoreCPUs()
		least, most = min(cmp.Or(least, of), of), max(most, of)
	}
	return max(least, 1), max(most, 1)
}

// Kinds returns the first node of each kind, in order. Nodes of one kind differ in their names, states and use only.
func Kinds(nodes []slurm.Node) []slurm.Node {
	type kind struct {
		partitions, features, active slurm.List
		gres                         string
		numbers                      [9]int64
	}
	seen := map[kind]bool{}
	var first []slurm.Node
	for i := range nodes {
		n := &nodes[i]
		k := kind{n.Partitions, n.Features, n.ActiveFeatures, n.GRES, [...]int64{
			n.CPUs, n.SpecCPUs, n.MemMB, n.SpecMemMB, n.GPUs, n.TmpDiskMB, n.Sockets, n.CoresPerSocket, n.ThreadsPerCore,
		}}
		if !seen[k] {
			seen[k] = true
			first = append(first, *n)
		}
	}
	return first
}

// nodesOf are the nodes of a partition.
func (c *Cluster) nodesOf(p *slurm.Partition) iter.Seq[*slurm.Node] {
	return func(yield func(*slurm.Node) bool) {
		for i := range c.Nodes {
			if c.Nodes[i].Partitions.Has(p.Name) && !yield(&c.Nodes[i]) {
				return
			}
		}
	}
}

// firstCPUs are the CPUs of the first node of a partition. Slurm multiplies DefMemPerCPU by them for jobs that get whole nodes.
func (c *Cluster) firstCPUs(p *slurm.Partition) int64 {
	for n := range c.nodesOf(p) {
		return n.JobCPUs()
	}
	return 0
}

// Need is what a job takes of each node, with the defaults of the partition.
type Need struct {
	CPUs, MemMB, GPUs int64
	AskedCPUs         int64 // CPUs before MaxMemPerCPU makes more of them
	AskedMemMB        int64 // memory before DefMemPerGPU makes more of it
}

// Need works out what a job takes of each of its nodes in a partition.
func (c *Cluster) Need(p *slurm.Partition, j Job) Need {
	n := Need{CPUs: max(1, j.Tasks) * max(1, j.CPUsPerTask), MemMB: j.MemMB, GPUs: j.GPUs}
	if perGPU := p.DefCPUPerGPU.Or(c.defaults().cpuPerGPU); j.GPUs > 0 && j.CPUsPerTask == 0 {
		n.CPUs = max(n.CPUs, perGPU*j.GPUs)
	}
	if n.AskedCPUs = n.CPUs; !c.countsMemory() {
		return n
	}
	d := c.defaults()
	perNode, perCPU := p.DefMemPerNode.Or(0), c.perCPU(p)
	if perNode == 0 && perCPU == 0 {
		perNode = d.memPerNode
	}
	switch {
	case j.MemPerCPU > 0:
		perNode, perCPU = 0, j.MemPerCPU
	case n.MemMB > 0:
		perNode, perCPU = n.MemMB, 0
	}
	if n.AskedMemMB = perNode; perCPU > 0 {
		n.AskedMemMB = perCPU * n.CPUs
	}
	// A node is taken only if each GPU can have its default, whatever --mem says.
	perGPU := p.DefMemPerGPU.Or(d.memPerGPU) * j.GPUs
	if j.MemPerGPU > 0 {
		perGPU = j.MemPerGPU * j.GPUs // beside the default of the partition
	}
	if n.MemMB == 0 && (perGPU == 0 || j.MemPerGPU > 0) {
		n.MemMB = n.AskedMemMB
	}
	n.MemMB = max(n.MemMB, perGPU)
	most := p.MaxMemPerCPU.Or(0)
	if most == 0 && !p.MaxMemPerNode.Set {
		most = d.maxMemPerCPU
	}
	switch {
	case most <= 0:
	case perCPU > most:
		n.CPUs *= (perCPU-1)/most + 1
	case perCPU == 0 && perNode > 0:
		n.CPUs = max(n.CPUs, (perNode-1)/most+1)
	}
	return n
}

// perCPU is the memory in MiB that jobs without a request get for each CPU; 0: by node.
func (c *Cluster) perCPU(p *slurm.Partition) int64 {
	if n := p.DefMemPerCPU.Or(0); n > 0 || p.DefMemPerNode.Or(0) > 0 {
		return n
	}
	return c.defaults().memPerCPU
}

// defaults are those of the cluster's configuration, in MiB; 0: none.
type defaults struct{ cpuPerGPU, memPerGPU, memPerCPU, memPerNode, maxMemPerCPU, maxMemPerNode int64 }

func (c *Cluster) defaults() defaults {
	var d defaults
	if !c.Known.Config {
		return d
	}
	cpu, mem := slurm.JobDefaults(c.Config.Get("JobDefaults"))
	d.cpuPerGPU, d.memPerGPU = cpu.Or(0), mem.Or(0)
	number := func(key string) int64 {
		n := int64(0)
		for _, r := range c.Config.Get(key) {
			if r < '0' || r > '9' || n > 1<<50 {
				return 0
			}
			n = n*10 + int64(r-'0')
		}
		return n
	}
	d.memPerCPU, d.memPerNode = number("DefMemPerCPU"), number("DefMemPerNode")
	d.maxMemPerCPU, d.maxMemPerNode = number("MaxMemPerCPU"), number("MaxMemPerNode")
	return d
}

// inHosts reports whether a host list has a host, by its short name.
func inHosts(list, host string) bool {
	names, err := hostlist.Expand(list)
	short, _, _ := strings.Cut(host, ".")
	return err != nil || slices.ContainsFunc(names, func(n string) bool { return n == host || n == short })
}
