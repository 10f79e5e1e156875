package input

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/pool"
)

// maxLine limits one task in the input.
const maxLine = 1 << 20

// Options say how the input is read.
type Options struct {
	Name      string // for messages
	Null      bool   // tasks end with NUL, not newline
	Delimiter string // or with this byte, if it is not empty
	JSON      bool   // JSON lines
	Template  []string
	Columns   string // a regular expression that splits a line into {1}, {2}, …
	CSV       bool   // lines are of a table as in RFC 4180; Columns is what separates columns, a comma if it is empty
	Base      pool.Spec

	Header    bool    // the first record of each source names its columns
	Link      bool    // all sources are linked; the shorter ones begin again
	EOF       *string // a record that ends a source
	Trim      string  // blanks are cut off arguments: "l", "r", "lr"; "": none
	SkipBlank bool    // so are arguments that are blank
	Group     Group
	Mark      string // what stands for {}; "": {}
	Quote     bool   // operators of the shell in a template are arguments
	Plus      bool   // refuse what GNU parallel understands with --plus only
	Shell     bool   // words of a template are for the shell, too
	Results   string // a directory, or a template, of files for the output of each task
}

// Reader reads tasks.
type Reader struct {
	Options
	err     error
	lines   *records // nil: of no file
	rows    *combinations
	group   *groups // nil: each row is a task
	tmpl    *template
	results *results
	now     pool.Spec
	specs   interner
	seq     int64
	// Where a template has the number of all tasks: their arguments, of which those before seq were taken.
	rest []arguing
}

// arguing are the arguments of a task, or what is wrong with them.
type arguing struct {
	fields []string
	err    error
}

// NewReader reads tasks from r: commands, or with a template arguments. What is wrong
// with the options is the error of the first Next.
func NewReader(r io.Reader, o Options) *Reader {
	in, err := Open(r, nil, o)
	if err != nil {
		return &Reader{err: err}
	}
	return in
}

// Open reads tasks from sources of arguments; without any, from stdin. It fails if the
// options cannot be understood or a file cannot be opened.
func Open(stdin io.Reader, list []Source, o Options) (*Reader, error) {
	in := &Reader{Options: o, now: o.Base}
	if len(list) == 0 && (o.JSON || len(o.Template) == 0) {
		if in.lines = newRecords(stdin, o.Name, &o); in.lines.name == "" {
			in.lines.name = "standard input"
		}
		err := in.onlyLines()
		if err == nil && o.Results != "" {
			in.results, err = newLineResults(o.Results, o.JSON)
		}
		return in, err
	}
	var split *regexp.Regexp
	if o.Columns != "" && !o.CSV {
		if in.Trim == "" {
			in.Trim = "lr"
		}
		var err error
		if split, err = regexp.Compile(o.Columns); err != nil {
			return nil, fault.Errorf(fault.Usage, "--colsep: %w", err)
		}
		if split.MatchString("") {
			return nil, fault.Hint(
				fault.Errorf(fault.Usage, "--colsep: %q matches the empty string", o.Columns),
				`write \| for a vertical bar and [*] for an asterisk`)
		}
	}
	if len(list) == 0 {
		list = []Source{{Mark: "standard input", IsFile: true, File: "-"}}
	}
	src, err := open(stdin, list, &in.Options, split)
	if err != nil {
		return nil, err
	}
	if in.rows, in.lines = src.rows, src.lines; in.lines != nil && o.Name != "" {
		in.lines.name = o.Name
	}
	return in, in.templates(src)
}

// onlyLines refuses what needs arguments, as each line is a command.
func (in *Reader) onlyLines() error {
	for _, x := range []struct {
		flag string
		set  bool
	}{
		{"--colsep", in.Columns != ""}, {"--csv", in.CSV}, {"--eof", in.EOF != nil}, {"--trim", in.Trim != ""}, {"--link", in.Link},
		{"--header", in.Header}, {"--max-args and the like", in.Group != Group{}}, {"--replace", in.Mark != ""},
	} {
		if x.set {
			return fault.Errorf(fault.Usage, "%s: a command template is required", x.flag)
		}
	}
	return nil
}

// templates reads the templates, when the names of columns are known.
func (in *Reader) templates(src *sources) (err error) {
	s := syntax{names: src.names, mark: in.Mark, plus: in.Plus}
	words := in.Template
	if err := noOperators(words, in.Quote); err != nil {
		return err
	}
	if len(words) == 0 {
		words = []string{"{}"}
		if in.Mark != "" {
			words[0] = in.Mark
		}
	}
	if in.tmpl, err = newTemplate(words, s, in.Shell, true); err != nil {
		return err
	}
	all := [][]piece{}
	all = append(all, in.tmpl.words...)
	if in.Results != "" {
		if in.results, err = newResults(in.Results, s, src.names); err != nil {
			return err
		}
		if t := in.results.path; t != nil {
			all = append(all, t.words...)
		}
	}
	count := src.count
	if in.Group != (Group{}) {
		in.group = &groups{Group: in.Group, rows: in.rows, tmpl: in.tmpl}
		if count *= in.Group.Max; in.Group.None {
			count = 0
		}
		in.tmpl.short = true
		if in.results != nil && in.results.path != nil {
			in.results.path.short = true
		}
		if in.Group.Context {
			in.tmpl.contextual()
		}
	}
	return checkPositions(all, count)
}

