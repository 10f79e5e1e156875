package slurm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
)

// maxRecord bounds one record; the nodes of a job can make it long.
const maxRecord = 4 << 20

// endOfRecord closes every record whose last column could be cut short
// without anyone noticing.
const endOfRecord = "|~"

// recordScanner reads lines, each split at the bars.
type recordScanner struct {
	command string
	lines   *bufio.Reader
	line    int
	buf     []byte
}

func newRecordScanner(command string, r io.Reader) *recordScanner {
	return &recordScanner{command: command, lines: bufio.NewReaderSize(r, 256<<10)}
}

func (s *recordScanner) fail(format string, args ...any) error {
	return parseError(s.command, s.line, format, args...)
}

// next returns the next record without its end, valid until the following
// call. A record ends with end and a newline; newlines within it are its own.
func (s *recordScanner) next(end string) ([]byte, error) {
	s.buf = s.buf[:0]
	for {
		part, err := s.lines.ReadSlice('\n')
		if len(part) > 0 && !errors.Is(err, bufio.ErrBufferFull) {
			s.line++
		}
		if len(s.buf) == 0 && err == nil && hasEnd(part, end) {
			return part[:len(part)-1-len(end)], nil
		}
		if len(s.buf)+len(part) > maxRecord {
			return nil, s.fail("longer than %d bytes", maxRecord)
		}
		s.buf = append(s.buf, part...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(s.buf) == 0:
			return nil, io.EOF
		case errors.Is(err, io.EOF):
			return nil, s.fail("cut short: %q", clip(s.buf))
		case err != nil:
			return nil, fmt.Errorf("%s: %w", s.command, err)
		case hasEnd(s.buf, end):
			return s.buf[:len(s.buf)-1-len(end)], nil
		}
	}
}

func hasEnd(line []byte, end string) bool {
	n := len(line) - 1
	return n >= len(end) && line[n] == '\n' && string(line[n-len(end):n]) == end
}

func clip(b []byte) []byte {
	if len(b) > 120 {
		b = b[:120]
	}
	return b
}

// cut splits a record into exactly n columns; the last keeps its bars.
func (s *recordScanner) cut(record []byte, columns [][]byte) error {
	for i := range len(columns) - 1 {
		field, rest, found := bytes.Cut(record, []byte{'|'})
		if !found {
			return s.fail("%d columns instead of %d: %q", i+1, len(columns), clip(record))
		}
		columns[i], record = field, rest
	}
	columns[len(columns)-1] = record
	return nil
}

// columnReader reads the columns of one record after the other, remembering the
// first problem.
type columnReader struct {
	scan   *recordScanner
	known  *interner
	err    error
	labels []string
	end    string
	cells  [][]byte // of the record at hand, valid until the next one
}

// newColumns returns a reader of records that end with end and have these columns.
func newColumns(command string, r io.Reader, end string, labels []string) *columnReader {
	return &columnReader{
		scan: newRecordScanner(command, r), known: newInterner(), end: end, labels: labels, cells: make([][]byte, len(labels)),
	}
}

// next goes to the next record, and reports whether there is one.
func (c *columnReader) next() bool {
	if c.err != nil {
		return false
	}
	record, err := c.scan.next(c.end)
	if errors.Is(err, io.EOF) {
		return false
	}
	if err == nil {
		err = c.scan.cut(record, c.cells)
	}
	c.err = err
	return err == nil
}

func (c *columnReader) bad(column int, b []byte, want string) {
	if c.err == nil {
		c.err = c.scan.fail("%s: %q is not %s", c.labels[column], clip(b), want)
	}
}

func (c *columnReader) uint(column int, b []byte) uint64 {
	if len(b) == 0 || len(b) > 19 {
		c.bad(column, b, "a number")
		return 0
	}
	var n uint64
	for _, d := range b {
		if d < '0' || d > '9' {
			c.bad(column, b, "a number")
			return 0
		}
		n = n*10 + uint64(d-'0')
	}
	return n
}

func (c *columnReader) int(column int, b []byte) int64 {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil {
		c.bad(column, b, "a number")
	}
	return n
}

