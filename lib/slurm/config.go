package slurm

import (
	"cmp"
	"context"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// Config is the output of scontrol show config, by the names of slurm.conf.
type Config map[string]string

// Config returns the configuration of the cluster.
func (c *Client) Config(ctx context.Context) (Config, error) {
	return stream(ctx, c, ParseConfig, "scontrol", "show", "config")
}

// ParseConfig parses scontrol show config.
func ParseConfig(r io.Reader) (Config, error) {
	scan := newRecordScanner("scontrol show config", r)
	c := Config{}
	for {
		line, err := scan.next("", 0)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if key, value, ok := strings.Cut(string(line)+" ", " = "); ok {
			c[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	if c["ClusterName"] == "" || c["SLURM_VERSION"] == "" {
		scan.line++
		return nil, scan.fail("the configuration ends before ClusterName and SLURM_VERSION")
	}
	return c, nil
}

// Get returns a setting; Slurm's words for an unset value become "".
func (c Config) Get(key string) string {
	return orEmpty(c[key])
}

// Multifactor reports whether priorities are computed from factors. Otherwise (priority/basic),
// jobs are ordered by submission.
func (c Config) Multifactor() bool { return c["PriorityType"] == "priority/multifactor" }

// Accounting reports whether slurmdbd stores the accounting.
func (c Config) Accounting() bool {
	return c["AccountingStorageType"] == "accounting_storage/slurmdbd"
}

// PriorityFlag reports whether PriorityFlags contains a flag.
func (c Config) PriorityFlag(flag string) bool { return c.lists("PriorityFlags", flag) }

// Private reports whether PrivateData hides that kind of data of other users, such as jobs, from
// users without privileges.
func (c Config) Private(kind string) bool { return c.lists("PrivateData", kind) }

// lists reports whether a setting contains a word.
func (c Config) lists(key, word string) bool {
	for w := range strings.SplitSeq(c[key], ",") {
		if strings.EqualFold(strings.TrimSpace(w), word) {
			return true
		}
	}
	return false
}

// FairTree reports whether fair share uses the Fair Tree algorithm, the default since 19.05.
func (c Config) FairTree() bool {
	return !c.PriorityFlag("NO_FAIR_TREE") && !c.PriorityFlag("DEPTH_OBLIVIOUS")
}

// Number returns a setting that is a number not below 0; 0 if it is none, or not known.
func (c Config) Number(key string) float64 {
	n, _ := parseFloat([]byte(c[key]))
	return max(n, 0)
}

// Weight returns PriorityWeight<factor>; factor is Age, Assoc, FairShare, JobSize, Partition or
// QOS.
func (c Config) Weight(factor string) float64 { return c.Number("PriorityWeight" + factor) }

// TRESWeights returns PriorityWeightTRES, by names in lower case.
func (c Config) TRESWeights() map[string]float64 {
	weights, _ := parseTRES(c.Get("PriorityWeightTRES"))
	return weights
}

// Duration returns a setting such as 7-00:00:00 or 30 sec, or 0 if it is not a duration.
func (c Config) Duration(key string) time.Duration {
	value := c.Get(key)
	if n, unit, ok := strings.Cut(value, " "); ok {
		f, ok := parseFloat([]byte(n))
		if !ok {
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
	d, ok := parseTimeLimit(value)
	if !ok {
		return 0
	}
	return d
}

// SchedulerParameter returns one of SchedulerParameters, and whether it is set.
func (c Config) SchedulerParameter(name string) (string, bool) {
	for p := range strings.SplitSeq(c["SchedulerParameters"], ",") {
		key, value, _ := strings.Cut(p, "=")
		if key == name {
			return value, true
		}
	}
	return "", false
}

// SchedulerNumber returns one of SchedulerParameters that is a whole number not below 0, or otherwise.
func (c Config) SchedulerNumber(name string, otherwise int) int {
	text, _ := c.SchedulerParameter(name)
	if n, ok := parseNumber(text); ok && n <= math.MaxInt32 {
		return int(n)
	}
	return otherwise
}

// AtLeast reports whether the version of Slurm is year.month or later.
func (c Config) AtLeast(year, month int) bool {
	y, rest, _ := strings.Cut(c["SLURM_VERSION"], ".")
	m, _, _ := strings.Cut(rest, ".")
	haveYear, err := strconv.Atoi(y)
	haveMonth, err2 := strconv.Atoi(m)
	return err != nil || err2 != nil || haveYear > year || haveYear == year && haveMonth >= month
}

// BackfillResolution returns bf_resolution, the time step of the backfill scheduler's plan; the
// default is one minute.
func (c Config) BackfillResolution() time.Duration {
	return time.Duration(cmp.Or(c.SchedulerNumber("bf_resolution", 0), 60)) * time.Second
}

// BackfillWindow returns bf_window, how far ahead the backfill scheduler plans; the default is
// one day.
func (c Config) BackfillWindow() time.Duration {
	return time.Duration(cmp.Or(c.SchedulerNumber("bf_window", 0), 24*60)) * time.Minute
}
