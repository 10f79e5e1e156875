package app

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/olekukonko/tablewriter/pkg/twwidth"

	"github.com/ponos-tools/ponos/lib/base/locale"
)

// Table is rows for people: columns two blanks apart, left-aligned but for those of Right. Control
// characters in cells do not reach the terminal.
//
// On a terminal that is too narrow, columns of Drop are left out, the first of them first, and columns
// of words are cut, but for those of Whole and the last one, whose text goes on below itself. A table
// that is still too wide has its cells below each other. Widths and cuts are those of tablewriter; the
// rows are laid out here, since tablewriter takes 50 µs for each.
type Table struct {
	Header             []string // names of the columns, as printed
	Right, Drop, Whole []string // names
	Omit               []string // names of columns that say nothing here
	OneLine            bool     // the last column is cut, too, and without Brief whole lines
	// Brief is what stands in the last column of a row where its text has no room. It may be nil.
	Brief func(row int) string
	// Paint puts colours around a text of the last column. It may be nil.
	Paint func(row int, text string) string

	rows [][]string
}

const (
	gap     = 2  // blanks between columns
	leastOf = 8  // the least width of a shortened column
	words   = 24 // the least width of a last column of words
)

// Add appends a row, which has a cell for each column. The caller may use the slice again.
func (t *Table) Add(cells ...string) {
	row := make([]string, len(t.Header))
	for i := range row {
		row[i] = Sanitize(cells[i])
	}
	t.rows = append(t.rows, row)
}

// Print writes the table, or nothing if it has no row.
func (t *Table) Print(w io.Writer) error { return t.PrintWithin(w, Room(w)) }

// PrintWithin is Print for a terminal of so many columns; 0: for anything else.
func (t *Table) PrintWithin(w io.Writer, room int) error {
	if len(t.rows) == 0 {
		return nil
	}
	l := layout{Table: t, room: room, out: bufio.NewWriterSize(w, 64<<10)}
	for i, name := range t.Header {
		if !slices.Contains(t.Omit, name) {
			l.columns = append(l.columns, i)
		}
		l.widths = append(l.widths, TextWidth(name))
		l.right = append(l.right, slices.Contains(t.Right, name))
	}
	for _, row := range t.rows {
		for i, c := range row {
			l.widths[i] = max(l.widths[i], TextWidth(c))
		}
	}
	hidden, fits := l.fit()
	l.cut = l.OneLine && l.Brief == nil && !fits
	write := l.block
	if fits || l.cut {
		write = l.row
		l.row(-1, t.Header)
	}
	for n, row := range t.rows {
		write(n, row)
	}
	if len(hidden) > 0 {
		names := strings.ToLower(strings.Join(hidden, ", "))
		note := fmt.Sprintf(`"| less -S" also shows: %s`, names)
		lines := []string{Cut(note, room)}
		if !l.cut {
			lines = breakWords(note, room)
		}
		for _, line := range lines {
			l.write(line)
		}
	}
	return l.out.Flush() // tells the errors of all writes
}

// layout is a table in the room that it has.
type layout struct {
	*Table
	room    int    // 0: any
	columns []int  // those that are shown
	widths  []int  // of all columns
	right   []bool // of all columns
	cut     bool   // whole lines are cut
	line    []byte
	out     *bufio.Writer
}

func (l *layout) last() int { return l.columns[len(l.columns)-1] }

// others is how wide the columns before the last one are.
func (l *layout) others() (sum int) {
	for _, i := range l.columns[:len(l.columns)-1] {
		sum += l.widths[i] + gap
	}
	return sum
}

// excess is by how much the table is too wide. Of the last column only words can be wrapped.
func (l *layout) excess() int {
	need := l.widths[l.last()]
	if !l.right[l.last()] {
		need = min(need, words)
	}
	return l.others() + need - l.room
}

