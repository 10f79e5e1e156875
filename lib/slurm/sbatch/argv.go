package sbatch

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Line is a command line of sbatch, without the name of the program.
type Line struct {
	Jobs    []Options // one, or the components of a heterogeneous job
	Command []string  // the script and its arguments; empty: it has none
}

// Argv reads the arguments of sbatch as sbatch does: long options may be shortened while they are not
// ambiguous, short ones may stand together, and ":" separates the components of a heterogeneous job. Own
// options of a program stand among them. Any other is taken for one of a plugin, with its value joined by "=".
func Argv(args []string, own ...Definition) (Line, error) {
	var l Line
	for {
		options, rest, err := component(args, own)
		l.Jobs = append(l.Jobs, options)
		if err != nil || len(rest) == 0 || rest[0] != ":" {
			l.Command = rest
			return l, err
		}
		args = rest[1:]
	}
}

// component reads the options at the beginning of arguments, and returns what follows them.
func component(args []string, own []Definition) (options Options, rest []string, err error) {
	for len(args) > 0 {
		word := args[0]
		if word == "--" {
			return options, args[1:], nil
		}
		if len(word) < 2 || word[0] != '-' {
			return options, args, nil
		}
		found, used, err := at(args, own)
		if err != nil {
			return options, args, err
		}
		for _, o := range found {
			options = options.last(o)
		}
		args = args[used:]
	}
	return options, nil, nil
}

// last adds an option, whose last value counts in a command line.
func (o Options) last(l Option) Options {
	return append(slices.DeleteFunc(o, func(e Option) bool { return e.Name == l.Name }), l)
}

// at reads the options of the first argument, the last of which may have its value in the second one.
func at(args []string, own []Definition) (found []Option, used int, err error) {
	word := args[0]
	if long, ok := strings.CutPrefix(word, "--"); ok {
		name, value, joined := strings.Cut(long, "=")
		d, err := full(name, own)
		switch {
		case err != nil:
			return nil, 0, err
		case joined && d.Form == Flag:
			return nil, 0, fmt.Errorf("option --%s takes no value", d.Name)
		case joined || d.Form == Flag || d.Optional:
			return []Option{{Name: d.Name, Value: value}}, 1, nil
		case len(args) < 2:
			return nil, 0, fmt.Errorf("option --%s lacks a value", d.Name)
		}
		return []Option{{Name: d.Name, Value: args[1]}}, 2, nil
	}
	for i := 1; i < len(word); i++ {
		d := shorts[word[i]]
		switch {
		case d == nil:
			return nil, 0, fmt.Errorf("-%c is not an option of sbatch", word[i])
		case d.Form == Flag:
			found = append(found, Option{Name: d.Name})
			continue
		case i+1 < len(word) || d.Optional:
			return append(found, Option{Name: d.Name, Value: word[i+1:]}), 1, nil
		case len(args) < 2:
			return nil, 0, fmt.Errorf("option -%c lacks a value", word[i])
		}
		return append(found, Option{Name: d.Name, Value: args[1]}), 2, nil
	}
	return found, 1, nil
}

// full returns the option of a long name or of the beginning of one.
func full(name string, own []Definition) (*Definition, error) {
	if i := slices.IndexFunc(own, func(d Definition) bool { return d.Name == name }); i >= 0 {
		return &own[i], nil
	}
	if d := byName[name]; d != nil {
		return d, nil
	}
	var found *Definition
	for long, d := range byName {
		if strings.HasPrefix(long, name) {
			if found != nil && found != d {
				err := fmt.Errorf("option --%s is ambiguous", name)
				if meant := Meant(name); meant != "" {
					err = fmt.Errorf("%w; did you mean --%s?", err, meant)
				}
				return nil, err
			}
			found = d
		}
	}
	if found == nil {
		found = &Definition{Name: name, Form: Text, Optional: true}
	}
	return found, nil
}

// Environ reads the options that sbatch takes from variables of its environment: they come after those of a script, and
// before those of the command line.
func Environ(lookup func(string) (string, bool)) (options Options) {
	for i := range table {
		d := &table[i]
		value, given := "", false
		if d.Variable != "" {
			value, given = lookup(d.Variable)
		}
		switch {
		case !given, value == "" && d.Form != Flag && !d.Optional:
			continue
		case d.Form == Flag:
			value = ""
		}
		options = append(options, Option{Name: d.Name, Value: value})
	}
	return options
}

const (
	directive = "#SBATCH"
	older     = "#SLURM"
)

// Script reads the options in the lines of a batch script as sbatch does: lines that begin with
// #SBATCH, up to the first command. A line "#SBATCH hetjob" begins the next component of a heterogeneous job.
func Script(text string) ([]Options, error) {
	jobs := [][]string{nil}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSuffix(line, "\n")
		rest, ok := strings.CutPrefix(line, directive)
		if !ok {
			rest, ok = strings.CutPrefix(line, older)
		}
		if !ok {
			if text := strings.TrimLeft(line, space); text != "" && text[0] != '#' {
				break
			}
			continue
		}
		words, err := Words(rest)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if len(words) > 0 && separates(rest) {
			jobs, words = append(jobs, nil), words[1:]
		}
		jobs[len(jobs)-1] = append(jobs[len(jobs)-1], words...)
	}
	var all []Options
	for _, words := range jobs {
		options, rest, err := component(words, nil)
		if err == nil && len(rest) > 0 {
			err = fmt.Errorf("%q in %s is not an option", rest[0], directive)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, options)
	}
	return all, nil
}

// Late is the number of the first line of a batch script that begins with #SBATCH, and that sbatch does not read, as a command is before
// it; 0: there is none.
func Late(text string) int {
	number, commands := 0, false
	for line := range strings.Lines(text) {
		number++
		switch text := strings.TrimLeft(line, space); {
		case commands && strings.HasPrefix(line, directive):
			return number
		case text != "" && text[0] != '#':
			commands = true
		}
	}
	return 0
}

// space is what separates words in lines of a script.
const space = " \t\n\v\f\r"

// separates reports whether a line begins the next component of a heterogeneous job.
func separates(line string) bool {
	words := strings.Fields(line)
	return len(words) > 0 && (strings.EqualFold(words[0], "hetjob") || strings.EqualFold(words[0], "packjob"))
}

// Words splits what follows #SBATCH, or options in one text, into words: quotes group, a backslash quotes the next character. "#"
// ends the line, also within a word, and so do quotes with nothing in them.
func Words(line string) (words []string, err error) {
	var b strings.Builder
	var quote byte
	begun := false // a word, perhaps of quotes alone
	for i := 0; i < len(line); i++ {
		c := line[i]
		blank := strings.IndexByte(space, c) >= 0
		switch {
		case !begun && c == ':':
			return nil, errors.New("unexpected ':'")
		case c == '\\':
			if begun = true; i+1 < len(line) && (quote != 0 || line[i+1] == ' ' || strings.IndexByte(space, line[i+1]) < 0) {
				i++
				b.WriteByte(line[i])
			}
		case c == quote && quote != 0:
			quote = 0
		case quote == 0 && (c == '"' || c == '\''):
			quote, begun = c, true
		case quote == 0 && c == '#', quote == 0 && blank && begun && b.Len() == 0:
			line = line[:i]
		case quote == 0 && blank:
			if begun {
				words = append(words, b.String())
			}
			b.Reset()
			begun = false
		default:
			b.WriteByte(c)
			begun = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("unmatched %c", quote)
	}
	if b.Len() > 0 {
		words = append(words, b.String())
	}
	return words, nil
}
