package slurm

import (
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"
	"time"
	"unique"
)

// none reports whether a value is one of Slurm's words for an unset value.
func none(value string) bool {
	switch value {
	case "", "(null)", "N/A", "n/a", "none", "None", "NONE", "n/s", "NOT_SET", "None assigned":
		return true
	}
	return false
}

// noNumber reports whether a value is one of Slurm's words for a number that is not known, or has no bound. All readers of
// numbers, limits and times ask it. Versions before 21.08 print -nan for a factor without weight.
func noNumber(value string) bool {
	if value == "" || value[0] >= '0' && value[0] <= '9' {
		return value == ""
	}
	switch strings.ToLower(value) {
	case "invalid", "unknown", "nan", "-nan", "+nan", "inf", "-inf", "+inf", "infinity", "-infinity", "infinite", "unlimited", "none":
		return true
	}
	return none(value)
}

// orEmpty replaces Slurm's words for an unset value by "".
func orEmpty(value string) string {
	if none(value) {
		return ""
	}
	return value
}

// List is a list as Slurm prints it, separated by commas. It is not split in advance, as most
// of thousands of nodes share the same few lists.
type List string

// All iterates over the members of the list.
func (l List) All() iter.Seq[string] {
	return strings.FieldsFuncSeq(string(l), func(r rune) bool { return r == ',' })
}

// Has reports whether name is a member of the list.
func (l List) Has(name string) bool {
	for rest, more := string(l), true; more; {
		var item string
		if item, rest, more = strings.Cut(rest, ","); item == name && name != "" {
			return true
		}
	}
	return false
}

// names splits a list at commas; an empty list and ALL are nil.
func names(value string) []string {
	if none(value) || strings.EqualFold(value, "ALL") {
		return nil
	}
	return strings.FieldsFunc(value, func(r rune) bool { return r == ',' })
}

// Limit is an upper limit. The zero Limit means unlimited.
type Limit[T int64 | time.Duration] struct {
	Set bool
	Max T
}

// AtMost returns the limit n.
func AtMost[T int64 | time.Duration](n T) Limit[T] { return Limit[T]{true, n} }

// Allows reports whether n is within the limit.
func (l Limit[T]) Allows(n T) bool { return !l.Set || n <= l.Max }

// Or returns the limit, or n if there is none.
func (l Limit[T]) Or(n T) T {
	if l.Set {
		return l.Max
	}
	return n
}

// parseNumber parses a nonnegative whole number.
func parseNumber(s string) (int64, bool) {
	n, err := strconv.ParseUint(s, 10, 62)
	return int64(n), err == nil
}

// parseCount parses a limit of a count: a number, UNLIMITED or a word for an unset value.
func parseCount(s string) (Limit[int64], bool) {
	switch {
	case noNumber(s), s == "-1":
		return Limit[int64]{}, true
	}
	n, ok := parseNumber(s)
	return AtMost(n), ok
}

// parseWall parses a limit of a time.
func parseWall(s string) (Limit[time.Duration], bool) {
	d, ok := parseTimeLimit(s)
	if noNumber(s) || d == Unlimited {
		return Limit[time.Duration]{}, ok
	}
	return AtMost(d), ok
}

// Unlimited is the time limit UNLIMITED.
const Unlimited time.Duration = math.MaxInt64

// ParseDuration parses a time limit in the formats of sbatch: minutes, minutes:seconds,
// hours:minutes:seconds, days-hours, days-hours:minutes, days-hours:minutes:seconds, or
// UNLIMITED and its synonyms.
func ParseDuration(s string) (time.Duration, error) {
	bad := fmt.Errorf("invalid time limit %q: expected a form such as 90, 1:30:00 or 2-12", s)
	switch s = strings.TrimSpace(s); strings.ToUpper(s) {
	case "UNLIMITED", "INFINITE", "-1":
		return Unlimited, nil
	}
	days, clock, hasDays := strings.Cut(s, "-")
	if !hasDays {
		days, clock = "0", s
	}
	units := []time.Duration{time.Hour, time.Minute, time.Second}
	parts := strings.Split(clock, ":")
	if !hasDays && len(parts) < 3 {
		units = units[1:]
	}
	if len(parts) > len(units) {
		return 0, bad
	}
	var total time.Duration
	parts, units = append([]string{days}, parts...), append([]time.Duration{24 * time.Hour}, units...)
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 32)
		if err != nil || time.Duration(n) > math.MaxInt64/units[i] {
			return 0, bad
		}
		if total += time.Duration(n) * units[i]; total < 0 || total == Unlimited {
			return 0, bad
		}
	}
	return total, nil
}

// parseTimeLimit is ParseDuration for Slurm's output: its words for an unset limit are 0.
func parseTimeLimit(s string) (time.Duration, bool) {
	d, err := ParseDuration(s)
	return d, err == nil || noNumber(s) || s == "Partition_Limit"
}

// FormatDuration formats a time limit for sbatch, in seconds precision: 3:20:00, 2-12:00:00.
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

