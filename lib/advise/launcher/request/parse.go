package request

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ponos-tools/ponos/lib/base/spelling"
	"github.com/ponos-tools/ponos/lib/base/unit"
)

// Limits of a request. Without them, a short hostile text could expand without end.
const (
	maxText         = 64 << 10
	maxDepth        = 32
	maxAlternatives = 256
	maxTerms        = 4096
	maxCount        = 1_000_000
)

// terms are the words with which a term can begin, for messages.
var terms = []string{
	"cuda", "gpu", "slice", "mps", "rocm", "xpu", "cpu", "duration", "deadline", "nodes", "tasks", "disk", "gres", "license",
	"exclusive", "preemptible", "cpus_per_gpu", "mem_per_gpu", "partition", "feature", "qos", "account", "host",
}

const wantTerm = "cuda(...), gpu(...), cpu(...), duration=..., nodes=..., partition=..., feature=... or \"(\""

// Parse reads a request.
func Parse(text string) (Request, error) {
	p := &parser{text: text}
	r, err := p.request()
	if err != nil {
		return Request{}, err
	}
	return r, nil
}

// Join returns one request with the alternatives of all, in order.
func Join(requests ...Request) Request {
	var all Request
	for _, r := range requests {
		all.Alternatives = append(all.Alternatives, r.Alternatives...)
		all.Warnings = append(all.Warnings, r.Warnings...)
	}
	return all
}

type parser struct {
	text     string
	pos      int
	depth    int
	terms    int
	warnings []Warning
}

func (p *parser) request() (Request, error) {
	if len(p.text) > maxText {
		return Request{}, fmt.Errorf("request: %d bytes are more than the %d a request may have", len(p.text), maxText)
	}
	if !utf8.ValidString(p.text) {
		return Request{}, errors.New("request: not valid UTF-8")
	}
	p.space()
	if p.pos == len(p.text) {
		return Request{}, p.fail(p.pos, "the request is empty", wantTerm, `for example "cuda(mem=14G) * 2 & duration=4h"`)
	}
	alternatives, err := p.either()
	if err != nil {
		return Request{}, err
	}
	if p.pos < len(p.text) {
		return Request{}, p.afterTerm()
	}
	for i := range alternatives {
		slices := 0
		for j := range alternatives[i].GPUs {
			if g := &alternatives[i].GPUs[j]; g.Sliced() {
				slices += g.Count
			}
		}
		if at := sharing(&alternatives[i]); at != "" && len(alternatives[i].GPUs) > 0 {
			return Request{}, p.fail(0, fmt.Sprintf("GPUs and gres %s in one job: Slurm gives a job whole GPUs or parts of one", at),
				"one of both", fmt.Sprintf("request the GPUs alone, or gres(%s) alone", at))
		}
		if tasks := max(1, alternatives[i].Tasks); slices > tasks {
			of := "1 task"
			if tasks > 1 {
				of = fmt.Sprintf("%d tasks", tasks)
			}
			what := fmt.Sprintf("%d slices of GPUs and %s on each node: a process can use one slice only", slices, of)
			return Request{}, p.fail(0, what,
				"a slice for each task", fmt.Sprintf("write tasks=%d, or request whole GPUs: cuda()", slices))
		}
	}
	return Request{alternatives, p.warnings}, nil
}

// sharing returns the requested GRES that is a part of a GPU, or "".
func sharing(a *Alternative) string {
	for _, x := range a.GRES {
		if x.Sharing() {
			return x.Name
		}
	}
	return ""
}

// either reads alternatives separated by "|".
func (p *parser) either() ([]Alternative, error) {
	var all []Alternative
	for {
		alternatives, err := p.both()
		if err != nil {
			return nil, err
		}
		if all = append(all, alternatives...); len(all) > maxAlternatives {
			return nil, p.fail(p.pos, fmt.Sprintf("the request has more than %d alternatives", maxAlternatives), "", "")
		}
		if !p.accept('|') {
			return all, nil
		}
		if p.peek() == '|' {
			return nil, p.fail(p.pos, `unexpected "|"`, wantTerm, `an alternative is written with a single "|"`)
		}
	}
}

