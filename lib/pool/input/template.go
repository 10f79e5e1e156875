package input

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/fault"
	"github.com/ponos-tools/ponos/lib/base/shell"
)

// template is a command with places for arguments.
type template struct {
	words   [][]piece
	line    bool // for the shell: arguments are quoted
	raw     bool // a lone place: the argument is the command line
	plain   bool // not a command: nothing is quoted
	slot    bool // "{%}" is in it
	total   bool // "{##}" is
	tasks   int  // what that stands for
	context bool // words with a place for all arguments are repeated for each (-X)
	short   bool // a task may have fewer arguments than others
	fixed   int  // bytes besides arguments
	all     int  // places for all arguments
	buf     []byte
}

// forShell reports whether the first word of a template is unlikely to be the name of a program, as
// it contains whitespace or shell metacharacters. The whole template is then a command line for the
// shell.
func forShell(words []string) bool {
	return strings.ContainsAny(words[0], " \t\n|&;<>()$`")
}

// operators are words that separate commands of a shell, or redirect their streams.
var operators = []string{"|", "||", "&&", ">", ">>", "<", ";", "&"}

// noOperators refuses a template whose words only look like a command line of a shell: its operators would
// be arguments of the first command.
func noOperators(words []string, quoted bool) error {
	if quoted || len(words) == 0 || forShell(words) {
		return nil
	}
	i := slices.IndexFunc(words, func(w string) bool {
		return slices.Contains(operators, w) || strings.HasSuffix(w, ";") || strings.HasSuffix(w, "&")
	})
	if i < 0 {
		return nil
	}
	line := make([]string, len(words))
	for k, w := range words {
		body := strings.TrimRight(w, ";&")
		if line[k] = w; !slices.Contains(operators, w) && strings.ContainsAny(body, " \t\n'\"\\|&;<>()$`*?[~#") {
			line[k] = shell.Quote(body) + w[len(body):]
		}
	}
	return fault.Hint(
		fault.Errorf(fault.Usage, "%q is an operator of the shell, and would be an argument of %q", words[i], words[0]),
		fmt.Sprintf("write the command line as one word: %s; or take it as an argument with --quote", shell.Quote(strings.Join(line, " "))))
}

// newTemplate reads a template. It is a command line for the shell, or words that are
// run as they are. Without a place for an argument, that goes to the end with toEnd.
// With always, words are given to a shell, too, each quoted.
func newTemplate(words []string, s syntax, always, toEnd bool) (*template, error) {
	if err := perlCode(words); err != nil {
		return nil, err
	}
	t := &template{line: forShell(words)}
	if t.line {
		words = []string{strings.Join(words, " ")}
	}
	for _, w := range words {
		p, err := s.parse(w)
		if err != nil {
			return nil, err
		}
		t.words = append(t.words, p)
	}
	if !hasPlace(t.words) && toEnd {
		if t.line {
			t.words[0] = append(t.words[0], piece{text: " "}, piece{place: &place{edit: edits[""]}})
		} else {
			t.words = append(t.words, []piece{{place: &place{edit: edits[""]}}})
		}
	}
	t.raw = !t.line && len(t.words) == 1 && len(t.words[0]) == 1 && t.words[0][0].place != nil && t.words[0][0].place.kind == arguments
	if always && !t.line && !t.raw {
		t.quoteWords()
	}
	t.measure()
	return t, nil
}

// newText reads a template of something else than a command.
func newText(text string, s syntax) (*template, error) {
	if err := perlCode([]string{text}); err != nil {
		return nil, err
	}
	p, err := s.parse(text)
	t := &template{words: [][]piece{p}, plain: true}
	t.measure()
	return t, err
}

// quoteWords makes a command line of words.
func (t *template) quoteWords() {
	var line []piece
	for i, w := range t.words {
		if i > 0 {
			line = append(line, piece{text: " "})
		}
		if len(w) == 0 {
			line = append(line, piece{text: "''"})
		}
		for _, p := range w {
			if p.place == nil {
				p.text = shell.QuoteAnywhere(p.text)
			}
			line = append(line, p)
		}
	}
	t.words, t.line = [][]piece{line}, true
}

func (t *template) measure() {
	for _, w := range t.words {
		if len(w) == 0 || slices.ContainsFunc(w, func(p piece) bool { return p.place == nil }) {
			t.fixed++ // what separates it from the next; that of arguments counts with them
		}
		for i, p := range w {
			switch {
			case p.place == nil:
				t.fixed += len(p.text)
			case p.place.kind == slot:
				t.slot = true
			case p.place.kind == total:
				t.total = true
			case p.place.kind == arguments && p.place.pos == 0:
				t.all++
			}
			if p.place != nil && p.place.edit == nil {
				w[i].place.edit = edits[""]
			}
		}
	}
}

