package unit

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DurationUnits are the units a duration may have, as messages list them.
const DurationUnits = "seconds (s), minutes (min), hours (h), days (d) or weeks (w)"

const day = 24 * time.Hour

// MaxDuration limits durations, so that a time that much later can be represented.
const MaxDuration = 100 * 365 * day

var durationUnits = map[string]time.Duration{}

func init() {
	for d, names := range map[time.Duration]string{
		time.Nanosecond:  "ns",
		time.Microsecond: "us µs μs",
		time.Millisecond: "ms",
		time.Second:      "s sec secs second seconds",
		time.Minute:      "m min mins minute minutes",
		time.Hour:        "h hr hrs hour hours",
		day:              "d day days",
		7 * day:          "w week weeks",
	} {
		for _, name := range strings.Fields(names) {
			durationUnits[name] = d
		}
	}
}

// DurationUnit returns the length of one unit, given in lower case.
func DurationUnit(unit string) (time.Duration, bool) {
	d, ok := durationUnits[unit]
	return d, ok
}

// DurationUnitNames are all names of units, for suggestions.
func DurationUnitNames() []string {
	names := make([]string, 0, len(durationUnits))
	for name := range durationUnits {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Duration reads "20h", "4 days", "1d 12h", "1.5h", "500ms" and Slurm's "4-00:00:00",
// "2-12", "20:00:00" and "30:00". A number without a unit is ErrNoUnit, as some
// programs take it for minutes and others for seconds.
func Duration(s string) (time.Duration, error) {
	rest := strings.TrimSpace(s)
	if strings.ContainsAny(rest, ":-") {
		return clock(rest)
	}
	if rest == "" {
		return 0, errors.New("the duration is empty")
	}
	var total time.Duration
	for rest != "" {
		number, after := cut(rest)
		if number == "" {
			return 0, fmt.Errorf("invalid duration %q: expected a number and %s", s, DurationUnits)
		}
		i := strings.IndexFunc(after, func(r rune) bool { return r == ' ' || r >= '0' && r <= '9' })
		if i < 0 {
			i = len(after)
		}
		name := after[:i]
		if name == "" {
			return 0, fmt.Errorf("invalid duration %q: %w: expected %s", s, ErrNoUnit, DurationUnits)
		}
		unit, ok := DurationUnit(strings.ToLower(name))
		if !ok {
			return 0, fmt.Errorf("invalid duration %q: unknown unit %q: expected %s", s, name, DurationUnits)
		}
		d, err := Times(number, unit)
		if err != nil {
			return 0, err
		}
		if total += d; total > MaxDuration {
			return 0, fmt.Errorf("%q is too long", s)
		}
		rest = strings.TrimSpace(after[i:])
	}
	return total, nil
}

// Seconds is Duration, but a number alone is in seconds.
func Seconds(s string) (time.Duration, error) {
	if number, rest := cut(s); rest == "" && number != "" {
		return Times(number, time.Second)
	}
	return Duration(s)
}

// Times returns number, digits with perhaps a decimal point, times a unit, rounded up.
func Times(number string, unit time.Duration) (time.Duration, error) {
	n, err := Multiply(number, int64(unit))
	if err == nil && time.Duration(n) > MaxDuration {
		err = fmt.Errorf("%s is too long", number)
	}
	if err != nil {
		return 0, err
	}
	return time.Duration(n), nil
}

// clock reads Slurm's DAYS-HOURS[:MINUTES[:SECONDS]], HOURS:MINUTES:SECONDS and
// MINUTES:SECONDS.
func clock(s string) (time.Duration, error) {
	bad := fmt.Errorf("invalid duration %q: expected DAYS-HH, DAYS-HH:MM:SS, HH:MM:SS or MM:SS", s)
	days, rest, hasDays := strings.Cut(s, "-")
	if !hasDays {
		days, rest = "0", s
	}
	fields := strings.Split(rest, ":")
	units := []time.Duration{time.Hour, time.Minute, time.Second}
	switch {
	case len(fields) > 3:
		return 0, bad
	case len(fields) == 2 && !hasDays:
		units = units[1:]
	}
	total, err := digits(days, day)
	for i, f := range fields {
		d, e := digits(f, units[i])
		if err = errors.Join(err, e); err != nil {
			return 0, bad
		}
		if total += d; total > MaxDuration {
			return 0, bad
		}
	}
	return total, nil
}

func digits(s string, unit time.Duration) (time.Duration, error) {
	n, err := strconv.ParseUint(s, 10, 31)
	if err == nil && n > uint64(MaxDuration/unit) {
		err = strconv.ErrRange
	}
	return time.Duration(n) * unit, err
}

// FormatDuration writes a duration in the largest units that are exact: "4d",
// "1d12h", "90min"; Duration reads the same from it.
func FormatDuration(d time.Duration) string {
	if d <= 0 {
		return "0s"
	}
	var b strings.Builder
	for _, u := range []struct {
		name   string
		length time.Duration
	}{
		{"d", day}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second},
		{"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", time.Nanosecond},
	} {
		if n := d / u.length; n > 0 {
			fmt.Fprintf(&b, "%d%s", n, u.name)
			d -= n * u.length
		}
	}
	return b.String()
}

// FormatTime writes a duration as Slurm's --time takes it: HH:MM:SS.
func FormatTime(d time.Duration) string {
	s := int64((d + time.Second - 1) / time.Second)
	return fmt.Sprintf("%02d:%02d:%02d", s/3600, s/60%60, s%60)
}

// ShortTime writes a time near now without what goes without saying; 0 is no time.
func ShortTime(unix int64, now time.Time) string {
	if unix == 0 {
		return ""
	}
	t := time.Unix(unix, 0).In(now.Location())
	y, m, d := t.Date()
	ny, nm, nd := now.Date()
	switch {
	case y == ny && m == nm && d == nd:
		return t.Format(time.TimeOnly)
	case y == ny:
		return t.Format("Jan _2 15:04")
	}
	return t.Format("2006-01-02 15:04")
}