// both reads terms joined by "&" and expands parentheses into alternatives.
func (p *parser) both() ([]Alternative, error) {
	all := []Alternative{{}}
	for {
		start := p.pos
		parts, err := p.part()
		if err != nil {
			return nil, err
		}
		if p.terms += len(all) * len(parts); len(all)*len(parts) > maxAlternatives || p.terms > maxTerms {
			what := fmt.Sprintf("the request has more than %d alternatives or %d terms", maxAlternatives, maxTerms)
			return nil, p.fail(start, what, "", "")
		}
		var joined []Alternative
		for _, a := range all {
			for _, b := range parts {
				joined = append(joined, a.and(b))
			}
		}
		all = joined
		if !p.accept('&') {
			return all, nil
		}
		if p.peek() == '&' {
			return nil, p.fail(p.pos, `unexpected "&"`, wantTerm, `terms are joined by a single "&"`)
		}
	}
}

func (p *parser) part() ([]Alternative, error) {
	if p.peek() == '(' {
		open := p.pos
		if p.depth++; p.depth > maxDepth {
			return nil, p.fail(open, fmt.Sprintf("more than %d parentheses inside each other", maxDepth), "", "")
		}
		p.advance()
		all, err := p.either()
		if err != nil {
			return nil, err
		}
		if !p.accept(')') {
			return nil, p.unexpected(`"&", "|" or ")"`)
		}
		p.depth--
		return all, nil
	}
	a, err := p.term()
	return []Alternative{a}, err
}

func (p *parser) term() (Alternative, error) {
	start := p.pos
	word := p.word()
	if habit := habits[word]; habit != "" && word != "mem" && word != "cpus" {
		return Alternative{}, p.habit(start, word, habit)
	}
	switch word {
	case "cuda", "gpu", "slice", "mps", "rocm", "xpu":
		g, err := p.gpu(Kind(word))
		return Alternative{GPUs: []GPU{g}}, err
	case "cpu":
		return p.cpu()
	case "duration":
		d, err := p.duration()
		return Alternative{Duration: d}, err
	case "nodes", "tasks":
		if err := p.expect('=', fmt.Sprintf(`"=" and a number of %s`, word)); err != nil {
			return Alternative{}, err
		}
		n, err := p.count(word)
		if word == "tasks" {
			return Alternative{Tasks: n}, err
		}
		return Alternative{Nodes: n}, err
	case "partition", "feature", "qos", "account", "host":
		c, err := p.condition(word)
		return Alternative{Where: []Condition{c}}, err
	case "disk":
		if err := p.expect('=', `"=" and a size, such as 100G`); err != nil {
			return Alternative{}, err
		}
		n, err := p.size()
		return Alternative{Disk: n}, err
	case "gres", "license", "licence", "licenses", "licences":
		return p.amount(word)
	case "exclusive":
		return Alternative{Exclusive: true}, nil
	case "preemptible":
		return p.preemptible()
	case "deadline":
		at, err := p.deadline()
		return Alternative{Deadlines: []Deadline{at}}, err
	case "cpus", "mem", "cpus_per_gpu", "mem_per_gpu":
		return p.perGPU(start, word)
	case "":
		if unicode.IsDigit(p.peek()) {
			return Alternative{}, p.fail(start, "unexpected number", wantTerm, numberHint(p.text[start:]))
		}
		if strings.HasPrefix(p.text[start:], "-") {
			return Alternative{}, p.fail(start, fmt.Sprintf("unexpected %q", p.next()), wantTerm, optionHint(p.text[start:]))
		}
		return Alternative{}, p.unexpected(wantTerm)
	}
	p.pos = start
	return Alternative{}, p.unknownWord(start, word)
}

