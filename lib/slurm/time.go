package slurm

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Unlimited is a time limit that never ends.
const Unlimited time.Duration = math.MaxInt64

// ParseDuration reads a time limit as sbatch does: minutes, minutes:seconds,
// hours:minutes:seconds, days-hours, days-hours:minutes,
// days-hours:minutes:seconds, or UNLIMITED and its synonyms.
func ParseDuration(s string) (time.Duration, error) {
	switch strings.ToUpper(strings.TrimSpace(s)) {
	case "UNLIMITED", "INFINITE", "-1":
		return Unlimited, nil
	}
	bad := fmt.Errorf("%q is no duration of Slurm, such as 90, 1:30:00 or 2-12", s)
	days, rest, hasDays := strings.Cut(strings.TrimSpace(s), "-")
	if !hasDays {
		rest, days = days, "0"
	}
	var total time.Duration
	parts := strings.Split(rest, ":")
	units := []time.Duration{time.Hour, time.Minute, time.Second}
	switch {
	case len(parts) > 3:
		return 0, bad
	case !hasDays && len(parts) < 3:
		units = []time.Duration{time.Minute, time.Second}
	}
	if len(parts) > len(units) {
		return 0, bad
	}
	parts, units = append([]string{days}, parts...), append([]time.Duration{24 * time.Hour}, units...)
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 32)
		if err != nil {
			return 0, bad
		}
		if total += time.Duration(n) * units[i]; total < 0 || time.Duration(n) > math.MaxInt64/units[i] {
			return 0, bad
		}
	}
	return total, nil
}

// FormatDuration writes a time limit for sbatch, to the second: 3:20:00, 2-12:00:00.
func FormatDuration(d time.Duration) string {
	if d == Unlimited {
		return "UNLIMITED"
	}
	s := int64(d / time.Second)
	clock := fmt.Sprintf("%d:%02d:%02d", s/3600%24, s/60%60, s%60)
	if days := s / 86400; days > 0 {
		return fmt.Sprintf("%d-%0*s", days, 8, clock)
	}
	return clock
}

// timeLayout is how Slurm's commands print times when SLURM_TIME_FORMAT is unset.
const timeLayout = "2006-01-02T15:04:05"

// ParseTime reads a time that a command of Slurm has printed, in local time. What
// is not known, or has not happened, is the zero time.
func ParseTime(s string) (time.Time, error) {
	switch s = strings.TrimSpace(s); s {
	case "", "Unknown", "N/A", "NONE", "None", "(null)", "InvalidDate", "Invalid":
		return time.Time{}, nil
	}
	t, err := time.ParseInLocation(timeLayout, s, time.Local)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is no time", s)
	}
	return t, nil
}
