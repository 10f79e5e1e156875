package input

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// Source is where arguments come from: words of the command line, or lines of a file.
type Source struct {
	Mark   string   // how it was named: ":::", "::::" or "--arg-file"
	Args   []string // unless it is a file
	File   string   // "-" is standard input
	IsFile bool
	Link   bool // its arguments go with those of the source before it, one with one
}

// Split takes the words of a command line apart: a template, and behind ":::" and the
// like the sources of its arguments.
func Split(words []string) (template []string, sources []Source, err error) {
	first := slices.IndexFunc(words, isMark)
	if first < 0 {
		return words, nil, nil
	}
	for _, w := range words[first:] {
		n := len(sources)
		switch {
		case isMark(w):
			colons := strings.TrimSuffix(w, "+")
			if len(colons) > 4 {
				return nil, nil, fault.Hint(fault.Errorf(fault.Usage, "unknown separator %q", w), `use ":::", ":::+", "::::" or "::::+"`)
			}
			if n > 0 && sources[n-1].IsFile && sources[n-1].File == "" {
				return nil, nil, noFile(sources[n-1].Mark)
			}
			sources = append(sources, Source{Mark: w, IsFile: colons == "::::", Link: colons != w})
		case sources[n-1].IsFile && w == "":
			return nil, nil, noFile(sources[n-1].Mark)
		case !sources[n-1].IsFile:
			sources[n-1].Args = append(sources[n-1].Args, w)
		case sources[n-1].File == "":
			sources[n-1].File = w
		default: // each file is a source of its own
			sources = append(sources, Source{Mark: sources[n-1].Mark, IsFile: true, File: w, Link: sources[n-1].Link})
		}
	}
	if last := sources[len(sources)-1]; last.IsFile && last.File == "" {
		return nil, nil, noFile(last.Mark)
	}
	return words[:first], sources, nil
}

func noFile(mark string) error {
	return fault.Errorf(fault.Usage, "%s: file name is missing", mark)
}

// isMark reports a word that is three colons or more, with or without a plus.
func isMark(w string) bool {
	colons := strings.TrimSuffix(w, "+")
	return len(colons) >= 3 && strings.Trim(colons, ":") == ""
}

// records reads lines, or what other byte ends.
type records struct {
	r    *bufio.Reader
	name string
	end  byte
	crlf bool // lines may end with both
	line int64
}

// newRecords reads what o says ends a record.
func newRecords(r io.Reader, name string, o *Options) *records {
	in := &records{r: bufio.NewReaderSize(r, 64<<10), name: name, end: '\n', crlf: true}
	if o.Null {
		in.end, in.crlf = 0, false
	} else if o.Delimiter != "" {
		in.end, in.crlf = o.Delimiter[0], false
	}
	return in
}

// byteOrderMark is what editors and spreadsheets begin a text with that also end lines with CR LF.
const byteOrderMark = "\ufeff"

// text is the next record without the rest of the end of a line, and without a byte order mark.
func (in *records) text() (string, error) {
	s, err := in.next()
	if in.crlf {
		s = strings.TrimSuffix(s, "\r")
		if in.line == 1 {
			s = strings.TrimPrefix(s, byteOrderMark)
		}
	}
	return s, err
}

// errLong is a record over maxLine.
type errLong struct{ begin string }

func (errLong) Error() string { return "task is longer than 1 MiB" }

// next returns the next record; io.EOF at the end. After errLong it can be called
// again.
func (in *records) next() (string, error) {
	in.line++
	var long []byte
	for {
		b, err := in.r.ReadSlice(in.end)
		switch {
		case err == nil && long == nil:
			return string(b[:len(b)-1]), nil
		case len(long)+len(b) > maxLine:
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = in.r.ReadSlice(in.end)
			}
			return "", errLong{string(long[:80])}
		case err == nil:
			return string(append(long, b[:len(b)-1]...)), nil
		case errors.Is(err, bufio.ErrBufferFull):
			long = append(long, b...)
		case errors.Is(err, io.EOF) && len(long)+len(b) > 0:
			return string(append(long, b...)), nil
		case errors.Is(err, io.EOF):
			return "", io.EOF
		default:
			return "", fmt.Errorf("%s: %w", in.name, err)
		}
	}
}

