package input

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/ponos-tools/ponos/lib/pool/shell"
)

// template is a command with places for arguments.
type template struct {
	words []string
	line  bool // one word that is a command line for the shell
	slot  bool // "{%}" is in it
}

var place = regexp.MustCompile(`\{(\d*)(|\.|/|//|/\.)\}|\{#\}`)

// newTemplate reads a template. If its first word can hardly be the name of a
// program, having blanks or signs of the shell in it, all of it is a command line
// for the shell; other words are run as they are. Without a place for the argument
// it goes to the end.
func newTemplate(words []string) *template {
	t := &template{words: words, line: strings.ContainsAny(words[0], " \t\n|&;<>()$`")}
	if t.line {
		words = []string{strings.Join(words, " ")}
		t.words = words
	}
	has := false
	for _, w := range words {
		t.slot = t.slot || strings.Contains(w, "{%}")
		for _, m := range place.FindAllString(w, -1) {
			has = has || m != "{#}"
		}
	}
	if !has && t.line {
		t.words = []string{words[0] + " {}"}
	} else if !has {
		t.words = append(append([]string{}, words...), "{}")
	}
	return t
}

// fill puts an argument and its columns in. The result is a command line, or
// words separated by NUL.
func (t *template) fill(whole string, fields []string, seq int64) (text string, argv bool, err error) {
	out := make([]string, len(t.words))
	for i, w := range t.words {
		out[i] = place.ReplaceAllStringFunc(w, func(m string) string {
			if m == "{#}" {
				return strconv.FormatInt(seq, 10)
			}
			value := whole
			p := place.FindStringSubmatch(m)
			if p[1] != "" {
				n, e := strconv.Atoi(p[1])
				if e != nil || n < 1 || n > len(fields) {
					err = fmt.Errorf("there is no column %s in %q", p[1], whole)
					return ""
				}
				value = fields[n-1]
			}
			value = edit(value, p[2])
			if t.line {
				value = shell.Quote(value)
			}
			return value
		})
	}
	if err != nil {
		return "", false, err
	}
	text = strings.Join(out, "\x00")
	if strings.Count(text, "\x00") != len(out)-1 {
		return "", false, errors.New("argument has a NUL in it")
	}
	if !t.line && out[0] == "" {
		return "", false, errors.New("command is empty")
	}
	if len(out) == 1 && strings.TrimSpace(out[0]) == "" {
		return "", false, errors.New("command is empty")
	}
	// A lone "{}" is a whole command line.
	return text, !t.line && (len(t.words) != 1 || t.words[0] != "{}"), nil
}

func edit(s, how string) string {
	switch how {
	case ".": // without extension
		if ext := path.Ext(s); ext != "" && ext != path.Base(s) {
			return s[:len(s)-len(ext)]
		}
	case "/":
		return path.Base(s)
	case "//":
		return path.Dir(s)
	case "/.":
		return edit(path.Base(s), ".")
	}
	return s
}