func (c *columnReader) float(column int, b []byte) float64 {
	if f, ok := shortDecimal(b); ok {
		return f
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || math.IsNaN(f) {
		c.bad(column, b, "a number")
		return 0
	}
	return f
}

// tens are the powers of ten that a float64 holds exactly.
var tens = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// shortDecimal reads numbers like 12 and 0.1178571, as nearly all are. Up to 15
// digits the quotient of two exact numbers is the nearest one.
func shortDecimal(b []byte) (float64, bool) {
	if len(b) == 0 || len(b) > 15 {
		return 0, false
	}
	var n uint64
	point := -1
	for i, c := range b {
		switch {
		case c >= '0' && c <= '9':
			n = n*10 + uint64(c-'0')
		case c == '.' && point < 0 && i > 0 && i < len(b)-1:
			point = i
		default:
			return 0, false
		}
	}
	if point < 0 {
		return float64(n), true
	}
	return float64(n) / tens[len(b)-1-point], true
}

func (c *columnReader) text(b []byte) string { return c.known.string(b) }

// word is text in which Slurm's words for nothing are empty.
func (c *columnReader) word(b []byte) string {
	switch string(b) {
	case "(null)", "N/A", "None", "NONE", "n/a":
		return ""
	}
	return c.known.string(b)
}

func (c *columnReader) stamp(column int, b []byte) int64 {
	t, ok := c.known.stamp(b)
	if !ok {
		c.bad(column, b, "a time")
	}
	return t
}

func (c *columnReader) limit(column int, b []byte) time.Duration {
	d, ok := parseLimit(string(b))
	if !ok {
		c.bad(column, b, "a time limit")
	}
	return d
}

func (c *columnReader) tres(column int, b []byte) TRESCounts {
	t, ok := c.known.tres(b)
	if !ok {
		c.bad(column, b, "a list of resources")
	}
	return t
}

// TRESCounts are counts of trackable resources by Slurm's name in lower case:
// cpu, mem (in MiB), node, billing, gres/gpu, gres/gpu:a100.
// They may be shared between records: never change one.
type TRESCounts map[string]float64

// GPUs counts the GPUs; those with a type count where no total is given.
func (t TRESCounts) GPUs() float64 {
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

// ParseTRESCounts reads a list like cpu=2,mem=1000M,gres/gpu=1. Memory without
// a unit is in MiB, as everywhere in Slurm.
func ParseTRESCounts(s string) (TRESCounts, error) {
	t, ok := parseTRES(s)
	if !ok {
		return nil, fmt.Errorf("%q is not a list of resources", s)
	}
	return t, nil
}

func parseTRES(s string) (TRESCounts, bool) {
	switch s {
	case "", "(null)", "N/A", "None", "NONE":
		return nil, true
	}
	t := TRESCounts{}
	for item := range strings.SplitSeq(s, ",") {
		name, value, ok := strings.Cut(item, "=")
		if !ok || name == "" || value == "" {
			return nil, false
		}
		name = strings.ToLower(name)
		scale := 1.0
		if unit := strings.IndexByte("KMGTPE", value[len(value)-1]); unit >= 0 {
			value = value[:len(value)-1]
			if scale = math.Pow(1024, float64(unit+1)); name == "mem" {
				scale /= 1 << 20
			}
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
			return nil, false
		}
		t[name] = n * scale
	}
	return t, true
}

// parseLimit reads a time limit: D-HH:MM:SS and its shorter forms. 0 is "not
// set".
func parseLimit(s string) (time.Duration, bool) {
	switch s {
	case "UNLIMITED", "INFINITE":
		return Unlimited, true
	case "", "NOT_SET", "Partition_Limit", "N/A", "NONE", "(null)":
		return 0, true
	}
	var days int64
	day, clock, hasDays := strings.Cut(s, "-")
	if hasDays {
		n, err := strconv.ParseUint(day, 10, 20)
		if err != nil {
			return 0, false
		}
		days, s = int64(n), clock
	}
	parts := strings.Split(s, ":")
	if len(parts) > 3 {
		return 0, false
	}
	var n [3]int64
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 31)
		if err != nil {
			return 0, false
		}
		n[i] = int64(v)
	}
	var seconds int64
	switch {
	case hasDays: // D-H[:M[:S]]
		seconds = n[0]*3600 + n[1]*60 + n[2]
	case len(parts) == 3:
		seconds = n[0]*3600 + n[1]*60 + n[2]
	case len(parts) == 2:
		seconds = n[0]*60 + n[1]
	default:
		seconds = n[0] * 60
	}
	return time.Duration(days*86400+seconds) * time.Second, true
}

// interner keeps one copy of each text, and what was already parsed: in a long
// queue nearly every value has been seen before.
type interner struct {
	texts map[string]string
	hours map[string]int64
	lists map[string]TRESCounts
}

func newInterner() *interner {
	return &interner{map[string]string{}, map[string]int64{}, map[string]TRESCounts{}}
}

func (in *interner) string(b []byte) string {
	if s, ok := in.texts[string(b)]; ok {
		return s
	}
	s := string(b)
	in.texts[s] = s
	return s
}

func (in *interner) tres(b []byte) (TRESCounts, bool) {
	if t, ok := in.lists[string(b)]; ok {
		return t, true
	}
	t, ok := parseTRES(string(b))
	if ok {
		in.lists[string(b)] = t
	}
	return t, ok
}

// stamp reads 2026-11-20T17:50:56 in the local time zone as seconds since
// 1970; 0 stands for Slurm's words for no time.
func (in *interner) stamp(b []byte) (int64, bool) {
	switch string(b) {
	case "", "N/A", "Unknown", "None", "NONE", "(null)":
		return 0, true
	}
	const form = "2006-01-02T15:04:05"
	if len(b) != len(form) {
		return 0, false
	}
	minutes, ok1 := twoDigits(b[14:])
	seconds, ok2 := twoDigits(b[17:])
	if !ok1 || !ok2 || b[13] != ':' || b[16] != ':' || minutes > 59 || seconds > 60 {
		return 0, false
	}
	hour, ok := in.hours[string(b[:13])]
	if !ok {
		t, err := time.ParseInLocation("2006-01-02T15", string(b[:13]), time.Local)
		if err != nil {
			return 0, false
		}
		hour = t.Unix()
		in.hours[string(b[:13])] = hour
	}
	return hour + minutes*60 + seconds, true
}

func twoDigits(b []byte) (int64, bool) {
	if b[0] < '0' || b[0] > '9' || b[1] < '0' || b[1] > '9' {
		return 0, false
	}
	return int64(b[0]-'0')*10 + int64(b[1]-'0'), true
}