// timeLayout is the format of times in Slurm's output if SLURM_TIME_FORMAT is not set.
const timeLayout = "2006-01-02T15:04:05"

// ParseTime parses a local time from Slurm's output and returns seconds since 1970, or 0 if the
// time is unknown or the event has not happened.
func ParseTime(s string) (int64, error) {
	if t, ok := new(values).stamp([]byte(strings.TrimSpace(s))); ok {
		return t, nil
	}
	return 0, fmt.Errorf("invalid time %q", s)
}

// ParseMemory parses a memory size in Slurm's format and returns MiB: a number with an optional
// unit K, M, G, T or P (powers of 1024; the default is M). A trailing n or c ("per node", "per
// CPU" in sacct) is ignored.
func ParseMemory(s string) (float64, error) {
	number := strings.TrimRight(strings.TrimSpace(s), "nc")
	n, ok := parseScaled(number, 1<<20)
	if !ok {
		return 0, fmt.Errorf("invalid memory %q: expected a size such as 4000M or 16G", s)
	}
	return n / (1 << 20), nil
}

// FormatMemory formats bytes for --mem, rounded up to whole MiB. The minimum is 1M, as 0 would
// request all memory of the node.
func FormatMemory(bytes int64) string {
	const mib = 1 << 20
	n := max(1, bytes/mib)
	if n < math.MaxInt64/mib && n*mib < bytes {
		n++
	}
	if n%1024 == 0 {
		return strconv.FormatInt(n/1024, 10) + "G"
	}
	return strconv.FormatInt(n, 10) + "M"
}

// parseScaled parses a number with an optional unit K to P (powers of 1024); without one, the
// number is in units of bare.
func parseScaled(s string, bare float64) (float64, bool) {
	if s == "" {
		return 0, false
	}
	scale := bare
	if unit := strings.IndexByte("KMGTPE", s[len(s)-1]&^0x20); unit >= 0 {
		s, scale = s[:len(s)-1], float64(int64(1)<<(10*(unit+1)))
	}
	n, err := strconv.ParseFloat(s, 64)
	n *= scale
	return n, err == nil && n >= 0 && n < math.MaxInt64
}

// TRES maps trackable resources to amounts, by Slurm's names in lower case: cpu, mem (in MiB),
// node, billing, gres/gpu, gres/gpu:a100, license/matlab. Records share maps: do not change
// them.
type TRES map[string]float64

// GPUs returns the number of GPUs: gres/gpu or, without it, the sum over the types.
func (t TRES) GPUs() float64 {
	if n, ok := t["gres/gpu"]; ok {
		return n
	}
	var n float64
	for name, count := range t {
		if strings.HasPrefix(name, "gres/gpu:") {
			n += count
		}
	}
	return n
}

// ParseTRES parses a list such as cpu=2,mem=1000M,gres/gpu=1. Memory without a unit is in MiB.
func ParseTRES(s string) (TRES, error) {
	t, ok := parseTRES(s)
	if !ok {
		return nil, fmt.Errorf("invalid TRES list %q", s)
	}
	return t, nil
}

func parseTRES(s string) (TRES, bool) {
	if none(s) {
		return nil, true
	}
	t := TRES{}
	for item := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(item, "=")
		if !ok || name == "" {
			return nil, false
		}
		name = strings.ToLower(name)
		bare := 1.0
		if name == "mem" {
			bare = 1 << 20
		}
		if noNumber(value) && value != "" {
			continue
		}
		n, ok := parseScaled(value, bare)
		if !ok {
			return nil, false
		}
		t[name] = n / bare
	}
	return t, true
}

// GRES is a generic resource of a node, or of a job on it.
type GRES struct {
	Name  string // such as gpu
	Type  string // such as a100; may be empty
	Count int64
}

// ParseGRES parses a list such as gpu:a100:4(S:0-1),shard:8, or a request in one of the forms
// gres:gpu:2, gres/gpu:2 and gres/gpu=2. A count may have a unit K, M, G, T or P (powers of
// 1024); the default count is 1.
func ParseGRES(s string) ([]GRES, error) {
	var all []GRES
	for rest := orEmpty(strings.TrimSpace(s)); rest != ""; {
		item := rest
		if end := topComma(rest); end >= 0 {
			item, rest = rest[:end], rest[end+1:]
		} else {
			rest = ""
		}
		// In GresUsed, a resource without a type is gpu:(null):2.
		item, _, _ = strings.Cut(strings.Replace(item, ":(null)", "", 1), "(")
		item = strings.TrimPrefix(strings.TrimPrefix(item, "gres:"), "gres/")
		g := GRES{Count: 1}
		name, more, _ := strings.Cut(strings.Replace(item, "=", ":", 1), ":")
		if g.Name = name; name == "" {
			return nil, fmt.Errorf("invalid GRES list %.60q", s)
		}
		more = strings.TrimPrefix(":"+more, ":no_consume")
		more = strings.TrimPrefix(strings.Replace(more, ":no_consume:", ":", 1), ":")
		at := strings.LastIndexByte(more, ':') + 1
		if n, ok := parseScaled(more[at:], 1); ok && n == math.Trunc(n) {
			g.Count, more = int64(n), strings.TrimSuffix(more[:at], ":")
		}
		g.Type = more
		all = append(all, g)
	}
	return all, nil
}