func (p *parser) gpu(kind Kind) (GPU, error) {
	g := GPU{Kind: kind, Count: 1}
	if strings.ContainsRune("=<>", p.peek()) {
		return g, p.habit(p.pos, string(kind), fmt.Sprintf("write %s() * 2 for their number, %s(model=a100) for a model", kind, kind))
	}
	if p.peek() == ':' {
		return g, p.fail(p.pos, fmt.Sprintf("unexpected %q", ":"), `"("`, typedHint(kind, p.text[p.pos+1:]))
	}
	if p.peek() != '(' {
		return g, p.unexpectedIn(`"("`, fmt.Sprintf("write %s()", kind))
	}
	err := p.arguments(string(kind), []string{"mem", "model", "cc"}, func(name string) error {
		switch name {
		case "mem":
			return p.memoryRange(&g)
		case "cc":
			return p.capabilityRange(&g)
		}
		return p.models(&g)
	})
	if err != nil || !p.accept('*') {
		return g, err
	}
	g.Count, err = p.count("GPUs")
	if err == nil && p.peek() == '*' {
		err = p.fail(p.pos, `unexpected "*"`, `"&", "|" or the end`, "the number of GPUs is given once")
	}
	return g, err
}

func (p *parser) cpu() (Alternative, error) {
	if strings.ContainsRune("=:<>", p.peek()) {
		return Alternative{}, p.fail(p.pos, fmt.Sprintf("unexpected %q", string(p.peek())), `"("`, p.withValue("write cpu(cores=4)"))
	}
	a := Alternative{Cores: 1} // cpu() requests at least one CPU
	err := p.arguments("cpu", []string{"mem", "cores"}, func(name string) (err error) {
		if err := p.expect('=', `"="`); err != nil {
			return err
		}
		if name == "mem" {
			a.Memory, err = p.size()
		} else {
			a.Cores, err = p.count("cores")
		}
		return err
	})
	if err == nil && p.peek() == '*' {
		err = p.fail(p.pos, `unexpected "*"`, `"&", "|" or the end`, "the number of CPUs is written cpu(cores=4)")
	}
	return a, err
}

// arguments reads "(" [ NAME ... { "," NAME ... } ] ")"; read parses what follows a name. A
// later argument overrides an earlier one of the same name.
func (p *parser) arguments(call string, names []string, read func(name string) error) error {
	want := strings.Join(names[:len(names)-1], "=..., ") + "=... or " + names[len(names)-1] + "=..."
	if err := p.expect('(', `"("`); err != nil {
		return err
	}
	if p.accept(')') {
		return nil
	}
	for {
		start := p.pos
		name := p.word()
		if name == "" {
			if word := p.next(); word != "" {
				return p.fail(start, fmt.Sprintf("unexpected %q", word), want, p.argumentHint(call, word))
			}
			return p.unexpected(want)
		}
		if !slices.Contains(names, name) {
			hint := suggest(name, names)
			if more := p.argumentHint(call, name); more != "" {
				hint = more
			}
			return p.fail(start, fmt.Sprintf("%s() has no %q", call, name), want, hint)
		}
		if err := read(name); err != nil {
			return err
		}
		if p.accept(')') {
			return nil
		}
		if !p.accept(',') {
			return p.unexpected(`"," or ")"`)
		}
	}
}

func (p *parser) condition(field string) (Condition, error) {
	c := Condition{Field: field}
	if p.accept('!') {
		c.Not = true
	}
	if err := p.expect('=', `"=" or "!=" and a name`); err != nil {
		return c, err
	}
	var err error
	c.Pattern, err = p.name("the name of a "+field, isName)
	return c, err
}

