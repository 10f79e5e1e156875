package slurm

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Partition is what the configuration of a partition allows.
type Partition struct {
	Name           string
	State          string // UP, DOWN, DRAIN or INACTIVE
	Default        bool
	RootOnly       bool
	NeedsResv      bool     // only within a reservation
	AllowAccounts  []string // nil: all
	DenyAccounts   []string
	AllowQOS       []string // nil: all
	DenyQOS        []string
	AllowGroups    []string // nil: all
	QOS            string   // limits that hold besides those of the job's own QOS
	MaxTime        time.Duration
	MinNodes       int
	MaxNodes       int   // 0: no limit
	MaxCPUsPerNode int   // 0: no limit
	MaxMemPerNode  int64 // bytes; 0: no limit
	MaxMemPerCPU   int64 // bytes; 0: no limit
	PriorityTier   int
	Preemptible    bool // jobs of a higher tier may take the place of its jobs
	Nodes          string
	Hidden         bool
	Exclusive      bool       // jobs get whole nodes
	PreemptMode    string     // OFF, CANCEL, REQUEUE, SUSPEND; "": the cluster's
	JobFactor      float64    // PriorityJobFactor
	TRES           TRESCounts // all there is in it
}

// PartitionsArgs are scontrol's arguments for ParsePartitions.
func PartitionsArgs() []string { return []string{"--oneliner", "show", "partitions"} }

// ParsePartitions reads scontrol show partitions, with and without --oneliner.
// MaxTime is Unlimited where there is no limit.
func ParsePartitions(r io.Reader) ([]Partition, error) {
	text, err := readText(r)
	if err != nil {
		return nil, err
	}
	var partitions []Partition
	err = eachRecord("scontrol show partitions", 0, text, "PartitionName=", func(line int, record string) error {
		p, err := parsePartition(record)
		if err != nil {
			return parseError("scontrol show partitions", line, "%w", err)
		}
		partitions = append(partitions, p)
		return nil
	})
	return partitions, err
}

func parsePartition(record string) (Partition, error) {
	p := Partition{MaxTime: Unlimited}
	var err error
	fail := func(key, value string) {
		if err == nil {
			err = fmt.Errorf("partition %.60q: %s=%.40q", p.Name, key, value)
		}
	}
	number := func(key, value string) int64 {
		if orEmpty(value) == "" || strings.EqualFold(value, "UNLIMITED") {
			return 0
		}
		n, e := strconv.ParseInt(value, 10, 40)
		if e != nil || n < 0 {
			fail(key, value)
		}
		return n
	}
	seen := map[string]bool{}
	eachField(record, func(key, value string) bool {
		if seen[key] {
			return true
		}
		seen[key] = true
		switch key {
		case "PartitionName":
			p.Name = value
		case "State":
			p.State = value
		case "Default":
			p.Default = value == "YES"
		case "RootOnly":
			p.RootOnly = value == "YES"
		case "ReqResv":
			p.NeedsResv = value == "YES"
		case "AllowAccounts":
			p.AllowAccounts = commaList(value)
		case "DenyAccounts":
			p.DenyAccounts = commaList(value)
		case "AllowQos":
			p.AllowQOS = commaList(value)
		case "DenyQos":
			p.DenyQOS = commaList(value)
		case "AllowGroups":
			p.AllowGroups = commaList(value)
		case "QoS":
			p.QOS = orEmpty(value)
		case "Nodes":
			p.Nodes = orEmpty(value)
		case "MaxTime":
			if orEmpty(value) != "" {
				d, e := ParseDuration(value)
				if p.MaxTime = d; e != nil {
					fail(key, value)
				}
			}
		case "MinNodes":
			p.MinNodes = int(number(key, value))
		case "MaxNodes":
			p.MaxNodes = int(number(key, value))
		case "MaxCPUsPerNode":
			p.MaxCPUsPerNode = int(number(key, value))
		case "MaxMemPerNode":
			p.MaxMemPerNode = number(key, value) << 20
		case "MaxMemPerCPU":
			p.MaxMemPerCPU = number(key, value) << 20
		case "PriorityTier":
			p.PriorityTier = int(number(key, value))
		case "PriorityJobFactor":
			p.JobFactor = float64(number(key, value))
		case "Hidden":
			p.Hidden = value == "YES"
		case "OverSubscribe":
			p.Exclusive = strings.HasPrefix(value, "EXCLUSIVE")
		case "TRES":
			tres, ok := parseTRES(value)
			if p.TRES = tres; !ok {
				fail(key, value)
			}
		case "PreemptMode":
			p.PreemptMode = orEmpty(value)
			p.Preemptible = value != "OFF" && orEmpty(value) != ""
		}
		return true
	})
	if err == nil && (p.Name == "" || strings.Contains(p.Name, ",")) {
		err = fmt.Errorf("%.60q is no name of a partition", p.Name)
	}
	return p, err
}
