package input

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/base/fault"
)

// syntax says which replacement strings there are besides {#}, {%}, {1}, {.} and the
// like.
type syntax struct {
	names []string // of columns, from --header; the first is column 1
	mark  string   // what stands for all arguments; "": {}
	plus  bool     // --plus: what only GNU parallel understands then is refused
}

// kind is what a replacement string stands for.
type kind int

const (
	arguments kind = iota // all, or the one at a position
	number                // of the task
	slot                  // its number, which the worker knows
	total                 // how many tasks there are
)

// place is a replacement string.
type place struct {
	kind kind
	pos  int // of the argument, from 1 on, or from the end if less than 0; 0: all
	edit func(string) string
}

// piece of a word: text, or a place.
type piece struct {
	text  string
	place *place
}

// maxPosition limits {N}: a larger number is text.
const maxPosition = 1 << 16

// parse finds the places in a word. Braces around anything else are text.
func (s *syntax) parse(word string) ([]piece, error) {
	var out []piece
	from := 0
	add := func(at, end int, p *place) {
		if from < at {
			out = append(out, piece{text: word[from:at]})
		}
		out = append(out, piece{place: p})
		from = end
	}
	for i := 0; i < len(word); {
		if s.mark != "" && strings.HasPrefix(word[i:], s.mark) {
			add(i, i+len(s.mark), &place{})
			i = from
			continue
		}
		end := -1
		if word[i] == '{' {
			end = strings.IndexByte(word[i:], '}')
		}
		if end < 0 {
			i++
			continue
		}
		p, err := s.place(word[i+1 : i+end])
		if err != nil {
			return nil, err
		}
		if p == nil {
			i++
			continue
		}
		add(i, i+end+1, p)
		i = from
	}
	if from < len(word) {
		out = append(out, piece{text: word[from:]})
	}
	return out, nil
}

// place parses what is between braces; nil if that is not a replacement string.
func (s *syntax) place(text string) (*place, error) {
	switch text {
	case "#":
		return &place{kind: number}, nil
	case "%":
		return &place{kind: slot}, nil
	case "":
		if s.mark != "" {
			return nil, nil
		}
	case "0":
		return nil, fault.Errorf(fault.Usage, "{0}: arguments are counted from 1")
	}
	if edit, ok := edits[text]; ok {
		return &place{edit: edit}, nil
	}
	digits := len(text) - len(strings.TrimLeft(strings.TrimPrefix(text, "-"), "0123456789"))
	if edit, ok := edits[text[digits:]]; ok && digits > 0 && text[0] != '0' {
		if n, err := strconv.Atoi(text[:digits]); err == nil && n != 0 && max(n, -n) <= maxPosition {
			return &place{pos: n, edit: edit}, nil
		}
	}
	best := 0
	for i, name := range s.names {
		rest, ok := strings.CutPrefix(text, name)
		if ok && name != "" && edits[rest] != nil && (best == 0 || len(name) > len(s.names[best-1])) {
			best = i + 1
		}
	}
	if best > 0 {
		return &place{pos: best, edit: edits[text[len(s.names[best-1]):]]}, nil
	}
	if s.plus && text == "##" {
		return &place{kind: total}, nil
	}
	if s.plus && len(text) > 1 && (text[0] == '%' || text[0] == '#') {
		return without(text)
	}
	if s.plus && dynamic(text) {
		return nil, fault.Hint(fault.Errorf(fault.Usage, "{%s}: unknown replacement string", text), "edit the argument in a shell command")
	}
	return nil, nil
}

// without is the argument without what an expression matches at its end, {%RE}, or its begin, {#RE}.
func without(text string) (*place, error) {
	expression := "^(?:" + text[1:] + ")"
	if text[0] == '%' {
		expression = "(?:" + text[1:] + ")$"
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return nil, fault.Errorf(fault.Usage, "{%s}: %w", text, err)
	}
	return &place{edit: func(s string) string {
		if at := re.FindStringIndex(s); at != nil {
			return s[:at[0]] + s[at[1]:]
		}
		return s
	}}, nil
}