func (p *parser) duration() (time.Duration, error) {
	if err := p.expect('=', `"=" and a duration, such as 4h`); err != nil {
		return 0, err
	}
	if clock := p.span(func(r rune) bool { return r == ':' || r == '-' || unicode.IsDigit(r) }); strings.ContainsAny(clock, ":-") {
		start := p.pos
		p.pos += len(clock)
		p.space()
		d, err := unit.Duration(clock)
		if err != nil {
			return 0, p.fail(start, fmt.Sprintf("invalid duration %q", clock), "DAYS-HH, DAYS-HH:MM:SS, HH:MM:SS or MM:SS", "")
		}
		if strings.Count(clock, ":") == 1 && !strings.Contains(clock, "-") {
			p.warn(start, fmt.Sprintf("%s is minutes and seconds, as in Slurm; %s:00 is hours and minutes", clock, clock))
		}
		return d, nil
	}
	var total time.Duration
	for first := true; first || unicode.IsDigit(p.peek()); first = false {
		start := p.pos
		number := p.number()
		if number == "" {
			return 0, p.unexpected("a number and a unit, such as 4h")
		}
		p.space()
		at := p.pos
		name := p.span(unicode.IsLetter)
		p.pos += len(name)
		if name == "" {
			return 0, p.fail(at, fmt.Sprintf("the duration %s has no unit", number), unit.DurationUnits,
				fmt.Sprintf("%sh is hours, %smin minutes", number, number))
		}
		length, ok := unit.DurationUnit(name)
		if !ok {
			hint := suggest(name, unit.DurationUnitNames())
			if strings.HasPrefix(strings.ToLower(name), "mo") {
				hint = fmt.Sprintf("a month has no fixed length: write days or weeks; minutes are %smin", number)
			}
			return 0, p.fail(at, fmt.Sprintf("unknown unit %q", name), unit.DurationUnits, hint)
		}
		d, err := unit.Times(number, length)
		if err != nil {
			return 0, p.fail(start, "the duration is too long or not a number", "a number and a unit, such as 4h", "")
		}
		if total += d; total < 0 {
			return 0, p.fail(start, "the duration is too long", "", "")
		}
		p.space()
	}
	return total, nil
}

// gpuSize reads the memory of a GPU, which has to have a unit.
func (p *parser) gpuSize() (int64, error) {
	start, warnings := p.pos, len(p.warnings)
	n, err := p.size()
	if err == nil && len(p.warnings) > warnings && p.pos < len(p.text) {
		number := strings.TrimSpace(p.text[start:p.pos])
		return 0, p.fail(start, fmt.Sprintf("the memory %s has no unit", number), unit.SizeUnits, fmt.Sprintf("write mem=%sG", number))
	}
	return n, err
}

func (p *parser) size() (int64, error) {
	start := p.pos
	number := p.number()
	if number == "" {
		return 0, p.unexpected("a size, such as 14G")
	}
	p.space()
	at := p.pos
	name := p.span(unicode.IsLetter)
	p.pos += len(name)
	scale, ok := unit.SizeUnit(name)
	if !ok {
		units := []string{"G", "GB", "GiB", "M", "MB", "MiB", "T", "TiB", "K", "KiB"}
		return 0, p.fail(at, fmt.Sprintf("unknown unit %q", name), unit.SizeUnits, suggest(name, units))
	}
	n, err := unit.Multiply(number, scale)
	if err != nil {
		return 0, p.fail(start, fmt.Sprintf("invalid size %q", p.text[start:p.pos]), "a number and "+unit.SizeUnits, "")
	}
	if name == "" && n > 0 {
		p.warn(start, fmt.Sprintf("memory %s has no unit and is taken as bytes; did you mean %sG?", number, number))
	}
	p.space()
	return n, nil
}

// number reads digits with an optional decimal point, or returns "".
func (p *parser) number() string {
	s := p.span(func(r rune) bool { return r == '.' || r >= '0' && r <= '9' })
	s, _, _ = strings.Cut(s, "..")
	p.pos += len(s)
	return s
}

func (p *parser) count(what string) (int, error) {
	start := p.pos
	s := p.span(func(r rune) bool { return r >= '0' && r <= '9' })
	if s == "" {
		return 0, p.unexpected("a number of " + what)
	}
	n, err := strconv.Atoi(s)
	if err != nil || n > maxCount {
		return 0, p.fail(start, fmt.Sprintf("%s is too many %s", s, what), "", "")
	}
	if n == 0 {
		return 0, p.fail(start, "0 "+what, "at least 1", "")
	}
	p.pos += len(s)
	p.space()
	return n, nil
}

