package slurm

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxRecord limits the bytes of one record; the node list of a job can be long.
const maxRecord = 4 << 20

// recordScanner reads records and splits them into columns.
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

// next returns the next record without its end, valid until the next call. A record has at least count marks, and ends
// with one and a newline; it may contain newlines, also behind a mark: at the beginning of a name.
func (s *recordScanner) next(mark string, count int) ([]byte, error) {
	s.buf = s.buf[:0]
	for {
		part, err := s.lines.ReadSlice('\n')
		if len(part) > 0 && !errors.Is(err, bufio.ErrBufferFull) {
			s.line++
		}
		if len(s.buf) == 0 && err == nil && hasEnd(part, mark, count) {
			return part[:len(part)-1-len(mark)], nil
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
		case hasEnd(s.buf, mark, count):
			return s.buf[:len(s.buf)-1-len(mark)], nil
		}
	}
}

func hasEnd(line []byte, mark string, count int) bool {
	n := len(line) - 1
	return n >= len(mark) && line[n] == '\n' && string(line[n-len(mark):n]) == mark &&
		(count <= 1 || bytes.Count(line, []byte(mark)) >= count)
}

func clip(b []byte) []byte {
	if len(b) > 120 {
		b = b[:120]
	}
	return b
}

// A layout is the format of the rows that a command prints: after each cell comes the mark, and after
// the last mark a newline.
type layout struct {
	command, mark string
	// odd is called for a row that cannot be read, which is left out; nil: such a row is an error.
	odd func(error)
}

// marked is a layout whose mark nobody can have written into a name, a comment or a directory, as it is new
// in each query. Rows and columns end where the command ends them, whatever text they hold.
func (c *Client) marked(command string) layout { return layout{command, newMark(), c.Odd} }

// barred is the layout of --parsable of a command that takes no other delimiter. What it lists is written by
// administrators.
func (c *Client) barred(command string) layout { return layout{command, "|", c.Odd} }

// newMark returns a bar and letters: neither a digit nor a comma, which mean something in formats of squeue.
func newMark() string {
	b := make([]byte, 8)
	_, _ = rand.Read(b)
	for i := range b {
		b[i] = 'a' + b[i]&15
	}
	return "|" + string(b)
}

// parsable are the arguments with which a command of accounting prints columns in this layout.
func (l layout) parsable(names []string) []string {
	return []string{"--noheader", "--parsable", "--delimiter=" + l.mark, "--format=" + strings.Join(names, ",")}
}

// columns parses the columns of one row after the other.
type columns struct {
	*values
	layout
	scan  *recordScanner
	err   error // of the listing
	bad   error // of the current row
	first error // of the first row that could not be read
	good  bool  // a row could be read
	names []string
	cells [][]byte // of the current row
	last  []string // the last text of each column, for recent
}

func newColumns(r io.Reader, form layout, names []string) *columns {
	return &columns{
		values: newValues(), layout: form, scan: newRecordScanner(form.command, r), names: names,
		cells: make([][]byte, len(names)), last: make([]string, len(names)),
	}
}

// next reads the next row and reports whether there is one.
func (c *columns) next() bool {
	if c.err != nil {
		return false
	}
	record, err := c.scan.next(c.mark, len(c.cells))
	if errors.Is(err, io.EOF) {
		if !c.good {
			c.err = c.first // a listing of which nothing is understood
		}
		return false
	}
	c.err, c.bad = err, nil
	if err == nil {
		c.cut(record)
	}
	return err == nil
}

// cut splits a row into its cells. A row with more of them has a text with the mark, and nobody knows which.
func (c *columns) cut(record []byte) {
	clear(c.cells)
	for i := range len(c.cells) - 1 {
		cell, rest, found := bytes.Cut(record, []byte(c.mark))
		c.cells[i], record = cell, rest
		if !found {
			c.bad = c.scan.fail("%d columns instead of %d: %q", i+1, len(c.cells), clip(cell))
			return
		}
	}
	c.cells[len(c.cells)-1] = record
	if bytes.Contains(record, []byte(c.mark)) {
		c.bad = c.scan.fail("%q: more than %d columns", clip(c.cells[0]), len(c.cells))
	}
}

// done ends a row: one that could not be read costs this row, or the listing if it has to be whole.
func (c *columns) done(each func() error) {
	if c.bad == nil {
		err := each()
		if failure, ok := FailureOf(err); !ok || failure != Unreadable {
			c.good, c.err = true, err
			return
		}
		c.bad = err // a row that does not fit to those before it
	}
	if c.odd == nil {
		c.err = c.bad
		return
	}
	c.first = cmp.Or(c.first, c.bad)
	c.odd(c.bad)
}

// A column is a column that a command can print, and sets a field of a record from it.
type column[R any] struct {
	name string
	set  func(c *columns, i int, to *R)
}

