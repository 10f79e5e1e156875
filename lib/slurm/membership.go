package slurm

import (
	"bufio"
	"io"
	"slices"
	"strings"
	"time"
)

// Membership is an account that a user may charge.
type Membership struct {
	Cluster    string
	Account    string
	Partition  string   // "": all
	QOS        []string // that may be asked for
	DefaultQOS string   // "": none
}

// MembershipsArgs are sacctmgr's arguments for ParseMemberships.
func MembershipsArgs(user string) []string {
	return []string{"--noheader", "--parsable2", "show", "associations", "user=" + user, "format=cluster,account,partition,qos,defaultqos"}
}

// ParseMemberships reads sacctmgr's rows.
func ParseMemberships(r io.Reader) ([]Membership, error) {
	var all []Membership
	err := sacctmgrRows("sacctmgr show associations", r, 5, func(f []string) error {
		all = append(all, Membership{Cluster: f[0], Account: f[1], Partition: f[2], QOS: commaList(f[3]), DefaultQOS: f[4]})
		return nil
	})
	return all, err
}

// DefaultAccountArgs are sacctmgr's arguments for ParseDefaultAccount.
func DefaultAccountArgs(user string) []string {
	return []string{"--noheader", "--parsable2", "show", "user", user, "format=user,defaultaccount"}
}

// ParseDefaultAccount reads the account that is charged when a job names none.
func ParseDefaultAccount(r io.Reader) (string, error) {
	account := ""
	err := sacctmgrRows("sacctmgr show user", r, 2, func(f []string) error {
		account = f[1]
		return nil
	})
	return account, err
}

// QOSRule is what a QOS allows a job.
type QOSRule struct {
	Name      string
	MaxWall   time.Duration // 0: no limit of its own
	MinGPUs   int
	MaxGPUs   int   // 0: no limit
	MaxCPUs   int   // 0: no limit
	MaxNodes  int   // 0: no limit
	MaxMemory int64 // bytes; 0: no limit
	// OverPartition: its limits come before those of the partition's QOS.
	OverPartition bool
	// OverTime: the job may be longer than the partition's time limit.
	OverTime bool
}

// QOSRulesArgs are sacctmgr's arguments for ParseQOSRules.
func QOSRulesArgs() []string {
	return []string{"--noheader", "--parsable2", "show", "qos", "format=name,maxwall,mintres,maxtres,flags"}
}

// ParseQOSRules reads sacctmgr's rows.
func ParseQOSRules(r io.Reader) ([]QOSRule, error) {
	var all []QOSRule
	err := sacctmgrRows("sacctmgr show qos", r, 5, func(f []string) (err error) {
		q := QOSRule{Name: f[0]}
		if f[1] != "" {
			if q.MaxWall, err = ParseDuration(f[1]); err != nil {
				return err
			}
			if q.MaxWall == Unlimited {
				q.MaxWall = 0
			}
		}
		tresLimits(f[2], func(name, value string) {
			if n, ok := gresCount(value); ok && (name == "gres/gpu" || strings.HasPrefix(name, "gres/gpu:")) {
				q.MinGPUs += int(n)
			}
		})
		tresLimits(f[3], func(name, value string) {
			n, ok := gresCount(value)
			switch {
			case name == "gres/gpu" && ok:
				q.MaxGPUs = int(n)
			case name == "cpu" && ok:
				q.MaxCPUs = int(n)
			case name == "node" && ok:
				q.MaxNodes = int(n)
			case name == "mem":
				if m, e := ParseMemory(value); e == nil {
					q.MaxMemory = m
				}
			}
		})
		flags := strings.Split(f[4], ",")
		q.OverPartition, q.OverTime = slices.Contains(flags, "OverPartQOS"), slices.Contains(flags, "PartitionTimeLimit")
		all = append(all, q)
		return nil
	})
	return all, err
}

func tresLimits(s string, each func(name, value string)) {
	for item := range strings.SplitSeq(s, ",") {
		if name, value, ok := strings.Cut(item, "="); ok {
			each(name, value)
		}
	}
}

// sacctmgrRows reads lines of exactly n fields separated by "|".
func sacctmgrRows(command string, r io.Reader, n int, each func(f []string) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	line := 0
	for lines.Scan() {
		line++
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		f := strings.Split(lines.Text(), "|")
		if len(f) != n {
			return parseError(command, line, "%d fields, not %d", len(f), n)
		}
		if err := each(f); err != nil {
			return parseError(command, line, "%w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return parseError(command, line+1, "%w", err)
	}
	return nil
}

// StartEstimate is sbatch's answer to --test-only.
type StartEstimate struct {
	Start     time.Time
	Nodes     string // as a node list
	Partition string
}

// ParseStartEstimate reads what sbatch --test-only prints, on its standard error,
// when Slurm would accept the job.
func ParseStartEstimate(text string) (StartEstimate, error) {
	for line := range strings.Lines(text) {
		_, rest, ok := strings.Cut(line, " to start at ")
		words := strings.Fields(rest)
		if !ok || !strings.Contains(line, "sbatch: Job ") || len(words) == 0 {
			continue
		}
		start, err := ParseTime(words[0])
		if err != nil || start.IsZero() {
			continue
		}
		e := StartEstimate{Start: start}
		for i := 1; i+1 < len(words); i++ {
			switch words[i] {
			case "nodes":
				e.Nodes = words[i+1]
			case "partition":
				e.Partition = words[i+1]
			}
		}
		return e, nil
	}
	return StartEstimate{}, parseError("sbatch --test-only", 1, "%.80q tells no start", strings.TrimSpace(text))
}
