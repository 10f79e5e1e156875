package input

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// maxDuration bounds durations: ten years.
const maxDuration = 10 * 365 * 24 * time.Hour

// ParseDuration reads seconds ("90", "0.5"), Go's form ("1h30m"), days ("2d12h")
// and Slurm's with colons ("1-12:00:00", "30:00").
func ParseDuration(s string) (time.Duration, error) {
	bad := fmt.Errorf("%q is not a duration such as 90, 5m, 1h30m or 1-12:00:00", s)
	if s == "" {
		return 0, bad
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		if f < 0 || f > maxDuration.Seconds() || math.IsNaN(f) {
			return 0, bad
		}
		return time.Duration(f * float64(time.Second)), nil
	}
	var total time.Duration
	if days, rest, ok := strings.Cut(s, "-"); ok && days != "" {
		return colons(days, rest, bad)
	}
	if strings.Contains(s, ":") {
		return colons("", s, bad)
	}
	if days, rest, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		if err != nil {
			return 0, bad
		}
		total, s = time.Duration(n)*24*time.Hour, rest
		if rest == "" {
			s = "0s"
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || total+d > maxDuration {
		return 0, bad
	}
	return total + d, nil
}

// colons reads [[H:]M:]S, or with days H[:M[:S]].
func colons(days, rest string, bad error) (time.Duration, error) {
	var n uint64
	if days != "" {
		var err error
		if n, err = strconv.ParseUint(days, 10, 16); err != nil {
			return 0, bad
		}
	}
	parts := strings.Split(rest, ":")
	if len(parts) > 3 {
		return 0, bad
	}
	units := []time.Duration{time.Hour, time.Minute, time.Second}
	if days == "" {
		units = units[3-len(parts):]
	}
	total := time.Duration(n) * 24 * time.Hour
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 20)
		if err != nil {
			return 0, bad
		}
		total += time.Duration(v) * units[i]
	}
	if total > maxDuration {
		return 0, bad
	}
	return total, nil
}

var errSize = errors.New("is not a size such as 500M, 4G or 1.5T")

// ParseSize reads a size with a suffix K, M, G or T (powers of 1024). As in Slurm, a
// plain number is in megabytes.
func ParseSize(s string) (int64, error) {
	text := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(s), "B"), "I")
	unit := int64(1 << 20)
	if n := len(text); n > 0 {
		if i := strings.IndexByte("KMGT", text[n-1]); i >= 0 {
			unit = 1 << (10 * (i + 1))
			text = text[:n-1]
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f < 0 || f*float64(unit) > 1<<60 || math.IsNaN(f) {
		return 0, fmt.Errorf("%q %w", s, errSize)
	}
	return int64(f * float64(unit)), nil
}

// FormatSize writes a size as people read it.
func FormatSize(n int64) string {
	switch {
	case n >= 1<<40:
		return fmt.Sprintf("%.1fT", float64(n)/(1<<40))
	case n >= 1<<30:
		return fmt.Sprintf("%.1fG", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.0fM", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.0fK", float64(n)/(1<<10))
	}
	return strconv.FormatInt(n, 10)
}