// name reads a name: characters that is accepts, or any text in quotes.
func (p *parser) name(want string, is func(rune) bool) (string, error) {
	if q := p.peek(); q == '"' || q == '\'' {
		end := strings.IndexRune(p.text[p.pos+1:], q)
		if end < 0 {
			return "", p.fail(p.pos, "the quote is not closed", "", "")
		}
		name := p.text[p.pos+1 : p.pos+1+end]
		if name == "" || strings.ContainsFunc(name, unicode.IsControl) || strings.ContainsAny(name, `"'`) {
			return "", p.fail(p.pos, "not a name", want, "")
		}
		p.pos += end + 2
		p.space()
		return name, nil
	}
	name := p.span(is)
	if name == "" {
		return "", p.unexpected(want)
	}
	p.pos += len(name)
	p.space()
	return name, nil
}

func isName(r rune) bool { return isModel(r) || r == '*' || r == '?' }

func isModel(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_.:@/+-", r)
}

// word reads a keyword.
func (p *parser) word() string {
	if !unicode.IsLetter(p.peek()) {
		return ""
	}
	s := p.span(func(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) })
	p.pos += len(s)
	p.space()
	return s
}

// span reads the longest run of characters that is accepts.
func (p *parser) span(is func(rune) bool) string {
	rest := p.text[p.pos:]
	if end := strings.IndexFunc(rest, func(r rune) bool { return !is(r) }); end >= 0 {
		return rest[:end]
	}
	return rest
}

func (p *parser) peek() rune {
	if p.pos == len(p.text) {
		return 0
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.pos:])
	return r
}

// advance skips one character and the white space after it.
func (p *parser) advance() {
	_, size := utf8.DecodeRuneInString(p.text[p.pos:])
	p.pos += size
	p.space()
}

func (p *parser) accept(r rune) bool {
	if p.pos < len(p.text) && p.peek() == r {
		p.advance()
		return true
	}
	return false
}

func (p *parser) expect(r rune, want string) error {
	if p.accept(r) {
		return nil
	}
	if op := p.span(func(r rune) bool { return strings.ContainsRune("<>=!", r) }); r == '=' && op != "" {
		hint := "write ="
		if op[0] == '>' {
			hint += ": what is requested is a lower bound"
		}
		return p.fail(p.pos, fmt.Sprintf("unexpected %q", op), want, hint)
	}
	return p.unexpected(want)
}

// space skips white space and comments.
func (p *parser) space() {
	for p.pos < len(p.text) {
		r, size := utf8.DecodeRuneInString(p.text[p.pos:])
		switch {
		case unicode.IsSpace(r):
			p.pos += size
		case r == '#':
			end := strings.IndexByte(p.text[p.pos:], '\n')
			if end < 0 {
				p.pos = len(p.text)
				return
			}
			p.pos += end
		default:
			return
		}
	}
}

func (p *parser) unexpected(want string) error { return p.unexpectedIn(want, "") }

// unexpectedIn is the error for what stands here, with a hint.
func (p *parser) unexpectedIn(want, hint string) error {
	if p.pos == len(p.text) {
		return p.fail(p.pos, "the request ends here", want, hint)
	}
	found := p.span(isModel)
	if found == "" {
		found = string(p.peek())
	}
	return p.fail(p.pos, fmt.Sprintf("unexpected %q", found), want, hint)
}

func (p *parser) fail(offset int, message, want, hint string) error {
	return &Error{Text: p.text, Offset: offset, Message: message, Want: want, Hint: hint}
}

func (p *parser) warn(offset int, message string) {
	line, column, _ := (&Error{Text: p.text, Offset: offset}).place()
	p.warnings = append(p.warnings, Warning{line, column, message})
}

// suggest returns the hint for a misspelt word, or "".
func suggest(word string, candidates []string) string {
	if near := spelling.Nearest(word, candidates); near != "" && len(word) > 1 {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return ""
}