// fit hides columns and makes others narrower, until all fit or nothing more can be done.
func (l *layout) fit() (hidden []string, fits bool) {
	if l.room == 0 {
		return nil, true
	}
	for _, name := range l.Drop {
		i := slices.Index(l.Header, name)
		if l.excess() > 0 && slices.Contains(l.columns, i) && (i != l.last() || l.right[i]) {
			l.columns, hidden = slices.DeleteFunc(l.columns, func(c int) bool { return c == i }), append(hidden, name)
		}
	}
	for l.excess() > 0 {
		widest := -1
		for _, i := range l.columns[:len(l.columns)-1] {
			shrinks := !l.right[i] && l.widths[i] > max(leastOf, TextWidth(l.Header[i])) && !slices.Contains(l.Whole, l.Header[i])
			if shrinks && (widest < 0 || l.widths[i] > l.widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			return hidden, false
		}
		l.widths[widest]--
	}
	l.widths[l.last()] = min(l.widths[l.last()], l.room-l.others())
	return hidden, true
}

// row writes a row; -1 is the header.
func (l *layout) row(n int, cells []string) {
	line, more := l.line[:0], []string(nil)
	for _, i := range l.columns {
		text, room := cells[i], l.widths[i]
		width := TextWidth(text)
		if width > room {
			if i == l.last() && n >= 0 {
				text, more = l.wrap(n, text, room)
			} else {
				text = Cut(text, room)
			}
			width = TextWidth(text)
		}
		blanks := strings.Repeat(" ", room-width)
		if l.right[i] {
			line = append(line, blanks...)
		}
		line = append(line, l.paint(n, text, i)...)
		if !l.right[i] {
			line = append(line, blanks...)
		}
		line = append(line, "  "...)
	}
	line = bytes.TrimRight(line, " ")
	if l.cut {
		line = append(line[:0], Cut(string(line), l.room)...)
	}
	l.line = append(line, '\n')
	_, _ = l.out.Write(l.line)
	for _, text := range more {
		l.write(strings.Repeat(" ", l.others()) + l.paint(n, text, l.last()))
	}
}

// wrap is the text of a last column that is too narrow for it, and what goes below.
func (l *layout) wrap(n int, text string, width int) (string, []string) {
	if l.Brief != nil {
		text = Sanitize(l.Brief(n))
	}
	if l.OneLine {
		return Cut(text, width), nil
	}
	lines := breakWords(text, width)
	return lines[0], lines[1:]
}

// block writes the first cell of a row, and below it the others with the names of their columns.
func (l *layout) block(n int, cells []string) {
	line := ""
	for k, i := range l.columns {
		text := strings.TrimSpace(cells[i])
		if i == l.last() && l.Brief != nil {
			text = Sanitize(l.Brief(n))
		}
		named := strings.TrimSpace(l.Header[i] + " " + l.paint(n, text, i))
		switch {
		case text == "":
			continue
		case k == 0 && (text[0] < '0' || text[0] > '9'): // but a number alone says nothing
			l.write(text)
			continue
		case k == 0:
			l.write(named)
			continue
		}
		for _, part := range breakWords(named, l.room-gap) {
			if line != "" && TextWidth(line)+gap+TextWidth(part) > l.room {
				l.write(line)
				line = ""
			}
			line += strings.Repeat(" ", gap) + part
		}
	}
	l.write(line)
}

// paint colours a text of a column.
func (l *layout) paint(n int, text string, column int) string {
	if l.Paint == nil || l.cut || text == "" || n < 0 || column != l.last() {
		return text
	}
	return l.Paint(n, text)
}

func (l *layout) write(line string) {
	_, _ = l.out.WriteString(line)
	_ = l.out.WriteByte('\n')
}

// TextWidth is how many columns of a terminal a text takes.
func TextWidth(s string) int {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf {
			return twwidth.Width(s)
		}
	}
	return len(s)
}

// Rows returns the lines of a text, each cut to the width of a terminal.
func Rows(terminal io.Writer, text string) (rows []string) {
	width := Width(terminal)
	for line := range strings.Lines(text) {
		rows = append(rows, Cut(strings.TrimSuffix(line, "\n"), width)+"\n")
	}
	return rows
}

// Cut shortens a text to a width on a terminal, and marks that with an ellipsis.
func Cut(s string, width int) string {
	if TextWidth(s) <= width {
		return s
	}
	return twwidth.Truncate(s, width, locale.Symbols("…"))
}

// Fill appends blanks to a text up to a width on a terminal.
func Fill(s string, width int) string { return s + strings.Repeat(" ", max(0, width-TextWidth(s))) }

// breakWords wraps a text that is too wide between its words; a word that is too wide is cut.
func breakWords(s string, width int) []string {
	if TextWidth(s) <= width {
		return []string{s}
	}
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		switch {
		case line == "":
			line = word
		case TextWidth(line)+1+TextWidth(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, Cut(line, width)), word
		}
	}
	return append(lines, Cut(line, width))
}