// ready reports whether the next record can be read without waiting.
func (in *records) ready() bool {
	b, _ := in.r.Peek(in.r.Buffered())
	return bytes.IndexByte(b, in.end) >= 0
}

// where is the place of the last record, for messages.
func (in *records) where() string { return fmt.Sprintf("%s:%d", in.name, in.line) }

// columns makes rows of records: the arguments that go together.
type columns struct {
	next  func() (string, error)
	split *regexp.Regexp // nil: one column
	comma rune           // of a table; 0: it is none
	last  *string        // a record that ends the source
	trim  string         // "", "l", "r" or "lr"
	skip  bool           // blank records
}

func (c *columns) row() ([]string, error) {
	for {
		text, err := c.next()
		if err != nil {
			return nil, err
		}
		if c.last != nil && text == *c.last {
			c.next = func() (string, error) { return "", io.EOF }
			continue
		}
		if c.skip && strings.TrimSpace(text) == "" {
			continue
		}
		fields := []string{text}
		if c.comma != 0 {
			if fields, err = c.table(text); err != nil {
				return nil, err
			}
		}
		if c.split != nil {
			fields = c.split.Split(text, -1)
		}
		if c.trim != "" {
			for i, f := range fields {
				if strings.Contains(c.trim, "l") {
					f = strings.TrimLeft(f, " \t\n\r")
				}
				if strings.Contains(c.trim, "r") {
					f = strings.TrimRight(f, " \t\n\r")
				}
				fields[i] = f
			}
		}
		return fields, nil
	}
}

// table is a row of a table, of which the first line is text: a field in quotes may have more.
func (c *columns) table(text string) ([]string, error) {
	for strings.Count(text, `"`)%2 > 0 {
		more, err := c.next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("--csv: a quote is not closed: %.80q", text)
		}
		if err != nil {
			return nil, err
		}
		if text += "\n" + more; len(text) > maxLine {
			return nil, errLong{text[:80]}
		}
	}
	r := csv.NewReader(strings.NewReader(text))
	r.Comma = c.comma
	fields, err := r.Read()
	if errors.Is(err, io.EOF) {
		return []string{""}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("--csv: %.80q: %w", text, errors.Unwrap(err))
	}
	return fields, nil
}

// dim is a dimension of the combinations: sources that are linked.
type dim struct {
	lists [][][]string // of each source, its rows
	rows  int
}

// combinations are all combinations of some dimensions, the last changing fastest. The first may be
// read as a stream.
type combinations struct {
	stream *columns // the first dimension; nil: all are in dims
	row    []string // of the stream
	dims   []dim
	at     []int // nil: the next row of the stream is due
	over   bool
}

func newCombinations(stream *columns, dims []dim) *combinations {
	c := &combinations{stream: stream, dims: dims}
	c.over = slices.ContainsFunc(dims, func(d dim) bool { return d.rows == 0 })
	if stream == nil {
		c.at = make([]int, len(dims))
	}
	return c
}

func (c *combinations) next() ([]string, error) {
	if c.over {
		return nil, io.EOF
	}
	if c.at == nil {
		row, err := c.stream.row()
		if err != nil || len(c.dims) == 0 {
			return row, err
		}
		c.row, c.at = row, make([]int, len(c.dims))
	}
	fields := make([]string, 0, len(c.row)+len(c.dims))
	fields = append(fields, c.row...)
	for i, d := range c.dims {
		for _, list := range d.lists {
			fields = append(fields, list[c.at[i]%len(list)]...)
		}
	}
	for i := len(c.at) - 1; i >= 0; i-- {
		if c.at[i]++; c.at[i] < c.dims[i].rows {
			return fields, nil
		}
		c.at[i] = 0
	}
	c.at = nil
	c.over = c.stream == nil
	return fields, nil
}

