package slurm

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"time"
)

// SchedConfig is what scontrol show config says, of which the queue's views use
// what bears on priorities and on backfill.
type SchedConfig map[string]string

// SchedConfigArgs are scontrol's arguments for ParseSchedConfig.
func SchedConfigArgs() []string { return []string{"show", "config"} }

// ParseSchedConfig reads scontrol show config.
func ParseSchedConfig(r io.Reader) (SchedConfig, error) {
	scan := newRecordScanner("scontrol show config", r)
	c := SchedConfig{}
	for {
		line, err := scan.next("")
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if key, value, ok := strings.Cut(string(line), " = "); ok {
			c[strings.TrimSpace(key)] = strings.TrimSpace(value)
		} else if key, ok := strings.CutSuffix(strings.TrimRight(string(line), " "), " ="); ok {
			c[strings.TrimSpace(key)] = ""
		}
	}
	if c["PriorityType"] == "" || c["SLURM_VERSION"] == "" {
		scan.line++
		return nil, scan.fail("the configuration ends before PriorityType and SLURM_VERSION")
	}
	return c, nil
}

// Get returns a setting; Slurm's words for none are empty.
func (c SchedConfig) Get(key string) string {
	switch v := c[key]; v {
	case "(null)", "N/A", "NONE":
		return ""
	default:
		return v
	}
}

// Multifactor reports whether priorities are computed from factors. Otherwise
// (priority/basic) jobs are taken in the order of their submission.
func (c SchedConfig) Multifactor() bool { return c["PriorityType"] == "priority/multifactor" }

// Accounting reports whether a slurmdbd keeps the accounts.
func (c SchedConfig) Accounting() bool {
	return c["AccountingStorageType"] == "accounting_storage/slurmdbd"
}

// PriorityFlag reports whether PriorityFlags has that flag.
func (c SchedConfig) PriorityFlag(flag string) bool {
	for f := range strings.SplitSeq(c["PriorityFlags"], ",") {
		if strings.EqualFold(strings.TrimSpace(f), flag) {
			return true
		}
	}
	return false
}

// FairTree reports whether fair share is ranked by the Fair Tree algorithm, the
// default since 19.05.
func (c SchedConfig) FairTree() bool {
	return !c.PriorityFlag("NO_FAIR_TREE") && !c.PriorityFlag("DEPTH_OBLIVIOUS")
}

// Weight is PriorityWeight<factor>: Age, Assoc, FairShare, JobSize, Partition or QOS.
func (c SchedConfig) Weight(factor string) float64 {
	w, _ := strconv.ParseFloat(c["PriorityWeight"+factor], 64)
	return w
}

// TRESWeights is PriorityWeightTRES, by names in lower case.
func (c SchedConfig) TRESWeights() map[string]float64 {
	weights, _ := parseTRES(c.Get("PriorityWeightTRES"))
	return weights
}

// Duration is a setting such as 7-00:00:00 or 30 sec; 0 if it is none.
func (c SchedConfig) Duration(key string) time.Duration {
	value := c.Get(key)
	if n, unit, ok := strings.Cut(value, " "); ok {
		f, err := strconv.ParseFloat(n, 64)
		if err != nil {
			return 0
		}
		switch {
		case strings.HasPrefix(unit, "sec"):
			return time.Duration(f * float64(time.Second))
		case strings.HasPrefix(unit, "min"):
			return time.Duration(f * float64(time.Minute))
		}
		return 0
	}
	d, ok := parseLimit(value)
	if !ok {
		return 0
	}
	return d
}

// SchedulerParameter is one of SchedulerParameters, and whether it is set.
func (c SchedConfig) SchedulerParameter(name string) (string, bool) {
	for p := range strings.SplitSeq(c["SchedulerParameters"], ",") {
		key, value, _ := strings.Cut(p, "=")
		if key == name {
			return value, true
		}
	}
	return "", false
}

// AtLeast reports whether Slurm is of that version or a later one.
func (c SchedConfig) AtLeast(year, month int) bool {
	y, rest, _ := strings.Cut(c["SLURM_VERSION"], ".")
	m, _, _ := strings.Cut(rest, ".")
	haveYear, err := strconv.Atoi(y)
	haveMonth, err2 := strconv.Atoi(m)
	return err != nil || err2 != nil || haveYear > year || haveYear == year && haveMonth >= month
}

// BackfillResolution is the grain of the backfill scheduler's map of the
// future: bf_resolution, by default a minute.
func (c SchedConfig) BackfillResolution() time.Duration {
	if v, ok := c.SchedulerParameter("bf_resolution"); ok {
		if n, err := strconv.ParseUint(v, 10, 31); err == nil && n > 0 {
			return time.Duration(n) * time.Second
		}
	}
	return time.Minute
}

// BackfillWindow is how far ahead the backfill scheduler looks: bf_window, by
// default a day.
func (c SchedConfig) BackfillWindow() time.Duration {
	if v, ok := c.SchedulerParameter("bf_window"); ok {
		if n, err := strconv.ParseUint(v, 10, 31); err == nil && n > 0 {
			return time.Duration(n) * time.Minute
		}
	}
	return 24 * time.Hour
}