// topComma returns the index of the first comma outside brackets, or -1.
func topComma(s string) int {
	depth := 0
	return strings.IndexFunc(s, func(r rune) bool {
		switch r {
		case '(', '[':
			depth++
		case ')', ']':
			depth--
		}
		return r == ',' && depth == 0
	})
}

// gpusIn counts the GPUs in a list of GRES; an invalid list has none.
func gpusIn(list string) int64 {
	all, _ := ParseGRES(list)
	var n int64
	for _, g := range all {
		if g.Name == "gpu" {
			n += g.Count
		}
	}
	return n
}

// Exit is how a program ended: its exit code, or the signal that killed it.
type Exit struct {
	Code   int
	Signal int
}

// Status returns the exit status as a shell reports it: 128+N for signal N.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + e.Signal
	}
	return e.Code
}

// parseExit parses CODE:SIGNAL, or the wait status that squeue printed before 23.02. Of a step that was lost with its
// node there is no exit code: sacct prints nothing, and squeue, for its job, NO_VAL as a signed number.
func parseExit(s string) (Exit, bool) {
	if noNumber(s) || s == "-2" {
		return Exit{}, true
	}
	code, signal, isPair := strings.Cut(s, ":")
	c, err1 := strconv.ParseUint(code, 10, 32)
	n, err2 := uint64(0), error(nil)
	if isPair {
		n, err2 = strconv.ParseUint(signal, 10, 32)
	} else {
		c, n = c>>8&0xff, c&0x7f
	}
	return Exit{int(c), int(n)}, err1 == nil && err2 == nil
}

// countIDs counts the numbers in a list such as 0-3,7.
func countIDs(ids string) (int64, bool) {
	var n int64
	for part := range strings.SplitSeq(ids, ",") {
		low, high, isRange := strings.Cut(part, "-")
		first, err := strconv.ParseUint(low, 10, 31)
		last := first
		if err == nil && isRange {
			last, err = strconv.ParseUint(high, 10, 31)
		}
		if err != nil || last < first {
			return 0, false
		}
		n += int64(last-first) + 1
	}
	return n, true
}

// memo caches parsed values: in a long listing, most values repeat.
type memo[T any] struct {
	parse func(string) (T, bool)
	known map[string]T
}

// maxKnown limits the number of cached values.
const maxKnown = 100_000

func (m *memo[T]) get(b []byte) (T, bool) {
	if v, ok := m.known[string(b)]; ok {
		return v, true
	}
	s := string(b)
	v, ok := m.parse(s)
	if ok && len(m.known) < maxKnown {
		if m.known == nil {
			m.known = map[string]T{}
		}
		m.known[s] = v
	}
	return v, ok
}

// values parses the cells of a listing and keeps one copy of each text.
type values struct {
	texts  memo[string]
	hours  memo[int64]
	limits memo[time.Duration]
	tres   memo[TRES]
}

func newValues() *values {
	return &values{
		texts:  memo[string]{parse: func(s string) (string, bool) { return unique.Make(s).Value(), true }},
		limits: memo[time.Duration]{parse: parseTimeLimit},
		tres:   memo[TRES]{parse: parseTRES},
	}
}

func (v *values) text(b []byte) string {
	s, _ := v.texts.get(b)
	return s
}

// word returns a text; Slurm's words for an unset value become "".
func (v *values) word(b []byte) string {
	if none(string(b)) {
		return ""
	}
	return v.text(b)
}

// stamp parses a local time such as 2026-11-20T17:50:56 and returns seconds since 1970; Slurm's
// words for an unset time are 0.
func (v *values) stamp(b []byte) (int64, bool) {
	if noNumber(string(b)) || string(b) == "InvalidDate" {
		return 0, true
	}
	if len(b) != len(timeLayout) {
		return 0, false
	}
	minutes, ok1 := twoDigits(b[14:])
	seconds, ok2 := twoDigits(b[17:])
	if !ok1 || !ok2 || b[13] != ':' || b[16] != ':' || minutes > 59 || seconds > 60 {
		return 0, false
	}
	v.hours.parse = parseHour
	hour, ok := v.hours.get(b[:13])
	return hour + minutes*60 + seconds, ok
}

func parseHour(s string) (int64, bool) {
	t, err := time.ParseInLocation("2006-01-02T15", s, time.Local)
	return t.Unix(), err == nil
}

func twoDigits(b []byte) (int64, bool) {
	if b[0] < '0' || b[0] > '9' || b[1] < '0' || b[1] > '9' {
		return 0, false
	}
	return int64(b[0]-'0')*10 + int64(b[1]-'0'), true
}

// Time converts seconds since 1970; 0 becomes the zero time.
func Time(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0)
}