// sources is what Open makes of a list of sources.
type sources struct {
	rows  *combinations
	lines *records // of the source that is read while it goes; nil: none is
	names []string // of the columns, with --header
	count int      // of arguments in a row; 0: not known before it is read
}

// open reads all sources except a file that is the only first source: it may never end.
func open(stdin io.Reader, list []Source, o *Options, split *regexp.Regexp) (*sources, error) {
	out := &sources{}
	var dims []dim
	var stream *columns
	onlyOne := 0
	for _, s := range list {
		if s.IsFile && s.File == "-" {
			onlyOne++
		}
	}
	if onlyOne > 1 {
		return nil, fault.Errorf(fault.Usage, "standard input can be one source of arguments only")
	}
	comma := rune(0)
	if o.CSV {
		comma = ','
		if o.Columns != "" {
			var err error
			if comma, err = separator(o.Columns); err != nil {
				return nil, err
			}
		}
	}
	for i, s := range list {
		cols := &columns{split: split, last: o.EOF, trim: o.Trim, skip: o.SkipBlank, comma: comma}
		var lines *records
		var file *os.File
		if s.IsFile {
			r, name := stdin, "standard input"
			if s.File != "-" {
				var err error
				if file, err = os.Open(s.File); err != nil {
					return nil, fault.Errorf(fault.Usage, "%s: %w", s.Mark, err)
				}
				r, name = file, s.File
			}
			lines = newRecords(r, name, o)
			cols.next = lines.text
		} else {
			args := s.Args
			cols.next = func() (string, error) {
				if len(args) == 0 {
					return "", io.EOF
				}
				a := args[0]
				args = args[1:]
				return a, nil
			}
		}
		if o.Header {
			names, err := cols.row()
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, fault.Wrap(fault.Usage, err)
			}
			out.names = append(out.names, names...)
		}
		if i == 0 && s.Link {
			return nil, fault.Errorf(fault.Usage, "%s: no source before it to link to", s.Mark)
		}
		linked := i > 0 && (s.Link || o.Link)
		next := i+1 < len(list) && (list[i+1].Link || o.Link)
		if i == 0 && s.IsFile && !next {
			stream, out.lines = cols, lines
			continue
		}
		rows, err := all(cols, lines)
		if err != nil {
			return nil, fault.Wrap(fault.Usage, err)
		}
		if file != nil {
			file.Close()
		}
		if !linked {
			dims = append(dims, dim{lists: [][][]string{rows}, rows: len(rows)})
			continue
		}
		d := &dims[len(dims)-1]
		d.lists = append(d.lists, rows)
		switch {
		case len(rows) == 0 || d.rows == 0:
			d.rows = 0
		case o.Link: // the shorter ones begin again
			d.rows = max(d.rows, len(rows))
		default:
			d.rows = min(d.rows, len(rows))
		}
	}
	if split == nil && comma == 0 {
		out.count = len(list)
	}
	out.rows = newCombinations(stream, dims)
	return out, nil
}

// separator is the character that separates the columns of a table.
func separator(text string) (rune, error) {
	r := []rune(strings.ReplaceAll(text, `\t`, "\t"))
	if len(r) != 1 || strings.ContainsRune("\"\r\n\ufeff\ufffd", r[0]) {
		return 0, fault.Errorf(fault.Usage, "--colsep: %q: with --csv, one character is expected", text)
	}
	return r[0], nil
}

// all reads a source to its end.
func all(c *columns, lines *records) ([][]string, error) {
	var rows [][]string
	for {
		row, err := c.row()
		switch {
		case errors.Is(err, io.EOF):
			return rows, nil
		case errors.As(err, new(errLong)):
			return nil, fmt.Errorf("%s: %w", lines.where(), err)
		case err != nil:
			return nil, err
		}
		rows = append(rows, row)
	}
}
