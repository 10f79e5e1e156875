package slurm

import (
	"context"
	"io"
	"strings"
	"time"
)

// Partition is the configuration of a partition. Memory is in MiB.
type Partition struct {
	Name       string
	State      string // UP, DOWN, DRAIN or INACTIVE
	Default    bool
	Hidden     bool
	RootOnly   bool
	NoRootJobs bool // DisableRootJobs
	NeedsResv  bool // ReqResv: jobs need a reservation

	AllocNodes    string   // hostlist from which jobs may be submitted; "": all
	AllowGroups   []string // Unix groups; nil: all
	AllowAccounts []string // nil: all
	DenyAccounts  []string
	AllowQOS      []string // nil: all
	DenyQOS       []string
	QOS           string // the partition's QOS, whose limits apply besides those of the job's QOS
	Alternate     string

	MaxTime     time.Duration // Unlimited: no limit
	DefaultTime time.Duration // of jobs without --time; 0: MaxTime
	MinNodes    int64
	MaxNodes    Limit[int64]

	MaxCPUsPerNode, MaxCPUsPerSocket Limit[int64]
	MaxMemPerNode, MaxMemPerCPU      Limit[int64]
	DefMemPerNode, DefMemPerCPU      Limit[int64] // of jobs without --mem
	DefCPUPerGPU, DefMemPerGPU       Limit[int64]
	OverSubscribe                    string // NO, YES:4, FORCE:4 or EXCLUSIVE
	Exclusive                        bool   // jobs get whole nodes
	ExclusiveUser                    bool   // only jobs of one user share a node
	ExclusiveTopo                    bool   // jobs get whole blocks of a topology
	SelectTypeParameters             string
	PriorityTier                     int64
	JobFactor                        int64         // PriorityJobFactor
	PreemptMode                      string        // OFF, CANCEL, REQUEUE or SUSPEND; "": the cluster's
	GraceTime                        time.Duration // of preempted jobs
	Nodes                            string        // hostlist
	TotalCPUs, TotalNodes            int64
	TRES, BillingWeights             TRES // its total resources; the weight of each in billing
}

// Preemptible reports whether jobs of a higher priority tier may preempt jobs of the partition.
func (p *Partition) Preemptible() bool { return p.PreemptMode != "OFF" && p.PreemptMode != "" }

var partitionsArgs = []string{"--all", "--oneliner", "show", "partitions"}

// Partitions returns all partitions, including those hidden from the user.
func (c *Client) Partitions(ctx context.Context) ([]Partition, error) {
	return show(ctx, c, parsePartitions, partitionsArgs...)
}

// ParsePartitions parses scontrol show partitions, with or without --oneliner.
func ParsePartitions(r io.Reader) ([]Partition, error) { return parsePartitions(r, nil) }

func parsePartitions(r io.Reader, odd func(error)) ([]Partition, error) {
	s := newRecords("partitions", "PartitionName", r, odd)
	return readAll(s, func(p *Partition) string { return p.Name }, func(p *Partition) {
		p.MaxTime = Unlimited
		s.fields(func(key, value []byte) bool {
			switch string(key) {
			case "PartitionName":
				p.Name = s.title()
			case "State":
				p.State = s.text(value)
			case "Default":
				p.Default = yes(value)
			case "Hidden":
				p.Hidden = yes(value)
			case "RootOnly":
				p.RootOnly = yes(value)
			case "DisableRootJobs":
				p.NoRootJobs = yes(value)
			case "ReqResv":
				p.NeedsResv = yes(value)
			case "AllocNodes":
				if p.AllocNodes = orEmpty(string(value)); p.AllocNodes == "ALL" {
					p.AllocNodes = ""
				}
			case "AllowGroups":
				p.AllowGroups = names(string(value))
			case "AllowAccounts":
				p.AllowAccounts = names(string(value))
			case "DenyAccounts":
				p.DenyAccounts = names(string(value))
			case "AllowQos":
				p.AllowQOS = names(string(value))
			case "DenyQos":
				p.DenyQOS = names(string(value))
			case "QoS":
				p.QOS = s.word(value)
			case "Alternate":
				p.Alternate = s.word(value)
			case "MaxTime":
				if !noNumber(string(value)) {
					p.MaxTime = s.limit(key, value)
				}
			case "DefaultTime":
				p.DefaultTime = s.limit(key, value)
			case "GraceTime":
				p.GraceTime = time.Duration(s.number(key, value)) * time.Second
			case "MinNodes":
				p.MinNodes = s.number(key, value)
			case "MaxNodes":
				p.MaxNodes = s.count(key, value)
			case "MaxCPUsPerNode":
				p.MaxCPUsPerNode = s.count(key, value)
			case "MaxCPUsPerSocket":
				p.MaxCPUsPerSocket = s.count(key, value)
			case "MaxMemPerNode":
				p.MaxMemPerNode = s.count(key, value)
			case "MaxMemPerCPU":
				p.MaxMemPerCPU = s.count(key, value)
			case "DefMemPerNode":
				p.DefMemPerNode = s.count(key, value)
			case "DefMemPerCPU":
				p.DefMemPerCPU = s.count(key, value)
			case "JobDefaults":
				p.DefCPUPerGPU, p.DefMemPerGPU = JobDefaults(string(value))
			case "OverSubscribe":
				p.OverSubscribe = s.word(value)
				p.Exclusive = p.Exclusive || strings.HasPrefix(p.OverSubscribe, "EXCLUSIVE")
			case "Exclusive": // since 24.11; before, each kind had its own key
				p.ExclusiveUser = string(value) == "USER"
				p.ExclusiveTopo = string(value) == "TOPO"
				p.Exclusive = p.Exclusive || string(value) == "NODE"
			case "ExclusiveUser":
				p.ExclusiveUser = yes(value)
			case "ExclusiveTopo":
				p.ExclusiveTopo = yes(value)
			case "SelectTypeParameters":
				p.SelectTypeParameters = s.word(value)
			case "PriorityTier":
				p.PriorityTier = s.number(key, value)
			case "PriorityJobFactor":
				p.JobFactor = s.number(key, value)
			case "PreemptMode":
				p.PreemptMode = s.word(value)
			case "Nodes":
				p.Nodes = orEmpty(string(value))
			case "TotalCPUs":
				p.TotalCPUs = s.number(key, value)
			case "TotalNodes":
				p.TotalNodes = s.number(key, value)
			case "TRES":
				p.TRES = s.counts(key, value)
			case "TRESBillingWeights":
				p.BillingWeights = s.counts(key, value)
			default:
				return true
			}
			return s.once(key)
		})
		s.check(p.Name != "" && !strings.Contains(p.Name, ","), []byte("PartitionName"), []byte(p.Name), "the name of a partition")
	})
}

func yes(value []byte) bool { return strings.EqualFold(string(value), "yes") }

// JobDefaults parses DefCpuPerGPU and DefMemPerGPU (MiB) in JobDefaults, of a partition or of
// the configuration.
func JobDefaults(list string) (cpuPerGPU, memPerGPU Limit[int64]) {
	for item := range List(list).All() {
		name, value, _ := strings.Cut(item, "=")
		n, ok := parseNumber(value)
		switch {
		case ok && strings.EqualFold(name, "DefCpuPerGPU"):
			cpuPerGPU = AtMost(n)
		case ok && strings.EqualFold(name, "DefMemPerGPU"):
			memPerGPU = AtMost(n)
		}
	}
	return cpuPerGPU, memPerGPU
}
