package app

import (
	"io"
	"slices"
	"strings"

	"github.com/olekukonko/tablewriter/pkg/twwidth"

	"github.com/ponos-tools/ponos/lib/base/locale"
)

const (
	gap     = 2  // blanks between columns
	leastOf = 8  // the least width of a shortened column
	words   = 24 // the least width of a column of words
)

// fit fits a table to a terminal that is too narrow for it: the last column is wrapped, columns of
// Drop are omitted, and then the widest are shortened. It returns the omitted columns.
func (t *Table) fit(room int) (fitted Table, dropped []string) {
	fitted = Table{Header: slices.Clone(t.Header), Right: slices.Clone(t.Right), Whole: t.Whole, OneLine: t.OneLine}
	for row := range t.all {
		clean := make([]string, len(t.Header))
		for i := range min(len(row), len(clean)) {
			clean[i] = Sanitize(row[i])
		}
		fitted.rows = append(fitted.rows, clean)
	}
	last := func() int { return len(fitted.Header) - 1 }
	// What the last column needs at least: only words can be wrapped.
	need := func(widths []int) int {
		if w := widths[last()]; slices.Contains(fitted.Right, last()) || w < words {
			return w
		}
		return words
	}
	total := func(widths []int) (sum int) {
		for _, w := range widths[:last()] {
			sum += w + gap
		}
		return sum
	}
	for _, name := range t.Drop {
		if widths := fitted.widths(); total(widths)+need(widths) <= room {
			break
		}
		if i := slices.Index(fitted.Header, name); i >= 0 && (i != last() || slices.Contains(fitted.Right, i)) {
			fitted.remove(i)
			dropped = append(dropped, name)
		}
	}
	widths := fitted.widths()
	for total(widths)+need(widths) > room {
		widest := -1
		for i, w := range widths[:last()] {
			shrinks := w > max(leastOf, twwidth.Width(fitted.Header[i])) &&
				!slices.Contains(fitted.Right, i) && !slices.Contains(fitted.Whole, fitted.Header[i])
			if shrinks && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	fitted.shape(widths, max(room-total(widths), need(widths)))
	return fitted, dropped
}

// widths are those of the columns.
func (t *Table) widths() []int {
	widths := make([]int, len(t.Header))
	for _, row := range append([][]string{t.Header}, t.rows...) {
		for i, c := range row {
			widths[i] = max(widths[i], twwidth.Width(c))
		}
	}
	return widths
}

// remove removes a column.
func (t *Table) remove(column int) {
	t.Header = slices.Delete(t.Header, column, column+1)
	for i := range t.rows {
		t.rows[i] = slices.Delete(t.rows[i], column, column+1)
	}
	var right []int
	for _, r := range t.Right {
		switch {
		case r < column:
			right = append(right, r)
		case r > column:
			right = append(right, r-1)
		}
	}
	t.Right = right
}

// shape shortens cells to the widths, and wraps those of the last column.
func (t *Table) shape(widths []int, room int) {
	var rows [][]string
	for _, row := range t.rows {
		end := len(row) - 1
		for i := range end {
			if twwidth.Width(row[i]) > widths[i] {
				row[i] = cut(row[i], widths[i])
			}
		}
		lines := breakWords(row[end], room)
		if t.OneLine || slices.Contains(t.Right, end) {
			lines = []string{cut(row[end], room)}
		}
		row[end] = lines[0]
		rows = append(rows, row)
		for _, line := range lines[1:] {
			more := make([]string, len(row))
			more[end] = line
			rows = append(rows, more)
		}
	}
	t.rows = rows
}

// cut shortens a cell, and marks that with an ellipsis.
func cut(s string, width int) string {
	if twwidth.Width(s) <= width {
		return s
	}
	var out strings.Builder
	used := 1 // the ellipsis
	for _, r := range s {
		if used += twwidth.Width(string(r)); used > width {
			break
		}
		out.WriteRune(r)
	}
	return out.String() + locale.Symbols("…")
}

// Rows returns the lines of a text, each cut to the width of a terminal.
func Rows(terminal io.Writer, text string) (rows []string) {
	width := Width(terminal)
	for line := range strings.Lines(text) {
		rows = append(rows, cut(strings.TrimSuffix(line, "\n"), width)+"\n")
	}
	return rows
}

// breakWords wraps a text between its words; a word that is too long is cut.
func breakWords(s string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(s) {
		switch {
		case line == "":
			line = word
		case twwidth.Width(line)+1+twwidth.Width(word) <= width:
			line += " " + word
		default:
			lines, line = append(lines, cut(line, width)), word
		}
	}
	return append(lines, cut(line, width))
}