// BadTask is an error in one task. The ones behind it can still be read.
type BadTask struct {
	Seq   int64
	Where string
	Text  string
	Err   error
}

func (e *BadTask) Error() string { return e.Where + ": " + e.Err.Error() }

func (e *BadTask) Unwrap() error { return e.Err }

// Next returns the next task; io.EOF at the end. After a *BadTask it can be called again; any other
// error is final.
func (in *Reader) Next() (*pool.Task, error) {
	switch {
	case in.err != nil:
		return nil, in.err
	case in.tmpl == nil:
		return in.nextLine()
	}
	return in.nextArguments()
}

// nextLine makes a task of a line of its own.
func (in *Reader) nextLine() (*pool.Task, error) {
	for {
		text, err := in.lines.text()
		if err != nil {
			return nil, in.tooLong(err)
		}
		trimmed := strings.TrimSpace(text)
		if trimmed == "" {
			continue
		}
		if in.lines.end == '\n' && strings.HasPrefix(trimmed, "#") {
			if rest, ok := strings.CutPrefix(trimmed, Directive); ok && (rest == "" || rest[0] == ' ' || rest[0] == '\t') {
				if in.now, err = directive(in.Base, in.now, rest); err != nil {
					return nil, fmt.Errorf("%s: %w", in.lines.where(), err)
				}
			}
			continue
		}
		in.seq++
		t, err := in.task(text)
		if err != nil {
			return nil, in.bad(text, err)
		}
		return t, nil
	}
}

// tooLong converts a read error into the error of one task, if a record is too long.
func (in *Reader) tooLong(err error) error {
	var long errLong
	if !errors.As(err, &long) {
		return err
	}
	in.seq++
	return in.bad(long.begin+"...", err)
}

// Ready reports whether the next task can be read without waiting.
func (in *Reader) Ready() bool {
	switch {
	case in.err != nil || in.lines == nil || in.tmpl != nil && in.rows.at != nil:
		return true
	case in.tmpl != nil && in.total():
		return in.rest != nil
	case in.group != nil:
		return false
	}
	return in.lines.ready()
}

func (in *Reader) bad(text string, err error) error {
	where := fmt.Sprintf("argument:%d", in.seq)
	if in.lines != nil {
		where = in.lines.where()
	}
	return &BadTask{Seq: in.seq, Where: where, Text: text, Err: err}
}

func (in *Reader) task(text string) (*pool.Task, error) {
	t, err := in.command(text)
	if err != nil || in.results == nil {
		return t, err
	}
	if t.Extra == nil {
		t.Extra = &pool.Extra{}
	}
	t.Extra.Files, err = in.results.claim([]string{cmp.Or(t.ID(), strconv.FormatInt(t.Seq, 10))}, t.Seq)
	return t, err
}

// command makes a task of a line.
func (in *Reader) command(text string) (*pool.Task, error) {
	if in.JSON {
		return in.fromJSON(text)
	}
	if strings.IndexByte(text, 0) >= 0 {
		return nil, errors.New("command has a NUL in it")
	}
	return &pool.Task{Seq: in.seq, Text: text, Spec: in.specs.get(in.now)}, nil
}

// nextArguments puts the next arguments into the template.
func (in *Reader) nextArguments() (*pool.Task, error) {
	for {
		fields, err := in.next()
		if err != nil {
			return nil, in.tooLong(err)
		}
		if in.tmpl.raw && in.lines != nil && strings.TrimSpace(strings.Join(fields, "")) == "" {
			continue // a line that is a command, and empty
		}
		in.seq++
		t, err := in.fill(fields)
		if err != nil {
			return nil, in.bad(strings.Join(fields, " "), err)
		}
		return t, nil
	}
}

// next are the arguments of the next task.
func (in *Reader) next() ([]string, error) {
	if !in.total() {
		return in.read()
	}
	for in.rest == nil || in.tmpl.tasks == 0 {
		fields, err := in.read()
		in.rest = append(in.rest, arguing{fields, err})
		if err != nil && !errors.As(err, new(errLong)) {
			in.tmpl.tasks = max(1, len(in.rest)-1)
		}
	}
	if in.results != nil && in.results.path != nil {
		in.results.path.tasks = in.tmpl.tasks
	}
	a := in.rest[0]
	if len(in.rest) > 1 { // the end is that of each further call
		in.rest = in.rest[1:]
	}
	return a.fields, a.err
}

// total reports whether the number of all tasks is to be known before the first one.
func (in *Reader) total() bool {
	return in.tmpl.total || in.results != nil && in.results.path != nil && in.results.path.total
}

func (in *Reader) read() ([]string, error) {
	if in.group != nil {
		return in.group.next()
	}
	return in.rows.next()
}

func (in *Reader) fill(fields []string) (*pool.Task, error) {
	text, argv, err := in.tmpl.fill(fields, in.seq)
	if err != nil {
		return nil, err
	}
	t := &pool.Task{Seq: in.seq, Text: text}
	if len(fields) == 1 {
		t.Tag = fields[0]
	} else {
		t.Tag = strings.Join(fields, " ")
	}
	if in.results != nil {
		files, err := in.results.claim(fields, in.seq)
		if err != nil {
			return nil, err
		}
		t.Extra = &pool.Extra{Files: files}
	}
	spec := in.now
	spec.Argv, spec.SlotMark = argv, in.tmpl.slot
	t.Spec = in.specs.get(spec)
	return t, nil
}