// contextual has words with a place for all arguments repeated for each of them.
func (t *template) contextual() {
	t.context = true
	if !t.line {
		return
	}
	// The words of a command line are what is between blanks.
	var words [][]piece
	var word []piece
	for _, p := range t.words[0] {
		for p.place == nil {
			at := strings.IndexByte(p.text, ' ')
			if at < 0 {
				break
			}
			words = append(words, append(word, piece{text: p.text[:at]}))
			word, p.text = nil, p.text[at+1:]
		}
		if p.place != nil || p.text != "" {
			word = append(word, p)
		}
	}
	t.words = append(words, word)
}

// length is about how long a command with these arguments is, in bytes.
func (t *template) length(fields []string) int {
	n := 0
	for _, f := range fields {
		n += (len(shell.QuoteAnywhere(f)) + 1) * max(1, t.all)
		if t.context {
			n += t.fixed
		}
	}
	return n
}

// fill puts arguments in. The result is a command line, or words separated by NUL.
func (t *template) fill(fields []string, seq int64) (text string, argv bool, err error) {
	for _, f := range fields {
		if strings.IndexByte(f, 0) >= 0 {
			return "", false, errNUL
		}
	}
	if t.raw {
		p := t.words[0][0].place
		if p.pos == 0 && len(fields) == 1 {
			text = p.edit(fields[0])
		} else {
			values, err := t.values(p, fields)
			if err != nil {
				return "", false, err
			}
			for i, v := range values {
				values[i] = p.edit(v)
			}
			text = strings.Join(values, " ")
		}
		if strings.TrimSpace(text) == "" {
			return "", false, errEmpty
		}
		return text, false, nil
	}
	sep := byte(0)
	if t.line || t.plain {
		sep = ' '
	}
	b := t.buf[:0]
	written := 0
	for _, w := range t.words {
		times, each := 1, false
		if t.context && repeats(w) {
			times, each = len(fields), true
		}
		for k := range times {
			at := len(b)
			if written > 0 {
				b = append(b, sep)
			}
			these := fields
			if each {
				these = fields[k : k+1]
			}
			var some bool
			if b, some, err = t.word(b, w, these, seq, sep); err != nil {
				return "", false, err
			}
			if !some && sep == 0 {
				b = b[:at] // there is no argument for it
				continue
			}
			written++
		}
	}
	t.buf = b
	switch {
	case t.plain:
		return string(b), false, nil
	case len(b) == 0 || b[0] == 0, t.line && strings.TrimSpace(string(b)) == "":
		return "", false, errEmpty
	}
	return string(b), !t.line, nil
}

var errEmpty = errors.New("command is empty")

// repeats reports a word with a place for all arguments.
func repeats(w []piece) bool {
	for _, p := range w {
		if p.place != nil && p.place.kind == arguments && p.place.pos == 0 {
			return true
		}
	}
	return false
}

// values are the arguments that a place stands for.
func (t *template) values(p *place, fields []string) ([]string, error) {
	if p.pos == 0 {
		return fields, nil
	}
	i := p.pos - 1
	if p.pos < 0 {
		i = len(fields) + p.pos
	}
	switch {
	case i >= 0 && i < len(fields):
		return fields[i : i+1], nil
	case t.short:
		return nil, nil
	}
	return nil, fmt.Errorf("no column %d in %q", p.pos, strings.Join(fields, " "))
}

// word appends a word, and reports whether anything stands in it, be it empty.
func (t *template) word(b []byte, w []piece, fields []string, seq int64, sep byte) (_ []byte, some bool, err error) {
	some = len(w) == 0
	for _, p := range w {
		switch {
		case p.place == nil:
			b, some = append(b, p.text...), true
		case p.place.kind == number:
			b, some = strconv.AppendInt(b, seq, 10), true
		case p.place.kind == slot:
			b, some = append(b, "{%}"...), true
		case p.place.kind == total:
			b, some = strconv.AppendInt(b, int64(t.tasks), 10), true
		default:
			values, err := t.values(p.place, fields)
			if err != nil {
				return b, false, err
			}
			for i, v := range values {
				if i > 0 {
					b = append(b, sep)
				}
				v = p.place.edit(v)
				if t.line {
					v = shell.QuoteAnywhere(v)
				}
				b, some = append(b, v...), true
			}
		}
	}
	return b, some, nil
}
