// Package sweep reads tables of parameters (TSV, CSV, JSON lines, lists of values on the
// command line) and puts their values into templates: words with placeholders such as
// {lr}.
package sweep

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Table is parameters, a row for each task.
type Table struct {
	Columns []string
	Rows    [][]string // as long as Columns
}

// Limits of a table.
const (
	maxLine    = 1 << 20 // bytes of a line
	maxSize    = 64 << 20
	maxColumns = 256
)

// Format is how a table is written.
type Format int

// The formats.
const (
	TSV Format = iota
	CSV
	JSONLines
)

// FormatOf guesses the format of a file by its name, or else by its first line.
func FormatOf(name string, first []byte) Format {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".tsv", ".tab":
		return TSV
	case ".csv":
		return CSV
	case ".json", ".jsonl", ".ndjson":
		return JSONLines
	}
	switch {
	case bytes.HasPrefix(bytes.TrimSpace(first), []byte("{")):
		return JSONLines
	case bytes.IndexByte(first, '\t') < 0 && bytes.IndexByte(first, ',') >= 0:
		return CSV
	}
	return TSV
}

// Read reads a table of at most limit rows. The first line of TSV and CSV names the
// columns; check says what is wrong with such a name. Errors begin with the name of the
// file and the number of the line.
func Read(name string, r io.Reader, limit int, check func(column string) error) (Table, error) {
	in := bufio.NewReaderSize(io.LimitReader(r, maxSize+1), 64<<10)
	start, err := in.Peek(4096)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, bufio.ErrBufferFull) {
		return Table{}, fmt.Errorf("%s: %w", name, err)
	}
	if bytes.HasPrefix(start, []byte("\xef\xbb\xbf")) { // as Excel begins its files
		start = start[3:]
		_, _ = in.Discard(3)
	}
	first, _, _ := bytes.Cut(start, []byte("\n"))
	read := &reading{name: name, limit: limit, check: check, counted: &counting{r: in}}
	switch FormatOf(name, first) {
	case CSV:
		err = read.csv()
	case JSONLines:
		err = read.lines(read.object)
	default:
		err = read.lines(read.fields)
	}
	switch {
	case err != nil:
		return Table{}, err
	case len(read.Columns) == 0:
		return Table{}, fmt.Errorf("%s: the file is empty", name)
	case len(read.Rows) == 0:
		return Table{}, fmt.Errorf("%s: no row follows the names of the columns", name)
	}
	return read.Table, nil
}

// reading is a table that is being read.
type reading struct {
	Table
	name    string
	limit   int
	check   func(string) error
	counted *counting
}

// counting fails at what is too large.
type counting struct {
	r io.Reader
	n int
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.n += n; c.n > maxSize {
		return n, fmt.Errorf("the table is larger than %d MiB", maxSize>>20)
	}
	return n, err
}

func (r *reading) fail(line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %w", r.name, line, fmt.Errorf(format, args...))
}

