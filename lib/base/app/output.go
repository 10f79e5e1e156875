package app

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/pkg/twwidth"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
	"golang.org/x/term"

	"github.com/ponos-tools/ponos/lib/base/spelling"
)

// Table is rows for people: left-aligned columns two blanks apart, the header in
// upper case. Control characters in cells do not reach the terminal.
type Table struct {
	Header []string
	Right  []int // columns that are aligned right: numbers
	// On a terminal that is too narrow, the last column goes on below itself, or is
	// cut if OneLine says so; the columns Drop are left out, the first of them first;
	// and the others are cut, but for those of Whole.
	Drop, Whole []string
	OneLine     bool
	// Each makes many rows, which follow those of Add, again each time. A row is valid until the next
	// one is made. It must make at least one; nil: there are none.
	Each iter.Seq[[]string]
	rows [][]string
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// Print writes the table, or nothing if it has no row.
func (t *Table) Print(w io.Writer) error {
	return t.PrintWithin(w, w)
}

// PrintWithin writes the table to w as Print would to a terminal, or to anything else.
func (t *Table) PrintWithin(w, terminal io.Writer) error {
	if len(t.rows) == 0 && t.Each == nil {
		return nil
	}
	if !IsTerminal(terminal) {
		return t.print(w)
	}
	return t.printWithin(w, Width(terminal))
}

// all are the rows, those of Each behind those of Add.
func (t *Table) all(yield func([]string) bool) {
	for _, row := range t.rows {
		if !yield(row) {
			return
		}
	}
	if t.Each != nil {
		t.Each(yield)
	}
}

// printWithin writes the table for a terminal.
func (t *Table) printWithin(w io.Writer, room int) error {
	fitted, dropped := t.fit(room)
	if err := fitted.print(w); err != nil || len(dropped) == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "columns hidden on this narrow terminal: %s\n", strings.Join(dropped, ", "))
	return err
}

// laidOut is how many rows tablewriter lays out, which takes time and memory for each. Those
// behind them are put into the columns that it has made.
const laidOut = 500

func (t *Table) print(w io.Writer) error {
	align := make([]tw.Align, len(t.Header))
	for i := range align {
		align[i] = tw.AlignLeft
	}
	for _, i := range t.Right {
		align[i] = tw.AlignRight
	}
	cell := tw.CellConfig{
		Formatting: tw.CellFormatting{AutoFormat: tw.Off, AutoWrap: tw.WrapNone},
		Alignment:  tw.CellAlignment{PerColumn: align},
		Padding:    tw.CellPadding{Global: tw.Padding{Right: "  ", Overwrite: true}},
	}
	var text strings.Builder
	table := tablewriter.NewTable(&text,
		tablewriter.WithConfig(tablewriter.Config{Header: cell, Row: cell}),
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders:  tw.BorderNone,
			Settings: tw.Settings{Separators: tw.SeparatorsNone, Lines: tw.LinesNone},
		})))
	header := make([]string, len(t.Header))
	widths := make([]int, len(t.Header))
	for i, h := range t.Header {
		header[i] = strings.ToUpper(h)
		widths[i] = columnsOf(header[i])
	}
	table.Header(header)
	var first [][]string
	for row := range t.all {
		if len(first) < laidOut {
			first = append(first, slices.Clone(row))
			continue
		}
		for i, c := range row {
			widths[i] = max(widths[i], columnsOf(Sanitize(c)))
		}
	}
	// A row that is as wide as what is behind the first rows comes before them, and is left out.
	widest := make([]string, len(widths))
	for i, n := range widths {
		widest[i] = strings.Repeat("m", n)
	}
	if err := table.Append(widest); err != nil {
		return err
	}
	for _, row := range first {
		clean := make([]string, len(row))
		for i, c := range row {
			clean[i] = Sanitize(c)
			widths[i] = max(widths[i], columnsOf(clean[i]))
		}
		if err := table.Append(clean); err != nil {
			return err
		}
	}
	if err := table.Render(); err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 64<<10)
	n := 0
	for line := range strings.Lines(text.String()) {
		if n++; n == 2 {
			continue
		}
		_, _ = out.WriteString(strings.TrimRight(line, " \n")) // Flush tells
		_ = out.WriteByte('\n')
	}
	var line []byte
	n = 0
	for row := range t.all {
		if n++; n <= laidOut {
			continue
		}
		line = line[:0]
		for i, c := range row {
			c = Sanitize(c)
			blanks := widths[i] - columnsOf(c)
			if align[i] != tw.AlignRight {
				line = append(line, c...)
			}
			for range blanks {
				line = append(line, ' ')
			}
			if align[i] == tw.AlignRight {
				line = append(line, c...)
			}
			line = append(line, "  "...)
		}
		_, _ = out.Write(append(bytes.TrimRight(line, " "), '\n'))
	}
	return out.Flush()
}

// columnsOf is how many columns of a terminal a text takes.
func columnsOf(s string) int {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return twwidth.Width(s)
		}
	}
	return len(s)
}

// PrintJSON writes v as an indented document.
func PrintJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// PrintJSONLine writes v as one line.
func PrintJSONLine(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// IsTerminal reports whether w (or a reader) is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Color reports whether to use colour on w: NO_COLOR, FORCE_COLOR, TERM=dumb and
// then whether it is a terminal decide.
func Color(w io.Writer) bool {
	switch {
	case os.Getenv("NO_COLOR") != "":
		return false
	case os.Getenv("FORCE_COLOR") != "":
		return true
	case os.Getenv("TERM") == "dumb":
		return false
	}
	return IsTerminal(w)
}

// Width is the number of columns of the terminal w, or 80.
func Width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
			return width
		}
	}
	return 80
}

// Height is the number of lines of the terminal w, or 24.
func Height(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if _, height, err := term.GetSize(int(f.Fd())); err == nil && height > 0 {
			return height
		}
	}
	return 24
}

// Sanitize takes out of s what would move the cursor or change the colours of a
// terminal: control characters become '?', a tab becomes a blank.
func Sanitize(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f }) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case r < ' ', r >= 0x7f && r < 0xa0:
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}

// Nearest returns the candidate that word most likely means, or "".
func Nearest(word string, candidates []string) string { return spelling.Nearest(word, candidates) }
