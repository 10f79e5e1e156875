package captures

import (
	"fmt"
	"regexp"
	"strings"
)

// A query is what the arguments of a command ask for.
type query struct {
	columns []column
	states  []string // of the rows; nil: all
}

// A column is printed with what follows it, before the newline if it is the last one.
type column struct{ name, end string }

var letter = regexp.MustCompile(`%[A-Za-z]`)

// parseQuery reads the columns from --Format of squeue, from --format of percent signs, or from the format
// with names of the commands that have --parsable.
func parseQuery(command string, args []string) (query, error) {
	var q query
	delimiter, format, last := "|", "", "|"
	for _, arg := range args {
		name, value, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch name {
		case "format", "Format":
			format = value
		case "delimiter":
			delimiter, last = value, value
		case "parsable2":
			last = ""
		case "states":
			if value != "all" {
				q.states = strings.Split(value, ",")
			}
		}
	}
	switch {
	case strings.Contains(format, "%"):
		names, ends := letter.FindAllString(format, -1), letter.Split(format, -1)
		for i, name := range names {
			q.columns = append(q.columns, column{name, ends[i+1]})
		}
		if ends[0] != "" {
			return q, fmt.Errorf("%s: text before the first column: %q", command, format)
		}
	case command == "squeue": // NAME:SUFFIX,NAME:SUFFIX
		for part := range strings.SplitSeq(format, ",") {
			name, end, _ := strings.Cut(part, ":")
			q.columns = append(q.columns, column{name, end})
		}
	default:
		for name := range strings.SplitSeq(format, ",") {
			q.columns = append(q.columns, column{name, delimiter})
		}
		q.columns[len(q.columns)-1].end = last
	}
	for _, c := range q.columns {
		if c.name == "" {
			return q, fmt.Errorf("%s is asked for no columns: %q", command, args)
		}
	}
	return q, nil
}

// Delimited returns what a command of accounting prints of rows whose cells end with bars, for its arguments.
func Delimited(rows string, args ...string) string {
	for _, arg := range args {
		if mark, ok := strings.CutPrefix(arg, "--delimiter="); ok {
			return strings.ReplaceAll(rows, "|", mark)
		}
	}
	return rows
}
