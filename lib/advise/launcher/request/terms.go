package request

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/ponos-tools/ponos/lib/advise/gpu"
)

// comparison reads one of the operators in allowed: "=", ">=", "<=" or "!=".
func (p *parser) comparison(allowed ...string) (string, error) {
	start := p.pos
	op := p.span(func(r rune) bool { return strings.ContainsRune("<>=!", r) })
	if !slices.Contains(allowed, op) {
		want := make([]string, len(allowed))
		for i, a := range allowed {
			want[i] = fmt.Sprintf("%q", a)
		}
		if op == "" {
			return "", p.unexpected(strings.Join(want, " or "))
		}
		hint := ""
		if op == ">" || op == "<" || op == "==" {
			hint = fmt.Sprintf("write %s=", strings.TrimRight(op, "="))
			if value := strings.TrimSpace(p.text[p.pos+len(op):]); value != "" {
				hint += value[:len(value)-len(strings.TrimLeftFunc(value, isName))]
			}
		}
		return "", p.fail(start, fmt.Sprintf("unexpected %q", op), strings.Join(want, " or "), hint)
	}
	p.pos += len(op)
	p.space()
	return op, nil
}

// to reads the ".." of a range, if present.
func (p *parser) to() bool {
	if !strings.HasPrefix(p.text[p.pos:], "..") {
		return false
	}
	p.pos += 2
	p.space()
	return true
}

// memoryRange reads "=24G" (at least that), ">=24G", "<=40G" or "=24G..40G".
func (p *parser) memoryRange(g *GPU) error {
	op, err := p.comparison("=", ">=", "<=")
	if err != nil {
		return err
	}
	start := p.pos
	n, err := p.gpuSize()
	switch {
	case err != nil:
		return err
	case op == "<=":
		g.MaxMemory = n
		return nil
	}
	if g.Memory = n; op != "=" || !p.to() {
		return nil
	}
	g.MaxMemory, err = p.gpuSize()
	if err == nil && g.MaxMemory < g.Memory {
		err = p.fail(start, "the range of memory ends before it begins", "the smaller size first", "")
	}
	return err
}

// capabilityRange reads "=8.0", ">=8.0", "<=8.9" or "=8.0..8.9".
func (p *parser) capabilityRange(g *GPU) error {
	op, err := p.comparison("=", ">=", "<=")
	if err != nil {
		return err
	}
	start := p.pos
	cc, err := p.capability()
	if err != nil {
		return err
	}
	switch op {
	case ">=":
		g.CC = cc
	case "<=":
		g.MaxCC = cc
	default:
		g.CC, g.MaxCC = cc, cc
		if p.to() {
			g.MaxCC, err = p.capability()
		}
	}
	if err == nil && g.MaxCC > 0 && g.MaxCC < g.CC {
		err = p.fail(start, "the range of capabilities ends before it begins", "the smaller one first", "")
	}
	return err
}

func (p *parser) capability() (gpu.Capability, error) {
	start := p.pos
	number := p.number()
	if number == "" {
		return 0, p.unexpected("a compute capability, such as 8.0")
	}
	if n := len(number) - 1; isNumber(number) && (n > 1 || n == 1 && number > "19") { // sm_80 is 8.0
		return 0, p.fail(start, fmt.Sprintf("invalid compute capability %q", number), "a number such as 8.0",
			fmt.Sprintf("write %s.%s", number[:n], number[n:]))
	}
	cc, err := gpu.ParseCapability(number)
	if err != nil {
		return 0, p.fail(start, fmt.Sprintf("invalid compute capability %q", number), "a number such as 8.0", "")
	}
	p.space()
	return cc, nil
}

