package submit

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/ponos-tools/ponos/lib/agent/sweep"
	"github.com/ponos-tools/ponos/lib/base/app"
	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
	"github.com/ponos-tools/ponos/lib/task"
	"github.com/ponos-tools/ponos/lib/task/queue"
)

// listMark begins a list of values, in front of the command.
const listMark = ":::"

// combinations takes the lists of values off the command line.
func combinations(args []string) (lists [][]string, words []string, err error) {
	if len(args) == 0 || args[0] != listMark {
		return nil, args, nil
	}
	for i, arg := range args {
		switch arg {
		case listMark:
			lists = append(lists, nil)
		case "--":
			return lists, args[i+1:], nil
		default:
			if option, _, _ := strings.Cut(arg, "="); isOption(option) {
				return nil, nil, fault.Hint(fault.Errorf(fault.Usage, "%q: options come before the lists of values", arg),
					fmt.Sprintf("for the value %[1]s, name the list: NAME=%[1]s", arg))
			}
			lists[len(lists)-1] = append(lists[len(lists)-1], arg)
		}
	}
	return nil, nil, fault.Hint(
		fault.Errorf(fault.Usage, "no command follows the lists of values"),
		`put it after "--": ::: lr=0.1 lr=0.2 -- ./train --lr {lr}`)
}

// ranges are words that other tools take for several values.
var ranges = regexp.MustCompile(`^(-?\d+)(?:\.\.|-|:)(-?\d+)$`)

// oneValue are warnings about lists with one value that looks like several.
func oneValue(lists [][]string) (warnings []error) {
	for _, words := range lists {
		if len(words) != 1 {
			continue
		}
		name, value, named := strings.Cut(words[0], "=")
		if !named {
			name, value = "", words[0]
		} else {
			name += "="
		}
		inner := strings.TrimSuffix(strings.TrimPrefix(value, "{"), "}")
		hint := ""
		if ends := ranges.FindStringSubmatch(inner); ends != nil {
			hint = fmt.Sprintf("%s{%s..%s}, which bash expands", name, ends[1], ends[2])
		} else if parts := strings.Split(inner, ","); len(parts) > 1 && !slices.Contains(parts, "") {
			var each []string
			for _, part := range parts[:min(len(parts), 3)] {
				each = append(each, shell.Quote(name+part))
			}
			if hint = strings.Join(each, " "); len(parts) > 3 {
				hint += " ..."
			}
		} else {
			continue
		}
		warnings = append(warnings, fault.Hint(
			fmt.Errorf("warning: %s is one value", task.Clean(words[0])), "for a task for each, give "+task.Clean(hint)))
	}
	return warnings
}

