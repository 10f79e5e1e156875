package sweep

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/spelling"
)

// Template is a word with placeholders: {NAME} is the value of a column, {{ and }} around
// a name are braces of the word itself. Braces around anything else stay as they are.
type Template struct {
	segments []part
}

// part is a text, or the column whose value takes its place.
type part struct {
	text   string
	column int // -1: text
}

// Parse reads a template for the columns of a table. A placeholder of another name is an
// error.
func Parse(word string, columns []string, check func(column string) error) (Template, error) {
	var t Template
	text := func(s string) {
		if n := len(t.segments); n > 0 && t.segments[n-1].column < 0 {
			t.segments[n-1].text += s
		} else if s != "" {
			t.segments = append(t.segments, part{s, -1})
		}
	}
	for rest := word; ; {
		i := strings.IndexByte(rest, '{')
		if i < 0 {
			text(rest)
			return t, nil
		}
		text(rest[:i])
		rest = rest[i:]
		doubled := strings.HasPrefix(rest, "{{")
		begin, closing := 1, "}"
		if doubled {
			begin, closing = 2, "}}"
		}
		name, after, closed := strings.Cut(rest[begin:], closing)
		if !closed || check(name) != nil {
			text(rest[:1])
			rest = rest[1:]
			continue
		}
		rest = after
		if doubled {
			text("{" + name + "}")
			continue
		}
		column := slices.Index(columns, name)
		if column < 0 {
			if near := spelling.Nearest(name, columns); near != "" {
				return t, fmt.Errorf("unknown column {%s}; did you mean {%s}?", name, near)
			}
			return t, fmt.Errorf("unknown column {%s}; the columns are %s", name, strings.Join(columns, ", "))
		}
		t.segments = append(t.segments, part{column: column})
	}
}

// Fill puts the values of a row into the template.
func (t Template) Fill(row []string) string {
	if len(t.segments) == 1 && t.segments[0].column < 0 {
		return t.segments[0].text
	}
	var s strings.Builder
	for _, p := range t.segments {
		if p.column < 0 {
			s.WriteString(p.text)
		} else {
			s.WriteString(row[p.column])
		}
	}
	return s.String()
}

// Uses reports whether the template has a placeholder for a column.
func (t Template) Uses(column int) bool {
	return slices.ContainsFunc(t.segments, func(p part) bool { return p.column == column })
}