// lines hands each line to a parser, without its end; blank lines are passed over.
func (r *reading) lines(parse func(number int, line string) error) error {
	lines := bufio.NewScanner(r.counted)
	lines.Buffer(nil, maxLine)
	number := 0
	for lines.Scan() {
		number++
		line := strings.TrimSuffix(lines.Text(), "\r")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if !utf8.ValidString(line) {
			return r.fail(number, "not UTF-8")
		}
		if err := parse(number, line); err != nil {
			return err
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return r.fail(number+1, "longer than %d MiB", maxLine>>20)
	} else if err != nil {
		return r.fail(number+1, "%w", err)
	}
	return nil
}

// fields reads a line of TSV: there are no quotes, so that any text without a tab is a
// value as it is.
func (r *reading) fields(number int, line string) error {
	return r.add(number, strings.Split(line, "\t"))
}

// add takes the names of the columns, and after them rows.
func (r *reading) add(number int, fields []string) error {
	if r.Columns == nil {
		if len(fields) > maxColumns {
			return r.fail(number, "%d columns, more than %d", len(fields), maxColumns)
		}
		for i, f := range fields {
			fields[i] = strings.TrimSpace(f)
			if err := r.check(fields[i]); err != nil {
				return r.fail(number, "column %d: %w", i+1, err)
			}
			if slices.Contains(fields[:i], fields[i]) {
				return r.fail(number, "duplicate column %q", fields[i])
			}
		}
		r.Columns = fields
		return nil
	}
	if len(fields) != len(r.Columns) {
		return r.fail(number, "%s, expected %d: %s", count(len(fields), "field"), len(r.Columns), strings.Join(r.Columns, ", "))
	}
	return r.row(number, fields)
}

func (r *reading) row(number int, fields []string) error {
	if len(r.Rows) == r.limit {
		return r.fail(number, "more than %d rows", r.limit)
	}
	for i, f := range fields {
		if strings.IndexByte(f, 0) >= 0 {
			return r.fail(number, "column %s: the value has a zero byte", r.Columns[i])
		}
	}
	r.Rows = append(r.Rows, fields)
	return nil
}

func (r *reading) csv() error {
	in := csv.NewReader(r.counted)
	in.FieldsPerRecord = -1
	for {
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if bad := (*csv.ParseError)(nil); errors.As(err, &bad) {
			return r.fail(bad.Line, "%w", bad.Err)
		} else if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		if len(fields) > 1 && strings.TrimSpace(strings.Join(fields, "")) == "" {
			continue // as spreadsheets end their files, and as a blank line in TSV
		}
		number, _ := in.FieldPos(0)
		for _, f := range fields {
			if !utf8.ValidString(f) {
				return r.fail(number, "not UTF-8")
			}
		}
		if err := r.add(number, fields); err != nil {
			return err
		}
	}
}

// object reads a line of JSON: an object whose values are texts, numbers and booleans. The
// first one says what the columns are.
func (r *reading) object(number int, line string) error {
	d := json.NewDecoder(strings.NewReader(line))
	d.UseNumber()
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return r.fail(number, "not a JSON object")
	}
	values := map[string]string{}
	var names []string
	for d.More() {
		key, err := d.Token()
		name, ok := key.(string)
		if err != nil || !ok {
			return r.fail(number, "invalid JSON: %w", broken(err))
		}
		value, err := d.Token()
		if err != nil {
			return r.fail(number, "invalid JSON: %w", broken(err))
		}
		if _, twice := values[name]; twice {
			return r.fail(number, "%q is given twice", name)
		}
		switch v := value.(type) {
		case string:
			values[name] = v
		case json.Number:
			values[name] = v.String()
		case bool:
			values[name] = fmt.Sprint(v)
		default:
			return r.fail(number, "parameter %q: expected a string, a number, true or false", name)
		}
		names = append(names, name)
	}
	if _, err := d.Token(); err != nil {
		return r.fail(number, "invalid JSON: %w", broken(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r.fail(number, "something follows the object")
	}
	if r.Columns == nil {
		if len(names) == 0 {
			return r.fail(number, "the object is empty")
		}
		if err := r.add(number, names); err != nil {
			return err
		}
	}
	fields := make([]string, len(r.Columns))
	for i, c := range r.Columns {
		v, ok := values[c]
		if !ok {
			return r.fail(number, "%q is missing", c)
		}
		fields[i] = v
		delete(values, c)
	}
	for name := range values {
		return r.fail(number, "%q is not in the first line, which has %s", name, strings.Join(r.Columns, ", "))
	}
	return r.row(number, fields)
}

// broken is an error of a JSON decoder; none, and the end, mean that the line is cut off.
func broken(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Lists reads lists of values: words such as "lr=0.1" of the same name are the values of a
// column of that name; the values of any other list belong to a column that is called by
// the number of the list, from "1".
func Lists(lists [][]string, check func(column string) error) ([]Table, error) {
	var tables []Table
	for n, words := range lists {
		if len(words) == 0 {
			return nil, fmt.Errorf("list %d has no values", n+1)
		}
		t := Table{Columns: []string{fmt.Sprint(n + 1)}}
		name, _, named := strings.Cut(words[0], "=")
		if named = named && check(name) == nil; named {
			t.Columns[0] = name
		}
		for _, w := range words {
			if strings.IndexByte(w, 0) >= 0 || !utf8.ValidString(w) {
				return nil, fmt.Errorf("list %d: invalid value %q: expected UTF-8 without NUL", n+1, w)
			}
			if named {
				value, ok := strings.CutPrefix(w, name+"=")
				if !ok {
					return nil, fmt.Errorf("list %d: %q does not begin with %q, as the values before it", n+1, w, name+"=")
				}
				w = value
			}
			t.Rows = append(t.Rows, []string{w})
		}
		tables = append(tables, t)
	}
	return tables, nil
}

// Product is all combinations of the rows of tables, the last one changing fastest; at
// most limit.
func Product(tables []Table, limit int) (Table, error) {
	all := Table{Rows: [][]string{nil}}
	for _, t := range tables {
		for _, c := range t.Columns {
			if slices.Contains(all.Columns, c) {
				return Table{}, fmt.Errorf("duplicate column %q", c)
			}
		}
		if len(all.Rows)*len(t.Rows) > limit {
			return Table{}, fmt.Errorf("more than %d combinations", limit)
		}
		all.Columns = append(all.Columns, t.Columns...)
		next := make([][]string, 0, len(all.Rows)*len(t.Rows))
		for _, before := range all.Rows {
			for _, row := range t.Rows {
				next = append(next, append(slices.Clip(slices.Clone(before)), row...))
			}
		}
		all.Rows = next
	}
	return all, nil
}