// rows parses rows of these columns and calls each with a record of every row. The record is
// valid during the call.
func rows[R any](r io.Reader, form layout, asked []column[R], each func(*R) error) error {
	c := newColumns(r, form, columnNames(asked))
	record := new(R) // one for all rows: there may be a hundred thousand
	for c.next() {
		*record = *new(R)
		for i := 0; i < len(asked) && c.bad == nil; i++ {
			asked[i].set(c, i, record)
		}
		c.done(func() error { return each(record) })
	}
	return c.err
}

// Lines returns the lines of a listing of one column, without the blanks around them.
func Lines(text string) []string {
	var all []string
	for scan := newRecordScanner("listing", strings.NewReader(text)); ; {
		line, err := scan.next("", 0)
		if err != nil {
			return all // the end, or a line that was cut
		}
		all = append(all, strings.TrimSpace(string(line)))
	}
}

// pick returns the columns with these names.
func pick[R any](all []column[R], names ...string) []column[R] {
	picked := make([]column[R], len(names))
	for i, name := range names {
		picked[i] = all[slices.IndexFunc(all, func(c column[R]) bool { return c.name == name })]
	}
	return picked
}

func columnNames[R any](asked []column[R]) []string {
	names := make([]string, len(asked))
	for i := range asked {
		names[i] = asked[i].name
	}
	return names
}

// collect returns a function that appends records to a slice.
func collect[R any](into *[]R) func(*R) error {
	return func(r *R) error {
		*into = append(*into, *r)
		return nil
	}
}

// check records an error if a cell is not as expected.
func (c *columns) check(ok bool, i int, want string) {
	if !ok && c.bad == nil {
		c.bad = c.scan.fail("%q: %s: %q: expected %s", clip(c.cells[0]), c.names[i], clip(c.cells[i]), want)
	}
}

func (c *columns) uint(i int) uint64 {
	b := c.cells[i]
	ok := len(b) > 0 && len(b) <= 19
	var n uint64
	for _, d := range b {
		ok = ok && d >= '0' && d <= '9'
		n = n*10 + uint64(d-'0')
	}
	c.check(ok, i, "a number")
	return n
}

func (c *columns) int(i int) int64 {
	if noNumber(string(c.cells[i])) {
		return 0
	}
	n, err := strconv.ParseInt(string(c.cells[i]), 10, 64)
	c.check(err == nil, i, "a number")
	return n
}

// float parses a decimal number; one that is not known is 0.
func (c *columns) float(i int) float64 {
	if noNumber(string(c.cells[i])) {
		return 0
	}
	f, ok := parseFloat(c.cells[i])
	c.check(ok, i, "a number")
	return f
}

func parseFloat(b []byte) (float64, bool) {
	if f, ok := shortDecimal(b); ok {
		return f, true
	}
	f, err := strconv.ParseFloat(string(b), 64)
	if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// tens are the powers of ten that a float64 represents exactly.
var tens = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// shortDecimal parses numbers such as 12 and 0.1178571, the usual case. With up to 15 digits,
// the quotient of two exactly represented numbers is the correctly rounded result.
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

// recent returns a text, without a copy if it equals that of the previous row.
func (c *columns) recent(i int) string {
	if string(c.cells[i]) != c.last[i] {
		c.last[i] = string(c.cells[i])
	}
	return c.last[i]
}

func (c *columns) text(i int) string {
	if string(c.cells[i]) != c.last[i] {
		c.last[i] = c.values.text(c.cells[i])
	}
	return c.last[i]
}

// word returns a text; Slurm's words for an unset value become "".
func (c *columns) word(i int) string { return orEmpty(c.text(i)) }

// state returns the state of a job without additions such as "by 0" in "CANCELLED by 0".
func (c *columns) state(i int) string {
	state, _, _ := strings.Cut(c.text(i), " ")
	state = strings.TrimSuffix(state, "+")
	c.check(state != "" && strings.Trim(state, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_") == "", i, "a state")
	return state
}

// optional parses a number; a missing one is 0.
func (c *columns) optional(i int) uint64 {
	if noNumber(string(c.cells[i])) {
		return 0
	}
	return c.uint(i)
}

func (c *columns) stamp(i int) int64 {
	t, ok := c.values.stamp(c.cells[i])
	c.check(ok, i, "a time")
	return t
}

func (c *columns) limit(i int) time.Duration {
	d, ok := c.limits.get(c.cells[i])
	c.check(ok, i, "a time limit")
	return d
}

func (c *columns) list(i int) TRES {
	t, ok := c.tres.get(c.cells[i])
	c.check(ok, i, "a list of resources")
	return t
}

func (c *columns) exit(i int) Exit {
	e, ok := parseExit(string(c.cells[i]))
	c.check(ok, i, "an exit code")
	return e
}

// count parses a limit of a count.
func (c *columns) count(i int) Limit[int64] {
	n, ok := parseCount(string(c.cells[i]))
	c.check(ok, i, "a number")
	return n
}

func (c *columns) wall(i int) Limit[time.Duration] {
	d, ok := parseWall(string(c.cells[i]))
	c.check(ok, i, "a time limit")
	return d
}

// level parses a number that may be infinite.
func (c *columns) level(i int) float64 {
	if string(c.cells[i]) == "inf" {
		return math.Inf(1)
	}
	return c.float(i)
}