// models reads "=a100" or "=[a100, h100]", or the same with "!=".
func (p *parser) models(g *GPU) error {
	op, err := p.comparison("=", "!=")
	if err != nil {
		return err
	}
	var names []string
	if p.accept('[') {
		for {
			name, err := p.name("a model, such as a100", isModel)
			if err != nil {
				return err
			}
			names = append(names, name)
			if p.accept(']') {
				break
			}
			if !p.accept(',') {
				return p.unexpected(`"," or "]"`)
			}
		}
	} else {
		start := p.pos
		name, err := p.name("a model, such as a100, or a list [a100, h100]", isModel)
		if err != nil {
			return err
		}
		if model, n, found := strings.Cut(name, ":"); found && isNumber(n) && p.text[start] != '"' && p.text[start] != '\'' {
			return p.fail(start, fmt.Sprintf("invalid model %q", name), "a name such as a100",
				fmt.Sprintf("write the number at the end: cuda(model=%s) * %s", model, n))
		}
		names = []string{name}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if op == "!=" {
		g.NotModels = names
	} else {
		g.Models = names
	}
	return nil
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// amount reads gres(NAME) * N and license(NAME) * N.
func (p *parser) amount(word string) (Alternative, error) {
	kind := "license"
	if word == "gres" {
		kind = "gres"
	}
	if strings.HasPrefix(p.text[p.pos:], "/gpu") { // as in TRES
		return Alternative{}, p.fail(p.pos, `unexpected "/gpu"`, `"(" and a name`, p.tresHint(p.text[p.pos+len("/gpu"):]))
	}
	if p.peek() == '=' {
		if devices, ok := strings.CutPrefix(strings.TrimLeft(p.text[p.pos:], "= "), "gpu:"); ok {
			return Alternative{}, p.fail(p.pos, `unexpected "="`, `"(" and a name`, typedHint(AnyGPU, devices))
		}
		return Alternative{}, p.habit(p.pos, word, fmt.Sprintf("write %s(NAME) * N; GPUs are gpu() * N", kind))
	}
	if err := p.expect('(', `"(" and a name`); err != nil {
		return Alternative{}, err
	}
	start := p.pos
	x := Amount{Count: 1}
	var err error
	if x.Name, err = p.name("the name of a "+kind, isGRES); err != nil {
		return Alternative{}, err
	}
	if x.Name == "gpu" && kind == "gres" || strings.HasPrefix(x.Name, "gpu:") {
		return Alternative{}, p.fail(start, "GPUs are requested separately", "another name", "write gpu(), or gpu(model=a100) * 2")
	}
	if name, n, found := strings.Cut(x.Name, ":"); found && isNumber(n) {
		return Alternative{}, p.fail(start, fmt.Sprintf("%q has a number in it", x.Name), "a name",
			fmt.Sprintf("write %s(%s) * %s", kind, name, n))
	}
	if strings.ContainsFunc(x.Name, func(r rune) bool { return !isGRES(r) }) {
		return Alternative{}, p.fail(start, "invalid name", "letters, digits and _.:@/-", "")
	}
	if !p.accept(')') {
		return Alternative{}, p.unexpected(`")"`)
	}
	if p.accept('*') {
		if x.Count, err = p.count(kind); err != nil {
			return Alternative{}, err
		}
	}
	if kind == "gres" {
		return Alternative{GRES: []Amount{x}}, nil
	}
	return Alternative{Licenses: []Amount{x}}, nil
}

// tresHint is for GPUs as TRES have them: [:TYPE]=COUNT.
func (p *parser) tresHint(rest string) string {
	kind, count, _ := strings.Cut(strings.TrimPrefix(rest, ":"), "=")
	if kind == "" {
		return typedHint(AnyGPU, count)
	}
	return typedHint(AnyGPU, kind+":"+count)
}

// isGRES reports whether a character can be part of the name of a GRES or a license.
func isGRES(r rune) bool {
	return r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)) || strings.ContainsRune("_.:@/-", r)
}

func (p *parser) preemptible() (Alternative, error) {
	if err := p.expect('=', `"=" and no`); err != nil {
		return Alternative{}, err
	}
	start := p.pos
	switch word := p.word(); word {
	case "no", "false":
		return Alternative{NotPreemptible: true}, nil
	case "yes", "true":
		return Alternative{}, nil
	case "":
		return Alternative{}, p.unexpected("no or yes")
	default:
		return Alternative{}, p.fail(start, fmt.Sprintf("unexpected %q", word), "no or yes", "")
	}
}

// perGPU reads "cpus per gpu = 4" and "mem per gpu = 16G", also written as one word.
func (p *parser) perGPU(start int, word string) (Alternative, error) {
	if word == "cpus" || word == "mem" {
		if p.word() != "per" || p.word() != "gpu" {
			p.pos = start + len(word)
			return Alternative{}, p.habit(start, word, habits[word])
		}
	}
	if err := p.expect('=', `"="`); err != nil {
		return Alternative{}, err
	}
	if strings.HasPrefix(word, "mem") {
		n, err := p.size()
		return Alternative{MemPerGPU: n}, err
	}
	n, err := p.count("CPUs")
	return Alternative{CPUsPerGPU: n}, err
}

// deadline reads a time of day, a date with or without a time, or a duration from now.
func (p *parser) deadline() (Deadline, error) {
	const want = "2026-12-24T18:00, 18:00 or a duration from now, such as 2 days"
	if p.peek() != '=' {
		return Deadline{}, p.expect('=', `"=" and `+want)
	}
	start := p.pos + 1
	text := strings.TrimLeftFunc(p.text[start:], unicode.IsSpace)
	start = len(p.text) - len(text)
	end := strings.IndexFunc(text, func(r rune) bool { return !strings.ContainsRune("-:T", r) && !unicode.IsDigit(r) })
	if end < 0 {
		end = len(text)
	}
	clock := text[:end]
	if !strings.ContainsAny(clock, "-:") {
		d, err := p.duration()
		return Deadline{In: d}, err
	}
	for _, layout := range []string{"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02", "15:04:05", "15:04"} {
		at, err := time.Parse(layout, clock)
		if err != nil {
			continue
		}
		p.pos = start + end
		p.space()
		if at.Year() == 0 {
			return Deadline{Clock: at.Format("15:04:05")}, nil
		}
		return Deadline{Clock: at.Format("2006-01-02T15:04:05")}, nil
	}
	return Deadline{}, p.fail(start, fmt.Sprintf("invalid time %q", clock), want, "")
}