// isOption reports whether a word is an option of this tool.
func isOption(word string) bool {
	name, ok := strings.CutPrefix(word, "--")
	return ok && slices.ContainsFunc(Flags(), func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
}

// parameters is the table that --each and lists of values make; nil: there is none.
func parameters(c *cli.Context, lists [][]string, stdin io.Reader) (*sweep.Table, error) {
	var all []sweep.Table
	if c.IsSet("each") {
		name := c.String("each")
		from := stdin
		if name != "-" {
			f, err := os.Open(name)
			if err != nil {
				return nil, fault.Errorf(fault.Usage, "--each: %w", err)
			}
			defer f.Close()
			from = f
		} else if app.IsTerminal(stdin) {
			return nil, fault.Errorf(fault.Usage, "--each -: standard input is a terminal")
		}
		table, err := sweep.Read(task.Clean(name), from, queue.MaxBatch, queue.CheckParameter)
		if err != nil {
			return nil, fault.Errorf(fault.Usage, "--each: %w", err)
		}
		all = append(all, table)
	}
	more, err := sweep.Lists(lists, queue.CheckParameter)
	if err != nil {
		return nil, fault.Errorf(fault.Usage, "%q: %w", listMark, err)
	}
	if all = append(all, more...); len(all) == 0 {
		return nil, nil
	}
	table, err := sweep.Product(all, queue.MaxBatch)
	if err != nil {
		return nil, fault.Wrap(fault.Usage, err)
	}
	return &table, nil
}

// shortName is how long the name may be that is made of all parameters.
const shortName = 60

// expand makes a task of each row of a table.
func expand(c *cli.Context, e queue.Entry, table sweep.Table, stderr io.Writer) ([]queue.Entry, error) {
	all, requests, unused, err := tasks(e, table, c.IsSet("name"))
	if err != nil {
		return nil, err
	}
	if len(unused) > 0 {
		app.Report(stderr, c.App.Name, fmt.Errorf("warning: the command does not use column %s", task.SomeOf(unused)))
	}
	return all, meet(c, requests)
}

// tasks are those that the rows of a table make of one with placeholders; named says that its name is
// the user's. Requests are theirs, each once, and unused the columns that neither command nor request has.
func tasks(e queue.Entry, table sweep.Table, named bool) (all []queue.Entry, requests []task.Request, unused []string, err error) {
	var words []sweep.Template
	for _, w := range e.Command {
		t, err := sweep.Parse(w, table.Columns, queue.CheckParameter)
		if err != nil {
			err = fault.Errorf(fault.Usage, "command: %w", err)
			return nil, nil, nil, fault.Hint(err, "to pass a word in braces to the command, double them: {{word}}")
		}
		words = append(words, t)
	}
	names, err := nameTemplate(e, table, named)
	if err != nil {
		return nil, nil, nil, err
	}
	needs, err := parseRequest(e.Request, table.Columns)
	if err != nil {
		return nil, nil, nil, err
	}
	used := append(needs.templates(), words...)
	for i, column := range table.Columns {
		if !slices.ContainsFunc(used, func(t sweep.Template) bool { return t.Uses(i) }) {
			unused = append(unused, column)
		}
	}
	if len(unused) == len(table.Columns) {
		return nil, nil, nil, fault.Hint(fault.Errorf(fault.Usage, "the command has no placeholder: all tasks would be the same"),
			fmt.Sprintf("put the value of a column into it, as in --%[1]s {%[1]s}", table.Columns[0]))
	}
	if e.Group == "" {
		if e.Group, err = NewGroup(e.Slug, e.Key); err != nil {
			return nil, nil, nil, err
		}
	}
	number := cmp.Or(placeholder.ReplaceAllString(e.Slug, ""), "task") // if the parameters make an invalid name
	all = make([]queue.Entry, len(table.Rows))
	seen := map[string]bool{}
	for n, row := range table.Rows {
		one := e
		one.Command = make([]string, len(words))
		for i, w := range words {
			one.Command[i] = w.Fill(row)
		}
		if err := oneWord(one.Command); err != nil {
			return nil, nil, nil, fault.Wrap(fault.KindOf(err), fmt.Errorf("row %d: %w", n+1, err))
		}
		one.Request = needs.fill(row)
		if key := strings.Join(append([]string{one.Request.Find}, one.Request.Sbatch...), "\n"); !seen[key] {
			seen[key] = true
			if err := checkRequest(one.Request); err != nil {
				return nil, nil, nil, fault.Wrap(fault.KindOf(err), fmt.Errorf("row %d: %w", n+1, err))
			}
			requests = append(requests, one.Request)
		}
		one.Parameters = make(map[string]string, len(row))
		for i, value := range row {
			one.Parameters[table.Columns[i]] = value
		}
		if err := queue.CheckParameters(one.Parameters); err != nil {
			return nil, nil, nil, fault.Errorf(fault.Usage, "row %d: %w", n+1, err)
		}
		one.Slug = names.Fill(row)
		if err := queue.CheckName(one.Slug); err != nil {
			if named {
				return nil, nil, nil, fault.Errorf(fault.Usage, "--name: row %d: %w", n+1, err)
			}
			one.Slug = ""
		}
		if !named && (one.Slug == "" || len(one.Slug) > shortName) {
			one.Slug = fmt.Sprintf("%s-%d", number, n+1)
		}
		all[n] = one
	}
	return all, requests, unused, nil
}

// nameTemplate is what the tasks are called: by default after their
// parameters, in characters that may be those of a directory.
func nameTemplate(e queue.Entry, table sweep.Table, named bool) (sweep.Template, error) {
	text := e.Slug
	if !named {
		var parts []string
		for _, column := range table.Columns {
			parts = append(parts, column+"-{"+column+"}")
		}
		text = strings.Join(parts, "_")
	}
	t, err := sweep.Parse(text, table.Columns, queue.CheckParameter)
	if err != nil {
		return t, fault.Errorf(fault.Usage, "--name: %w", err)
	}
	return t, nil
}

// placeholder is one in the name of a task.
var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// NewGroup is a name for the group of a sweep: that of its key, which is the same each
// time, or else one that is not there yet.
func NewGroup(slug, key string) (string, error) {
	if key != "" && queue.CheckGroup(key) == nil {
		return key, nil
	}
	var b [3]byte
	if key != "" {
		sum := sha256.Sum256([]byte(key))
		copy(b[:], sum[:])
	} else if _, err := rand.Read(b[:]); err != nil {
		return "", err
	}
	group := strings.Map(func(r rune) rune {
		if queue.CheckGroup("x"+string(r)) != nil {
			return '-'
		}
		return r
	}, placeholder.ReplaceAllString(slug, ""))
	group = strings.Trim(group, "-_.")
	group = strings.TrimRight(group[:min(len(group), 40)], "-_.")
	return strings.TrimPrefix(group+"-"+hex.EncodeToString(b[:]), "-"), nil
}
