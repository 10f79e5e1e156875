package input

import (
	"errors"
	"fmt"
	"io"
	"strings"
)

// Group says how many arguments a task gets; the zero value: one row each.
type Group struct {
	Max    int  // rows; 0: no bound
	None   bool // a task for each row, of which it gets nothing
	Lines  int  // lines; one that ends with a blank continues in the next. 0: no bound
	Fill   bool // as many as a command line holds
	Chars  int  // and how long that may be; 0: MaxChars
	Spread int  // the last command lines are shared out evenly over so many slots
	// Context repeats words with {} in them for each argument.
	Context bool
}

// MaxChars is the length of a command line with Fill: Linux limits one argument of a program to 128
// KiB, and a command line for the shell is one argument.
const MaxChars = 128<<10 - 4096

// groups puts rows together.
type groups struct {
	Group
	rows *combinations
	tmpl *template

	held  [][]string // of the task that is being put together
	size  int
	lines int
	over  bool
	share int // rows of each of the last tasks
}

// next returns the arguments of the next task.
func (g *groups) next() ([]string, error) {
	for !g.over {
		row, err := g.rows.next()
		if errors.Is(err, io.EOF) {
			g.over = true
			break
		}
		if err != nil {
			return nil, err // what is held stays so
		}
		if g.None {
			return nil, nil
		}
		if g.Fill {
			n := g.tmpl.length(row)
			most := g.Chars
			if most == 0 {
				most = MaxChars
			}
			if g.tmpl.fixed+n > most {
				return nil, fmt.Errorf("argument %.80q... makes a command longer than %d bytes", strings.Join(row, " "), most)
			}
			if g.tmpl.fixed+g.size+n > most {
				full := g.take(len(g.held))
				g.held, g.size = append(g.held, row), n
				return full, nil
			}
			g.size += n
		}
		last := row[len(row)-1]
		more := g.Lines > 0 && last != strings.TrimRight(last, " \t")
		if more {
			row = append(append([]string{}, row[:len(row)-1]...), strings.TrimRight(last, " \t"))
		}
		g.held = append(g.held, row)
		if !more {
			g.lines++
		}
		if g.Max > 0 && len(g.held) == g.Max || g.Lines > 0 && g.lines == g.Lines {
			return g.take(len(g.held)), nil
		}
	}
	n := len(g.held)
	if n == 0 {
		return nil, io.EOF
	}
	if g.Fill && g.Spread > 1 && g.Max == 0 && g.Lines == 0 {
		if g.share == 0 {
			g.share = (n + g.Spread - 1) / g.Spread
		}
		n = min(n, g.share)
	}
	return g.take(n), nil
}

func (g *groups) take(n int) []string {
	var fields []string
	for _, row := range g.held[:n] {
		fields = append(fields, row...)
	}
	g.held, g.size, g.lines = g.held[n:], 0, 0
	return fields
}