// dynamic reports a replacement string that GNU parallel has with --plus only.
func dynamic(text string) bool {
	names := []string{"0#", "0%", "choose_k", "uniq", "hgrp", "host", "sshlogin", "slot", "seq"}
	if slices.Contains(names, strings.TrimLeft(text, "123456789")) {
		return true
	}
	return len(text) > 1 && strings.ContainsRune(":#%/^,", rune(text[0]))
}

// perlCode refuses {= … =}, which may reach over several words.
func perlCode(words []string) error {
	_, rest, ok := strings.Cut(strings.Join(words, " "), "{=")
	if !ok || !strings.Contains(rest, "=}") {
		return nil
	}
	return fault.Hint(
		fault.Errorf(fault.Usage, "{= =}: Perl code is not supported"),
		"use {.}, {/}, {..} and the like, or edit the argument in a shell command")
}

// edits are the ways of changing an argument, by what stands behind the position.
var edits = map[string]func(string) string{
	"":     func(s string) string { return s },
	".":    func(s string) string { return cutExtensions(s, 1) },
	"..":   func(s string) string { return cutExtensions(s, 2) },
	"...":  func(s string) string { return cutExtensions(s, 3) },
	"/":    lastPart,
	"/.":   func(s string) string { return cutExtensions(lastPart(s), 1) },
	"/..":  func(s string) string { return cutExtensions(lastPart(s), 2) },
	"/...": func(s string) string { return cutExtensions(lastPart(s), 3) },
	"//":   dir,
	"+/":   func(s string) string { return s[:max(0, strings.LastIndexByte(s, '/'))] },
	"+.":   func(s string) string { return extensions(s, 1) },
	"+..":  func(s string) string { return extensions(s, 2) },
	"+...": func(s string) string { return extensions(s, 3) },
}

// cutExtensions takes the last n extensions away, if there are so many.
func cutExtensions(s string, n int) string {
	end := len(s)
	for range n {
		dot := strings.LastIndexByte(s[:end], '.')
		if dot < 0 || dot+1 == end || strings.IndexByte(s[dot:end], '/') >= 0 {
			return s
		}
		end = dot
	}
	return s[:end]
}

// extensions are what follows the nth dot from the end.
func extensions(s string, n int) string {
	at := len(s)
	for range n {
		if at = strings.LastIndexByte(s[:at], '.'); at < 0 {
			return ""
		}
	}
	if n > 1 && strings.IndexByte(s[at:], '/') >= 0 {
		return "" // {+.} does not mind, as in GNU parallel
	}
	return s[at+1:]
}

func lastPart(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }

// dir is the directory of a name as dirname(1) has it.
func dir(s string) string {
	name := strings.TrimRight(s, "/")
	d := name[:strings.LastIndexByte(name, '/')+1]
	switch trimmed := strings.TrimRight(d, "/"); {
	case trimmed != "":
		return trimmed
	case d != "" || name == "" && s != "":
		return "/"
	}
	return "."
}

// positions reports the highest position, counted from either end, and whether any
// argument is asked for.
func positions(words [][]piece) (most int, some bool) {
	for _, w := range words {
		for _, p := range w {
			if p.place != nil && p.place.kind == arguments {
				some, most = true, max(most, p.place.pos, -p.place.pos)
			}
		}
	}
	return most, some
}

// hasPlace reports whether anything is to be put in.
func hasPlace(words [][]piece) bool {
	return slices.ContainsFunc(words, func(w []piece) bool {
		return slices.ContainsFunc(w, func(p piece) bool { return p.place != nil })
	})
}

// checkPositions refuses places that no task has an argument for. most is 0 if it is
// not known how many there are.
func checkPositions(words [][]piece, most int) error {
	n, _ := positions(words)
	if most == 0 || n <= most {
		return nil
	}
	err := fault.Errorf(fault.Usage, "{%d}: a task has %s", n, plural(most, "argument"))
	if most == 1 {
		return fault.Hint(err, "split lines into columns with --colsep, or give several arguments to a task with --max-replace-args")
	}
	return err
}

func plural(n int, what string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

var errNUL = errors.New("argument has a NUL in it")
